"""Files of measured cells by build, and our plans for them."""

from __future__ import annotations

import functools
import gzip
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from advisor.host import Device
from advisor.memory.plan import plan_memory
from advisor.memory.resolve import resolve_settings
from advisor.memory.types import MemoryPlan
from advisor.settings import RunSettings
from tests.tools.cells import DATA, Planned, engine, requested, spec

TRUTH = DATA / "truth"
COMPONENTS = ("weights", "cache", "compute", "host weights", "host cache", "host compute")
REFERENCE_BUILD = 11434  # of tests/data/cases


class Sizes(NamedTuple):
    """Bytes of one cell: all GPUs, one tuple each, and the host as a whole."""

    devices: tuple[tuple[int, int, int], ...]  # weights, cache, compute
    host: tuple[int, int, int]

    def by_component(self) -> dict[str, tuple[int, ...]]:
        """Component → sizes, one per GPU or one for the host."""
        table = {name: tuple(device[i] for device in self.devices) for i, name in enumerate(COMPONENTS[:3])}
        table.update({name: (self.host[i],) for i, name in enumerate(COMPONENTS[3:])})
        return table


def recorded_builds() -> list[int]:
    """Builds that were measured, oldest first."""
    found = (re.fullmatch(r"b(\d+)\.jsonl\.gz", path.name) for path in TRUTH.glob("*.jsonl.gz"))
    return sorted(int(match[1]) for match in found if match)


def path_of(build: int) -> Path:
    """The file of one build."""
    return TRUTH / f"b{build}.jsonl.gz"


def read(build: int) -> list[dict[str, Any]]:
    """The cells of one build."""
    with gzip.open(path_of(build), "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def write(build: int, cells: Iterable[dict[str, Any]]) -> Path:
    """Write the cells of one build; equal cells make equal files."""
    text = "".join(json.dumps(cell, separators=(",", ":")) + "\n" for cell in cells)
    path = path_of(build)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    return path


def key(cell: dict[str, Any]) -> str:
    """What makes two cells of different builds the same cell."""
    return json.dumps([cell["model"], cell["settings"], cell["free_mib"]], sort_keys=True)


def measured_sizes(cell: dict[str, Any]) -> Sizes:
    """A cell as the engine sees it; the cell must not be an error."""
    buffers = cell["bufs"]
    devices = [buffers.get(f"FAKE{i}", (0, 0, 0)) for i in range(len(cell["free_mib"]))]
    host = [sizes for name, sizes in buffers.items() if name in ("CPU", "CPU_REPACK", "FAKE_Host")]
    return Sizes(
        tuple((weights, cache, compute) for weights, cache, compute in devices),
        (sum(x[0] for x in host), sum(x[1] for x in host), sum(x[2] for x in host)),
    )


def planned_for(cell: dict[str, Any], build: int) -> Planned:
    """Our plan for a cell at one build; worked out once."""
    return Planned(cell, *_planned(key(cell), build))


@functools.cache
def _planned(cell_key: str, build: int) -> tuple[RunSettings, MemoryPlan]:
    cell = dict(zip(("model", "settings", "free_mib"), json.loads(cell_key), strict=True))
    devices = [Device(f"CUDA{i}", "cuda", f"CUDA{i}", mib << 20, mib << 20) for i, mib in enumerate(cell["free_mib"])]
    model, rules = spec(cell["model"]), engine(build)
    tool = "server" if cell["settings"]["no"] else "cli"
    settings = resolve_settings(requested(cell), model, rules, tool=tool, n_devices=len(devices))
    return settings, plan_memory(model, settings, rules, devices)


def planned_sizes(found: Planned) -> Sizes:
    """A cell as we see it."""
    host = found.plan.host
    return Sizes(
        tuple((d.weights_bytes, d.cache_bytes, d.compute.value) for d in found.plan.devices),
        (host.weights_bytes, host.cache_bytes, host.compute.value),
    )


def plans(cells: Iterable[dict[str, Any]], build: int) -> Iterator[Planned]:
    """Plans for the cells that the engine accepted."""
    return (planned_for(cell, build) for cell in cells if "error" not in cell)
