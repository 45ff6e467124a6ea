"""Options read from the help of a real llama-server (b10434; the lines that name options and their variables)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import OutputError
from advisor.outputs.help_options import options_of_help
from advisor.outputs.option_names import SPELLINGS, VARIABLES, canonical_name, known_to

HELP = (Path(__file__).parents[2] / "data/llama_server_help/b10434.txt").read_text("utf-8")
B10434 = options_of_help(HELP)


def test_names_long_short_and_negated():
    assert {
        "c",
        "ctx-size",
        "ngl",
        "gpu-layers",
        "n-gpu-layers",
        "nkvo",
        "no-kv-offload",
        "kvu",
        "no-kvu",
        "h",
    } <= B10434
    assert {"spec-draft-ngl", "fit", "fitt", "models-preset", "load-mode", "no-mmap", "fim-qwen-1.5b-default"} <= B10434


def test_values_and_removed_options_are_no_names():
    assert not {"N", "on", "off", "auto", "FNAME", "draft-max", "draft-n", "1", "lazy-mode"} & B10434


def test_every_spelling_that_is_known_here_is_in_the_real_help():
    assert {name for name in SPELLINGS if not name.startswith("LLAMA_")} <= B10434
    assert all(f"(env: {variable})" in HELP for variable in VARIABLES.values())


@given(st.text())
def test_any_other_text_gives_no_error(text):
    assert all(name and not name.startswith("-") for name in options_of_help(text))


@pytest.mark.parametrize(
    ("spelling", "meant"),
    [
        ("c", ("ctx-size", False)), ("LLAMA_ARG_CTX_SIZE", ("ctx-size", False)),
        ("gpu-layers", ("n-gpu-layers", False)),
        ("nkvo", ("kv-offload", True)), ("no-kv-offload", ("kv-offload", True)), ("kvo", ("kv-offload", False)),
        ("md", ("spec-draft-model", False)), ("model-draft", ("spec-draft-model", False)), ("np", ("parallel", False)),
        ("no-mmap", ("mmap", True)), ("lm", ("load-mode", False)), ("nr", ("repack", True)),
        ("cram", ("cache-ram", False)),
        ("unheard-of", ("unheard-of", False)),
    ],
)  # fmt: skip
def test_one_option_by_all_its_names(spelling, meant):
    assert canonical_name(spelling) == meant


NEWER = (B10434 | {"lazy-mode"}) - {"mmap", "no-mmap", "mlock", "direct-io"}  # as b11434's help is described


@pytest.mark.parametrize(
    ("options", "supported", "known"),
    [
        ([("no-mmap", "")], B10434, [("no-mmap", "")]),
        ([("no-mmap", "")], NEWER, [("load-mode", "none")]),
        ([("load-mode", "none")], B10434 - {"load-mode", "lm"}, [("no-mmap", "")]),
        ([("spec-draft-model", "/d.gguf")], frozenset(("model-draft",)), [("model-draft", "/d.gguf")]),
        ([("fit", "off")], frozenset(), []),
        ([("cache-ram", "512")], frozenset(), []),
        ([("no-kv-unified", "")], frozenset(), []),
        ([("anything", "1")], None, [("anything", "1")]),
    ],
)
def test_options_in_the_words_of_the_users_binary(options, supported, known):
    assert known_to(options, supported, "m") == known


def test_keys_of_a_file_have_one_spelling():
    with pytest.raises(OutputError, match="no --spec-draft-model"):
        known_to([("spec-draft-model", "/d.gguf")], frozenset(("model-draft",)), "m", respell=False)
    assert known_to([("no-mmap", "")], NEWER, "m", respell=False) == [("load-mode", "none")]


@pytest.mark.parametrize(
    "option", [("n-cpu-moe", "3"), ("kv-unified", ""), ("fit", "on"), ("load-mode", "mlock"), ("ctx-size", "1")]
)
def test_a_needed_option_that_the_binary_lacks_is_an_error(option):
    with pytest.raises(OutputError, match=rf"^my model: your llama-server has no --{option[0]}, which"):
        known_to([option], frozenset(("parallel",)), "my model")
