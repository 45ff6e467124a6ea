"""Borders by sketches and exact plans: found whatever the shape of the need, with few plans."""

from __future__ import annotations

import functools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.memory.anchors import Anchors
from advisor.memory.graph import GraphPlacement, GraphSettings
from advisor.memory.types import Interval
from advisor.recommend.budget import Shortfall
from advisor.recommend.evaluate import Judged
from advisor.recommend.solve import everywhere, settle, sketch_border
from advisor.settings import RequestedSettings
from tests.tools.machines import evaluator, machine


@functools.cache
def some_plan() -> Judged:
    judge = evaluator("llama3-8b", machine(80))
    return judge.judge(RequestedSettings(n_ctx=4096, n_parallel=1, kv_unified=False))


class Steps:
    """An evaluator of numbers: i needs `needs[i]` bytes of compute buffer, as a sketch `drawn[i]`, of `limit`."""

    def __init__(self, needs: list[int], drawn: list[int], limit: int) -> None:
        self.needs, self.drawn, self.limit = needs, drawn, limit
        self.n_sketched = 0

    def _judged(self, request: RequestedSettings, need: int) -> Judged:
        plan = some_plan().plan
        device = plan.devices[0]._replace(compute=Interval(need, need, need))
        over = (Shortfall(device.id, need - self.limit),) if need > self.limit else ()
        return Judged(request, plan._replace(devices=(device,)), over)

    def sketch(self, request: RequestedSettings) -> Judged:
        self.n_sketched += 1
        return self._judged(request, self.drawn[request.n_ctx or 0])

    def judge(self, request: RequestedSettings) -> Judged:
        return self._judged(request, self.needs[request.n_ctx or 0])

    def is_dealt(self, request: RequestedSettings) -> bool:
        return False

    def split_anew(self, judged: Judged) -> None:
        """Nor is it here."""

    def spare(self, judged: Judged, *, host: bool) -> int:
        assert host
        return self.limit - judged.plan.devices[0].compute.high


def number(i: int) -> RequestedSettings:
    return RequestedSettings(n_ctx=i)


def border_of(needs: list[int], limit: int) -> int:
    return max((i for i, need in enumerate(needs) if need <= limit), default=0)


@settings(deadline=None)
@given(
    steps=st.lists(st.integers(0, 1000), min_size=1, max_size=600),
    limit=st.integers(0, 300_000),
    near=st.none() | st.integers(0, 700),
)
def test_the_border_is_found_whatever_the_steps(steps, limit, near):
    needs = [sum(steps[: i + 1]) for i in range(len(steps))]
    fake: Any = Steps(needs, needs, limit)
    found = sketch_border(fake, number, 0, len(needs) - 1, everywhere, near)
    assert found.at == border_of(needs, limit)
    assert found.judged.fits == (needs[found.at] <= limit)


@given(
    slope=st.integers(1, 1000), base=st.integers(0, 10_000), limit=st.integers(0, 400_000), count=st.integers(2, 512)
)
def test_an_even_need_takes_few_sketches(slope, base, limit, count):
    needs = [base + slope * i for i in range(count)]
    fake: Any = Steps(needs, needs, limit)
    found = sketch_border(fake, number, 0, count - 1, everywhere)
    assert found.at == border_of(needs, limit)
    assert fake.n_sketched <= 8


class Whole(Steps):
    """What is spare leaves out that layers are whole: it is wrong by as much as the last border left, or did not."""

    def __init__(self, needs: list[int], limit: int, wrong: int) -> None:
        super().__init__(needs, needs, limit)
        self.wrong = wrong

    def spare(self, judged: Judged, *, host: bool) -> int:
        return super().spare(judged, host=host) + self.wrong


@given(
    slope=st.integers(1, 1000), base=st.integers(0, 10_000), limit=st.integers(0, 400_000), count=st.integers(2, 512),
    wrong=st.integers(-50_000, 50_000), near=st.none() | st.integers(0, 512),
)  # fmt: skip
def test_the_border_is_found_however_much_whole_layers_leave(slope, base, limit, count, wrong, near):
    needs = [base + slope * i for i in range(count)]
    fake: Any = Whole(needs, limit, wrong)
    found = sketch_border(fake, number, 0, count - 1, everywhere, near)
    assert found.at == border_of(needs, limit)
    assert fake.n_sketched <= 24  # doubled away from what was thought, then halved

    fake = Whole(needs, limit, wrong)
    found = sketch_border(fake, number, 0, count - 1, everywhere, near, loosely=True)
    assert found.at <= border_of(needs, limit)


def test_what_does_not_matter_is_left_open():
    needs = list(range(512))
    fake: Any = Steps(needs, needs, 300)
    found = sketch_border(fake, number, 0, 511, everywhere, 10, enough=lambda judged, most: most <= 511)
    assert found.at < 300 <= (found.most or 0)
    assert fake.n_sketched <= 2
    fake = Steps(needs, needs, 300)
    assert sketch_border(fake, number, 0, 511, everywhere, 10, enough=lambda judged, most: False).most is None


@settings(deadline=None)
@given(
    steps=st.lists(st.integers(0, 1000), min_size=1, max_size=80),
    wrong=st.integers(-3000, 3000),
    limit=st.integers(0, 60_000),
)
def test_exact_plans_correct_wrong_sketches(steps, wrong, limit):
    needs = [sum(steps[: i + 1]) for i in range(len(steps))]
    fake: Any = Steps(needs, [max(need + wrong, 0) for need in needs], limit)
    border = sketch_border(fake, number, 0, len(needs) - 1, everywhere)
    judged = settle(fake, border, everywhere)
    if needs[0] > limit:
        assert judged is None
    else:
        assert judged is not None
        assert judged.request.n_ctx == border_of(needs, limit)


def test_from_where_it_does_not_matter_close_is_enough():
    needs = [0] * 200 + [10 * i for i in range(312)]
    exact: Any = Steps(needs, [need + 15 for need in needs], 2000)
    border = sketch_border(exact, number, 0, 511, everywhere)
    assert settle(exact, border, everywhere).request.n_ctx == border_of(needs, 2000)
    loose = settle(exact, border, everywhere, loose_from=100)
    assert loose is not None
    assert loose.fits
    assert border_of(needs, 2000) * 127 // 128 <= (loose.request.n_ctx or 0) <= border_of(needs, 2000)


def graph_settings(n_ctx: int, n_ubatch: int = 512, kind: int = 1) -> GraphSettings:
    return GraphSettings(n_ctx, n_ctx, 2048, n_ubatch, 1, False, "on", kind, kind)


def test_what_is_known_far_away_says_nothing():
    anchors, placed = Anchors(), GraphPlacement(1, (0, 0, 0))
    anchors.add(graph_settings(8192), placed, (100 << 20, 10 << 20))
    assert anchors.guess(graph_settings(16384), placed) is not None
    assert anchors.guess(graph_settings(65536), placed) is None


def test_another_cache_type_is_better_than_nothing():
    anchors, placed = Anchors(), GraphPlacement(1, (0, 0, 0))
    anchors.add(graph_settings(8192), placed, (100 << 20, 10 << 20))
    assert anchors.guess(graph_settings(8192, kind=8), placed) == (100 << 20, 10 << 20)
    assert not anchors.on_a_line(graph_settings(8192, kind=8), placed)


def test_between_two_micro_batches():
    anchors, placed = Anchors(), GraphPlacement(1, (0, 0, 0))
    anchors.add(graph_settings(8192, 512), placed, (100, 10))
    assert anchors.guess(graph_settings(8192, 1024), placed) is None
    anchors.add(graph_settings(8192, 2048), placed, (400, 40))
    assert anchors.guess(graph_settings(8192, 1024), placed) == (200, 20)


def test_each_place_may_lie_on_a_line_of_its_own():
    anchors, placed = Anchors(), GraphPlacement(1, (0, 0, 0))
    mask = 2 * 512  # bytes per token
    for n_ctx, device in ((8192, 0), (16384, 8192 * mask), (32768, 24576 * mask)):
        anchors.add(graph_settings(n_ctx), placed, (device, 5 * n_ctx))  # the host's at another slope
    assert anchors.on_a_line(graph_settings(20480), placed)
    assert not anchors.on_a_line(graph_settings(65536), placed)
