"""`estimate` and `recommend` say the same of a cache of two types, by the build that is planned."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.test_bad_input import SHIPPED, advisor

CODES = ("cache_type", "cache_half_quantized")


def said(verb, *words):
    answer = advisor(verb, SHIPPED, "--gpu", "RTX 3060", "--ram", "32GiB", *words, "--json")
    assert answer.err == ""
    notes = json.loads(answer.out)["warnings"]
    return {note["code"]: note["text"] for note in notes if note["code"].startswith(CODES)}


@pytest.mark.parametrize(
    ("build", "codes"),
    [
        ("10434", {"cache_types_mixed_on_cpu", "cache_half_quantized"}),
        ("11434", {"cache_types_mixed_slow_decode", "cache_half_quantized"}),
    ],
)
def test_half_a_quantised_cache_by_build(build, codes):
    words = ("-c", "16384", "-ngl", "33", "-np", "1", "-fa", "on", "-ctk", "q8_0", "--engine", f"llama.cpp@{build}")
    estimated, recommended = said("estimate", *words), said("recommend", *words)
    assert estimated == recommended
    assert set(estimated) == codes


def test_flash_attention_that_turns_itself_off_names_the_types():
    words = ("-c", "8192", "-ctk", "q8_0", "--engine", "llama.cpp@10434")
    answer = advisor("recommend", SHIPPED, "--gpu", "RTX 3060", "--ram", "32GiB", *words, "--json")
    notes = {note["code"]: note["text"] for note in json.loads(answer.out)["warnings"]}
    assert "no kernel for keys in q8_0 and values in f16" in notes["flash_attention_off"]
    assert not [code for code in notes if code.startswith("cache_types_mixed")]
