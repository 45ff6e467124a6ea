"""A scene as SVG text: one file without references to others, readable without styles, its colours also classes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from xml.sax.saxutils import escape

from advisor.plots.palette import LIGHT
from advisor.plots.scene import XY, Area, Line, Scene, Symbol, Text

FONTS = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif"


def svg(scene: Scene, colors: Mapping[str, str] = LIGHT, *, name: str = "plot", alone: bool = True) -> str:
    """The text of an SVG image; `alone` is a file of its own, else a part of an HTML page with ids from `name`.

    Colours stand as attributes, which a style sheet overrides through the classes s-ROLE (stroke) and f-ROLE (fill).
    """
    size = f'viewBox="0 0 {_number(scene.width)} {_number(scene.height)}"'
    if alone:
        size += f' width="{_number(scene.width)}" height="{_number(scene.height)}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="{name}-t {name}-d" '
        f'font-family="{escape(FONTS)}">',
        f'<title id="{name}-t">{xml_text(scene.title)}</title>',
        f'<desc id="{name}-d">{xml_text(scene.description)}</desc>',
    ]
    if alone:
        lines.append(f'<rect width="100%" height="100%" {_look(colors, fill="paper")}/>')
    lines += [_item(item, colors) for item in scene.items]
    return "\n".join([*lines, "</svg>", ""])


def _item(item: Line | Area | Symbol | Text, colors: Mapping[str, str]) -> str:
    if isinstance(item, Line):
        dash = f' stroke-dasharray="{" ".join(_number(each) for each in item.dash)}"' if item.dash else ""
        look = _look(colors, stroke=item.role)
        return f'<polyline points="{_points(item.points)}" fill="none" {look} stroke-width="{item.width:g}"{dash}/>'
    if isinstance(item, Area):
        return f'<polygon points="{_points(item.points)}" {_look(colors, fill=item.role)}/>'
    x, y = item.at
    if isinstance(item, Symbol):
        look = _look(colors, fill=item.role if item.filled else "paper", stroke=item.role) + ' stroke-width="1.8"'
        if item.shape == "ring":
            look = _look(colors, stroke=item.role) + ' stroke-width="1.8" fill="none"'
        if item.shape in ("circle", "ring"):
            return f'<circle cx="{_number(x)}" cy="{_number(y)}" r="{item.radius:g}" {look}/>'
        return f'<polygon points="{_points(outline(item))}" {look}/>'
    look = _look(colors, fill=item.role, stroke="paper" if item.halo else None)
    if item.halo:
        look += ' stroke-width="3" stroke-linejoin="round" paint-order="stroke"'
    if item.anchor != "start":
        look += f' text-anchor="{item.anchor}"'
    if item.bold:
        look += ' font-weight="600"'
    return f'<text x="{_number(x)}" y="{_number(y)}" font-size="{item.size:g}" {look}>{xml_text(item.text)}</text>'


def outline(symbol: Symbol) -> tuple[XY, ...]:
    """The corners of a mark; a circle has many."""
    turns = {"circle": (36, 0.0), "ring": (36, 0.0), "triangle": (3, 0.0), "square": (4, 0.5), "diamond": (4, 0.0)}
    corners, start = turns[symbol.shape]
    radius = symbol.radius * {"triangle": 1.3, "square": 1.25, "diamond": 1.3}.get(symbol.shape, 1.0)
    angles = [2 * math.pi * (index + start) / corners - math.pi / 2 for index in range(corners)]
    x, y = symbol.at
    return tuple((x + radius * math.cos(angle), y + radius * math.sin(angle)) for angle in angles)


def _look(colors: Mapping[str, str], *, fill: str | None = None, stroke: str | None = None) -> str:
    """The colours of a shape as classes and as attributes."""
    roles = [(kind, role) for kind, role in (("fill", fill), ("stroke", stroke)) if role is not None]
    classes = " ".join(f"{kind[0]}-{role}" for kind, role in roles)
    return " ".join([f'class="{classes}"', *(f'{kind}="{colors[role]}"' for kind, role in roles)])


def _points(points: tuple[XY, ...]) -> str:
    return " ".join(f"{_number(x)},{_number(y)}" for x, y in points)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def xml_text(text: str) -> str:
    """Text that XML can hold: what it forbids becomes a space."""
    kept = "".join(
        char if char >= " " and not 0xD800 <= ord(char) <= 0xDFFF and ord(char) not in (0xFFFE, 0xFFFF) else " "
        for char in text
    )
    return escape(kept)
