"""B. Ollama spills to the CPU, picks too few layers, or takes another context, cache or number of slots than said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advisor.stores import ollama_service
from tests.situations.faces import GIB, MIB, ask, changed, codes, document, warned, zoo
from tests.tools.projectors import width_of, write_projector

OLLAMA = ("--engine", "ollama", "--ram", "64GiB")
Q4_K, Q5_K, Q6_K = 12, 13, 14


def as_q6_k(header: dict[str, Any]) -> None:
    """Every matrix in Q6_K, as `llama-quantize … Q6_K` makes it."""
    for row in header["tensors"]:
        if row[2] in (Q4_K, Q5_K):
            row[2] = Q6_K


def reason(found: dict[str, Any], code: str) -> str:
    (text,) = [note["text"] for note in found["reasons"] if note["code"] == code]
    return str(text)


def test_16_what_fits_stays_on_the_card(tmp_path: Path) -> None:
    """Granite 8B Q6_K with a q8_0 cache at 83,750 tokens: 14.1 of 16.3 GiB were used, and 5 % ran on the CPU."""
    model = changed(tmp_path, "granite33-8b", as_q6_k)
    cache = ("-ctk", "q8_0", "-ctv", "q8_0")
    found = document("recommend", model, *OLLAMA, "--gpu", "cuda:16GiB", *cache, "-c", 83750)
    assert found["verdict"] == "full"
    device = found["devices"][0]
    assert device["planned_bytes"] <= 14.1 * GIB
    # exact: 40 blocks, 8 key heads of 128, keys and values, 34 bytes for 32 values
    assert device["cache_bytes"] == 40 * 2 * 8 * 128 // 32 * 34 * found["settings"]["n_ctx"]
    said = reason(found, "ollama_settings")
    assert f"num_ctx {found['settings']['n_ctx']}, num_gpu 41" in said
    assert "OLLAMA_KV_CACHE_TYPE=q8_0" in said
    assert said in ask("recommend", model, *OLLAMA, "--gpu", "cuda:16GiB", *cache, "-c", 83750).flat
    # LM Studio takes 100,000 on the same card
    assert document("recommend", model, *OLLAMA, "--gpu", "cuda:16.3GiB", *cache, "-c", 100000)["verdict"] == "full"


@pytest.mark.parametrize(("name", "card", "n_ctx"), [
    ("granite33-8b", "cuda:16GiB", 131072), ("qwen3-8b", "cuda:8GiB", 65536), ("llama3-8b", "cuda:8GiB", 40960),
])  # fmt: skip
def test_16_what_does_not_is_said_in_tokens(name: str, card: str, n_ctx: int) -> None:
    found = document("recommend", zoo(name), *OLLAMA, "--gpu", card, "-c", n_ctx, "-ctk", "q8_0", "-ctv", "q8_0")
    assert found["verdict"] == "partial"
    fix = next(fix for fix in found["cheapest_fixes"] if fix["change"].startswith("-c ") and fix["enough"])
    shorter = int(fix["change"].split()[1])
    assert fix["costs"] == f"{n_ctx - shorter:,} tokens less context"
    cache = ("-ctk", "q8_0", "-ctv", "q8_0")
    whole = document("recommend", zoo(name), *OLLAMA, "--gpu", card, "-c", shorter, *cache)
    assert whole["verdict"] == "full"
    assert f"num_gpu {whole['model']['n_layer'] + 1}" in reason(whole, "ollama_settings")


@pytest.mark.parametrize("name", ["gemma3-4b", "llama32-3b", "qwen3vl-8b"])
def test_18_the_gpu_is_used_though_a_projector_would_fill_it(tmp_path: Path, name: str) -> None:
    """3.2 GiB free, and a projector whose graph takes 1 GiB: a rule of least memory put no layer on the GPU at all."""
    projector = write_projector(tmp_path / "mmproj.gguf", "gemma3", out=width_of(zoo(name)))
    words = (zoo(name), "--mmproj", projector, *OLLAMA, "--gpu", "cuda:4GiB@3.2GiB")
    found = document("recommend", *words)
    assert found["verdict"] == "partial"
    assert found["settings"]["n_gpu_layers"] > 0
    said = reason(found, "mmproj_placed")  # pictures are slow on the CPU: both places, and what each holds besides
    assert "In system memory (--no-mmproj-offload) a picture of" in said
    assert f"{found['settings']['n_gpu_layers']} of " in said
    away = document("recommend", *words, "--no-mmproj-offload")
    assert away["settings"]["n_gpu_layers"] > found["settings"]["n_gpu_layers"]
    assert f"{away['settings']['n_gpu_layers']} of " in said
    beside = {extra["name"]: extra["bytes"] for extra in away["host"]["extras"]["beside"]}
    assert beside["mmproj mmproj.gguf"] > 800 * MIB
    assert "LLAMA_ARG_MMPROJ_OFFLOAD=false" in reason(away, "ollama_settings")
    without = document("recommend", zoo(name), *OLLAMA, "--gpu", "cuda:4GiB@3.2GiB")
    assert without["settings"]["n_gpu_layers"] >= away["settings"]["n_gpu_layers"]


# (GPU, tokens): the documented steps of Ollama's default, by the memory of all GPUs
DEFAULTS = [
    (("cuda:8GiB",), 4096), (("cuda:16GiB",), 4096), (("cuda:24GiB",), 32768), (("cuda:12GiB",) * 2, 32768),
    (("cuda:48GiB",), 131072),
]  # fmt: skip


@pytest.mark.parametrize(("cards", "n_ctx"), DEFAULTS)
def test_21_the_effective_context_is_shown(cards: tuple[str, ...], n_ctx: int) -> None:
    """The card says 128k, yet the default was 2,048: setting 32k raised the memory instead of lowering it."""
    gpus = [word for card in cards for word in ("--gpu", card)]
    found = document("estimate", zoo("llama3-8b"), *OLLAMA, *gpus)
    assert found["settings"]["n_ctx"] == n_ctx  # never beyond the trained 131,072
    assert sum(device["cache_bytes"] for device in found["devices"]) == 32 * 2 * 8 * 128 * 2 * n_ctx
    said = warned(found, "default_context")
    assert f"ollama takes {n_ctx:,} tokens" in said
    if n_ctx < 131072:
        assert "not the 131,072 that the model was trained for" in said
        assert "that of the trained context 16.00 GiB" in said  # 128 KiB a token
        more = document("estimate", zoo("llama3-8b"), *OLLAMA, *gpus, "-c", 65536)
        assert sum(d["cache_bytes"] for d in more["devices"]) > sum(d["cache_bytes"] for d in found["devices"])
        assert "default_context" not in codes(more)
    assert said in ask("estimate", zoo("llama3-8b"), *OLLAMA, *gpus).flat


def test_21_llama_cpp_python_has_a_default_too_and_llama_cpp_takes_the_trained_one() -> None:
    card = ("--gpu", "cuda:24GiB", "--ram", "64GiB")
    found = document("estimate", zoo("llama3-8b"), "--engine", "llama-cpp-python", *card)
    assert found["settings"]["n_ctx"] == 2048
    assert "2,048 tokens" in warned(found, "default_context")
    own = document("estimate", zoo("llama3-8b"), *card)
    assert own["settings"]["n_ctx"] == 131072
    assert "default_context" not in codes(own)


def test_21_recommend_says_what_would_be_taken_untold() -> None:
    found = document("recommend", zoo("llama3-8b"), *OLLAMA, "--gpu", "cuda:16GiB")
    assert "takes 4,096 tokens here" in reason(found, "default_context")


# no flash attention: the architecture never runs it, or it was switched off for the whole service
REFUSED = [
    (zoo("grok1"), (), "which grok never runs; give -ctv f16"),
    (zoo("llama3-8b"), ("-fa", "off"), "which is off; give -fa on, or -ctv f16"),
    (zoo("gpt-oss-20b"), ("-fa", "off"), "which is off; give -fa on, or -ctv f16"),
    (zoo("ds2-lite-old"), ("-fa", "off"), "which is off; give -fa on, or -ctv f16"),
]


@pytest.mark.parametrize(("model", "words", "why"), REFUSED)
@pytest.mark.parametrize("engine", ["ollama", "llama.cpp"])
def test_22_a_cache_type_that_cannot_be_had_is_said(model: Path, words: tuple[str, ...], why: str, engine: str) -> None:
    """Ollama panicked, or kept f16 without a word, where flash attention was off."""
    card = ("--engine", engine, "--gpu", "cuda:400GiB", "--ram", "512GiB")
    said = ask("estimate", model, "-c", 8192, "-ctk", "q8_0", "-ctv", "q8_0", *words, *card)
    assert (said.status, said.out) == (2, "")
    assert "a quantized V cache needs flash attention" in said.err
    assert why in said.err
    found = document("recommend", model, *words, *card)
    assert (found["settings"]["cache_type_k"], found["settings"]["cache_type_v"]) == ("f16", "f16")
    assert not found["settings"]["flash_attn"]
    if not words:
        text = warned(found, "flash_attention_off")
        assert "V stays f16" in text
        assert ("OLLAMA_KV_CACHE_TYPE" in text) is (engine == "ollama")


@pytest.mark.parametrize("name", ["grok1"])
def test_22_the_plan_holds_the_cache_that_will_be_there(name: str) -> None:
    """f16 for 64 blocks of 8 key heads of 128, not the half of it that the variable promises."""
    found = document("recommend", zoo(name), *OLLAMA, "--gpu", "cuda:400GiB", "-c", 8192)
    assert found["devices"][0]["cache_bytes"] == 64 * 2 * 8 * 128 * 2 * 8192
    assert "OLLAMA_KV_CACHE_TYPE" not in reason(found, "ollama_settings")


def test_22_the_drop_in_sets_both_variables_and_doctor_misses_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OLLAMA_KV_CACHE_TYPE is silently ignored unless OLLAMA_FLASH_ATTENTION=1."""
    drop_in = ask("service", "ollama", "--cache-type", "q8_0").out
    assert "Environment=OLLAMA_FLASH_ATTENTION=1" in drop_in
    assert "Environment=OLLAMA_KV_CACHE_TYPE=q8_0" in drop_in
    monkeypatch.setattr(ollama_service, "_FOLDERS", (str(tmp_path),))
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "ollama.service").write_text("[Service]\nEnvironment=OLLAMA_KV_CACHE_TYPE=q8_0\n")
    alone = ask("doctor").flat
    assert "OLLAMA_KV_CACHE_TYPE=q8_0 counts for nothing without OLLAMA_FLASH_ATTENTION=1" in alone
    (tmp_path / "ollama.service").write_text(drop_in)
    assert "counts for nothing" not in ask("doctor").flat
    monkeypatch.setenv("OLLAMA_NUM_PARALLEL", "4")
    assert "OLLAMA_NUM_PARALLEL=4 makes every model reserve its num_ctx 4 times" in ask("doctor").flat


@pytest.mark.parametrize("slots", [2, 4, 8])
def test_23_parallel_requests_multiply_the_context(slots: int) -> None:
    """The log of an older Ollama says parallel=4: four times the cache, as -c num_ctx x slots."""
    card = (*OLLAMA, "--gpu", "cuda:80GiB")
    one = document("estimate", zoo("llama3-8b"), *card, "-c", 8192)
    several = document("estimate", zoo("llama3-8b"), *card, "-c", 8192 * slots, "-np", slots)
    assert several["settings"]["n_ctx_seq"] == one["settings"]["n_ctx_seq"] == 8192
    assert several["devices"][0]["cache_bytes"] == slots * one["devices"][0]["cache_bytes"] == slots * GIB
    said = warned(several, "context_multiplied")
    assert f"{slots} x 8,192 = {8192 * slots:,} tokens, {slots}.00 GiB of cache" in said
    assert "OLLAMA_NUM_PARALLEL=1 with the same num_ctx takes 1.00 GiB" in said


def test_23_one_slot_is_recommended_and_written() -> None:
    found = document("recommend", zoo("llama3-8b"), *OLLAMA, "--gpu", "cuda:16GiB")
    assert found["settings"]["n_parallel"] == 1
    assert "OLLAMA_NUM_PARALLEL=1" in reason(found, "ollama_settings")
    assert "Environment=OLLAMA_NUM_PARALLEL=1" in ask("service", "ollama").out
