"""Answers beside settings next to them: what is known to fit is not dearer than the answer."""

from __future__ import annotations

import pytest

from advisor.host import HostSnapshot, with_devices
from advisor.recommend.search import Search, Wishes
from advisor.settings import RequestedSettings, TensorOverride
from tests.tools.machines import advise, evaluator, machine, policy

GB = 10**9


def cards(*sizes_and_rates: tuple[int, int], ram_gib: int) -> HostSnapshot:
    """Cards of these GiB and GB/s."""
    host = machine(*(size for size, _ in sizes_and_rates), ram_gib=ram_gib)
    devices = tuple(
        device._replace(bandwidth_bytes_per_s=rate * GB, f16_tflops=rate / 8)
        for device, (_, rate) in zip(host.devices, sizes_and_rates, strict=True)
    )
    return host._replace(devices=devices, ram=host.ram._replace(bandwidth_bytes_per_s=70 * GB))


def cost_of(model: str, host: HostSnapshot, intent: str, request: RequestedSettings) -> float:
    search = Search(evaluator(model, host), policy(), policy().intent(intent), Wishes(RequestedSettings()))
    judged = search.evaluator.judge(request)
    assert judged.fits
    return search.cost(judged)


@pytest.mark.parametrize("sizes", [((2, 360), (16, 2039)), ((2, 1008), (20, 336)), ((2, 1008), (6, 336))])
def test_a_card_without_layers_is_no_help_for_context(sizes):
    # both together leave the small one empty, and it costs the other one room
    host = cards(*sizes, ram_gib=128)
    both = advise("seed-oss-36b", host, "context")
    alone = advise("seed-oss-36b", with_devices(host, host.devices[1:]), "context")
    assert both.cost <= alone.cost * 1.01


@pytest.mark.parametrize("n_ctx", [4096, 16384])
@pytest.mark.parametrize("model", ["small-qwen3moe", "qwen3-8b"])
def test_a_context_that_is_asked_for_says_nothing_of_fewer_cards(model, n_ctx):
    host = cards((6, 2039), (3, 2039), (24, 336), ram_gib=64)
    answer = advise(model, host, "context", n_ctx=n_ctx)
    for device in host.devices:
        alone = advise(model, with_devices(host, (device,)), "context", n_ctx=n_ctx)
        assert answer.cost <= alone.cost * 1.01


def test_experts_of_the_last_block_need_no_copy_for_prompts():
    # beside experts of other blocks the buffer holds a copy of them, so sketches say that this does not fit
    host = cards((10, 360), (20, 2039), ram_gib=8)
    last = tuple(TensorOverride(f"blk.31.ffn_{kind}_exps", "CPU") for kind in ("gate", "up", "down"))
    request = RequestedSettings(
        n_ctx=8192, n_parallel=1, kv_unified=False, flash_attn="on", cache_type_k="q8_0", cache_type_v="q8_0",
        n_gpu_layers=33, tensor_split=(10.0, 23.0), tensor_overrides=last,
    )  # fmt: skip
    assert advise("mixtral", host, "speed").cost <= cost_of("mixtral", host, "speed", request)


@pytest.mark.parametrize("model", ["qwen35-27b", "llama33-70b-q4_k_m", "glm4moe-mtp0"])
@pytest.mark.parametrize("intent", ["context", "parallel:4"])
def test_half_a_micro_batch_is_no_worse_than_the_usual_one(model, intent):
    host = cards((20, 336), (3, 128), ram_gib=64)
    answer = advise(model, host, intent)
    chosen = answer.chosen.request
    if answer.chosen.plan.settings.n_ubatch < 512:
        search = Search(evaluator(model, host), policy(), policy().intent(intent), Wishes(RequestedSettings()))
        usual = search.evaluator.judge(chosen._replace(n_ubatch=None))
        assert not usual.fits or search.cost(usual) >= answer.cost * 0.99
