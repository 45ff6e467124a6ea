"""What is drawn is what the core says, and it can be read: inside the picture, nothing over anything else."""

from __future__ import annotations

import itertools

import pytest

from advisor.plots.axes import Labels, binary_step, nice_step, spread
from advisor.plots.memory_chart import memory_chart
from advisor.plots.page import sheet
from advisor.plots.palette import DARK, LIGHT, STYLES
from advisor.plots.scene import Line, Scene, Symbol, Text, shortened, text_width, wrapped
from advisor.plots.speed_chart import speed_chart
from advisor.units import GIB
from tests.unit.plots.pictures import CASES, charts, curves, page


def texts(scene: Scene) -> list[Text]:
    return [item for item in scene.items if isinstance(item, Text)]


def number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def read_off(scene: Scene, x: float, y: float) -> tuple[float, float]:
    """The values of a pixel, as a person reads them off the figures beside the two axes."""
    marks = [(text.at, value, text.anchor) for text in texts(scene) if (value := number(text.text)) is not None
             and text.role == "quiet"]  # fmt: skip
    down = sorted((at[1] - 4, value) for at, value, anchor in marks if anchor == "end")
    across = sorted((at[0], value) for at, value, anchor in marks if anchor == "middle")

    def between(scale: list[tuple[float, float]], pixel: float) -> float:
        (p0, v0), (p1, v1) = scale[0], scale[-1]
        return v0 + (v1 - v0) * (pixel - p0) / (p1 - p0)

    return between(across, x), between(down, y)


@pytest.mark.parametrize("case", [case for case in CASES if case != "nothing"])
def test_marks_are_where_the_figures_say(case):
    memory, speed, _ = curves(case)
    for index in memory.shown():
        scene = memory_chart(memory, index)
        marks = [item for item in scene.items if isinstance(item, Symbol) and item.radius == 4.5]
        for mark, curve in zip(marks, memory.curves, strict=True):
            assert curve.at_max is not None
            n_ctx, gib = read_off(scene, *mark.at)
            assert n_ctx == pytest.approx(curve.at_max.n_ctx, rel=0.003)
            assert gib == pytest.approx(curve.at_max.needs[index].total_bytes / GIB, rel=0.003)
    if speed is not None:
        scene = speed_chart(speed)
        ring = next(item for item in scene.items if isinstance(item, Symbol) and item.shape == "ring")
        assert speed.chosen is not None
        count, rate = read_off(scene, *ring.at)
        assert count == pytest.approx(speed.chosen[1].n_on_gpu, abs=0.1)
        assert rate == pytest.approx(speed.chosen[1].tokens_per_s.value, rel=0.01)


@pytest.mark.parametrize("case", CASES)
def test_the_limit_is_always_in_the_picture(case):
    memory, _, _ = curves(case)
    for index in memory.shown():
        scene, place = memory_chart(memory, index), memory.places[index]
        limits = [item for item in scene.items if isinstance(item, Line) and item.role == "limit"]
        drawn = [read_off(scene, *line.points[0])[1] for line in limits]
        assert drawn == pytest.approx([place.usable_bytes / GIB, place.free_bytes / GIB], rel=0.003)
        for line in limits:
            assert all(0 <= y <= scene.height for _, y in line.points)
        words = " ".join(text.text for text in texts(scene))
        assert "kept free" in words
        assert ("free of" in words) == (place.free_bytes < place.total_bytes)


@pytest.mark.parametrize(("name", "scene"), charts(), ids=[name for name, _ in charts()])
def test_everything_lies_in_the_picture(name, scene):
    for item in scene.items:
        if isinstance(item, Text):
            left, top, right, bottom = item.box
            assert left >= 0, item
            assert right <= scene.width, item
            assert top >= 0, item
            assert bottom <= scene.height, item
        elif not isinstance(item, Symbol):
            assert all(-0.01 <= x <= scene.width + 0.01 for x, _ in item.points), item
            assert all(-0.01 <= y <= scene.height + 0.01 for _, y in item.points), item


@pytest.mark.parametrize(("name", "scene"), charts(), ids=[name for name, _ in charts()])
def test_no_text_covers_another(name, scene):
    for one, other in itertools.combinations(texts(scene), 2):
        a, b = one.box, other.box
        assert not (a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]), (one, other)


def test_axes_have_units_and_lines_have_names():
    for name, scene in charts():
        words = [text.text for text in texts(scene)]
        assert ("GiB" in words and "context, tokens" in words) or "tokens/s" in words, name
        if name == "whole-0":
            assert {"f16", "q8_0", "q4_0", "weights", "kept free"} <= set(words)


def test_an_axis_that_does_not_begin_at_zero_says_so():
    memory, _, _ = curves("part")
    words = [text.text for text in texts(memory_chart(memory, 0))]
    assert any("cut off below 16 GiB" in word for word in words)
    assert not any("cut off" in text.text for text in texts(memory_chart(curves("whole")[0], 0)))


def test_lines_are_told_apart_without_colour():
    assert len({style.dash for style in STYLES}) == len(STYLES)
    assert len({style.shape for style in STYLES}) == len(STYLES)
    assert len({style.role for style in STYLES}) == len(STYLES)


def luminance(color: str) -> float:
    """Relative luminance as WCAG 2.1 defines it."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
def test_contrast(colors):
    """WCAG 2.1: 4.5 for text, 3 for lines and marks."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert set(colors) == set(LIGHT)
    for role in ("ink", "quiet"):
        assert contrast(colors[role], colors["paper"]) >= 4.5, role
    for fill in ("weights", "compute", "cache", "range0", "range1"):
        assert contrast(colors["ink"], colors[fill]) >= 4.5, fill
    for role in ("line0", "line1", "line2", "line3", "limit"):
        assert contrast(colors[role], colors["paper"]) >= 3, role


def test_a_long_name_stays_in_the_picture():
    title = "an-unreasonably-long-name-" * 20
    scene = sheet(page("whole", title=title))
    assert all(text.box[2] <= scene.width for text in texts(scene))
    assert any(text.text.endswith("…") for text in texts(scene))


def test_a_sheet_holds_every_chart_apart():
    scene = sheet(page("whole", "two"))
    assert scene.width == 2 * 16 + 2 * 640 + 24
    assert len([text for text in texts(scene) if text.text == "GiB"]) == 3
    for one, other in itertools.combinations(texts(scene), 2):
        a, b = one.box, other.box
        assert not (a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]), (one, other)


@pytest.mark.parametrize(
    ("most", "count", "step"), [(12, 7, 2), (13.56, 7, 2), (81, 8, 20), (0.4, 5, 0.1), (2.5, 5, 0.5)]
)
def test_steps_are_round(most, count, step):
    assert nice_step(most, count) == pytest.approx(step)


def test_steps_of_layers_are_whole():
    assert nice_step(3, 8, whole=True) == 1
    assert nice_step(20, 8, whole=True) == 5


def test_contexts_step_in_powers_of_two():
    assert binary_step(131072, 6) == 32768
    assert binary_step(512, 6) == 128


def test_places_are_spread():
    assert spread([10, 11, 12], [15, 15, 15], 0, 100) == [10, 25, 40]
    assert spread([95, 96], [15, 15], 0, 100) == [85, 100]
    assert spread([50], [15], 0, 100) == [50]


def test_a_label_avoids_what_is_there():
    labels = Labels(200, 100, [Text((20, 50), "taken")])
    placed = labels.place(Text((0, 0), "new"), [(22, 52, "start"), (22, 80, "start")])
    assert placed.at == (22, 80)
    outside = labels.place(Text((0, 0), "x" * 20), [(190, 20, "start"), (10, 20, "start")])
    assert outside.at == (10, 20)


def test_text_is_measured_and_cut():
    assert text_width("iii", 12) < text_width("MMM", 12)
    assert text_width("日本", 10) == 20
    cut = shortened("a long sentence that does not fit", 60, 12)
    assert cut.endswith("…")
    assert text_width(cut, 12) <= 60
    lines = wrapped("one two three four five six seven eight", 60, 12, most=2)
    assert len(lines) == 2
    assert all(text_width(line, 12) <= 60 for line in lines)
