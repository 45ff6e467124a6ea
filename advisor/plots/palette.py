"""Colours by role, for light and dark paper.

The lines are Okabe and Ito's colours ("Color Universal Design", 2008), told apart with any kind of colour vision; each
also has a dash and a mark of its own, so that nothing is lost in grey print.
"""

from __future__ import annotations

from advisor.records import NamedTuple

LIGHT = {
    "paper": "#ffffff",
    "ink": "#1b1f24",
    "quiet": "#57606a",
    "grid": "#d9dde2",
    "limit": "#1b1f24",
    "weights": "#c6e2f5",
    "compute": "#d3d7dc",
    "cache": "#fdeed6",
    "line0": "#d55e00",
    "line1": "#0072b2",
    "line2": "#009e73",
    "line3": "#cc79a7",
    "range0": "#f9dcc6",
    "range1": "#cfe3f0",
}
DARK = {
    "paper": "#14171a",
    "ink": "#e8eaed",
    "quiet": "#a9b1ba",
    "grid": "#343a41",
    "limit": "#e8eaed",
    "weights": "#1d4560",
    "compute": "#454c55",
    "cache": "#3d311c",
    "line0": "#e69f00",
    "line1": "#56b4e9",
    "line2": "#2fbd93",
    "line3": "#cc79a7",
    "range0": "#4a3a1a",
    "range1": "#1f3d50",
}


class Style(NamedTuple):
    """How one of several lines is told from the others."""

    role: str
    dash: tuple[float, ...]
    shape: str


STYLES = (
    Style("line0", (), "circle"),
    Style("line1", (9, 4), "triangle"),
    Style("line2", (4, 3), "square"),
    Style("line3", (9, 3, 2, 3), "diamond"),
)


def style(index: int) -> Style:
    """The style of line number `index`."""
    return STYLES[index % len(STYLES)]
