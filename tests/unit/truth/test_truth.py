"""Our prediction held against every build that was measured (`make truth`)."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.tools.cells import Planned
from tests.truth import recorded
from tests.truth.recorded import REFERENCE_BUILD, measured_sizes, planned_for, planned_sizes
from tests.truth.report import Difference, architecture_of, differences, moved, rows
from tests.truth.settings import drawn, zoo

BUILDS = recorded.recorded_builds()
# build → share of (GPU compute, host compute) fields that are predicted to the byte, at least
EXACT_COMPUTE = {10435: (0.875, 0.716), 11434: (1.0, 1.0), 11549: (0.995, 0.995)}
# what the rules cannot say about a build yet: (build, architecture), by component
OTHER_CACHE = {(10435, "bailingmoe2")}
OTHER_COMPUTE = {11549: {"gemma4", "gpt-oss"}}


@functools.cache
def plans(build: int) -> tuple[Planned, ...]:
    return tuple(planned_for(cell, build) for cell in recorded.read(build))


@functools.cache
def found(build: int) -> tuple[Difference, ...]:
    result: list[Difference] = []
    for plan in plans(build):
        if "error" not in plan.cell:
            architecture = architecture_of(plan.cell["model"])
            result += differences(architecture, measured_sizes(plan.cell), planned_sizes(plan))
    return tuple(result)


def exact_share(build: int, component: str) -> float:
    ours = [item for item in found(build) if item.component == component]
    return sum(item.bytes == 0 for item in ours) / len(ours)


def test_the_builds_that_were_measured() -> None:
    assert set(EXACT_COMPUTE) == set(BUILDS)
    assert REFERENCE_BUILD in BUILDS
    for build in BUILDS:
        accepted = [cell for cell in recorded.read(build) if "error" not in cell]
        assert len(accepted) >= 200
        assert len({architecture_of(cell["model"]) for cell in accepted}) >= 60


@pytest.mark.parametrize("build", BUILDS)
def test_the_engine_refuses_what_we_refuse(build: int) -> None:
    for plan in plans(build):
        assert (plan.plan.refused is not None) == ("error" in plan.cell), recorded.key(plan.cell)
        if "error" not in plan.cell:
            assert (plan.settings.n_ctx, plan.settings.n_ctx_seq) == (plan.cell["n_ctx"], plan.cell["n_ctx_seq"])


@pytest.mark.parametrize("build", BUILDS)
def test_weights_and_cache_to_the_byte(build: int) -> None:
    for item in found(build):
        known = "cache" in item.component and (build, item.architecture) in OTHER_CACHE
        if "compute" not in item.component and not known:
            assert item.bytes == 0, item


@pytest.mark.parametrize("build", BUILDS)
def test_share_of_exact_compute(build: int) -> None:
    gpu, host = EXACT_COMPUTE[build]
    assert exact_share(build, "compute") >= gpu
    assert exact_share(build, "host compute") >= host


@pytest.mark.parametrize("build", sorted(OTHER_COMPUTE))
def test_compute_differs_only_where_the_graph_is_known_to_have_changed(build: int) -> None:
    other = {item.architecture for item in found(build) if "compute" in item.component and item.bytes}
    assert other <= OTHER_COMPUTE[build]


@pytest.mark.parametrize("build", BUILDS)
def test_a_wrong_build_is_noticed(build: int) -> None:
    """The cells tell builds apart: planned as another build, fewer of them are right."""
    other = 10435 if build != 10435 else 11434
    wrong = right = 0
    for plan in plans(build)[::12]:
        if "error" not in plan.cell:
            truth = measured_sizes(plan.cell)
            right += planned_sizes(plan) == truth
            wrong += planned_sizes(planned_for(plan.cell, other)) == truth
    assert wrong < right


def test_a_build_that_moved_is_reported() -> None:
    before = [cell for cell in recorded.read(11434) if "error" not in cell][:3]
    after: list[dict[str, Any]] = [{**cell, "bufs": dict(cell["bufs"])} for cell in before]
    name = next(name for name in after[0]["bufs"] if after[0]["bufs"][name][1])
    weights, cache, compute = after[0]["bufs"][name]
    after[0]["bufs"][name] = [weights, cache + 64, compute]
    after[2] = {key: value for key, value in after[2].items() if key != "bufs"} | {"error": "ctx"}
    changed, verdicts = moved(before, after)
    changed = [row for row in changed if row.n_differing]
    assert [(row.n_differing, row.worst.bytes) for row in changed] == [(1, 64)]
    assert changed[0].component == ("cache" if name.startswith("FAKE") and name != "FAKE_Host" else "host cache")
    assert len(verdicts) == 1
    assert verdicts[0].startswith("refused now")


def test_rows_keep_the_worst() -> None:
    items = [Difference("a", "compute", size, size / 100) for size in (0, 5, -9, 3)]
    (row,) = rows(items)
    assert (row.n_cells, row.n_differing, row.worst.bytes) == (4, 3, -9)


def test_the_same_seed_draws_the_same_cells() -> None:
    model = zoo()[0]
    assert drawn(model, 1, 6) == drawn(model, 1, 6)
    assert drawn(model, 1, 6) != drawn(model, 2, 6)
    assert drawn(model, 1, 3) == drawn(model, 1, 6)[:3]
    recorded_keys = {recorded.key(cell) for cell in recorded.read(REFERENCE_BUILD)}
    assert {recorded.key(cell) for cell in drawn(model, 1, 3)} <= recorded_keys
