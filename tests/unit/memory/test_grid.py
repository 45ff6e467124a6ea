"""Every measured cell: 91 published shapes, small shapes of nearly every other architecture, held-out settings and
shapes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tools.cells import Planned, cells, planned, spec

GRIDS = ("grid", "grid-cpu", "small", "wide", "fresh")
MODELS = sorted({cell["model"] for name in GRIDS for cell in cells(name)})


def of_model(model: str) -> Iterator[Planned]:
    for name in GRIDS:
        for cell in cells(name):
            if cell["model"] == model:
                yield planned(cell)


@pytest.mark.parametrize("model", MODELS)
def test_every_buffer_to_the_byte(model: str) -> None:
    """Weights, cache and compute on every GPU and on the host; what the engine refuses is refused."""
    checked = 0
    for found in of_model(model):
        where = found.cell["settings"]
        assert (found.plan.refused is not None) == ("error" in found.cell), where
        if "error" in found.cell:
            continue
        assert (found.settings.n_ctx, found.settings.n_ctx_seq) == (found.cell["n_ctx"], found.cell["n_ctx_seq"])
        for index, device in enumerate(found.plan.devices):
            ours = (device.weights_bytes, device.cache_bytes, device.compute.value)
            assert ours == found.measured(index), (index, where)
            assert device.compute.low <= device.compute.value <= device.compute.high
        host = found.plan.host
        assert (host.weights_bytes, host.cache_bytes, host.compute.value) == found.measured_host(), where
        if where.get("extra"):
            assert host.repack_bytes == found.cell["bufs"].get("CPU_REPACK", [0])[0], where
        checked += 1
    assert checked


def test_the_grid_is_whole() -> None:
    accepted = [cell for name in ("grid", "grid-cpu") for cell in cells(name) if "error" not in cell]
    assert (len({cell["model"] for cell in accepted}), len(accepted)) == (91, 3229)
    architectures = {spec(model).architecture for model in MODELS}
    assert len(architectures) >= 115
