"""What a picture is made of, in pixels from the top left, and how wide text is.

Colours are roles here ("ink", "line0"); the palette gives them their values, so that one scene serves light and dark.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from advisor.records import NamedTuple

XY: TypeAlias = tuple[float, float]


class Line(NamedTuple):
    """A line through points; `dash` are lengths drawn and left out in turn, () = solid."""

    points: tuple[XY, ...]
    role: str
    width: float = 1.0
    dash: tuple[float, ...] = ()


class Area(NamedTuple):
    """A filled polygon."""

    points: tuple[XY, ...]
    role: str


class Symbol(NamedTuple):
    """A mark of a point: "circle", "triangle", "square" or "diamond", hollow ones filled with paper; "ring" is open."""

    at: XY
    shape: str
    role: str
    radius: float = 4.5
    filled: bool = True


class Text(NamedTuple):
    """One line of text at its baseline; a halo of paper keeps it apart from what it lies on."""

    at: XY
    text: str
    size: float = 12.0
    role: str = "ink"
    anchor: str = "start"  # "start" | "middle" | "end"
    bold: bool = False
    halo: bool = False

    @property
    def box(self) -> tuple[float, float, float, float]:
        """(left, top, right, bottom)."""
        width = text_width(self.text, self.size, bold=self.bold)
        x, y = self.at
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[self.anchor]
        return left, y - 0.95 * self.size, left + width, y + 0.25 * self.size


Item: TypeAlias = Line | Area | Symbol | Text


class Scene(NamedTuple):
    """A picture with the words for those who do not see it."""

    width: float
    height: float
    title: str
    description: str
    items: tuple[Item, ...]


def moved(items: Iterable[Item], dx: float, dy: float) -> list[Item]:
    """The same items elsewhere."""
    found: list[Item] = []
    for item in items:
        if isinstance(item, (Line, Area)):
            found.append(item._replace(points=tuple((x + dx, y + dy) for x, y in item.points)))
        else:
            found.append(item._replace(at=(item.at[0] + dx, item.at[1] + dy)))
    return found


# Advance widths of the letters from space to ~ in DejaVu Sans, in thousandths of its size: the widest of the usual
# screen fonts, so that text measured with it fits with any of them.
_ADVANCES = (
    318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337, 636, 636, 636, 636, 636, 636, 636,
    636, 636, 636, 337, 337, 838, 838, 838, 531, 1000, 684, 686, 698, 770, 632, 575, 775, 752, 295, 295, 656, 557, 863,
    748, 787, 603, 787, 695, 635, 611, 732, 684, 989, 685, 611, 685, 390, 337, 390, 838, 500, 500, 613, 635, 550, 635,
    615, 352, 635, 634, 278, 278, 579, 278, 974, 634, 612, 635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636,
    337, 636, 838,
)  # fmt: skip
_OTHERS, _BOLDER = 1000, 1.26  # the bold face is at most that much wider


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Pixels that `text` takes at most, in any of the usual fonts."""
    total = sum(_ADVANCES[ord(char) - 32] if " " <= char <= "~" else _OTHERS for char in text)
    return total / 1000 * size * (_BOLDER if bold else 1.0)


def shortened(text: str, width: float, size: float, *, bold: bool = False) -> str:
    """`text`, cut with an ellipsis where it is wider than `width`."""
    if text_width(text, size, bold=bold) <= width:
        return text
    while text and text_width(text + "…", size, bold=bold) > width:
        text = text[:-1]
    return text.rstrip() + "…"


def wrapped(text: str, width: float, size: float, *, bold: bool = False, most: int = 3) -> list[str]:
    """`text` in at most `most` lines of `width` pixels, the last one cut."""
    lines: list[str] = []
    line = ""
    words = text.split()
    for index, word in enumerate(words):
        longer = f"{line} {word}" if line else word
        if line and text_width(longer, size, bold=bold) > width:
            if len(lines) == most - 1:
                line = " ".join([line, *words[index:]])
                break
            lines.append(line)
            longer = word
        line = longer
    return [shortened(each, width, size, bold=bold) for each in [*lines, line] if each]
