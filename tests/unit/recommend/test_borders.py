"""The longest context over cards of different speeds: layers are dealt anew for each, and a card may drop out."""

from __future__ import annotations

import pytest

from advisor.recommend.search import Search, Wishes
from advisor.settings import RequestedSettings
from tests.tools.machines import advise, evaluator, machine, policy
from tests.unit.recommend.test_lean import CARDS, host_of

THREE = [CARDS["3090"], CARDS["3060"], (8, 448, 81.0)]  # 24 GB fast, 12 GB slow, 8 GB between
CASES = [
    ("command-r", "q8_0", 512), ("command-r", "q8_0", 256), ("command-r", "f16", 512),
    ("seed-oss-36b", "q8_0", 256), ("seed-oss-36b", "q8_0", 1024),
]  # fmt: skip


def search_on(model: str, wish: str) -> Search:
    machine = host_of(THREE)
    return Search(evaluator(model, machine), policy(), policy().intent(wish), Wishes(RequestedSettings()))


@pytest.mark.parametrize(("model", "cache_type", "n_ubatch"), CASES)
def test_nothing_longer_fits_than_the_longest_that_is_found(model, cache_type, n_ubatch):
    search = search_on(model, "context")
    whole = search.base._replace(
        n_gpu_layers=search.spec.n_layer_all + 1, cache_type_k=cache_type, cache_type_v=cache_type, n_ubatch=n_ubatch
    )
    found = search.longest(whole, search.floor, search.ceiling)
    assert found is not None
    n_ctx = found.plan.settings.n_ctx
    fresh = search_on(model, "context")  # which has seen nothing that could mislead it
    step = 2048
    assert not [
        longer for longer in range(n_ctx + step, 2 * n_ctx, step) if fresh.judge(whole._replace(n_ctx=longer)).fits
    ]


@pytest.mark.parametrize(("model", "cache_type", "n_ubatch"), CASES)
def test_a_sketch_of_a_context_far_away_is_close(model, cache_type, n_ubatch):
    """Where contexts are far apart buffers are read off graphs that were built, not drawn from one context alone."""
    search = search_on(model, "context")
    whole = search.base._replace(
        n_gpu_layers=search.spec.n_layer_all + 1, cache_type_k=cache_type, cache_type_v=cache_type, n_ubatch=n_ubatch,
        tensor_split=(20.0, 10.0, 10.0),
    )  # fmt: skip
    search.judge(whole._replace(n_ctx=8192))
    for n_ctx in (12288, 30720, 65536, 100096):
        sketch = search.evaluator.sketch(whole._replace(n_ctx=n_ctx)).plan
        exact = search_on(model, "context").judge(whole._replace(n_ctx=n_ctx)).plan
        for drawn, real in zip(sketch.devices, exact.devices, strict=True):
            assert abs(drawn.compute.value - real.compute.value) <= real.compute.value // 16


def test_room_is_what_buffers_leave_on_the_cards_that_get_layers():
    """A card that is dealt none needs no buffers; once it gets one, it has them, and the layers find room anyway."""
    search = search_on("command-r", "balanced")
    whole = search.base._replace(n_gpu_layers=41, cache_type_k="q8_0", cache_type_v="q8_0")
    splits = {}
    for n_ctx in range(8192, 24832, 512):
        judged = search.judge(whole._replace(n_ctx=n_ctx))
        assert judged.fits, n_ctx
        splits[n_ctx] = judged.request.tensor_split
    assert any(0 in split for split in splits.values())
    assert any(0 not in split for split in splits.values())


@pytest.mark.parametrize(("model", "cache_type", "n_ubatch"), CASES)
def test_what_was_judged_is_exact_whatever_was_sketched_before(model, cache_type, n_ubatch):
    search = search_on(model, "context")
    whole = search.base._replace(
        n_gpu_layers=search.spec.n_layer_all + 1, cache_type_k=cache_type, cache_type_v=cache_type, n_ubatch=n_ubatch
    )
    search.longest(whole, search.floor, search.ceiling)
    for n_ctx in (8192, 9216, 10240, 16384, 40960, 131072):
        judged = search.judge(whole._replace(n_ctx=n_ctx))
        alone = search_on(model, "context").evaluator.judge(judged.request)
        assert [device.compute for device in judged.plan.devices] == [device.compute for device in alone.plan.devices]


def test_the_output_alone_on_a_card_has_no_attention_there():
    """ds2's heads of 192 and 128 run no flash attention on the card, and do on the CPU: a sketch must know it, too."""
    judge = evaluator("ds2-lite-old", machine(10))
    some, output = (RequestedSettings(n_ctx=16384, n_gpu_layers=layers, n_parallel=1) for layers in (8, 1))
    assert not judge.judge(some).plan.flash_attn
    assert judge.sketch(output).plan.flash_attn
    assert judge.judge(output).plan.flash_attn


def test_a_cache_in_system_memory_alone_is_no_longer_than_comfortable_unasked():
    answer = advise("ds2-lite-old", machine(10, ram_gib=64), intent="parallel:4")
    settings = answer.chosen.plan.settings
    assert settings.n_gpu_layers == 1
    assert settings.n_ctx == 4 * policy().intent("parallel:4").comfortable_n_ctx
