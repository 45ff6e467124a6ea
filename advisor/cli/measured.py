"""Predicted against measured: the comparison that verify and observe share, as rows, text and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from advisor.memory.types import Interval
from advisor.records import NamedTuple
from advisor.units import MIB, format_bytes

if TYPE_CHECKING:
    from advisor.cli.terminal import Screen
    from advisor.memory.types import MemoryPlan
    from advisor.state import Residual

COMPONENTS = ("weights", "cache", "compute", "output")
EXIT_DIFFERS = 5


class Row(NamedTuple):
    """One component of one device ("host" is system memory), both sides as bounds in bytes."""

    device: str
    backend: str  # "cpu" for system memory
    component: str
    predicted: Interval
    measured: Interval

    @property
    def difference_bytes(self) -> int:
        """Measured minus predicted, 0 where the two ranges meet."""
        if self.measured.low > self.predicted.high:
            return self.measured.low - self.predicted.high
        return min(self.measured.high - self.predicted.low, 0)

    @property
    def agrees(self) -> bool:
        """Whether the measured figure, as exact as it is printed, lies in the predicted interval."""
        return self.difference_bytes == 0


def predicted_figures(plan: MemoryPlan, *, mapped: bool = False) -> dict[tuple[str, str], Interval]:
    """The plan by (device, component). `mapped`: host weights as the engine prints them when it maps the file."""
    figures: dict[tuple[str, str], Interval] = {}
    for device in plan.devices:
        figures[device.id, "weights"] = _exact(device.weights_bytes)
        figures[device.id, "cache"] = _exact(device.cache_bytes)
        figures[device.id, "compute"] = device.compute
    host = plan.host
    figures["host", "weights"] = _exact(host.mapped_bytes + host.repack_bytes if mapped else host.weights_bytes)
    figures["host", "cache"] = _exact(host.cache_bytes)
    figures["host", "compute"] = host.compute
    figures["host", "output"] = _exact(host.output_bytes)
    figures["all", "cache"] = _exact(host.cache_bytes + sum(device.cache_bytes for device in plan.devices))
    return figures


def compare(
    predicted: Mapping[tuple[str, str], Interval],
    measured: Mapping[tuple[str, str], Interval],
    backends: Mapping[str, str],
) -> tuple[Row, ...]:
    """Rows for everything that was measured, in the order of the prediction."""
    nothing = Interval(0, 0, 0)
    devices = list(dict.fromkeys([device for device, _ in predicted] + [device for device, _ in measured]))
    return tuple(
        Row(device, backends.get(device, "cpu" if device == "host" else "unknown"), component,
            predicted.get((device, component), nothing), measured[device, component])
        for device in devices
        for component in COMPONENTS
        if (device, component) in measured
    )  # fmt: skip


def residuals(rows: Sequence[Row], architecture: str, build: int | None, source: str) -> list[Residual]:
    """What to remember."""
    from advisor.state import Residual

    return [
        Residual(architecture, build, row.backend, row.component, source, row.difference_bytes)
        for row in rows
        if row.predicted.high or row.measured.high >= MIB
    ]


def rows_shape(rows: Sequence[Row], source: str) -> list[dict[str, Any]]:
    """One entry per device; `source` is "engine" or "observed"."""
    shapes: dict[str, dict[str, Any]] = {}
    for row in rows:
        entry = shapes.setdefault(row.device, {"id": row.device, "backend": row.backend, "components": []})
        entry["components"].append(
            {
                "component": row.component,
                "predicted_bytes": row.predicted.value,
                "predicted_low_bytes": row.predicted.low,
                "predicted_high_bytes": row.predicted.high,
                f"{source}_bytes": row.measured.value,
                f"{source}_low_bytes": row.measured.low,
                f"{source}_high_bytes": row.measured.high,
                "difference_bytes": row.difference_bytes,
                "agrees": row.agrees,
            }
        )
    return list(shapes.values())


def rows_lines(rows: Sequence[Row], who: str, screen: Screen) -> list[str]:
    """A table; whole figures in MiB with two decimals, whole MiB where the engine prints no more."""
    from advisor.cli.terminal import clean, columns

    table = [["", "", "predicted", who, ""]]
    for row in rows:
        if row.predicted.high == row.measured.value == 0:
            continue
        word = "agrees" if row.agrees else f"{_signed(row.difference_bytes)} outside the stated range"
        table.append([clean(row.device, 40), row.component, _range(row.predicted), _printed(row.measured), word])
    lines = ["  " + line for line in columns(table, right=(2, 3))]
    return [screen.paint(lines[0], "dim"), *lines[1:]]


def _exact(n_bytes: int) -> Interval:
    return Interval(n_bytes, n_bytes, n_bytes)


def _signed(n_bytes: int) -> str:
    return ("+" if n_bytes > 0 else "-") + format_bytes(abs(n_bytes))


def _range(value: Interval) -> str:
    if value.high - value.low < MIB // 100:
        return f"{value.value / MIB:,.2f} MiB"
    return f"{value.low / MIB:,.2f} to {value.high / MIB:,.2f} MiB"


def _printed(value: Interval) -> str:
    whole = value.high - value.low >= MIB - 1
    return f"{value.value / MIB:,.0f} MiB" if whole else f"{value.value / MIB:,.2f} MiB"
