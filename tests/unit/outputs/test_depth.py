"""What is nested deeper than any config is refused before anything recurses into it, in one sentence."""

from __future__ import annotations

import time

import pytest

from advisor.errors import OutputError
from advisor.outputs.base import MAX_DEPTH, check_depth
from advisor.outputs.registry import load
from advisor.outputs.yaml_nodes import document

YAML = ("llama-swap", "localai", "text-generation-webui", "jan")


def brackets(depth: int) -> str:
    return "[" * depth + "]" * depth


def below(depth: int) -> str:
    return "".join(f"{' ' * level}a:\n" for level in range(depth))


TEXTS = {
    **{(name, kind): text for name in YAML for kind, text in (
        ("brackets", lambda depth: f"x: {brackets(depth)}\n"),
        ("items", lambda depth: f"x:\n  {'- ' * depth}a\n"),
        ("plain maps", below),
        ("quoted maps", lambda depth: below(depth).replace("a", "'a'")),
    )},
    **{(name, "lists"): lambda depth: f'{{"x": {brackets(depth)}}}' for name in ("koboldcpp", "lm-studio")},
    ("ramalama", "lists"): lambda depth: f"x = {brackets(depth)}\n",
    ("ramalama", "keys"): lambda depth: f"{'a.' * depth}a = 1\n",
}  # fmt: skip


@pytest.mark.parametrize(("name", "kind"), TEXTS)
@pytest.mark.parametrize("depth", [MAX_DEPTH + 10, 400, 900, 1300])
def test_too_deep_is_one_sentence_of_ours(name, kind, depth):
    before = time.process_time()
    with pytest.raises(OutputError, match=f"nested more than {MAX_DEPTH} deep|more than 7,000 lines and values"):
        load(name).parse(TEXTS[name, kind](depth))
    assert time.process_time() - before < 1


@pytest.mark.parametrize(("name", "kind"), TEXTS)
def test_what_is_nested_less_deep_is_read(name, kind):
    load(name).parse(TEXTS[name, kind](MAX_DEPTH - 10))


def test_brackets_that_are_never_closed_take_no_square_of_time():
    before = time.process_time()
    with pytest.raises(OutputError, match="nested more than 100 deep"):
        document(f"a: 1\nl_: {'[' * 1500}\n", "x")
    assert time.process_time() - before < 0.5


def test_aliases_add_up():
    text = "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [[*a{n - 1}]]\n" for n in range(1, 60))
    with pytest.raises(OutputError, match="nested more than 100 deep"):
        document(text, "x")
    assert document("".join(text.splitlines(keepends=True)[:40]), "x").data["a1"] == [[[1]]]


def test_depth_is_counted_without_recursion():
    data: object = 1
    for _ in range(100_000):
        data = [data]
    with pytest.raises(OutputError, match="x that advisor changes: it is nested more than 100 deep"):
        check_depth(data, "x")
    while isinstance(data, list):  # freed one by one
        data = data.pop()


@pytest.mark.parametrize("end", ["\x85", "\u2028", "\u2029", "\v", "\f", "\r"])
@pytest.mark.parametrize("name", ["localai", "ramalama", "env-file"])
def test_every_end_of_a_line_counts(name, end):
    with pytest.raises(OutputError, match="larger than 1 MiB, 20,000 lines"):
        load(name).parse(f"# {f'a{end}' * 20_001}\n")
