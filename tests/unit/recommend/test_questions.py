"""The questions people start with, answered with numbers from first principles."""

from __future__ import annotations

import pytest

from tests.tools.machines import GIB, advise, evaluator, machine

RTX_3060 = machine(12, ram_gib=32)


def cache_bytes(n_ctx: int, n_layer: int, n_head_kv: int, head: int, bytes_per_value: float) -> int:
    return int(2 * n_ctx * n_layer * n_head_kv * head * bytes_per_value)


def row(model: str, cache_type: str):
    answer = advise(model, RTX_3060)
    return next(row for row in answer.contexts.rows if row.cache_type == cache_type)


@pytest.mark.parametrize(("cache_type", "bytes_per_value"), [("f16", 2), ("q8_0", 34 / 32)])
def test_llama3_8b_on_a_3060(cache_type: str, bytes_per_value: float) -> None:
    found = row("llama3-8b", cache_type)
    twenty = next(point for point in found.points if point.n_ctx == 20000)
    assert twenty.fits
    # whatever else the card holds, the cache of the longest context is nearly all that is left beside the weights
    judged = evaluator("llama3-8b", RTX_3060).judge(
        advise("llama3-8b", RTX_3060).chosen.request._replace(
            n_ctx=found.max_n_ctx, cache_type_k=cache_type, cache_type_v=cache_type
        )
    )
    assert judged.plan.devices[0].cache_bytes == cache_bytes(found.max_n_ctx, 32, 8, 128, bytes_per_value)
    one_more = judged.request._replace(n_ctx=found.max_n_ctx + 1024)
    assert judged.fits
    assert not evaluator("llama3-8b", RTX_3060).judge(one_more).fits


def test_full_multi_head_attention_has_four_times_the_cache() -> None:
    plain = {"n_ctx": 4096, "n_parallel": 1, "n_gpu_layers": 33}
    mha = advise("llama2-7b", RTX_3060, **plain).chosen.plan.devices[0].cache_bytes
    gqa = advise("llama3-8b", RTX_3060, **plain).chosen.plan.devices[0].cache_bytes
    assert gqa == GIB // 2
    assert mha == 4 * gqa
    points = {p.n_ctx: p.fits for p in row("llama2-7b", "f16").points}
    assert (points[8192], points[20000]) == (True, False)
    assert {p.n_ctx: p.fits for p in row("llama2-7b", "q8_0").points}[20000]


def test_gemma3_keeps_a_window() -> None:
    """40 of 48 blocks keep 1,024 tokens and a micro-batch; 8 blocks keep everything."""
    answer = advise("gemma3-12b", RTX_3060, n_ctx=32768, cache_type_k="f16", cache_type_v="f16")
    full, window = cache_bytes(32768, 8, 8, 256, 2), cache_bytes(1024 + 512, 40, 8, 256, 2)
    assert answer.verdict == "full"
    assert answer.chosen.plan.devices[0].cache_bytes == full + window
    assert full + window < cache_bytes(32768, 48, 8, 256, 2) / 4


def test_70b_on_24_gib_and_64_gib_of_ram() -> None:
    answer = advise("llama33-70b-q4_k_m", machine(24, ram_gib=64, bandwidth=10**12))
    assert answer.verdict == "partial"
    settings, device = answer.chosen.plan.settings, answer.chosen.plan.devices[0]
    assert 30 <= settings.n_gpu_layers <= 60
    assert device.has_output
    assert device.layers == (81 - settings.n_gpu_layers, 79)
    assert answer.chosen.plan.host.weights_bytes > 10 * GIB
    assert any(note.code == "smaller_quantization_faster" for note in answer.warnings)
    more = answer.chosen.request._replace(n_gpu_layers=settings.n_gpu_layers + 1)
    assert not evaluator("llama33-70b-q4_k_m", machine(24, ram_gib=64)).judge(more).fits


def test_does_not_fit_is_an_answer_with_the_nearest_thing() -> None:
    answer = advise("llama33-70b-q4_k_m", machine(4, ram_gib=16))
    assert answer.verdict == "does_not_fit"
    assert answer.chosen.shorts
    assert answer.fixes
    assert any(note.code == "streams_from_disk" for note in answer.warnings)
    lacking = answer.chosen.shorts[0].over_bytes
    enough = machine(4, ram_gib=16 + lacking / GIB + 0.01)
    assert evaluator("llama33-70b-q4_k_m", enough).judge(answer.chosen.request).fits


def test_no_gpu() -> None:
    answer = advise("llama3-8b", machine(ram_gib=32))
    assert answer.verdict == "cpu"
    assert answer.chosen.plan.settings.n_gpu_layers == 0


def test_experts_leave_before_layers() -> None:
    answer = advise("qwen3moe-30b", machine(12, ram_gib=64))
    settings = answer.chosen.plan.settings
    assert answer.verdict == "partial"
    assert settings.n_gpu_layers == 49
    assert 0 < settings.n_cpu_moe < 48
    fewer = answer.chosen.request._replace(n_cpu_moe=settings.n_cpu_moe - 1)
    assert not evaluator("qwen3moe-30b", machine(12, ram_gib=64)).judge(fewer).fits
