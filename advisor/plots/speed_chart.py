"""Tokens per second against what lies on the GPUs."""

from __future__ import annotations

from advisor.plots.axes import Frame, Labels, around, axes, legend, nice_step
from advisor.plots.palette import style
from advisor.plots.scene import XY, Area, Item, Line, Scene, Symbol, Text, shortened
from advisor.recommend.curves import SpeedCurve, SpeedCurves

WIDTH, HEIGHT = 640.0, 440.0
_LEFT, _TOP, _RIGHT, _BOTTOM = 58.0, 74.0, 612.0, 356.0
_MOVES = {"layers": "layers", "experts": "expert blocks"}
_NOT = (1.5, 3.5)  # dashes of what does not fit


def speed_chart(speed: SpeedCurves) -> Scene:
    """Solid as far as the GPUs' memory goes, dotted beyond; the shade is the range of the estimate."""
    highest = max((point.tokens_per_s.high for curve in speed.curves for point in curve.points), default=1.0)
    frame = Frame(_LEFT, _TOP, _RIGHT, _BOTTOM, float(speed.n_layers), 1.08 * highest)
    reads = "Reading a prompt" if speed.reads else "Speed"
    title = f"{reads} with layers on the GPU"
    context = speed.context if speed.reads else f"{speed.context}; {speed.at_depth:,} tokens in it"
    items: list[Item] = []
    for number, curve in enumerate(speed.curves):
        low = [(float(point.n_on_gpu), point.tokens_per_s.low) for point in curve.points]
        high = [(float(point.n_on_gpu), point.tokens_per_s.high) for point in curve.points]
        items += frame.band(low, high, f"range{number % 2}")
    items.append(Text((8, 22), title, 15, "ink", bold=True))
    items.append(Text((8, 42), shortened(context, WIDTH - 16, 12), 12, "quiet"))
    moves = " or ".join(_MOVES[curve.moves] for curve in speed.curves)
    x_step = nice_step(frame.x_max, 8, whole=True)
    items += axes(frame, x_step, nice_step(frame.y_max, 7), f"{moves} on the GPU", "tokens/s")
    labels = Labels(WIDTH, HEIGHT, [item for item in items if isinstance(item, Text)])
    symbols: list[Symbol] = []
    marked: list[tuple[Symbol, str, bool]] = []
    for number, curve in enumerate(speed.curves):
        for line in _lines(curve, frame, number):
            items.append(line)
            labels.keep_off(line)
    for number, curve in enumerate(speed.curves):
        for mark, words in _ends(curve, frame, number, speed):
            symbols.append(mark)
            labels.keep_off(mark)
            lower = number == 0 and len(speed.curves) > 1 and mark.at[0] < frame.right - 60
            marked.append((mark, words, lower))
    texts = [labels.place(Text(mark.at, words, halo=True), _spots(mark.at, frame, low)) for mark, words, low in marked]
    if speed.chosen is not None:
        point = speed.chosen[1]
        symbols.append(Symbol(frame.at(point.n_on_gpu, point.tokens_per_s.value), "ring", "ink", 8.5))
    items += [*symbols, *texts, *_legend(speed)]
    return Scene(WIDTH, HEIGHT, title, _words(speed), tuple(items))


def pace(tokens_per_s: float) -> str:
    """A rate for a label."""
    if tokens_per_s < 1:
        return f"{1 / max(tokens_per_s, 1e-9):,.1f} s a token"
    return f"{tokens_per_s:,.0f} tokens/s" if tokens_per_s >= 10 else f"{tokens_per_s:.1f} tokens/s"


def _spots(at: XY, frame: Frame, lower: bool) -> list[tuple[float, float, str]]:
    """Above and left of a mark first, as the lines rise to the right; below it where the line is the `lower` one."""
    x, y = at
    if lower:
        return around(x, y)
    spots = []
    for step in range(4):
        up = 11 + 14 * step
        spots += [(x - 8, y - up, "end"), (x, y - up - 4, "middle"), (x + 8, y - up, "start")]
    return [spot for spot in spots if spot[1] > frame.top + 8] + around(x, y)


def _lines(curve: SpeedCurve, frame: Frame, number: int) -> list[Line]:
    look = style(number)
    values = [(float(point.n_on_gpu), point.tokens_per_s.value) for point in curve.points]
    fitting = [index for index, point in enumerate(curve.points) if point.fits]
    items: list[Line] = []
    start, end = (fitting[0], fitting[-1]) if fitting else (0, -1)
    for part, fits in ((values[: start + 1], False), (values[start : end + 1], True), (values[max(end, 0) :], False)):
        if len(part) > 1:
            items.append(Line(frame.path(part), look.role, 2.4 if fits else 2.0, look.dash if fits else _NOT))
    return items


def _ends(curve: SpeedCurve, frame: Frame, number: int, speed: SpeedCurves) -> list[tuple[Symbol, str]]:
    """Marks of the most that fits and, where that is not everything, of everything."""
    look = style(number)
    found = []
    last = curve.points[-1] if curve.points else None
    most = next((point for point in reversed(curve.points) if point.fits), None)
    chosen = speed.chosen
    for point in dict.fromkeys(point for point in (most, last) if point is not None):
        mark = Symbol(frame.at(point.n_on_gpu, point.tokens_per_s.value), look.shape, look.role, 4.5, point.fits)
        count = f"all {point.n_on_gpu}" if point is last else str(point.n_on_gpu)
        words = f"{count} {_MOVES[curve.moves]}: {pace(point.tokens_per_s.value)}"
        if not point.fits:
            words = f"{count} would give {pace(point.tokens_per_s.value)}"
        if chosen is not None and chosen[0] == curve.moves and chosen[1].n_on_gpu == point.n_on_gpu:
            words += ", chosen"
        if number and point is last and not point.fits:
            continue  # everything on the GPU is the same thing for every line
        found.append((mark, words))
    return found


def _legend(speed: SpeedCurves) -> list[Item]:
    box: tuple[XY, ...] = ((-13, -6), (13, -6), (13, 6), (-13, 6))
    entries: list[tuple[str, list[Item]]] = []
    for number, curve in enumerate(speed.curves):
        look = style(number)
        words = "whole layers" if curve.moves == "layers" else "experts last, the rest of every layer on the GPU"
        sample: list[Item] = [Area(box, f"range{number % 2}"), Line(((-13, 0), (13, 0)), look.role, 2.4, look.dash)]
        sample.append(Symbol((0, 0), look.shape, look.role, 4))
        entries.append((f"{words}, with its range", sample))
    if any(not point.fits for curve in speed.curves for point in curve.points):
        entries.append(("does not fit", [Line(((-13, 0), (13, 0)), "line0", 2.0, _NOT)]))
    return legend(entries, _LEFT, WIDTH - 8, HEIGHT - 30)


def _words(speed: SpeedCurves) -> str:
    """The picture in a sentence for each line."""
    said = []
    for curve in speed.curves:
        most = next((point for point in reversed(curve.points) if point.fits), None)
        if most is not None:
            said.append(f"{most.n_on_gpu} {_MOVES[curve.moves]} on the GPU give {pace(most.tokens_per_s.value)}.")
        elif curve.points:
            said.append(f"No number of {_MOVES[curve.moves]} fits.")
    return " ".join(said)
