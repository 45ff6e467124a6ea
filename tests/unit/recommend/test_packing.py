"""Whole layers packed into several GPUs: the border is found at once, where bytes left of all together mislead."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.memory.types import Interval
from advisor.recommend.context_border import context_border
from advisor.recommend.packing import Packing
from advisor.recommend.search import Search, Wishes
from advisor.settings import RequestedSettings
from tests.tools.machines import evaluator, machine, policy
from tests.unit.recommend.test_solve import some_plan


class Dealt:
    """An evaluator of numbers: at i every layer takes `first + grows * i`, every GPU has `room - falls * i`."""

    def __init__(self, layers: list[tuple[int, int]], rooms: list[tuple[int, int]]) -> None:
        self.layers, self.rooms = layers, rooms
        budget = evaluator("llama3-8b", machine(80)).budget
        self.budget = budget._replace(devices=tuple(budget.devices[0]._replace(usable_bytes=room) for room, _ in rooms))

    def is_dealt(self, request: RequestedSettings) -> bool:
        return True

    def bytes_by_layer(self, request: RequestedSettings) -> list[int]:
        return [first + grows * (request.n_ctx or 0) for first, grows in self.layers]

    def judged(self, at: int) -> Any:
        plan, request = some_plan().plan, RequestedSettings(n_ctx=at, tensor_split=(1.0,) * len(self.rooms))
        bare = plan.devices[0]._replace(overhead_bytes=0)
        devices = tuple(bare._replace(compute=Interval(falls * at, falls * at, falls * at)) for _, falls in self.rooms)
        return some_plan()._replace(request=request, plan=plan._replace(devices=devices))

    def packs(self, at: int) -> bool:
        """Whether layers in their order find room in some way."""
        layers, rooms = self.bytes_by_layer(RequestedSettings(n_ctx=at)), [r - f * at for r, f in self.rooms]
        for cuts in combinations(range(len(layers) + len(rooms) - 1), len(rooms) - 1):
            ends = [cut - i for i, cut in enumerate(cuts)]
            parts = zip([0, *ends], [*ends, len(layers)], rooms, strict=True)
            if all(sum(layers[a:b]) <= max(room, 0) for a, b, room in parts):
                return True
        return False


numbers = st.tuples(st.integers(1, 1000), st.integers(0, 20))


@given(
    layers=st.lists(numbers, min_size=1, max_size=7),
    rooms=st.lists(st.tuples(st.integers(100, 4000), st.integers(0, 20)), min_size=2, max_size=3),
    looks=st.tuples(st.integers(0, 40), st.integers(0, 40)).filter(lambda pair: pair[0] != pair[1]),
    parts=st.booleans(),
)
def test_it_ends_where_no_way_to_deal_layers_finds_room(layers, rooms, looks, parts):
    fake: Any = Dealt(layers, rooms)
    bare = (lambda at: RequestedSettings(n_ctx=at)) if parts else None
    packing = Packing(fake, contexts=not parts, bare=bare)
    for at in looks:
        packing.add(at, fake.judged(at))
    last = max((at for at in range(61) if fake.packs(at)), default=0)
    assert packing.crossing(0, 61, host=True) == last


def test_of_gpus_that_get_nothing_nothing_is_drawn():
    fake: Any = Dealt([(10, 1)] * 3, [(40, 0), (40, 0)])
    packing = Packing(fake, contexts=False)
    packing.add(0, fake.judged(0))
    alone = fake.judged(30)
    packing.add(30, alone._replace(request=alone.request._replace(tensor_split=(0.0, 3.0))))
    assert packing.crossing(0, 30, host=True) is None  # the one says nothing of the other


def test_nothing_is_said_of_what_nobody_dealt():
    fake: Any = Dealt([(1, 1)], [(10, 0), (10, 0)])
    packing = Packing(fake, contexts=False)
    assert packing.crossing(0, 10, host=True) is None
    packing.add(3, fake.judged(3))
    assert packing.crossing(0, 10, host=True) is None  # one look says nothing of how it goes on
    packing.add(5, fake.judged(5)._replace(request=RequestedSettings(n_ctx=5, n_cpu_moe=1, tensor_split=(1.0, 1.0))))
    assert packing.crossing(0, 10, host=True) is None  # not of the same candidate


@pytest.mark.parametrize("part", [60, 90, 111])
@pytest.mark.parametrize("cache", ["f16", "q8_0"])
def test_a_context_beside_whole_layers_takes_few_sketches(cache, part, monkeypatch):
    judge = evaluator("hunyuan-a13b", machine(24, 24, 12, ram_gib=256))
    search = Search(judge, policy(), policy().intent("context"), Wishes(RequestedSettings()))
    request = search.chain((cache, cache), search.floor, None).make(part)
    looks = []
    sketch = judge.sketch

    def counted(asked: RequestedSettings) -> Any:
        looks.append(asked)
        return sketch(asked)

    monkeypatch.setattr(judge, "sketch", counted)
    border = context_border(search, request, search.floor, search.unasked)
    assert border.judged.fits
    assert border.at == border.high or not sketch(border.make(border.at + 1)).fits
    assert len(looks) <= 6  # halving takes ten
