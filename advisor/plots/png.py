"""A scene as a PNG image, drawn by Pillow, which brings a font of its own. An optional dependency: advisor[plot]."""

from __future__ import annotations

import io
import math
import unicodedata
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from advisor.errors import OutputError
from advisor.plots.palette import LIGHT
from advisor.plots.scene import XY, Area, Line, Scene, Symbol, Text
from advisor.plots.svg import outline

if TYPE_CHECKING:
    from PIL import ImageDraw, ImageFont

SCALE = 2  # pixels of the image for each of the scene: sharp on fine screens and in print; 1 for very large ones
_FINER = 2  # drawn so much larger and reduced, which smooths slanted edges
MOST_PIXELS = 60_000_000


def png(scene: Scene) -> bytes:
    """The image file. Raises OutputError where Pillow is missing or the picture would be too large."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise OutputError(
            "a .png needs Pillow, which is not installed; pip install 'gguf-advisor[plot]', or write .svg or .html."
        ) from None
    scale = SCALE if scene.width * scene.height * (SCALE * _FINER) ** 2 <= MOST_PIXELS else 1
    factor = scale * _FINER
    width, height = math.ceil(scene.width * scale), math.ceil(scene.height * scale)
    if width * height * _FINER**2 > MOST_PIXELS:
        raise OutputError("so many charts are too large for one .png; write .html, or give fewer cards.")
    image = Image.new("RGB", (width * _FINER, height * _FINER), LIGHT["paper"])
    canvas = _Canvas(ImageDraw.Draw(image), ImageFont, factor)
    for item in scene.items:
        canvas.draw(item)
    small = image.resize((width, height), Image.Resampling.BOX)
    out = io.BytesIO()
    small.quantize(colors=256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
        out, "PNG", optimize=True, dpi=(96 * scale, 96 * scale)
    )
    return out.getvalue()


class _Canvas:
    """Draws items with every length times `factor`."""

    def __init__(self, draw: ImageDraw.ImageDraw, fonts: Any, factor: int) -> None:
        self._draw, self._fonts, self._factor = draw, fonts, factor
        self._faces: dict[float, ImageFont.FreeTypeFont] = {}

    def draw(self, item: Line | Area | Symbol | Text) -> None:
        """Put one item on the image."""
        if isinstance(item, Line):
            for part in dashed(item.points, item.dash) if item.dash else [item.points]:
                self._line(part, item.role, item.width)
        elif isinstance(item, Area):
            self._draw.polygon(self._pixels(item.points), fill=LIGHT[item.role])
        elif isinstance(item, Symbol):
            corners = outline(item)
            if item.shape != "ring":
                self._draw.polygon(self._pixels(corners), fill=LIGHT[item.role if item.filled else "paper"])
            self._line((*corners, corners[0], corners[1]), item.role, 1.8)
        else:
            self._text(item)

    def _line(self, points: tuple[XY, ...], role: str, width: float) -> None:
        if len(points) > 1:
            thick = max(round(width * self._factor), 1)
            self._draw.line(self._pixels(points), fill=LIGHT[role], width=thick, joint="curve")

    def _text(self, item: Text) -> None:
        face = self._faces.get(item.size)
        if face is None:
            face = self._faces[item.size] = self._fonts.load_default(item.size * self._factor)
        x, y = item.at
        anchor = {"start": "ls", "middle": "ms", "end": "rs"}[item.anchor]
        bold = round(item.size * self._factor / 40) if item.bold else 0  # the font has one weight
        at, words, color = (x * self._factor, y * self._factor), drawable(item.text), LIGHT[item.role]
        if item.halo:
            halo = round(1.5 * self._factor) + bold
            self._draw.text(at, words, LIGHT["paper"], face, anchor, stroke_width=halo, stroke_fill=LIGHT["paper"])
        self._draw.text(at, words, color, face, anchor, stroke_width=bold, stroke_fill=color)

    def _pixels(self, points: tuple[XY, ...]) -> list[XY]:
        return [(x * self._factor, y * self._factor) for x, y in points]


def drawable(text: str) -> str:
    """`text` in the letters of Pillow's own font: accents are dropped, what it lacks becomes a question mark."""
    plain = "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))
    return "".join(char if " " <= char <= "~" or char == "·" else "?" for char in plain)


def dashed(points: tuple[XY, ...], dash: tuple[float, ...]) -> list[tuple[XY, ...]]:
    """The drawn parts of a line with these dashes, each a line of its own."""
    parts: list[tuple[XY, ...]] = []
    index, left, drawing = 0, dash[0], True
    part: list[XY] = [points[0]]
    for (x0, y0), (x1, y1) in pairwise(points):
        length, done = math.hypot(x1 - x0, y1 - y0), 0.0
        while length - done > left:
            done += left
            at = (x0 + (x1 - x0) * done / length, y0 + (y1 - y0) * done / length)
            if drawing:
                parts.append((*part, at))
            part = [at]
            index, drawing = (index + 1) % len(dash), not drawing
            left = dash[index]
        left -= length - done
        if drawing:
            part.append((x1, y1))
    if drawing and len(part) > 1:
        parts.append(tuple(part))
    return parts
