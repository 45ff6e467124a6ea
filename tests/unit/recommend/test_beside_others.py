"""Answers beside settings next to them: what is known to fit is not dearer than the answer."""

from __future__ import annotations

import pytest

from advisor.host import HostSnapshot, with_devices
from advisor.recommend.search import Search, Wishes
from advisor.settings import RequestedSettings, RunSettings, TensorOverride
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


def test_layers_are_dealt_anew_once_more_is_known_of_buffers(monkeypatch):
    judge = evaluator("dots1", machine(6, 8, ram_gib=128))
    search = Search(judge, policy(), policy().intent("context"), Wishes(RequestedSettings()))
    request = search.chain(("q8_0", "q8_0"), 32768, None).make(30)
    first, before = judge.share_out(request), judge._planner.beside_layers

    def more(settings: RunSettings) -> list[int]:
        needs = before(settings)
        return [needs[0] + 2 * max(judge.bytes_by_layer(request)), *needs[1:]]

    monkeypatch.setattr(judge._planner, "beside_layers", more)
    assert judge.share_out(request) == first
    judge.judge(request._replace(n_ctx=8192, tensor_split=(20.0, 10.0)))  # a graph that was not known
    again = judge.share_out(request)
    assert (again.tensor_split or ())[0] < (first.tensor_split or ())[0]


def test_fewer_but_faster_cards_are_a_set():
    # the second has most of the rest of the memory, the third is quicker
    host = cards((24, 936), (12, 360), (8, 448), ram_gib=64)
    answer = advise("ds2-lite-old", host, "parallel:4")
    quick = advise("ds2-lite-old", with_devices(host, (host.devices[0], host.devices[2])), "parallel:4")
    assert answer.cost <= quick.cost * 1.001


@pytest.mark.parametrize(("model", "n_ubatch"), [("grok1", 2048), ("command-r", 1024), ("mixtral", 2048)])
def test_below_what_was_read_off_nothing_is_drawn_from_it(model, n_ubatch):
    judge = evaluator(model, machine(32, ram_gib=256))
    search = Search(judge, policy(), policy().intent("balanced"), Wishes(RequestedSettings()))
    chain = search.chain(("f16", "f16"), 8192, None)
    part = (chain.low + chain.high) // 2
    judge.judge(chain.make(part))
    drawn = judge.sketch(chain.make(part)._replace(n_ubatch=n_ubatch)).plan.devices[0].compute.high
    exact = judge.judge(chain.make(part)._replace(n_ubatch=n_ubatch)).plan.devices[0].compute.high
    assert abs(drawn - exact) <= exact // 4
