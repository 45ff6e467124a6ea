"""The short way through plain YAML says what ruamel says, of every text that it takes on, and places it the same."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.errors import OutputError
from advisor.outputs.base import identity
from advisor.outputs.registry import load
from advisor.outputs.yaml_nodes import Document, by_ruamel
from advisor.outputs.yaml_simple import Piece, read_simple
from tests.unit.outputs import texts

CHECKS = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
LINES = [
    *["a:", "  b:", "  b: 1", "    c: x", '    c: "d e"', "    cmd: |-", "      one two", "      --three # no"],
    *["  # note", "", "    c:", "    m: {managed_by: advisor}", '    l: ["a", b, 1]', "    e: {}", "  'q': x"],
    *["    t: yes", "    n: null", "    f: 1.5", "    o: 010", "    k: -7", "    on: 1", "    p: a  # why", "z: |-"],
    *["  text", "    more", "    d: 'x'", '  "b c":', "    u: größe", '    v: "größe # 1"', "    x: >-", "- 1"],
    *["    y: [1, [2]]", "    w: {a: {b: 1}}", "---", "c: 5", "    g: true", '    h: "a', '  b: c"', "    i: *x"],
    *["    j: &x 1", "   odd: 1", "    s: a: b", "    r: ", "    q: {a: 1,}", "    q: [ 1 ]", "    q: {a: 1, a: 2}"],
    *["    2026-01-01: x", "    d: 2026-01-01", "    z: ~", "# top", "  - 1", "    /x: /y", "...", "    n: 1_0"],
    "    long: " + "x" * 250,
]


def simple(text: str) -> Document | None:
    found = read_simple(text, lambda part: Piece(*by_ruamel(part)))
    return None if found is None else Document(*found)


def agree(text: str) -> bool:
    """Whether the short way took the text on; then it must say the same."""
    found = simple(text)
    if found is None:
        return False
    whole = by_ruamel(text)
    assert identity(found.data) == identity(whole.data)
    assert found.root == whole.root
    assert found.scalars == whole.scalars
    return True


@CHECKS
@given(st.lists(st.sampled_from(LINES), max_size=14), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_lines_in_any_order(lines, newline, ended):
    agree(newline.join(lines) + (newline if ended else ""))


@CHECKS
@given(
    texts.yaml_flat()
    | texts.yaml_nested(["a", '"b c"', "größe"], "models")
    | texts.yaml_nested(["Q.gguf$", ".*x"])
    | texts.localai()
)
def test_what_people_write(text):
    agree(text.removeprefix("\ufeff"))


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\n",
        'models:\n  m:\n    cmd: |-\n      x\n      y\n    d: "e f"\n    m: {a: b}\nhooks: [1, 2]\n',
        "models:\n  m: {cmd: x}  # why\n  n:\n    cmd: 'it''s'\n",
        "# only\n---\na:\n    b:\n        c: /x/y.gguf\n",
        "models:\n  a: {x: [1]}\n  b:\n    cmd: >\n      folded\n      text\n",
        'a: "x\n  b: y"\n',
    ],
)
def test_is_taken_on(text):
    assert agree(text)


@pytest.mark.parametrize(
    "text",
    [
        *["", "# x\n", "- 1\n", "a: &x 1\nb: *x\n", "a: 1\na: 2\n", "a:\n  b: 1\n  b: 2\n", "a: b\n...\n"],
        *["a:\n\tb: 1\n", "%YAML 1.1\n---\na: 1\n", "{a: 1}\n", "a: 1\n---\nb: 1\n"],
    ],
)
def test_is_left_alone(text):
    assert simple(text) is None


@pytest.mark.parametrize("name", ["localai", "jan", "llama-swap", "text-generation-webui"])
@pytest.mark.parametrize("text", ["# x\n{}a: {{}}\n", "a: {{}}\r\n{}b: {{}}\r\n", "{0}{0}a: {{}}\n", "a: {{}}\n{}# x"])
def test_a_byte_order_mark_at_a_later_line_is_refused(name, text):
    """To Go's readers and libyaml it is nothing there, to ruamel and PyYAML a letter of the key."""
    load(name).parse(text.format(""))  # is taken without it
    with pytest.raises(OutputError, match=r"line [12] begins with a byte order mark \(U\+FEFF\).* remove it"):
        load(name).parse(text.format("\ufeff"))


def test_a_thousand_models_take_no_time():
    words = "".join(f"      --option-{number} {number}\n" for number in range(12))
    entry = f'  m{{}}:\n    cmd: |-\n{words}    description: "{"x " * 40}"\n    metadata: {{{{managed_by: advisor}}}}\n'
    text = "models:\n" + "".join(entry.format(number) for number in range(1000))
    found = simple(text)
    assert found is not None
    assert len(found.data["models"]) == 1000
    quick, whole = (min(_spent(reader, text) for _ in range(3)) for reader in (simple, by_ruamel))
    assert quick < whole / 3


def _spent(reader: Callable[[str], object], text: str) -> float:
    """CPU seconds; the best of some, since a collection of garbage may fall into one."""
    begun = time.process_time()
    reader(text)
    return time.process_time() - begun


def test_one_spelling_that_cannot_come_back_takes_no_other_with_it():
    """A comment parts the text in lines from the blank lines that are its own; the list beside it is still in lines."""
    output = load("text-generation-webui")
    text = "Q.gguf$:\n  ttl: |+\n      one\n      two: x\n\n  ctx_size: q8_0\n  #1\n  cmd: #2\n    - a\n    - 'b'\n"
    before, spelled = output.parse(text), output.spelled(text)
    ttl, cmd = (next(slot for slot in before if slot[1] == name) for name in ("ttl", "cmd"))
    taken = output.edit(text, {ttl: 1, cmd: 1})
    assert "ttl: 1\n" in taken
    parted = taken.replace("ttl: 1\n", "ttl: 1\n# thought\n")
    back = output.edit(parted, {ttl: before[ttl], cmd: before[cmd]}, {ttl: spelled[ttl], cmd: spelled[cmd]})
    assert output.parse(back) == before
    assert back.endswith("  cmd: #2\n    - a\n    - 'b'\n")
