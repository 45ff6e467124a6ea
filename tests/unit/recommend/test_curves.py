"""The points of the plots are plans of the core, and what fits in them is what fits."""

from __future__ import annotations

import functools
from itertools import pairwise

import pytest

from advisor.recommend.cards import recommend_on
from advisor.recommend.curves import MemoryCurves, SpeedCurves, memory_curves, speed_curves
from advisor.recommend.search import Search, Wishes
from advisor.settings import RequestedSettings
from tests.tools.machines import GIB, evaluator, machine, policy

CASES = {
    "whole": ("llama3-8b", machine(12, ram_gib=32)),
    "window": ("gemma3-12b", machine(12, ram_gib=32)),
    "part": ("llama33-70b-q4_k_m", machine(24, ram_gib=64)),
    "experts": ("qwen3moe-30b", machine(12, ram_gib=64)),
    "two": ("qwen3moe-30b", machine(12, 12, ram_gib=64)),
    "cpu": ("llama3-8b", machine(ram_gib=32)),
    "nothing": ("llama33-70b-q4_k_m", machine(4, ram_gib=16)),
    "state": ("mamba-2.8b", machine(12, ram_gib=32)),
    "embeds": ("bert-large", machine(12, ram_gib=32)),
}


_n_ubatch: dict[str, int | None] = {}  # as chosen


@functools.cache
def curves(case: str, **pinned: object) -> tuple[Search, MemoryCurves, SpeedCurves | None]:
    model, host = CASES[case]
    intent, wishes = policy().intent("balanced"), Wishes(RequestedSettings(**pinned))
    answer, used = recommend_on(host, lambda each: evaluator(model, each), policy(), intent, wishes)
    search = Search(evaluator(model, used), policy(), intent, wishes)
    _n_ubatch[case] = answer.chosen.request.n_ubatch
    return search, memory_curves(search, answer.chosen), speed_curves(search, answer.chosen)


def fresh(case: str, **settings: object):
    """The plan of exactly these settings, by an evaluator that knows nothing of the curves."""
    search, _, _ = curves(case)
    again = Search(evaluator(CASES[case][0], search.evaluator.host), policy(), search.intent, search.wishes)
    return again.judge(again.base._replace(**settings))


@pytest.mark.parametrize("case", ["whole", "window", "two", "state"])
def test_exact_points_are_the_cores_plans(case):
    search, memory, _ = curves(case)
    assert memory.basis == "every layer on the GPU"
    for curve in memory.curves:
        exact = [point for point in curve.points if point.exact]
        assert len(exact) > 4
        for point in exact:
            kind = curve.cache_type
            plan = fresh(
                case, n_ctx=point.n_ctx, n_gpu_layers=search.spec.n_layer_all + 1, cache_type_k=kind, cache_type_v=kind
            )
            needs = [device.planned_bytes for device in plan.plan.devices] + [plan.plan.host.planned_bytes]
            assert [need.total_bytes for need in point.needs] == needs, (kind, point.n_ctx)
            assert point.fits == plan.fits


@pytest.mark.parametrize(("case", "kind", "bytes_per_token"), [
    ("whole", "f16", 131072), ("whole", "q8_0", 131072 * 34 // 64), ("whole", "q4_0", 131072 * 18 // 64),
])  # fmt: skip
def test_every_points_cache_is_tokens_times_heads(case, kind, bytes_per_token):
    """Llama 3 8B: 32 blocks, 8 key heads of 128, keys and values; q8_0 and q4_0 take 34 and 18 bytes for 32 values."""
    _, memory, _ = curves(case)
    curve = next(curve for curve in memory.curves if curve.cache_type == kind)
    for point in curve.points:
        assert point.needs[0].cache_bytes == point.n_ctx * bytes_per_token


@pytest.mark.parametrize("case", ["whole", "window", "experts"])
def test_between_exact_points_only_compute_is_guessed(case):
    _, memory, _ = curves(case)
    for curve in memory.curves:
        guessed = [point for point in curve.points if not point.exact]
        assert guessed
        longer = [point for point in curve.points if point.n_ctx >= 2048]  # shorter than a batch it bends
        for point, after in pairwise(longer):
            low, high = sorted((point.needs[0].compute_bytes, after.needs[0].compute_bytes))
            assert high - low < 64 << 20  # no jump in what is guessed
            assert point.needs[0].total_bytes <= after.needs[0].total_bytes
            assert point.needs[0].weights_bytes == after.needs[0].weights_bytes


def test_a_window_bends_the_curve():
    """Gemma 3 12B: 40 of 48 blocks keep 1,024 tokens and a micro-batch of 512; 8 blocks of 8 x 256 heads keep all."""
    _, memory, _ = curves("window")
    points = {point.n_ctx: point.needs[0].cache_bytes for point in memory.curves[0].points}
    assert points[1536] == 1536 * 48 * 8 * 256 * 2 * 2
    ends = sorted(points)[-2:]
    assert points[ends[1]] - points[ends[0]] == (ends[1] - ends[0]) * 8 * 8 * 256 * 2 * 2


@pytest.mark.parametrize("case", ["whole", "window", "part", "experts", "two", "cpu"])
def test_the_longest_contexts_are_those_of_recommend(case):
    model, host = CASES[case]
    intent, wishes = policy().intent("balanced"), Wishes(RequestedSettings())
    answer, _ = recommend_on(host, lambda each: evaluator(model, each), policy(), intent, wishes)
    _, memory, _ = curves(case)
    assert memory.basis == answer.contexts.basis
    told = {row.cache_type: row.max_n_ctx for row in answer.contexts.rows}
    drawn = {curve.cache_type: curve.max_n_ctx for curve in memory.curves}
    assert {kind: drawn[kind] for kind in told} == told
    assert memory.chosen is not None
    assert memory.chosen.n_ctx == answer.chosen.plan.settings.n_ctx
    for curve in memory.curves:
        assert curve.at_max is not None
        assert curve.at_max.fits
        for need, place in zip(curve.at_max.needs, memory.places, strict=True):
            assert need.total_bytes <= place.usable_bytes


def test_what_fits_nowhere_is_drawn_with_its_limit():
    search, memory, speed = curves("nothing")
    assert memory.chosen is None
    assert [curve.at_max for curve in memory.curves] == [None] * 3
    assert memory.bound_by_host
    assert [memory.places[index].id for index in memory.shown()] == ["CUDA0", "host"]
    assert speed is not None
    assert not any(point.fits for point in speed.curves[0].points)
    assert search.evaluator.budget.ram_usable_bytes == 15 * GIB


def test_without_a_gpu_there_is_system_memory_alone():
    _, memory, speed = curves("cpu")
    assert speed is None
    assert [memory.places[index].id for index in memory.shown()] == ["host"]


@pytest.mark.parametrize(("case", "moves"), [("part", "layers"), ("experts", "layers"), ("experts", "experts")])
def test_the_most_that_fits_fits_and_one_more_does_not(case, moves):
    search, _, speed = curves(case)
    assert speed is not None
    curve = next(curve for curve in speed.curves if curve.moves == moves)
    every = search.spec.n_layer_all + 1
    assert [point.n_on_gpu for point in curve.points] == list(range(every + (moves == "layers")))

    def judged(count: int):
        layers, away = (count, None) if moves == "layers" else (every, every - 1 - count)
        kinds = {"cache_type_k": speed.cache_type, "cache_type_v": speed.cache_type}
        return fresh(case, n_ctx=speed.n_ctx, n_gpu_layers=layers, n_cpu_moe=away, n_ubatch=_n_ubatch[case], **kinds)

    most = curve.most_that_fits
    assert most is not None
    assert judged(most).fits_devices
    assert not judged(most + 1).fits_devices
    assert [point.fits for point in curve.points] == [count <= most for count in range(len(curve.points))]
    for count in (0, most, len(curve.points) - 1):
        expected = search.evaluator.speed(judged(count), search.intent).decode_tokens_per_s
        assert curve.points[count].tokens_per_s == pytest.approx(expected)


@pytest.mark.parametrize("case", ["whole", "part", "experts", "two", "embeds"])
def test_the_chosen_point_lies_on_its_curve(case):
    _, _, speed = curves(case)
    assert speed is not None
    assert speed.chosen is not None
    moves, chosen = speed.chosen
    curve = next(curve for curve in speed.curves if curve.moves == moves)
    at = curve.points[chosen.n_on_gpu]
    assert at.n_on_gpu == chosen.n_on_gpu
    assert at.fits
    assert speed.reads == (case == "embeds")
    if case == "experts":  # those of one more block are on the GPU in part
        after = curve.points[chosen.n_on_gpu + 1]
        assert at.tokens_per_s.value < chosen.tokens_per_s.value < after.tokens_per_s.value
    else:
        assert at.tokens_per_s == pytest.approx(chosen.tokens_per_s)


def test_layers_make_a_dense_model_faster():
    _, _, speed = curves("part")
    assert speed is not None
    rates = [point.tokens_per_s.value for point in speed.curves[0].points]
    assert rates == sorted(rates)


def test_slots_share_the_context():
    """Four slots take four times the cache of one at the same context each."""
    _, one, _ = curves("whole")
    _, four, _ = curves("whole", n_parallel=4)
    assert four.basis.endswith("each of 4 slots")
    alone = {point.n_ctx: point.needs[0].cache_bytes for point in one.curves[0].points}
    shared = {point.n_ctx: point.needs[0].cache_bytes for point in four.curves[0].points}
    both = alone.keys() & shared.keys()
    assert len(both) > 4
    assert all(shared[n_ctx] == 4 * alone[n_ctx] for n_ctx in both)


@pytest.mark.parametrize("own_gib", [0, 2])
def test_system_memory_holds_what_unified_gpus_take_of_it(own_gib):
    host = machine(16, ram_gib=16, backend="vulkan", bandwidth=100 * 10**9)
    (device,) = host.devices
    shared = 16 * GIB - own_gib * GIB
    host = host._replace(devices=(device._replace(memory_kind="unified", shared_bytes=shared),))
    intent, wishes = policy().intent("balanced"), Wishes(RequestedSettings())
    answer, used = recommend_on(host, lambda each: evaluator("llama3-8b", each), policy(), intent, wishes)
    search = Search(evaluator("llama3-8b", used), policy(), intent, wishes)
    memory = memory_curves(search, answer.chosen)
    assert memory.bound_by_host
    for curve in memory.curves:
        for point in curve.points:
            gpu, both = point.needs
            assert both.total_bytes > gpu.total_bytes - own_gib * GIB
            assert point.fits == (
                both.total_bytes <= memory.places[-1].usable_bytes and gpu.total_bytes <= memory.places[0].usable_bytes
            )
