"""The curves of a plot as text: memory against context, tokens/s against layers, in the width of the screen."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.cli.terminal import Screen, clean
from advisor.plots.axes import nice_step
from advisor.recommend.curves import MemoryCurves, SpeedCurves
from advisor.records import NamedTuple
from advisor.units import GIB, format_bytes

ROWS = 12
_MOVES = {"layers": "whole layers", "experts": "experts last"}


class _Mark(NamedTuple):
    """How one line is drawn: where it fits, where it does not, both also for outputs of few letters."""

    fancy: str
    plain: str
    open_fancy: str
    open_plain: str
    color: str


_MARKS = (
    _Mark("●", "O", "○", "o", "red"),
    _Mark("▲", "A", "△", "^", "blue"),
    _Mark("■", "H", "□", "#", "green"),
)


class _Grid:
    """Cells with a letter and a colour, from (0, 0) at the lower left."""

    def __init__(self, width: int, height: int, y_min: float, y_max: float) -> None:
        self.width, self.height = width, height
        self._low, self._high = y_min, y_max
        self._cells = [[(" ", "") for _ in range(width)] for _ in range(height)]

    def row(self, value: float) -> int:
        """The row of a value, outside the grid if that is."""
        return int((value - self._low) / (self._high - self._low) * self.height // 1)

    def put(self, column: int, row: int, letter: str, color: str) -> None:
        """Write a cell, if there is such a one."""
        if 0 <= row < self.height and 0 <= column < self.width:
            self._cells[row][column] = (letter, color)

    def lines(self, screen: Screen, unit: str) -> list[str]:
        """The rows from the top, with the axis and its figures."""
        found = [f"  {unit}"]
        bar, corner, dash = screen.symbol("│", "|"), screen.symbol("└", "+"), screen.symbol("─", "-")
        step = nice_step(self._high - self._low, 5)
        ticks = [index * step for index in range(int(self._low // step), int(self._high // step) + 1)]
        figures = {self.row(value): f"{value:8,g}" for value in reversed(ticks)}
        for row in reversed(range(self.height)):
            label = figures.get(row, " " * 8)
            cells = "".join(screen.paint(letter, color) if color else letter for letter, color in self._cells[row])
            found.append(f"{label} {bar}{cells}".rstrip())
        return [*found, f"{' ' * 9}{corner}{dash * self.width}"]


def curve_lines(memory: MemoryCurves, speed: SpeedCurves | None, screen: Screen) -> list[str]:
    """What `recommend --plot` adds."""
    lines: list[str] = []
    for index in memory.shown():
        lines += [*_memory(memory, index, screen), ""]
    if speed is not None:
        lines += [*_speed(speed, screen), ""]
    return lines[:-1]


def _memory(memory: MemoryCurves, index: int, screen: Screen) -> list[str]:
    place = memory.places[index]
    where = place.name if place.id == "host" else f"{place.name} ({place.id})"
    title = screen.wrap(f"Memory of {clean(where)}, {clean(memory.basis)}")
    points = [point for curve in memory.curves for point in curve.points]
    if not points:
        return title
    least = min(point.needs[index].total_bytes for point in points) / GIB
    limit = place.usable_bytes / GIB
    top = 1.15 * max(place.free_bytes / GIB, 1.1 * least)
    low = least - 0.25 * (top - least) if 0.6 * top < least < limit else 0.0
    width = max(min(screen.width - 12, 76), 24)
    grid = _Grid(width, ROWS, low, top)
    last = max(point.n_ctx for point in points)
    weights = min(point.needs[index].weights_bytes for point in points)
    filled = [row for row in range(ROWS) if row < grid.row(weights / GIB)]
    for column in range(width):
        for row in filled:
            grid.put(column, row, screen.symbol("░", "."), "dim")
        grid.put(column, grid.row(limit), screen.symbol("─", "-"), "bold")
    for number, curve in reversed(list(enumerate(memory.curves))):
        mark = _MARKS[number % len(_MARKS)]
        values = [(point.n_ctx, point.needs[index].total_bytes / GIB) for point in curve.points]
        for column in range(width):
            n_ctx = last * (column + 0.5) / width
            fits = curve.max_n_ctx is not None and n_ctx <= curve.max_n_ctx
            letter = screen.symbol(mark.fancy, mark.plain) if fits else screen.symbol(mark.open_fancy, mark.open_plain)
            grid.put(column, grid.row(_between(values, n_ctx)), letter, mark.color)
    lines = [*(screen.paint(line, "bold") for line in title), *grid.lines(screen, "GiB")]
    lines += [" " * 10 + _scale(last, width), f"{' ' * 10}{'context, tokens':^{width}}".rstrip()]
    kept = format_bytes(place.free_bytes - place.usable_bytes)
    rule = screen.symbol("─", "-") * 3
    lines += screen.wrap(f"{rule} {format_bytes(place.usable_bytes)}, beside {kept} that stay free", "  ", "  ")
    if filled:
        lines.append(f"  {screen.paint(screen.symbol('░', '.') * 3, 'dim')} weights {format_bytes(weights)}")
    for number, curve in enumerate(memory.curves):
        mark = _MARKS[number % len(_MARKS)]
        drawn = screen.paint(screen.symbol(mark.fancy, mark.plain), mark.color)
        longest = "nothing fits" if curve.max_n_ctx is None else f"fits up to {curve.max_n_ctx:,} tokens"
        cache = f"{curve.cache_type} cache: " if memory.grows else ""
        lines.append(f"  {drawn} {cache}{longest}")
    return lines


def _speed(speed: SpeedCurves, screen: Screen) -> list[str]:
    reads = "Reading" if speed.reads else "Tokens/s"
    title = screen.wrap(f"{reads} against layers on the GPU, {clean(speed.context)}")
    points = [point for curve in speed.curves for point in curve.points]
    if not points:
        return title
    width = max(min(screen.width - 12, 76), 24)
    grid = _Grid(width, ROWS, 0.0, 1.08 * max(point.tokens_per_s.value for point in points))
    for number, curve in enumerate(speed.curves):
        mark = _MARKS[number % len(_MARKS)]
        values = [(point.n_on_gpu, point.tokens_per_s.value) for point in curve.points]
        for column in range(width):
            count = speed.n_layers * column / (width - 1)
            point = curve.points[min(round(count), len(curve.points) - 1)]
            letter = screen.symbol(mark.fancy, mark.plain)
            if not point.fits:
                letter = screen.symbol(mark.open_fancy, mark.open_plain)
            grid.put(column, grid.row(_between(values, count)), letter, mark.color)
    lines = [*(screen.paint(line, "bold") for line in title), *grid.lines(screen, "tokens/s")]
    moved = "layers or expert blocks" if len(speed.curves) > 1 else "layers"
    lines += [" " * 10 + _scale(speed.n_layers, width), f"{' ' * 10}{f'{moved} on the GPU':^{width}}".rstrip()]
    for number, curve in enumerate(speed.curves):
        mark = _MARKS[number % len(_MARKS)]
        drawn = screen.paint(screen.symbol(mark.fancy, mark.plain), mark.color)
        beyond = screen.paint(screen.symbol(mark.open_fancy, mark.open_plain), mark.color)
        most = curve.most_that_fits
        fits = "nothing fits" if most is None else f"fits up to {most}, {beyond} does not"
        if most is not None and most >= curve.points[-1].n_on_gpu:
            fits = f"all {most} fit"
        lines.append(f"  {drawn} {_MOVES[curve.moves]}: {fits}")
    return lines


def _between(values: Sequence[tuple[float, float]], at: float) -> float:
    """The value of a line through points at `at`; beyond its ends that of the end."""
    before = values[0]
    for point in values:
        if point[0] >= at:
            if point[0] == before[0]:
                return point[1]
            share = max(at - before[0], 0) / (point[0] - before[0])
            return before[1] + (point[1] - before[1]) * share
        before = point
    return before[1]


def _scale(last: int, width: int) -> str:
    """0, the middle and the end below an axis."""
    middle, end = f"{last // 2:,}", f"{last:,}"
    text = "0" + middle.center(width - 1)
    return text[: width - len(end)] + end
