"""The three kinds of file: valid, of the right size, in need of nothing else, whatever a model is called."""

from __future__ import annotations

import re
import struct
import sys
from html.parser import HTMLParser
from io import BytesIO
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from PIL import Image, ImageFont

from advisor.errors import OutputError
from advisor.plots.html import html
from advisor.plots.page import sheet
from advisor.plots.palette import DARK, LIGHT
from advisor.plots.png import dashed, drawable, png
from advisor.plots.scene import Line, Scene, Symbol, Text, text_width
from advisor.plots.svg import svg
from tests.unit.plots.pictures import CASES, charts, curves, page

HOSTILE = '<script>alert(1)</script> & "quotes" \' \x00\x1b[31m \ud800 \ufffe ]]> 日本'
SVG = "{http://www.w3.org/2000/svg}"
URL = re.compile(r"(?:https?:)?//|url\(|@import|javascript:|data:", re.IGNORECASE)


@pytest.mark.parametrize("case", CASES)
def test_svg_is_xml_of_the_scenes_size_and_holds_its_text(case):
    scene = sheet(page(case))
    text = svg(scene)
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    assert float(root.attrib["width"]) == pytest.approx(scene.width)
    assert root.attrib["viewBox"] == f"0 0 {scene.width:g} {scene.height:g}"
    written = [element.text for element in root.iter(f"{SVG}text")]
    assert written == [item.text for item in scene.items if isinstance(item, Text)]
    assert root.find(f"{SVG}title").text == scene.title
    assert not URL.search(text.replace('xmlns="http://www.w3.org/2000/svg"', ""))
    lines = [item for item in scene.items if isinstance(item, Line)]
    drawn = list(root.iter(f"{SVG}polyline"))
    assert len(drawn) == len(lines)
    for element, line in zip(drawn, lines, strict=True):
        points = [tuple(map(float, pair.split(","))) for pair in element.attrib["points"].split()]
        assert points == [(pytest.approx(x, abs=0.006), pytest.approx(y, abs=0.006)) for x, y in line.points]


def test_svg_needs_no_style_sheet():
    root = ElementTree.fromstring(svg(sheet(page("whole"))))
    for element in root.iter():
        if element.tag in (f"{SVG}polygon", f"{SVG}text", f"{SVG}rect"):
            assert element.attrib["fill"] in LIGHT.values()
        if element.tag == f"{SVG}polyline":
            assert element.attrib["stroke"] in LIGHT.values()


class Seen(HTMLParser):
    """Tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "br", "polyline", "polygon", "circle", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("title", ["a model", HOSTILE])
def test_html_stands_alone(title):
    text = html(page("whole", "two", title=title))
    assert text.encode("utf-8")
    seen = Seen()
    seen.feed(text)
    assert seen.open == []
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & set(seen.tags)
    names = {name for name, _ in seen.attributes}
    assert not {"src", "href", "xlink:href", "srcset", "action", "style"} & names
    assert not any(name.startswith("on") for name in names)
    assert not URL.search(text.replace('xmlns="http://www.w3.org/2000/svg"', ""))
    ids = [value for name, value in seen.attributes if name == "id"]
    assert len(ids) == len(set(ids)) == 2 * seen.tags.count("svg")
    assert seen.tags.count("svg") == 2 + 3
    assert "<!doctype html>" in text
    assert 'lang="en"' in text


def test_html_is_light_or_dark_as_the_reader_likes():
    text = html(page("whole"))
    light, dark = text.split("prefers-color-scheme: dark", 1)
    for role, color in LIGHT.items():
        assert f"--{role}: {color};" in light
        assert f"--{role}: {DARK[role]};" in dark.split("}", 1)[0]
    used = set(re.findall(r'class="([^"]*)"', text))
    for name in {word for words in used for word in words.split() if word[:2] in ("f-", "s-")}:
        assert f".{name} {{" in text


def test_html_has_the_figures_as_tables():
    memory, speed, _ = curves("whole")
    text = html(page("whole"))
    rows = text.count("<tr>")
    exact = {point.n_ctx for curve in memory.curves for point in curve.points if point.exact}
    assert speed is not None
    assert rows == len(exact) + 1 + len(speed.curves[0].points) + 1
    assert "53,504" in text


def test_hostile_names_are_harmless_in_svg():
    root = ElementTree.fromstring(svg(sheet(page("whole", title=HOSTILE))))
    assert not list(root.iter(f"{SVG}script"))
    assert "<script>alert(1)</script> &" in root.find(f"{SVG}title").text


def test_png_is_one_of_the_right_size():
    scene = sheet(page("whole"))
    data = png(scene)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (round(2 * scene.width), round(2 * scene.height))
    image = Image.open(BytesIO(data)).convert("RGB")
    assert image.getpixel((2, 2)) == (255, 255, 255)
    mark = next(item for item in scene.items if isinstance(item, Symbol) and item.role == "line1")
    wanted = tuple(int(LIGHT["line1"][i : i + 2], 16) for i in (1, 3, 5))
    found = image.getpixel((round(2 * mark.at[0]), round(2 * mark.at[1])))
    assert all(abs(a - b) < 24 for a, b in zip(found, wanted, strict=True)), found
    assert len(image.getcolors(1 << 24)) > 16


def test_png_takes_any_name():
    assert png(sheet(page("cpu", title=HOSTILE)))[:4] == b"\x89PNG"
    assert drawable("Müller – 日本…") == "Muller ? ??..."


def test_a_huge_page_becomes_a_coarser_png_and_then_none():
    small = Scene(1200.0, 4000.0, "", "", ())
    assert struct.unpack(">II", png(small)[16:24]) == (1200, 4000)
    with pytest.raises(OutputError, match="too large"):
        png(Scene(1200.0, 40000.0, "", "", ()))


def test_without_pillow_the_cure_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(OutputError, match=r"gguf-advisor\[plot\].*\.svg or \.html"):
        png(sheet(page("whole")))


def test_measured_text_is_never_narrower_than_drawn_text():
    for _, scene in charts():
        for item in scene.items:
            if isinstance(item, Text):
                face = ImageFont.load_default(item.size * 4)
                assert face.getlength(drawable(item.text)) / 4 <= text_width(item.text, item.size) + 0.5, item.text


def test_dashes_cover_their_share_of_a_line():
    parts = dashed(((0.0, 0.0), (60.0, 80.0), (160.0, 80.0)), (8.0, 2.0))
    drawn = sum(((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5 for part in parts for (x0, y0), (x1, y1) in pairwise(part))
    assert drawn == pytest.approx(200 * 0.8)
    assert parts[0][0] == (0.0, 0.0)
    assert len(parts) == 20
