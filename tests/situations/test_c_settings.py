"""C. Settings of llama.cpp that surprise: slots, cache types, drafts, rows, full cards, BLAS, caches on the host."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.situations.faces import GIB, MIB, ask, codes, document, machine, warned, zoo
from tests.tools.machines import machine as imagined

CARD = ("--gpu", "cuda:24GiB", "--ram", "64GiB")


@pytest.mark.parametrize(
    ("n_ctx", "slots", "each"), [(4096, 4, 1024), (8192, 2, 4096), (32768, 8, 4096), (600, 2, 512)]
)
def test_25_slots_divide_the_context(n_ctx: int, slots: int, each: int) -> None:
    """-c 4096 --parallel 4 leaves 1024 to a request; the engine rounds a slot up to 256."""
    found = document("estimate", zoo("llama3-8b"), "-c", n_ctx, "-np", slots, *CARD)
    assert found["settings"]["n_ctx_seq"] == each
    said = warned(found, "context_divided")
    assert f"Each of {slots} slots gets {each:,} tokens" in said
    assert "-kvu makes them one pool" in said
    assert said in ask("estimate", zoo("llama3-8b"), "-c", n_ctx, "-np", slots, *CARD).flat


@pytest.mark.parametrize("words", [("-c", 4096), ("-c", 4096, "-np", -1), ("-c", 4096, "-np", 4, "-kvu")])
def test_25_without_np_four_slots_share_one_pool(words: tuple[object, ...]) -> None:
    """Each may ask for all of it, and then "Context size has been exceeded" ends them."""
    found = document("estimate", zoo("llama3-8b"), *words, *CARD)
    settings = found["settings"]
    assert (settings["n_parallel"], settings["kv_unified"], settings["n_ctx_seq"]) == (4, True, 4096)
    said = warned(found, "context_shared")
    for word in ("4 slots share one pool of 4,096 tokens", "Context size has been exceeded", "1,024 to itself"):
        assert word in said
    # giving the number turns the pool off, which cuts a request's context to a quarter
    divided = document("estimate", zoo("llama3-8b"), "-c", 4096, "-np", 4, *CARD)
    assert divided["settings"]["n_ctx_seq"] == 1024
    assert divided["devices"][0]["cache_bytes"] == found["devices"][0]["cache_bytes"]


def test_25_recommend_takes_one_slot_and_says_why() -> None:
    found = document("recommend", zoo("llama3-8b"), *CARD)
    assert (found["settings"]["n_parallel"], found["settings"]["n_ctx_seq"]) == (1, found["settings"]["n_ctx"])
    assert "-np 1" in found["command"]
    assert "one_slot" in codes(found, "reasons")
    four = document("recommend", zoo("llama3-8b"), "--for", "parallel:4", *CARD)
    assert "-np 4" in four["command"]
    assert f"Each of 4 slots gets {four['settings']['n_ctx_seq']:,} tokens" in warned(four, "context_divided")


MODELS = ["llama3-8b", "gemma3-12b", "ds2-lite", "grok1", "phi2"]
MACHINES = [("cuda:8GiB",), ("vulkan:8GiB",), ("rocm:6GiB", "rocm:6GiB"), ("metal:12GiB",)]


@pytest.mark.parametrize("cards", MACHINES)
@pytest.mark.parametrize("engine", ["llama.cpp", "llama.cpp@b10434", "ollama", "llama-cpp-python"])
def test_28_a_quantised_v_cache_never_comes_without_flash_attention(cards: tuple[str, ...], engine: str) -> None:
    """The process dies on it; older CUDA builds also want keys and values of one type."""
    gpus = [word for card in cards for word in ("--gpu", card)]
    quantised = 0
    asked = [(name,) for name in MODELS] + [("llama3-8b", "-ctk", "q8_0", "-ctv", "q8_0")]
    for name, *words in asked:
        to = ("--for", "context", "--engine", engine, *gpus, "--ram", "256GiB")
        found = document("recommend", zoo(name), *words, *to)
        for plan in (found, *found["alternatives"]):
            settings = plan["settings"]
            assert settings["cache_type_k"] == settings["cache_type_v"]
            quantised += settings["cache_type_v"] != "f16"
            assert settings["flash_attn"] or settings["cache_type_v"] == "f16"
        if found["command"] and found["settings"]["cache_type_v"] != "f16":
            assert "-fa on" in found["command"]
    assert quantised


@pytest.mark.parametrize("name", ["llama3-8b", "qwen3moe-30b"])
def test_28_asked_for_without_flash_attention_it_is_refused_with_the_cure(name: str) -> None:
    for verb in ("estimate", "recommend"):
        said = ask(verb, zoo(name), "-ctv", "q8_0", "-fa", "off", *CARD)
        assert (said.status, said.out) == (2, "")
        assert "a quantized V cache needs flash attention, which is off; give -fa on, or -ctv f16" in said.err
    assert ask("estimate", zoo(name), "-ctk", "q8_0", "-fa", "off", "-c", 8192, *CARD).status in (0, 4)


@pytest.mark.parametrize("n_ctx", [8192, 65536])
def test_30_a_draft_has_the_whole_context(n_ctx: int) -> None:
    """Three 3090, -sm row and a small draft with the full 65k: out of memory on the first request."""
    cards = ("--gpu", "RTX 3090") * 3
    words = (zoo("llama33-70b-q4_k_m"), "-c", n_ctx, "-np", 1, *cards, "--ram", "64GiB")
    alone, drafting = document("estimate", *words), document("estimate", *words, "-md", zoo("llama3-1b"))
    cache = sum(x["bytes"] for d in drafting["devices"] for x in d["extras"] if x["name"] == "draft cache")
    assert cache == 16 * 2 * 8 * 64 * 2 * n_ctx  # 16 blocks, 8 key heads of 64: 2 GiB for 65,536 tokens
    weights = sum(x["bytes"] for d in drafting["devices"] for x in d["extras"] if x["name"] == "draft weights")
    assert weights > 700 * MIB
    more = [d["planned_bytes"] - a["planned_bytes"] for d, a in zip(drafting["devices"], alone["devices"], strict=True)]
    assert sum(more) > cache + weights
    said = warned(drafting, "draft_context")
    assert f"{n_ctx:,} tokens as the model's" in said
    assert ("2.00 GiB of cache (f16" if n_ctx == 65536 else "256 MiB of cache (f16") in said


def test_30_cd_is_not_taken_silently() -> None:
    """-cd is gone from llama.cpp; a pasted one is named instead of believed."""
    words = ("-m", zoo("llama3-8b"), "-md", zoo("llama3-1b"), "-c", 32768, "-cd", 4096, "-np", 1)
    said = ask("estimate", *CARD, "--", "llama-server", *words)
    assert "May change memory, not counted: -cd 4096" in said.flat
    assert "32,768 tokens as the model's" in said.flat


@pytest.mark.parametrize("main_gpu", [0, 1])
def test_31_rows_put_the_main_gpu_first(main_gpu: int) -> None:
    """Two T4 with 2 GiB of cache: all of it on CUDA0."""
    words = (zoo("qwen3-8b"), "-c", 16384, "-np", 1, "-sm", "row", "-mg", main_gpu)
    two = ("--gpu", "cuda:15GiB", "--gpu", "cuda:15GiB", "--ram", "32GiB")
    found = document("estimate", *words, *two, "--engine", "llama.cpp@b10434")
    cache = 36 * 2 * 8 * 128 * 2 * 16384
    assert sum(device["cache_bytes"] for device in found["devices"]) == cache == 2.25 * GIB
    said = warned(found, "row_split_main_gpu")
    assert f"keep the whole cache there, {2.25:.2f} GiB" in said
    assert f"lie on CUDA{main_gpu}" in said
    device = found["devices"][main_gpu]
    need = device["planned_bytes"] - device["cache_bytes"] + cache
    assert f"it then needs {need / GIB:.2f} GiB" in said
    assert "-sm layer splits the cache" in said
    small = ("--gpu", "cuda:5GiB", "--gpu", "cuda:5GiB", "--ram", "32GiB")
    tight = document("estimate", *words, *small, "--engine", "llama.cpp@b10434")
    assert "too much" in warned(tight, "row_split_main_gpu")


@pytest.mark.parametrize("backend", ["cuda", "rocm", "vulkan"])
def test_31_builds_without_a_split_by_rows_are_named(backend: str) -> None:
    cards = ("--gpu", f"{backend}:15GiB") * 2
    words = (zoo("qwen3-8b"), "-c", 16384, "-np", 1, "-sm", "row", *cards, "--ram", "32GiB")
    for verb in ("estimate", "recommend", "check"):
        refused = ask(verb, *words)
        assert (refused.status, refused.out) == (2, "")
        assert f"cannot split by rows on {backend}; leave -sm row away" in refused.err
    plain = document("recommend", zoo("qwen3-8b"), *cards, "--ram", "32GiB")
    assert "-sm" not in plain["command"].split()


MOES = ["qwen3moe-30b", "gpt-oss-20b", "ernie45-21b-a3b", "llama33-70b-q4_k_m"]


@pytest.mark.parametrize("name", MOES)
@pytest.mark.parametrize("card", ["cuda:12GiB", "rocm:16GiB", "vulkan:10GiB"])
@pytest.mark.parametrize("intent", ["balanced", "speed"])
def test_32_half_a_gib_stays_free(name: str, card: str, intent: str) -> None:
    """16 GB: 44.1 tokens/s with 8 blocks' experts on the CPU, 33.8 with none: a full card spills."""
    found = document("recommend", zoo(name), "--for", intent, "--gpu", card, "--ram", "64GiB")
    for device in found["devices"]:
        assert device["free_bytes"] - device["planned_bytes"] >= 512 * MIB
    assert "stays free beyond the plan" in str(found["reasons"])


@pytest.mark.parametrize(("name", "words"), [("qwen3moe-30b", ("--n-cpu-moe", 0)), ("qwen3-8b", ("-ngl", 99))])
def test_32_a_card_filled_to_the_edge_is_said(name: str, words: tuple[object, ...], tmp_path: Path) -> None:
    settings = (zoo(name), "-c", 16384, "-np", 1, *words)
    need = document("estimate", *settings, "--gpu", "cuda:24GiB", "--ram", "64GiB")["devices"][0]["planned_bytes"]
    host = imagined(24)
    tight = host._replace(
        devices=(host.devices[0]._replace(total_bytes=need + 200 * MIB, free_bytes=need + 200 * MIB),)
    )
    found = document("estimate", *settings, "--hardware", machine(tmp_path, tight))
    said = warned(found, "filled_to_the_edge")
    assert "200 MiB left on CUDA0" in said
    assert "512 MiB should stay free" in said
    roomy = document("estimate", *settings, "--gpu", "cuda:24GiB", "--ram", "64GiB")
    assert "filled_to_the_edge" not in codes(roomy)


LOG = """\
load_backend: loaded CUDA backend from /opt/llama/libggml-cuda.so
{blas}
llama_model_loader: loaded meta data with 30 key-value pairs and 771 tensors from /m/x.gguf (version GGUF V3 (latest))
load_tensors: offloaded {layers}/65 layers to GPU
load_tensors:        CUDA0 model buffer size = 13403.49 MiB
load_tensors:   CPU_Mapped model buffer size =  8403.49 MiB
llama_context: n_ctx         = 4096
llama_kv_cache:      CUDA0 KV buffer size =   512.00 MiB
"""
BLAS = "load_backend: loaded BLAS backend from /opt/llama/libggml-blas.so"


@pytest.mark.parametrize(("blas", "layers", "told"), [
    (BLAS, 40, True), ("register_backend: registered backend BLAS (1 devices)", 40, True), ("", 40, False),
    (BLAS, 65, False), (BLAS, 0, False), ("system_info: n_threads = 8 | BLAS = 1 | SSE3 = 1", 40, False),
])  # fmt: skip
def test_35_a_build_with_blas_is_flagged_in_a_log(tmp_path: Path, blas: str, layers: int, told: bool) -> None:
    """Qwen2.5 32B with 40 of 65 layers on a 4090: 30 tokens/s of prompt instead of 1,200."""
    log = tmp_path / "server.log"
    log.write_text(LOG.format(blas=blas, layers=layers))
    said = ask("observe", log).flat
    assert ("built with BLAS" in said) is told
    if told:
        assert "30 instead of 1,200 tokens/s" in said
        assert "use a build without GGML_BLAS" in said


@pytest.mark.parametrize(("line", "told"), [("  BLAS: OpenBLAS (0 MiB, 0 MiB free)\n", True), ("", False)])
def test_35_hardware_and_doctor_see_it_in_the_engines_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, told: bool
) -> None:
    engine = tmp_path / "llama-server"
    devices = "  CUDA0: NVIDIA GeForce RTX 4090 (24081 MiB, 23600 MiB free)\n"
    engine.write_text(f"#!/bin/sh\ncat <<'END'\nAvailable devices:\n{line}{devices}END\n")
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for said in (ask("hardware", "--ask-engine"), ask("doctor")):
        assert ("the engine is built with BLAS" in said.flat) is told


def test_36_checkpoints_of_a_hybrid_model_are_counted() -> None:
    """Qwen3.8 27B, 159,744 tokens, 4 slots: 32 checkpoints of 149.6 MiB each, 18.7 GiB in all."""
    words = (zoo("qwen35-27b"), "-c", 159744, "-np", 4, "-kvu", "--gpu", "cuda:48GiB")
    roomy = document("estimate", *words, "--ram", "64GiB")
    extras = roomy["host"]["extras"]
    assert extras["context_checkpoints_bytes"] == 4 * 32 * 149.625 * MIB
    assert f"{extras['context_checkpoints_bytes'] / GIB:.1f}" == "18.7"
    assert extras["prompt_cache_bytes"] == 8 * GIB
    assert "prompt_cache_fills_ram" not in codes(roomy)
    small = document("estimate", *words, "--ram", "16GiB")
    said = warned(small, "prompt_cache_fills_ram")
    for word in ("8.00 GiB of old prompts", "18.70 GiB of checkpoints (32 of 149.6 MiB for each of 4 slots)"):
        assert word in said
    cure = said.partition("is left: ")[2].split()
    ram, fewer = int(cure[1]), int(cure[3])
    kept = document("estimate", *words, "--cache-ram", ram, "--ctx-checkpoints", fewer, "--ram", "16GiB")
    assert "prompt_cache_fills_ram" not in codes(kept)
    left = kept["host"]["available_bytes"] - kept["host"]["margin_bytes"] - kept["host"]["planned_bytes"]
    assert (ram << 20) + kept["host"]["extras"]["context_checkpoints_bytes"] <= left


@pytest.mark.parametrize("name", ["llama3-8b", "gemma3-12b", "qwen35-27b", "lfm2-1.2b"])
def test_36_a_model_wholly_on_the_gpu_still_fills_a_small_host(name: str, tmp_path: Path) -> None:
    """8 GiB of saved prompts in a cgroup of 6 GiB: the kernel ends the server."""
    host = imagined(48, ram_gib=64)
    host = host._replace(ram=host.ram._replace(available_bytes=6 * GIB, cgroup_limit_bytes=6 * GIB))
    found = document("recommend", zoo(name), "--hardware", machine(tmp_path, host))
    assert found["verdict"] == "full"
    said = warned(found, "prompt_cache_fills_ram")
    assert "up to 8.00 GiB of old prompts" in said
    pieces = found["command"].split()
    assert int(pieces[pieces.index("--cache-ram") + 1]) <= 2048 + 512


def test_36_engines_without_the_cache_are_not_charged_for_it() -> None:
    found = document("estimate", zoo("llama3-8b"), "--engine", "llama-cpp-python", *CARD)
    extras = found["host"]["extras"]
    assert (extras["prompt_cache_bytes"], extras["context_checkpoints_bytes"]) == (0, 0)
    ollama = document("estimate", zoo("llama3-8b"), "--engine", "ollama", *CARD)
    assert ollama["host"]["extras"]["prompt_cache_bytes"] == 8 * GIB  # it runs llama-server: 9.4 GB were seen
