"""Batches that the engine makes smaller: llama_context caps n_batch by n_ctx as given, and n_ubatch by n_batch."""

from __future__ import annotations

import json

import pytest

from tests.situations.faces import ask, document, warned, zoo

MODEL = zoo("llama3-8b")
CARD = ("--gpu", "cuda:24GiB", "--ram", "32GiB")


@pytest.mark.parametrize(("asked", "slots", "n_ctx"), [(1, 1, 256), (300, 1, 512), (1000, 4, 1024), (2047, 1, 2048)])
def test_the_command_runs_what_was_planned(asked: int, slots: int, n_ctx: int) -> None:
    """-c is written as the engine rounds it, so that the batch is capped by that, and by nothing else."""
    found = document("recommend", MODEL, *CARD, "-c", asked, "-np", slots)
    words = found["command"].split()
    assert words[words.index("-c") + 1] == str(n_ctx)
    assert "-b" not in words
    assert "-ub" not in words
    pasted = json.loads(ask("estimate", *CARD, "--json", "--", *words[:2], MODEL, *words[3:]).out)
    assert (found["settings"]["n_batch"], found["settings"]["n_ubatch"]) == (n_ctx, min(512, n_ctx))
    for name in ("n_ctx", "n_batch", "n_ubatch"):
        assert pasted["settings"][name] == found["settings"][name]
    assert pasted["devices"][0]["planned_bytes"] == found["devices"][0]["planned_bytes"]
    assert f"rounds -c {asked:,} up to {n_ctx:,}" in warned(found, "context_rounded")


@pytest.mark.parametrize("verb", ["recommend", "estimate"])
@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        (("-c", 16384, "-ub", 8192), "ubatch_cut", "-ub 8,192 to 2,048, the batch; with -b 8192 it is 8,192"),
        (("-c", 4096, "-ub", 8192), "ubatch_cut", "-ub 8,192 to 2,048, the batch; with -b 4096 it is 4,096"),
        (("-c", 16384, "-b", 1024, "-ub", 2048), "ubatch_cut", "-ub 2,048 to 1,024, the batch."),
        (("-c", 1024, "-b", 4096), "batch_cut", "-b 4,096 to 1,024, the context"),
    ],
)
def test_what_is_cut_is_said(verb: str, given: tuple[object, ...], code: str, words: str) -> None:
    assert f"The engine cuts {words}" in warned(document(verb, MODEL, *CARD, *given), code)


@pytest.mark.parametrize("given", [("-c", 16384, "-b", 8192, "-ub", 8192), ("-c", 16384, "-ub", 2048), ("-c", 4096)])
def test_what_is_not_cut_is_not_mentioned(given: tuple[object, ...]) -> None:
    assert "_cut" not in str([note["code"] for note in document("recommend", MODEL, *CARD, *given)["warnings"]])
