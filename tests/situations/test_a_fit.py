"""A. What the engine's own fit leaves behind: figures that wrap, layers moved for context, a context of 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.situations.faces import MIB, ask, document, zoo
from tests.tools.empty_gguf import write_empty_gguf

LOG = """\
build: 11434 (7e4c0a9) with GNU
  - CUDA0   : NVIDIA GeForce RTX 3060 (12288 MiB, 11000 MiB free)
llama_model_loader: loaded meta data with 30 key-value pairs and 291 tensors from /m/x.gguf (version GGUF V3 (latest))
load_tensors:        CUDA0 model buffer size =  4403.49 MiB
llama_memory_breakdown_print: | memory breakdown [MiB]  | total   free     self   model   context   compute    unaccounted |
llama_memory_breakdown_print: |   - CUDA0 (RTX 3060)    | 12288 = 6951 + (5000 =  4403 +     400 +     197) +   UNSEEN |
llama_memory_breakdown_print: |   - Host                |                  1000 =  900 +      60 +      40                |
"""  # noqa: E501


@pytest.mark.parametrize("unseen", ["17592186029324", "17592186044415", "18446744073709551615", "-337", "99999"])
def test_12_an_unaccounted_column_that_wrapped_is_ignored(tmp_path: Path, unseen: str) -> None:
    """The public log prints 17592186029324 MiB: a difference below zero in 64 bits, shifted to MiB."""
    log = tmp_path / "server.log"
    log.write_text(LOG.replace("UNSEEN", unseen))
    found = document("observe", log, status=0)
    card, host = found["breakdown"]
    assert card["unaccounted_bytes"] is None
    assert (card["weights_bytes"], card["context_bytes"], card["compute_bytes"]) == (4403 * MIB, 400 * MIB, 197 * MIB)
    assert host["weights_bytes"] == 900 * MIB
    assert found["overheads"] == []
    # nothing of it is remembered for later plans
    device = document("estimate", zoo("llama3-8b"), "--gpu", "RTX 3060", "--ram", "32GiB")["devices"][0]
    assert device["overhead_source"] == "rules"


def test_12_a_column_that_says_something_is_taken(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(LOG.replace("UNSEEN", "337"))
    assert document("observe", log, status=0)["breakdown"][0]["unaccounted_bytes"] == 337 * MIB
    device = document("estimate", zoo("llama3-8b"), "--gpu", "RTX 3060", "--ram", "32GiB")["devices"][0]
    assert (device["overhead_bytes"], device["overhead_source"]) == (337 * MIB, "observed")


def plans(found: dict[str, Any], n_layer: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The plans of an answer, chosen and alternative: with everything on the GPUs, and with a part on the CPU."""
    every = [found, *found["alternatives"]]
    whole = [p for p in every if p["settings"]["n_gpu_layers"] == n_layer + 1 and not p["settings"]["n_cpu_moe"]]
    return whole, [p for p in every if p not in whole]


@pytest.mark.parametrize(
    ("name", "cards", "intent"),
    [
        ("seed-oss-36b", ("RTX 4090",), "balanced"),
        ("seed-oss-36b", ("RTX 4090",), "context"),
        ("qwen3-8b", ("cuda:8GiB",), "context"),
        ("glm4moe-mtp0", ("cuda:20GiB",) * 4, "context"),
    ],
)
def test_14_a_shorter_context_and_layers_on_the_cpu_are_both_offered(
    name: str, cards: tuple[str, ...], intent: str
) -> None:
    """fit-params took a context that pushed layers off 5 cards; the wish was to reduce it and never move a tensor."""
    gpus = [word for card in cards for word in ("--gpu", card)]
    found = document("recommend", zoo(name), "--for", intent, *gpus, "--ram", "128GiB")
    whole, mixed = plans(found, found["model"]["n_layer"])
    if len(cards) == 1:
        assert whole
        assert max(p["settings"]["n_ctx"] for p in mixed) > max(p["settings"]["n_ctx"] for p in whole)
        rates = [max(p["speed"]["decode_tokens_per_s"]["value"] for p in ps) for ps in (whole, mixed)]
        assert rates[0] > 2 * rates[1]
    assert len({p["settings"]["n_ctx"] for p in (*whole, *mixed)}) > 1
    for plan in (*whole, *mixed):
        assert plan["speed"]["decode_tokens_per_s"]["value"] > 0
        assert all(
            device["planned_bytes"] + device["margin_bytes"] <= device["free_bytes"] for device in plan["devices"]
        )
    for other in found["alternatives"]:
        assert f"{other['settings']['n_ctx']:,} tokens" in other["why"]
        assert "%" in other["why"] or "same speed" in other["why"]


@pytest.mark.parametrize("name", ["seed-oss-36b", "qwen3-8b"])
def test_14_balanced_shortens_the_context_before_it_moves_a_layer(name: str) -> None:
    card = {"seed-oss-36b": "RTX 4090", "qwen3-8b": "cuda:8GiB"}[name]
    found = document("recommend", zoo(name), "--gpu", card, "--ram", "128GiB")
    assert found["verdict"] == "full"
    assert found["settings"]["n_ctx"] < found["model"]["n_ctx_train"]
    longer = next(failed for failed in found["rejected"] if failed["step"] == "longer_context")
    assert longer["over_bytes"] > 0
    assert "too much" in longer["text"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("llama3-1b", ("--gpu", "RTX 4090")),  # fits untouched: where fit leaves n_ctx at 0
        ("llama3-8b", ("--gpu", "cuda:8GiB")),
        ("llama33-70b-q4_k_m", ("--gpu", "RTX 4090")),
        ("qwen3moe-30b", ("--no-gpu",)),
        ("mamba2-7b", ("--gpu", "RTX 3060")),
        ("bert-large", ("--gpu", "RTX 3060")),
        ("glm4moe-mtp0", ("--gpu", "RTX 3090", "--gpu", "RTX 3090", "--gpu", "RTX 3090")),
    ],
)
@pytest.mark.parametrize("mode", ["exact", "safe"])
def test_15_the_context_always_stands_in_the_command(name: str, words: tuple[str, ...], mode: str) -> None:
    found = document("recommend", zoo(name), *words, "--ram", "64GiB", "--mode", mode)
    pieces = found["command"].split()
    assert int(pieces[pieces.index("-c") + 1]) == found["settings"]["n_ctx"] > 0
    assert found["command"] in ask("recommend", zoo(name), *words, "--ram", "64GiB", "--mode", mode).out


def test_15_a_preset_says_it_too(tmp_path: Path) -> None:
    model, preset = tmp_path / "small.gguf", tmp_path / "models.ini"
    write_empty_gguf(zoo("llama3-1b"), model)
    said = ask("recommend", model, "--gpu", "RTX 4090", "--ram", "64GiB", "--output", preset)
    assert said.status == 0
    assert "ctx-size = 131072" in preset.read_text()
