"""Memory of one place against the context: what takes it, a line for each cache type, and the card's limit."""

from __future__ import annotations

from advisor.plots.axes import Frame, Labels, around, axes, binary_step, hatched, legend, nice_step, spread
from advisor.plots.palette import style
from advisor.plots.scene import XY, Area, Item, Line, Scene, Symbol, Text, shortened, text_width
from advisor.recommend.curves import MemoryCurve, MemoryCurves, Place
from advisor.units import GIB, format_bytes

WIDTH, HEIGHT = 640.0, 440.0
_LEFT, _TOP, _RIGHT, _BOTTOM = 58.0, 74.0, 556.0, 356.0


def memory_chart(memory: MemoryCurves, index: int) -> Scene:
    """The chart of place number `index` of `memory.places`."""
    place = memory.places[index]
    lines = [
        [(float(point.n_ctx), point.needs[index].total_bytes / GIB) for point in curve.points]
        for curve in memory.curves
        if curve.points
    ]
    fixed = min((point.needs[index].weights_bytes for curve in memory.curves for point in curve.points), default=0)
    frame = _frame(place, lines, fixed / GIB)
    where = place.name if place.id == "host" else f"{place.name} ({place.id})"
    title = shortened(f"Memory: {where}", WIDTH - 16, 15, bold=True)
    heads = [
        Text((8, 22), title, 15, "ink", bold=True),
        Text((8, 42), shortened(memory.basis, WIDTH - 16, 12), 12, "quiet"),
    ]
    bands, band_labels = _bands(memory, index, frame)
    items: list[Item] = [*heads, *bands]
    items += axes(frame, binary_step(frame.x_max, 6), nice_step(frame.y_max - frame.y_min, 7), "context, tokens", "GiB")
    labels = Labels(WIDTH, HEIGHT, [item for item in items if isinstance(item, Text)])
    limit, limit_label = _limit(place, frame)
    items += limit
    limit_y = frame.y(place.usable_bytes / GIB)
    labels.keep_off(Line(((frame.left, limit_y), (frame.right, limit_y)), "limit"))
    drawn = []
    for number, curve in enumerate(memory.curves):
        path = frame.path([(point.n_ctx, point.needs[index].total_bytes / GIB) for point in curve.points])
        line = Line(path, style(number).role, 2.2, style(number).dash)
        if len(path) > 1:
            drawn.append((number, curve, line))
            labels.keep_off(line)
    items += [line for _, _, line in drawn]
    texts = [labels.place(limit_label, [(*limit_label.at, "start"), (_RIGHT - 4, limit_label.at[1], "end")])]
    names = _names([(line, curve.cache_type if memory.grows else "total") for _, curve, line in drawn], frame)
    for name in names:
        labels.keep_off(name)
    symbols: list[Symbol] = []
    marked = []
    for number, curve, _ in drawn:
        mark, label = _longest(curve, index, frame, number, memory)
        if mark is not None:
            symbols.append(mark)
            labels.keep_off(mark)
            marked.append((mark, label))
    texts += [labels.place(label, around(*mark.at)) for mark, label in marked]
    chosen = memory.chosen
    if chosen is not None and chosen.needs[index].total_bytes:
        at = frame.at(chosen.n_ctx, min(chosen.needs[index].total_bytes / GIB, frame.y_max))
        symbols.append(Symbol(at, "ring", "ink", 8.5))
        labels.keep_off(symbols[-1])
        if not any(curve.at_max and curve.at_max.n_ctx == chosen.n_ctx for curve in memory.curves):
            texts.append(labels.place(Text(at, f"{chosen.n_ctx:,}, chosen", halo=True), around(*at)))
    texts += [
        labels.place(label, [(x, label.at[1] + dy, "start") for dy in (0, 22, -22) for x in (label.at[0], 300)])
        for label in band_labels
    ]
    items += [*symbols, *names, *texts, *_legend(memory, index)]
    return Scene(WIDTH, HEIGHT, title, _words(memory, index), tuple(items))


def _frame(place: Place, lines: list[list[XY]], fixed: float) -> Frame:
    """From 0 up to a little above the card; where what is `fixed` (GiB) fills most of it, the axis begins later."""
    x_max = max((line[-1][0] for line in lines), default=32768.0)
    least = min((line[0][1] for line in lines), default=0.0)
    y_max = 1.13 * max(place.total_bytes / GIB, place.free_bytes / GIB, 1.15 * least)
    y_min = 0.0
    if 0.6 * y_max < fixed < place.usable_bytes / GIB:
        y_max = max(place.total_bytes / GIB, least) + 0.35 * (y_max - fixed)
        step = nice_step(y_max - fixed, 5)
        y_min = max((fixed - 0.35 * (y_max - fixed)) // step, 0) * step
    return Frame(_LEFT, _TOP, _RIGHT, _BOTTOM, x_max, y_max, y_min)


def _bands(memory: MemoryCurves, index: int, frame: Frame) -> tuple[list[Item], list[Text]]:
    """Weights, what the engine needs beside them, and the cache of the first type, one upon the other."""
    curve = memory.curves[0] if memory.curves else None
    if curve is None or len(curve.points) < 2:
        return [], []
    needs = [(point.n_ctx, point.needs[index]) for point in curve.points]
    floor = [(n_ctx, 0.0) for n_ctx, _ in needs]
    weights = [(n_ctx, need.weights_bytes / GIB) for n_ctx, need in needs]
    without = [(n_ctx, (need.total_bytes - need.cache_bytes) / GIB) for n_ctx, need in needs]
    total = [(n_ctx, need.total_bytes / GIB) for n_ctx, need in needs]
    items = frame.band(floor, weights, "weights") + frame.band(weights, without, "compute")
    items += frame.band(without, total, "cache")
    found = []
    first, last = needs[0][1], needs[-1][1]
    if frame.bottom - frame.y(min(first.weights_bytes, last.weights_bytes) / GIB) > 18:
        words = f"weights {format_bytes(first.weights_bytes)}"
        if frame.y_min:
            words += f", cut off below {frame.y_min:g} GiB"
        found.append(Text((frame.left + 12, (frame.bottom + frame.y(first.weights_bytes / GIB)) / 2 + 4), words))
    return items, found


def _limit(place: Place, frame: Frame) -> tuple[list[Item], Text]:
    """The line that the plan must stay below, what must stay free above it, and what others hold."""
    usable, free, total = (n / GIB for n in (place.usable_bytes, place.free_bytes, place.total_bytes))
    items = hatched(frame, usable, free, "quiet")
    items.append(Line(((frame.left, frame.y(usable)), (frame.right, frame.y(usable))), "limit", 2.0))
    items.append(Line(((frame.left, frame.y(free)), (frame.right, frame.y(free))), "limit", 1.0))
    words = f"{format_bytes(place.total_bytes)}"
    if free < total:
        items.append(Line(((frame.left, frame.y(total)), (frame.right, frame.y(total))), "quiet", 1.0, (2, 3)))
        words = f"{format_bytes(place.free_bytes)} free of {words}"
    kept = place.free_bytes - place.usable_bytes
    if kept > 0:
        words += f", {format_bytes(kept)} kept free"
    top = frame.y(free) - 7
    return items, Text((frame.left + 6, top), words, halo=True)


def _longest(
    curve: MemoryCurve, index: int, frame: Frame, number: int, memory: MemoryCurves
) -> tuple[Symbol | None, Text]:
    """The mark of the longest context that fits, with its label."""
    point, look = curve.at_max, style(number)
    nothing = Text((0, 0), "")
    if point is None or not point.needs[index].total_bytes:
        return None, nothing
    at = frame.at(point.n_ctx, point.needs[index].total_bytes / GIB)
    words = f"{point.n_ctx:,}" + _more(curve, memory)
    chosen = memory.chosen
    if chosen is not None and chosen.n_ctx == point.n_ctx and memory.chosen_cache_type == curve.cache_type:
        words += ", chosen"
    return Symbol(at, look.shape, look.role), Text(at, words, halo=True)


def _more(curve: MemoryCurve, memory: MemoryCurves) -> str:
    """Where more may fit than the model was trained for, nobody looked how much."""
    return " or more" if curve.at_least and (curve.max_n_ctx or 0) > memory.n_ctx_trained else ""


def _names(lines: list[tuple[Line, str]], frame: Frame) -> list[Text]:
    """The lines' names where these end: beside the frame, or above it where one leaves at the top."""
    beside = [(line, words) for line, words in lines if line.points[-1][0] > frame.right - 1]
    above = [(line, words) for line, words in lines if line.points[-1][0] <= frame.right - 1]
    heights = spread([line.points[-1][1] + 4 for line, _ in beside], [15.0] * len(beside), frame.top, frame.bottom)
    texts = [
        Text((frame.right + 12, y), words, 12, line.role, bold=True)
        for (line, words), y in zip(beside, heights, strict=True)
    ]
    widths = [text_width(words, 12, bold=True) + 8 for _, words in above]
    middles = spread([line.points[-1][0] for line, _ in above], widths, frame.left + 30, frame.right)
    texts += [
        Text((x, frame.top - 7), words, 12, line.role, "middle", bold=True)
        for (line, words), x in zip(above, middles, strict=True)
    ]
    return texts


def _legend(memory: MemoryCurves, index: int) -> list[Item]:
    host = memory.places[index].id == "host"
    rest = "compute, output" if host else "compute, backend"
    first = memory.curves[0].cache_type if memory.curves else ""
    cache = f"cache, {first}" if memory.grows else "state"
    box: tuple[XY, ...] = ((-13, -6), (13, -6), (13, 6), (-13, 6))
    entries: list[tuple[str, list[Item]]] = [
        ("weights", [Area(box, "weights")]),
        (rest, [Area(box, "compute")]),
        (cache, [Area(box, "cache")]),
        ("kept free", [Line(((-13 + 7 * i, 6), (-13 + 7 * i + 5, -6)), "quiet", 0.8) for i in range(4)]),
    ]
    for number, curve in enumerate(memory.curves):
        look = style(number)
        sample: list[Item] = [Line(((-13, 0), (13, 0)), look.role, 2.2, look.dash)]
        sample.append(Symbol((0, 0), look.shape, look.role, 4))
        entries.append((f"{curve.cache_type} cache" if memory.grows else "total", sample))
    if any(curve.at_max for curve in memory.curves):
        entries.append(("(mark: the longest that fits)", []))
    return legend(entries, _LEFT, WIDTH - 8, HEIGHT - 30)


def _words(memory: MemoryCurves, index: int) -> str:
    """The picture in a sentence for each cache type."""
    place = memory.places[index]
    said = [f"{format_bytes(place.usable_bytes)} of {format_bytes(place.total_bytes)} may be used, {memory.basis}."]
    for curve in memory.curves:
        if curve.at_max is None:
            said.append(f"{curve.cache_type}: nothing fits.")
        else:
            need = format_bytes(curve.at_max.needs[index].total_bytes)
            said.append(f"{curve.cache_type}: {curve.at_max.n_ctx:,} tokens{_more(curve, memory)} take {need}.")
    return " ".join(said)
