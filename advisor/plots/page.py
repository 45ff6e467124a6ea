"""The charts of a model on one or several machines, and all of them on one sheet."""

from __future__ import annotations

from advisor.plots.memory_chart import memory_chart
from advisor.plots.scene import Item, Scene, Text, moved, shortened, wrapped
from advisor.plots.speed_chart import pace, speed_chart
from advisor.recommend.curves import MemoryCurves, SpeedCurves
from advisor.records import NamedTuple
from advisor.units import format_bytes

_EDGE, _GAP = 16.0, 24.0


class Table(NamedTuple):
    """Figures as text; the first column names the row."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Section(NamedTuple):
    """One machine: its name, the answer in a sentence, its charts, and their figures."""

    name: str
    summary: str
    charts: tuple[Scene, ...]
    tables: tuple[Table, ...]


class Page(NamedTuple):
    """A model on its machines; `source` says where the figures come from."""

    title: str
    sections: tuple[Section, ...]
    source: str


def section(name: str, summary: str, memory: MemoryCurves, speed: SpeedCurves | None) -> Section:
    """The charts and tables of one machine: memory of the places worth a picture, then the speed."""
    charts = [memory_chart(memory, index) for index in memory.shown()]
    tables = [_memory_table(memory, index) for index in memory.shown()]
    if speed is not None:
        charts.append(speed_chart(speed))
        tables += _speed_tables(speed)
    return Section(name, summary, tuple(charts), tuple(tables))


def _memory_table(memory: MemoryCurves, index: int) -> Table:
    place = memory.places[index]
    where = place.name if place.id == "host" else f"{place.name} ({place.id})"
    lengths = sorted({point.n_ctx for curve in memory.curves for point in curve.points if point.exact})
    rows = []
    for n_ctx in lengths:
        cells = [f"{n_ctx:,}"]
        for curve in memory.curves:
            point = next((point for point in curve.points if point.n_ctx == n_ctx and point.exact), None)
            text = "" if point is None else format_bytes(point.needs[index].total_bytes)
            cells.append(text if point is None or point.fits else f"{text}, does not fit")
        rows.append(tuple(cells))
    head = ("context, tokens", *(f"{curve.cache_type} cache" for curve in memory.curves))
    return Table(f"Memory of {where}: {format_bytes(place.usable_bytes)} may be used", head, tuple(rows))


def _speed_tables(speed: SpeedCurves) -> list[Table]:
    tables = []
    for curve in speed.curves:
        rows = []
        for point in curve.points:
            low, high = pace(point.tokens_per_s.low), pace(point.tokens_per_s.high)
            fits = "fits" if point.fits else "does not fit"
            rows.append((str(point.n_on_gpu), pace(point.tokens_per_s.value), f"{low} to {high}", fits))
        what = "layers" if curve.moves == "layers" else "blocks with their experts"
        tables.append(Table(f"Speed by {what} on the GPU", ("on the GPU", "speed", "range", "memory"), tuple(rows)))
    return tables


def sheet(page: Page) -> Scene:
    """All charts in one picture, two beside each other."""
    columns = min(2, max((len(each.charts) for each in page.sections), default=1))
    width = 2 * _EDGE + columns * 640 + (columns - 1) * _GAP
    inner = width - 2 * _EDGE
    items: list[Item] = []
    y = _EDGE + 20
    for line in wrapped(page.title, inner, 20, bold=True, most=2):
        items.append(Text((_EDGE, y), line, 20, "ink", bold=True))
        y += 26
    said = []
    for each in page.sections:
        for line in wrapped(each.name, inner, 15, bold=True, most=2):
            items.append(Text((_EDGE, y + 6), line, 15, "ink", bold=True))
            y += 20
        for line in wrapped(each.summary, inner, 13):
            items.append(Text((_EDGE, y + 6), line, 13))
            y += 18
        y += 12
        for index, chart in enumerate(each.charts):
            items += moved(chart.items, _EDGE + index % columns * (640 + _GAP), y)
            if index % columns == columns - 1 or index == len(each.charts) - 1:
                y += chart.height + 8
        y += 12
        said.append(f"{each.name}: {each.summary} " + " ".join(chart.description for chart in each.charts))
    items.append(Text((_EDGE, y + 4), shortened(page.source, inner, 11), 11, "quiet"))
    return Scene(width, y + _EDGE, page.title, " ".join(said), tuple(items))
