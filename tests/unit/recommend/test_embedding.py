"""Models that give vectors: the micro-batch holds the longest text, and nothing is said about answers.

llama-server b11549: can_split is false without a cache or with another pooling than the last token's, and a text longer
than n_ubatch is then refused; with --embeddings n_batch is set to n_ubatch.
"""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path

import pytest

from tests.situations.faces import ask, document, warned, zoo

CARD = ("--gpu", "cuda:8GiB", "--ram", "16GiB")


@pytest.mark.parametrize(
    ("name", "given", "n_ctx", "n_ubatch"),
    [
        ("gemma-embedding", (), 2048, 2048),
        ("bert-large", (), 512, 512),
        ("gemma-embedding", ("-c", 1024), 1024, 1024),
        ("gemma-embedding", ("-c", 4096, "-np", 4), 4096, 1024),  # each slot has 1,024 tokens
        ("gemma-embedding", ("-ub", 256), 2048, 256),  # as asked for
    ],
)
def test_a_whole_text_is_one_micro_batch(name: str, given: tuple[object, ...], n_ctx: int, n_ubatch: int) -> None:
    found = document("recommend", zoo(name), *CARD, *given)
    assert (found["settings"]["n_ctx"], found["settings"]["n_ubatch"]) == (n_ctx, n_ubatch)
    assert found["settings"]["n_batch"] == n_ubatch
    words = found["command"].split()
    assert "--embeddings" in words
    assert n_ubatch == (int(words[words.index("-ub") + 1]) if "-ub" in words else 512)
    assert n_ubatch == (int(words[words.index("-b") + 1]) if "-b" in words else 2048)
    assert found["host"]["extras"]["prompt_cache_bytes"] == 0


@pytest.mark.parametrize("verb", ["recommend", "estimate"])
@pytest.mark.parametrize("ram", ["1.5GiB", "16GiB"])
def test_nothing_is_said_of_answers(verb: str, ram: str) -> None:
    said = ask(verb, zoo("gemma-embedding"), "--gpu", "cuda:8GiB", "--ram", ram).flat
    assert "Embeds with all 25 layers on the GPU" in said
    assert "reads " in said
    for word in ("answers", "cache-ram", "old prompts", "tokens of context"):
        assert word not in said


def test_a_micro_batch_that_is_too_short_is_said() -> None:
    found = document("estimate", zoo("gemma-embedding"), *CARD, "-np", 1)
    assert "more than 512 tokens is refused" in warned(found, "text_beyond_batch")
    assert "-b 2048 -ub 2048 takes all 2,048" in warned(found, "text_beyond_batch")
    whole = document("estimate", zoo("gemma-embedding"), *CARD, "-np", 1, "-b", 2048, "-ub", 2048)
    assert "text_beyond_batch" not in str(whole["warnings"])


@pytest.mark.parametrize(("pooling", "in_pieces"), [(1, False), (2, False), (3, True)])
def test_a_decoder_that_pools_embeds(tmp_path: Path, pooling: int, in_pieces: bool) -> None:
    """As Qwen3 Embedding does with its last token, which a text in pieces has too."""
    made = json.loads(gzip.decompress(zoo("qwen3-8b").read_bytes()))
    made["metadata"]["qwen3.pooling_type"] = {"type": "uint32", "value": pooling}
    (tmp_path / "e.json").write_text(json.dumps(made))
    found = document("recommend", tmp_path / "e.json", "--gpu", "cuda:24GiB", "--ram", "32GiB", "-c", 4096)
    assert "--embeddings" in found["command"]
    assert found["settings"]["n_ubatch"] == (512 if in_pieces else 4096)


@pytest.mark.parametrize("name", ["gemma-embedding", "bert-large"])
def test_no_rung_of_the_explanation_changes_nothing(name: str) -> None:
    rungs = document("recommend", zoo(name), *CARD, "--explain")["explain"]["rungs"]
    assert rungs
    for before, after in pairwise(rungs):
        assert before["settings"] != after["settings"]
    assert not [rung for rung in rungs if "micro-batch" in rung["text"]]


def test_where_it_lies_and_how_fast_it_is_are_one_truth() -> None:
    """-ngl 0: ggml still computes batches of 32 tokens and more on the GPU, from weights that it copies there."""
    given = ("estimate", zoo("gemma-embedding"), *CARD, "-np", 1, "-ngl", 0)
    offloaded, alone = (document(*given, *more) for more in ((), ("--no-op-offload",)))
    assert "the weights in system memory, texts computed on the GPU" in ask(*given).flat
    assert offloaded["devices"][0]["planned_bytes"] > 0
    assert "Embeds with the CPU alone" in ask(*given, "--no-op-offload").flat
    rates = [found["speed"]["prefill_tokens_per_s"]["value"] for found in (offloaded, alone)]
    assert rates[0] > 10 * rates[1]


def test_a_smaller_quantization_is_compared_by_how_fast_it_reads() -> None:
    found = document("recommend", zoo("gemma-embedding"), *CARD, "-ngl", 0)
    assert "smaller_quantization_faster" not in str(found["warnings"])  # it reads hardly faster
