"""The choice: nothing of an exhaustive grid beats it, its bounds are bounds, and memory is monotone in the knobs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.host import with_devices
from advisor.recommend.bounds import least_cost, pooled
from advisor.recommend.chain import chain_of
from advisor.recommend.dealing import evenest, layer_counts, overfull
from advisor.recommend.search import Search, Wishes
from advisor.settings import RequestedSettings
from tests.bench.choice import GRANULARITY
from tests.tools.choice_cases import ask, beaten, draw, search_on, wasted, wrong_need
from tests.tools.machines import evaluator, machine, policy

CASES = {case.text: case for seed in (65, 64, 63) for case in draw(500, seed)}
CASES |= {case.text: case for case in draw(500, 6)}
DRAWN = [case.text for case in draw(500, 6)]
ONCE_MISSED = {
    "a part that a sketch flattered": "llama32-3b 6/16 context",
    "a micro-batch that an optimistic sketch of another hid": "grok1 24/256 parallel:4",
    "one card, where two hold everything too": "gemma3-12b 16+12/256 parallel:2",
    "two cards, where one holds everything with a lossy cache": "qwen3vlmoe-30b 24+24/128 parallel:4",
    "buffers that depend on which blocks lie on the CPU": "nemotron-h-9b 8/32 context",
    "a larger micro-batch with everything on the GPUs": "qwen35moe-35b-mtp 12+12+12/128 context",
    "flash attention that comes back where the GPU does without attention": "stablelm2-12b 4/16 quality",
    "a smaller cache, where f16 reaches the trained context": "gemma-7b 16+8/256 speed",
    "a larger micro-batch with the other cache": "llama4-scout 12+8+6/64 context",
    "a part more than a sketch had room for": "ling-mini 8/64 context",
    "a larger micro-batch, whose buffers whole blocks keep small": "mixtral 24/256 context",
    "layers dealt by buffers that were known late": "dots1 6+8/128 context",
    "fewer cards with a larger micro-batch": "qwen3next 6+24/128 context",
    "a context at which fewer cards are used": "seed-oss-36b 6+8/32 context",
    "next to nothing on the GPU, with a larger micro-batch": "ds2-lite-old 10/256 context",
    "buffers below the contexts that were read off": "grok1 32/256 context",
}
MODELS = ("llama3-8b", "gemma3-4b", "gpt-oss-20b", "qwen3next", "ds2-lite", "mixtral")


@pytest.mark.parametrize("text", [*ONCE_MISSED.values(), *DRAWN[1::100]])
def test_nothing_of_the_grid_is_better(text):
    answer = ask(CASES[text])
    assert wrong_need(answer) is None
    assert wasted(answer) is None
    assert beaten(answer, GRANULARITY) is None


def test_the_grid_finds_what_is_better():
    answer = ask(CASES["llama32-3b 6/16 context"])
    assert beaten(answer._replace(cost=answer.cost * 1.05), GRANULARITY) is not None


def test_too_much_memory_is_seen():
    answer = ask(CASES["llama32-3b 6/16 context"])
    request = answer.given.chosen.request
    more = answer.search.evaluator.judge(request._replace(n_gpu_layers=(request.n_gpu_layers or 0) + 1))
    assert "over by" in (wrong_need(answer._replace(given=answer.given._replace(chosen=more))) or "")
    less = answer.search.evaluator.judge(request._replace(n_ctx=4096))
    poor = answer._replace(given=answer.given._replace(chosen=less), cost=answer.search.cost(less))
    assert "fits" in (wasted(poor) or "")


@settings(max_examples=40, deadline=None)
@given(
    model=st.sampled_from(MODELS),
    n_ctx=st.integers(16, 300),
    more=st.integers(1, 200),
    part=st.floats(0, 1),
    n_ubatch=st.sampled_from([256, 512, 1024]),
    cache=st.sampled_from(["f16", "q8_0"]),
)
def test_memory_is_monotone_in_the_knobs(model, n_ctx, more, part, n_ubatch, cache):
    """Weights and cache, which bound every plan from below: a longer context needs no less anywhere; more on the GPU
    needs no less there and no more here. (Compute buffers may shrink by some holes between tensors.)
    """
    judge = evaluator(model, machine(24))
    base = RequestedSettings(
        n_ctx=256 * n_ctx, n_parallel=1, kv_unified=False, n_ubatch=n_ubatch, cache_type_k=cache, cache_type_v=cache,
        flash_attn="on",
    )  # fmt: skip
    chain = chain_of(judge.spec, base, RequestedSettings())
    request = chain.make(chain.low + int(part * (chain.high - chain.low)))

    def need(asked):
        plan = judge.judge(asked).plan
        return plan.devices[0].planned_bytes, plan.host.planned_bytes

    def held(asked):
        plan = judge.least(asked).plan
        return plan.devices[0].planned_bytes, plan.host.planned_bytes

    longer = request._replace(n_ctx=256 * (n_ctx + more))
    assert all(a <= b for a, b in zip(held(request), held(longer), strict=True))
    assert all(a <= b for a, b in zip(held(request), need(request), strict=True))
    following = chain.make(min(chain.low + int(part * (chain.high - chain.low)) + 1, chain.high))
    assert held(request)[0] <= held(following)[0]
    assert held(request)[1] >= held(following)[1]


@pytest.mark.parametrize("text", [*DRAWN[2::40], *[text for text in DRAWN if "context" in text][::12]])
def test_bounds_of_sets_of_cards_hold(text):
    case = CASES[text]
    search = search_on(case, case.host.devices)
    pool = search.run().pool
    if not case.host.devices or not pool:
        return
    one = pooled(case.host, search.evaluator.budget, search.evaluator.read_rates)
    assert one is not None
    bound = least_cost(search_on(case._replace(host=one), one.devices))
    closer = least_cost(search_on(case._replace(host=one), one.devices), enough=pool[0].cost)
    assert bound <= closer <= pool[0].cost * (1 + 1e-9)


def test_no_bound_for_cards_of_two_kinds():
    both = machine(8, 8)
    other = both.devices[1]._replace(backend="vulkan")
    host = with_devices(both, (both.devices[0], other))
    limits = evaluator("llama3-8b", both).budget
    assert pooled(host, limits, (1.0, 2.0)) is None
    unknown = both.devices[1]._replace(f16_tflops=None)
    assert pooled(with_devices(both, (both.devices[0], unknown)), limits, (1.0, 2.0)) is None


@given(layers=st.lists(st.integers(1, 50), min_size=1, max_size=40), room=st.lists(st.integers(1, 600), max_size=4))
def test_layers_find_room_wherever_there_is_some(layers, room):
    counts = evenest(layers, room)
    at = 0
    for limit in room:  # as many as fit, from the first card on
        while at < len(layers) and layers[at] <= limit:
            limit -= layers[at]
            at += 1
    assert (counts is not None) == (at == len(layers))
    if counts is not None:
        assert sum(counts) == len(layers)
        assert not overfull(layers, counts, room)


def test_what_is_over_by_little_is_over_everywhere_alike():
    layers, room = [100] * 10, [495, 495]  # nine find room; who gets the tenth is over
    assert evenest(layers, room) is None
    assert evenest(layers, room, 1.125) == [5, 5]
    assert layer_counts(layers, room, [1.0, 1.0]) == [5, 5]
    assert layer_counts(layers, room, [2.0, 1.0]) == [5, 5]
    assert evenest(layers, [400, 400], 1.125) is None


def test_a_full_card_hands_a_layer_to_one_with_room():
    assert evenest([400] * 65, [14 * 400 + 100, 52 * 400]) == [14, 51]
    assert evenest([1] * 10, [20, 20]) == [5, 5]


def test_context_is_taken_where_it_is_all_but_free():
    answer = ask(CASES["gemma3-12b 16+12/256 parallel:2"])
    search = Search(answer.search.evaluator, policy(), policy().intent("parallel:2"), Wishes(RequestedSettings()))
    assert answer.given.chosen.plan.settings.n_ctx > search.comfortable
