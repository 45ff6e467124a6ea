"""A frame with two linear axes: where values lie, ticks, clipping, and labels that keep out of each other's way."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import hypot

from advisor.plots.scene import XY, Area, Item, Line, Symbol, Text, moved, text_width
from advisor.records import NamedTuple

SIZE, SMALL = 12.0, 11.0


class Frame(NamedTuple):
    """The drawing area in pixels and the values at its edges; the horizontal axis begins at 0."""

    left: float
    top: float
    right: float
    bottom: float
    x_max: float
    y_max: float
    y_min: float = 0.0

    def x(self, value: float) -> float:
        """Pixel of a value on the horizontal axis."""
        return self.left + (self.right - self.left) * value / self.x_max

    def y(self, value: float) -> float:
        """Pixel of a value on the vertical axis."""
        return self.bottom - (self.bottom - self.top) * (value - self.y_min) / (self.y_max - self.y_min)

    def at(self, x: float, y: float) -> XY:
        """The pixel of a point."""
        return self.x(x), self.y(y)

    def path(self, points: Sequence[XY]) -> tuple[XY, ...]:
        """Points as pixels, cut where they leave the frame at the top for the first time."""
        kept: list[XY] = []
        for index, (x, y) in enumerate(points):
            if y > self.y_max:
                if index:
                    x0, y0 = points[index - 1]
                    share = (self.y_max - y0) / (y - y0)
                    kept.append((x0 + (x - x0) * share, self.y_max))
                break
            kept.append((x, y))
        return tuple(self.at(x, y) for x, y in kept)

    def band(self, low: Sequence[XY], high: Sequence[XY], role: str) -> list[Item]:
        """The area between two lines over the same values, cut at the top and at the bottom."""
        if len(low) < 2:
            return []
        upper = [self.at(x, max(min(y, self.y_max), self.y_min)) for x, y in high]
        lower = [self.at(x, max(min(y, self.y_max), self.y_min)) for x, y in low]
        return [Area((*upper, *reversed(lower)), role)]


def nice_step(most: float, count: int, *, whole: bool = False) -> float:
    """A step of 1, 2, 2.5 or 5 times a power of ten that gives at most `count` steps up to `most`."""
    step = 1.0
    while step > most / count:
        step /= 10
    while True:
        for factor in (1, 2, 2.5, 5):
            size = step * factor
            if most / size <= count and (not whole or (size >= 1 and size == int(size))):
                return size
        step *= 10


def binary_step(most: float, count: int) -> int:
    """A power of two that gives at most `count` steps up to `most`."""
    step = 1
    while most / step > count:
        step *= 2
    return step


def axes(frame: Frame, x_step: float, y_step: float, x_title: str, y_unit: str) -> list[Item]:
    """Grid lines, the two axes with their figures, the title of the one and the unit of the other."""
    corner = (frame.left, frame.bottom)
    items: list[Item] = []
    value = frame.y_min
    while value <= frame.y_max * 1.0001:
        y = frame.y(value)
        if value > frame.y_min:
            items.append(Line(((frame.left, y), (frame.right, y)), "grid"))
        items.append(Text((frame.left - 7, y + 4), f"{value:,g}", SMALL, "quiet", "end"))
        value += y_step
    value = 0.0
    while value <= frame.x_max * 1.0001:
        x = frame.x(value)
        items.append(Line(((x, frame.bottom), (x, frame.bottom + 4)), "quiet"))
        items.append(Text((x, frame.bottom + 17), f"{value:,.0f}", SMALL, "quiet", "middle"))
        value += x_step
    items.append(Line(((frame.left, frame.top), corner, (frame.right, frame.bottom)), "quiet", 1.2))
    items.append(Text(((frame.left + frame.right) / 2, frame.bottom + 34), x_title, SIZE, "ink", "middle"))
    items.append(Text((8, frame.top - 8), y_unit, SIZE))
    if frame.y_min:  # a break in the axis: what lies below is cut off
        for y in (frame.bottom - 9, frame.bottom - 14):
            items.append(Line(((frame.left - 6, y + 3), (frame.left + 6, y - 3)), "ink", 1.4))
    return items


def hatched(frame: Frame, low: float, high: float, role: str, gap: float = 7.0) -> list[Item]:
    """Slanted lines between two values of the vertical axis, over the whole width."""
    top, bottom = max(frame.y(high), frame.top), min(frame.y(low), frame.bottom)
    height = bottom - top
    if height <= 0.5:
        return []
    items: list[Item] = []
    x = frame.left - height
    while x < frame.right:
        left, right = max(x, frame.left), min(x + height, frame.right)
        if right - left > 0.5:
            items.append(Line(((left, bottom - (left - x)), (right, bottom - (right - x))), role, 0.8))
        x += gap
    return items


class Labels:
    """Places labels where they cover neither each other nor marks, cross few lines, and stay in the picture."""

    def __init__(self, width: float, height: float, taken: Sequence[Text] = ()) -> None:
        self._width, self._height = width, height
        self._boxes = [text.box for text in taken]
        self._dots: list[XY] = []  # along the lines

    def keep_off(self, item: Symbol | Line | Text) -> None:
        """No label on this mark or text; rather not on this line."""
        if isinstance(item, Text):
            self._boxes.append(item.box)
            return
        if isinstance(item, Symbol):
            (x, y), r = item.at, item.radius
            self._boxes.append((x - r, y - r, x + r, y + r))
            return
        for (x0, y0), (x1, y1) in pairwise(item.points):
            steps = max(int(hypot(x1 - x0, y1 - y0) / 4), 1)
            self._dots += [(x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps) for i in range(steps + 1)]

    def place(self, label: Text, spots: Sequence[tuple[float, float, str]]) -> Text:
        """`label` at the (x, y, anchor) where it disturbs least, of equals the first."""
        tried = [label._replace(at=(x, y), anchor=anchor) for x, y, anchor in spots]
        # a spot farther down the list is farther away: 3 for each, as much as 12 pixels of a line that it covers
        chosen = min(enumerate(tried), key=lambda each: 3 * each[0] + self._disturbs(each[1]))[1]
        self._boxes.append(chosen.box)
        return chosen

    def _disturbs(self, label: Text) -> int:
        left, top, right, bottom = label.box
        outside = left < 2 or top < 2 or right > self._width - 2 or bottom > self._height - 2
        covered = sum(left < b[2] and b[0] < right and top < b[3] and b[1] < bottom for b in self._boxes)
        crossed = sum(left < x < right and top < y < bottom for x, y in self._dots)
        return 100_000 * outside + 1000 * covered + crossed


def spread(places: Sequence[float], gaps: Sequence[float], low: float, high: float) -> list[float]:
    """Places in their order, moved so that each keeps its gap to the one before and all lie in [low, high]."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    found = list(places)
    least = low
    for index in order:
        found[index] = max(found[index], least)
        least = found[index] + gaps[index]
    most = high
    for index in reversed(order):
        found[index] = min(found[index], most)
        most = found[index] - gaps[index]
    return found


def around(x: float, y: float, *, reach: int = 5) -> list[tuple[float, float, str]]:
    """Spots for the label of a mark on a rising line, the best first: the two sides, then before and behind."""
    spots: list[tuple[float, float, str]] = []
    for step in range(reach):
        down, up = 17 + 14 * step, 9 + 14 * step
        spots += [
            (x + 6, y + down, "start"),
            (x - 8, y - up, "end"),
            (x - 6, y + down, "end"),
            (x + 8, y - up, "start"),
        ]
    return spots


def legend(entries: Sequence[tuple[str, Sequence[Item]]], left: float, right: float, y: float) -> list[Item]:
    """Samples, drawn in 26 x 12 pixels around (0, 0), each with its words, in rows from `y` downwards."""
    items: list[Item] = []
    x = left
    for words, sample in entries:
        room = 32 if sample else 0
        width = room + text_width(words, SMALL) + 16
        if x > left and x + width > right:
            x, y = left, y + 17
        items += moved(sample, x + 13, y - 4)
        items.append(Text((x + room, y), words, SMALL))
        x += width
    return items
