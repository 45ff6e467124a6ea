"""No part between two that were sketched costs less than its bound; the search rests on it."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from advisor.memory.placement import HOST
from advisor.recommend.budget import host_over_bytes
from advisor.recommend.search import Search, Wishes
from advisor.recommend.sketched import Sketches
from advisor.recommend.trade import Trades
from advisor.recommend.traded import Group, Trade
from advisor.settings import RequestedSettings
from tests.tools.machines import evaluator, machine, policy

MODELS = ("command-r", "dots1", "ds2-lite-old", "hunyuan-a13b", "llama4-scout", "seed-oss-36b")
CARDS = ((12,), (24, 24), (24, 12, 8))
MOST = 5  # parts of a span that are looked at
WHOLE_LAYERS = 0.975  # what is left over of them differs from part to part, and a sketch is off by a little


def spans_of(model: str, cards: tuple[int, ...], intent: str) -> list[tuple[float, list[Trade]]]:
    """Every bound that a search works out, with trades of parts between, each with the longest context that fits."""
    found = []
    looking = False
    least, asked = Sketches._between, policy().intent(intent)
    search = Search(evaluator(model, machine(*cards, ram_gib=128)), policy(), asked, Wishes(RequestedSettings()))

    def between(self: Any, low: Trade | None, high: Trade, group: Group) -> None:
        nonlocal looking
        least(self, low, high, group)
        if looking or not high.border.judged.fits:
            return
        looking = True
        bound, _ = self._bounds.least(low, high, group, float("inf"))
        first = search.chain(group.pair, search.floor, group.n_ubatch).low if low is None else low.part + 1
        parts = range(first, high.part, max((high.part - first) // MOST, 1))
        kept = dict(self._seen), list(self._open), self._least_drawn
        trades = [self._sketch(group, part, high.n_ctx, whole=True) for part in parts]
        self._seen, self._open, self._least_drawn = kept
        looking = False
        flash = high.border.judged.plan.flash_attn  # where it comes back the search looks by itself
        alike = [t for t in trades if t.border.judged.fits and t.border.judged.plan.flash_attn == flash]
        found.append((bound, alike))

    with mock.patch.object(Sketches, "_between", between):
        Trades(search).settled(float("inf"))
    return found


@pytest.mark.parametrize("intent", ["context", "balanced"])
@pytest.mark.parametrize("cards", CARDS)
@pytest.mark.parametrize("model", MODELS)
def test_no_part_between_costs_less_than_the_bound(model, cards, intent):
    spans = spans_of(model, cards, intent)
    for bound, trades in spans:
        for trade in trades:
            assert trade.cost >= WHOLE_LAYERS * bound, (trade.group, trade.part, trade.n_ctx)


@pytest.mark.parametrize("model", MODELS)
def test_a_bound_says_something(model):
    spans = [(bound, trades) for bound, trades in spans_of(model, (24, 12, 8), "context") if bound and trades]
    assert any(bound > 0.5 * min(trade.cost for trade in trades) for bound, trades in spans)


@pytest.mark.parametrize("cards", CARDS)
@pytest.mark.parametrize("model", MODELS)
def test_nothing_of_a_cache_type_costs_less_than_without_buffers(model, cards):
    search = Search(
        evaluator(model, machine(*cards, ram_gib=128)),
        policy(),
        policy().intent("context"),
        Wishes(RequestedSettings()),
    )
    trades: Any = Trades(search)
    for pair in search.cache_pairs():
        least = trades._bounds.alone(Group(pair, max(trades._other_batches())), float("inf"))
        of_pair = [one for one in search.run().pool if one.judged.request.cache_type_k == pair[0]]
        partly = [one for one in of_pair if HOST in one.judged.plan.placement or one.judged.plan.host_expert_blocks]
        assert all(one.cost >= least for one in partly)


@pytest.mark.parametrize("ram_gib", [16, 48, 96, 192])
@pytest.mark.parametrize("model", ["minimax01", "gpt-oss-120b", "llama4-scout"])
def test_system_memory_has_no_room_for_what_lies_below_the_lowest(model, ram_gib):
    judge = evaluator(model, machine(24, 24, ram_gib=ram_gib))
    search = Search(judge, policy(), policy().intent("context"), Wishes(RequestedSettings()))
    trades: Any = Trades(search)
    for pair in search.cache_pairs():
        chain = search.chain(pair, search.floor, None)
        lowest = trades._bounds.lowest(Group(pair, None))
        room = [
            host_over_bytes(judge.least(chain.make(part)).plan, judge.budget) <= 0
            for part in range(chain.low, chain.high + 1)
        ]
        assert not any(room[: lowest - chain.low])
        assert all(room[lowest - chain.low :]) or lowest == chain.high


@pytest.mark.parametrize(
    ("model", "cards"), [("gpt-oss-120b", (24, 24, 12)), ("qwen3next", (24, 12, 8)), ("dots1", (24, 12, 8))]
)
def test_for_context_other_micro_batches_are_tried_beside_the_best(model, cards):
    judge = evaluator(model, machine(*cards, ram_gib=128))
    found = {}
    for n_ubatch in (None, 256, 512, 1024, 2048):
        wishes = Wishes(RequestedSettings(n_ubatch=n_ubatch))
        best = Search(judge, policy(), policy().intent("context"), wishes).run().pool[0]
        found[n_ubatch] = best.cost
    asked = min(cost for n_ubatch, cost in found.items() if n_ubatch is not None)
    assert found[None] <= 1.01 * asked
    assert asked < found[512]  # so that there is something to find
