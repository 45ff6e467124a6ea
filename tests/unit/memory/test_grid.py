"""The whole measured grid: 91 shapes, 3,229 settings, and 74 that the engine refused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.tools.cells import Planned, cells, planned, setting_class

MODELS = sorted({cell["model"] for name in ("grid", "grid-cpu") for cell in cells(name)})


def of_model(model: str) -> Iterator[Planned]:
    for name in ("grid", "grid-cpu"):
        for cell in cells(name):
            if cell["model"] == model:
                yield planned(cell)


@pytest.mark.parametrize("model", MODELS)
def test_weights_and_cache_to_the_byte(model: str) -> None:
    checked = 0
    for found in of_model(model):
        if "error" in found.cell:
            continue
        where = found.cell["settings"]
        assert (found.settings.n_ctx, found.settings.n_ctx_seq) == (found.cell["n_ctx"], found.cell["n_ctx_seq"])
        for index, device in enumerate(found.plan.devices):
            assert (device.weights_bytes, device.cache_bytes) == found.measured(index)[:2], (index, where)
        host = found.plan.host
        assert (host.weights_bytes, host.cache_bytes) == found.measured_host()[:2], where
        if where.get("extra"):
            assert host.repack_bytes == found.cell["bufs"].get("CPU_REPACK", [0])[0], where
        checked += 1
    assert checked


@pytest.mark.parametrize("model", MODELS)
def test_refuses_what_the_engine_refuses(model: str) -> None:
    for found in of_model(model):
        assert (found.plan.refused is not None) == ("error" in found.cell), found.cell["settings"]


def _compute_errors() -> dict[str, list[float]]:
    errors: dict[str, list[float]] = defaultdict(list)
    for name in ("grid", "grid-cpu"):
        for cell in cells(name):
            if "error" in cell:
                continue
            found, kind = planned(cell), setting_class(cell)
            if not found.plan.devices:
                truth = found.measured_host()[2]
                errors[kind].append(abs(found.plan.host.compute.value - truth) / truth)
            for index, device in enumerate(found.plan.devices):
                truth = found.measured(index)[2]
                if truth:
                    errors[kind].append(abs(device.compute.value - truth) / truth)
    return errors


def test_compute_shares() -> None:
    errors = _compute_errors()

    def within(kind: str, limit: float) -> float:
        return sum(error <= limit for error in errors[kind]) / len(errors[kind])

    assert len(errors["one GPU, f16 cache"]) == 396
    assert within("one GPU, f16 cache", 0.01) >= 0.95
    assert len(errors["CPU only, flash attention"]) == 425
    assert within("CPU only, flash attention", 0.01) >= 0.88
