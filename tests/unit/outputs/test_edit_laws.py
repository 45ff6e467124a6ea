"""The laws of every edit, over random texts of every format: nothing that a person wrote is lost or moved."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from advisor.errors import OutputError
from advisor.outputs.base import applied, identity, identity_of
from advisor.outputs.registry import OUTPUTS, load
from advisor.outputs.text_generation_webui import pattern_of
from advisor.outputs.types import GONE, Output, Slot
from tests.unit.outputs import texts

CHECKS = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture],
)


class Format(NamedTuple):
    """Texts of a format, slots that may be new in them, values that may be set."""

    texts: st.SearchStrategy[str]
    slots: list[Slot]
    values: st.SearchStrategy[Any]


_STRINGS = st.sampled_from(["1", "q8_0", "/srv/b c.gguf", "größe", "x=y", "[q]", 'a "b"', "it's"])
_PARAMETERS = st.sampled_from(["1", "0.5", "x y", "größe"])
_VALUES = texts.SCALARS | st.sampled_from([["a", 1], {"x": 1}, "l1\nl2", "a: b", "on", "- x", "2026-01-01", "\u202e"])
Q, A = pattern_of("Q.gguf"), pattern_of("a b.gguf")
FORMATS = {
    "llama-server-preset": Format(
        texts.ini(),
        [("a", "ctx-size"), ("a", "kv-offload"), ("b c", "fit"), ("new", "fit"), ("aaa", "threads"), ("*", "threads")],
        _STRINGS,
    ),
    "llama-config-ini": Format(texts.ini(), [("*", "threads"), ("*", "fit-target")], _STRINGS),
    "env-file": Format(texts.env(), [("LLAMA_ARG_CTX_SIZE",), ("A",), ("NEW",)], _STRINGS),
    "llama-swap": Format(
        texts.yaml_nested(["a", '"b c"', "größe"], "models"),
        [("models", "a", "cmd"), ("models", "a", "new"), ("models", "new x", "cmd"), ("models", "new x", "ttl"),
         ("routing", "router", "settings", "groups", "my set", "members"), ("groups", "g", "swap")],
        _VALUES,
    ),
    "ollama": Format(
        texts.modelfile(), [("PARAMETER", "num_ctx"), ("PARAMETER", "num_batch"), ("FROM",)], _PARAMETERS
    ),
    "llama-cpp-python": Format(
        texts.as_json(texts.SERVER), [("models", "a", "n_ctx"), ("models", "n ew", "x"), ("models", "n ew", "y")],
        _VALUES,
    ),
    "koboldcpp": Format(texts.as_json(texts.FLAT), [("contextsize",), ("new",), ('n "w"',)], _VALUES),
    "localai": Format(
        texts.localai(), [("name",), ("options", "parallel"), ("options", "new"), ("parameters", "model")], _PARAMETERS
    ),
    "ramalama": Format(
        texts.toml(), [("ramalama", "ctx_size"), ("ramalama", "runtimes", "llama_cpp", "ngl")],
        st.sampled_from([1, -5, True, "x", 'a "b"', "größe"]),
    ),
    "text-generation-webui": Format(
        texts.yaml_nested(["Q.gguf$", r"q\.gguf$", ".*x", "'a b.gguf$'"]),
        [(Q, "ctx_size"), (Q, "new"), (A, "loader")], _VALUES,
    ),
    "lm-studio": Format(
        texts.as_json(texts.STUDIO), [("load", "fields", "llm.a"), ("load", "fields", "llm.new")], _VALUES
    ),
    "jan": Format(texts.yaml_flat(), [("ctx_size",), ("new",), ("new two",)], _VALUES),
}  # fmt: skip


def test_every_output_is_held_to_the_laws():
    assert set(FORMATS) == set(OUTPUTS)


def tokens(text: str) -> list[str]:
    """The comments' tokens in their order."""
    return re.findall(r"«\d+»", text)


def edited(output: Output, text: str, changes: dict[Slot, Any]) -> str | None:
    """The text after the changes, None when they are refused, in one plain line."""
    refused = ""
    try:
        return output.edit(text, changes)
    except OutputError as error:
        refused = str(error)
    assert refused.isprintable()
    assert len(refused) < 400
    return None


def is_part(part: str, whole: str) -> bool:
    """Whether `part` is left when some characters of `whole` are taken out."""
    rest = iter(whole)
    return all(item in rest for item in part)


@pytest.mark.parametrize("name", FORMATS)
@CHECKS
@given(data=st.data())
def test_edits_do_what_they_say_and_keep_every_comment(name, data):
    """Any mixture of changes: the text then says exactly what was meant, and every comment is there, in order."""
    output, form = load(name), FORMATS[name]
    text = data.draw(form.texts)
    before = output.parse(text)
    slot = st.sampled_from([*form.slots, *before])
    changes = data.draw(st.dictionaries(slot, form.values | st.just(GONE), min_size=1, max_size=5))
    after = edited(output, text, changes)
    if after is None:
        return
    assert identity_of(output.parse(after)) == identity_of(applied(before, changes))
    assert tokens(after) == tokens(text)
    assert after.startswith("\ufeff") == text.startswith("\ufeff")
    assert "\r\n" not in after or "\r\n" in text
    assert output.edit(after, changes) == after


@pytest.mark.parametrize("name", FORMATS)
@CHECKS
@given(data=st.data())
def test_a_value_set_and_set_back_leaves_the_text_as_it_was(name, data):
    output, form = load(name), FORMATS[name]
    text = data.draw(form.texts)
    kinds = (str, bool, int) if name == "ramalama" else (str, bool, int, float)
    plain = {slot: value for slot, value in output.parse(text).items() if isinstance(value, kinds)}
    plain = {
        slot: value for slot, value in plain.items() if not str(value).lstrip().startswith("one")
    }  # of several lines
    assume(plain)
    slot = data.draw(st.sampled_from(list(plain)))
    old = plain[slot]
    new: Any = {str: "other", bool: not old, int: 77, float: 0.25}[type(old)]
    if old in ("true", "false"):  # llama.cpp's switches
        new = "false" if old == "true" else "true"
    after = output.edit(text, {slot: new})
    start = next((at for at, (a, b) in enumerate(zip(text, after, strict=False)) if a != b), min(len(text), len(after)))
    cut = len(after) - len(text)
    tail = next((at for at in range(len(text), start - 1, -1) if text[at - 1 :] != after[at - 1 + cut :]), start)
    assert len(text[start:tail]) <= len(str(old)) + 16  # the value, its quotes, its name in a list
    assert identity_of(output.parse(output.edit(after, {slot: old}))) == identity_of(output.parse(text))
    assert output.edit(after, {slot: old}, output.spelled(text)) == text


@pytest.mark.parametrize("name", FORMATS)
@CHECKS
@given(data=st.data())
def test_what_was_added_and_taken_out_again_leaves_the_text_as_it_was(name, data):
    output, form = load(name), FORMATS[name]
    text = data.draw(form.texts)
    before = output.parse(text)
    new = [slot for slot in form.slots if slot not in before]
    assume(new)
    added = data.draw(st.dictionaries(st.sampled_from(new), form.values, min_size=1))
    after = edited(output, text, added)
    assume(after is not None)
    restored = output.edit(after, dict.fromkeys(added, GONE), output.spelled(text))
    assert restored == text


@pytest.mark.parametrize("name", FORMATS)
@CHECKS
@given(data=st.data())
def test_values_taken_over_come_back_as_they_were_written(name, data):
    """In whatever spelling: quotes, numbers, texts of several lines, nothing at all; with a comment behind or not."""
    output, form = load(name), FORMATS[name]
    text = data.draw(form.texts)
    before = output.parse(text)
    slot = st.sampled_from([*form.slots, *before])
    changes = data.draw(st.dictionaries(slot, form.values, min_size=1, max_size=5))
    after = edited(output, text, changes)
    assume(after is not None)
    spelled = output.spelled(text)
    assert before.keys() <= spelled.keys() | ({*before} if name == "ramalama" else set())
    order = data.draw(st.permutations(list(changes)))
    at = data.draw(st.integers(0, len(order)))
    for some in (order[:at], order[at:]):
        after = output.edit(after, {slot: before.get(slot, GONE) for slot in some}, spelled)
    assert after == text


@pytest.mark.parametrize("name", FORMATS)
@CHECKS
@given(data=st.data())
def test_what_is_spelled_is_what_stands_there(name, data):
    output, form = load(name), FORMATS[name]
    text = data.draw(form.texts)
    spelled = output.spelled(text)
    assert output.edit(text, output.parse(text), spelled) == text
    for slot, written in spelled.items():
        if slot in output.parse(text):
            assert all(part in text for part in re.split(r"[\r\n]", written)), (
                "a comment may stand behind its first line"
            )


LINES = {  # sections, how a text opens one, a line with a key, a key's slot, values
    "llama-server-preset": (["m3", "aaa", "zz 9"], "[{}]", "{} = {}", lambda s, key: (s, key),
                            ["ctx-size", "threads", "cache-type-k", "model"]),
    "ramalama": (["ramalama", "ramalama.runtimes.llama_cpp", "other"], "[{}]", "{} = '{}'",
                 lambda s, key: (*s.split("."), key), ["ctx_size", "threads", "ngl"]),
    "env-file": ([""], "", "{}={}", lambda _, key: (key,), ["A", "B", "LLAMA_ARG_MODEL"]),
    "ollama": ([""], "FROM x", "PARAMETER {} {}", lambda _, key: ("PARAMETER", key), ["num_ctx", "stop", "num_gpu"]),
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
@CHECKS
@given(data=st.data())
def test_the_last_section_and_new_ones_change_together(name, data):
    """Never refused, in whatever order: the last section's new keys and new sections meet at the end."""
    output, (sections, opening, line, slot_of, keys) = load(name), LINES[name]
    there = data.draw(st.lists(st.sampled_from(sections), unique=True, min_size=1))
    newline = data.draw(st.sampled_from(["\n", "\r\n"]))
    lines = []
    for section in there:
        lines += [opening.format(section)] if opening else []
        lines += [line.format(key, 1) for key in data.draw(st.lists(st.sampled_from(keys), unique=True))]
    text = newline.join(lines) + data.draw(st.sampled_from([newline, "", newline + newline]))
    before = output.parse(text)
    last = [slot_of(there[-1], key) for key in keys]
    other = [slot_of(section, key) for section in sections if section not in there[:-1] for key in keys]
    slots = data.draw(
        st.tuples(*(st.lists(st.sampled_from(some), unique=True, min_size=1) for some in (other, last))).flatmap(
            lambda both: st.permutations(list(dict.fromkeys([*both[0], *both[1]])))
        )
    )
    changes = {slot: data.draw(st.sampled_from(["2", "x", GONE])) for slot in slots}
    after = output.edit(text, changes)
    assert identity_of(output.parse(after)) == identity_of(applied(before, changes))
    assert after.endswith(newline) == text.endswith(newline) or not text or not after


@pytest.mark.parametrize("name", FORMATS)
@CHECKS
@given(data=st.data())
def test_taking_out_takes_nothing_else(name, data):
    output, form = load(name), FORMATS[name]
    text = data.draw(form.texts)
    before = output.parse(text)
    assume(before)
    gone = data.draw(st.lists(st.sampled_from(list(before)), min_size=1, unique=True))
    after = edited(output, text, dict.fromkeys(gone, GONE))
    if after is None:  # a comment would become part of the text above it
        assert re.search(r"[|>][0-9]?[-+]?[ \t]*(#[^\n]*)?\r?\n", text)
        return
    assert is_part(after, text)
    kept = {slot: value for slot, value in before.items() if slot not in gone}
    assert identity_of(output.parse(after)) == identity_of(kept)
    assert tokens(after) == tokens(text)


@given(value=st.recursive(st.text() | st.integers() | st.floats() | st.booleans() | st.none(), st.lists, max_leaves=3))
def test_equal_values_of_other_types_differ(value):
    assert identity(value) == identity(value)
    assert len({identity(1), identity(1.0), identity(True), identity("1"), identity(None), identity([1])}) == 6


@pytest.mark.parametrize("name", FORMATS)
@CHECKS
@given(text=st.text(alphabet=st.characters() | st.sampled_from("[]{}:=\"'#;\n\r \t-&*!|>%@`,\\"), max_size=80))
def test_any_text_is_parsed_or_refused_in_one_line(name, text):
    output = load(name)
    refused = ""
    try:
        parsed = output.parse(text)
        output.validate(text)
    except OutputError as error:
        parsed, refused = {}, str(error)
    assert refused.isprintable()
    assert len(refused) < 400
    for slot in list(parsed)[:2]:
        after = edited(output, text, {slot: GONE})
        assert after is None or slot not in output.parse(after)
