"""`advisor plot` and `recommend --plot`: what is written where, what is refused, and what the figures are."""

from __future__ import annotations

import json
import os
import struct
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from advisor.cli.render_curves import curve_lines
from advisor.cli.terminal import Screen
from tests.tools.empty_gguf import write_empty_gguf
from tests.unit.cli.test_bad_input import advisor, assert_one_sentence
from tests.unit.outputs.test_command import ZOO
from tests.unit.plots.pictures import CASES, curves

MODEL = str(ZOO / "llama3-8b.json.gz")
CARD = ("--gpu", "RTX 3060", "--ram", "32GiB")


@pytest.mark.parametrize(
    ("name", "begins"),
    [("a.svg", b"<svg "), ("a.PNG", b"\x89PNG\r\n\x1a\n"), ("a b.html", b"<!doctype html>")],
)
def test_a_picture_is_written(tmp_path, name, begins):
    out = tmp_path / name
    done = advisor("plot", MODEL, *CARD, "-o", out)
    assert (done.status, done.err) == (0, "")
    assert done.out == f"wrote {out}\n"
    data = out.read_bytes()
    assert data.startswith(begins)
    assert os.listdir(tmp_path) == [name]
    if name.endswith(".svg"):
        chosen = json.loads(advisor("recommend", MODEL, *CARD, "--json").out)["settings"]["n_ctx"]
        assert f"{chosen:,}, chosen" in {element.text for element in ElementTree.fromstring(data).iter()}
    if name.endswith("PNG"):
        assert struct.unpack(">I", data[16:20])[0] == 2 * (2 * 16 + 2 * 640 + 24)


def test_a_file_that_is_there_is_left_alone_without_force(tmp_path):
    out = tmp_path / "mine.svg"
    out.write_text("mine")
    done = advisor("plot", MODEL, *CARD, "-o", out)
    line = assert_one_sentence(done, 1)
    assert "--force" in line
    assert str(out) in line
    assert out.read_text() == "mine"
    assert advisor("plot", MODEL, *CARD, "-o", out, "--force").status == 0
    assert out.read_text().startswith("<svg ")


def test_a_link_that_leads_nowhere_is_left_alone(tmp_path):
    out = tmp_path / "link.svg"
    out.symlink_to(tmp_path / "elsewhere")
    assert "--force" in assert_one_sentence(advisor("plot", MODEL, *CARD, "-o", out), 1)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["plot.pdf", "plot", "plot.svg.gz", ".svg"])
def test_an_ending_that_means_nothing_is_refused(tmp_path, name):
    done = advisor("plot", MODEL, *CARD, "-o", tmp_path / name)
    line = assert_one_sentence(done, 2)
    assert ".svg, .png or .html" in line
    assert os.listdir(tmp_path) == []


def test_where_nothing_can_be_written_that_is_said(tmp_path):
    line = assert_one_sentence(advisor("plot", MODEL, *CARD, "-o", tmp_path / "no" / "a.svg"), 1)
    assert "folder" in line
    folder = tmp_path / "folder.svg"
    folder.mkdir()
    line = assert_one_sentence(advisor("plot", MODEL, *CARD, "-o", folder, "--force"), 1)
    assert "no file" in line


def test_without_a_file_or_json_there_is_nothing_to_do():
    assert "-o" in assert_one_sentence(advisor("plot", MODEL, *CARD), 2)


def test_each_needs_cards():
    assert "--gpu" in assert_one_sentence(advisor("plot", MODEL, "--each", "-o", "x.svg"), 2)


def test_json_has_the_points_of_every_machine():
    done = advisor(
        "plot", MODEL, "--gpu", "RTX 3060", "--gpu", "RTX 3060 + RTX 3060", "--each", "--ram", "32GiB", "--json"
    )
    assert (done.status, done.err) == (0, "")
    document = json.loads(done.out)
    assert document["schema"] == "advisor.plot/1"
    assert document["file"] is None
    assert [machine["name"].split(",")[0] for machine in document["machines"]] == ["RTX 3060", "2x RTX 3060"]
    first = document["machines"][0]
    f16 = first["memory"]["curves"][0]
    assert (f16["cache_type"], f16["max_n_ctx"]) == ("f16", 53504)
    at = next(point for point in f16["points"] if point["n_ctx"] == 32768)
    words = ["-c", "32768", "-np", "1", "-ngl", "99"]
    (device,) = json.loads(advisor("estimate", MODEL, *CARD, *words, "--json").out)["devices"]
    need = at["needs"]["CUDA0"]
    for name in ("weights_bytes", "cache_bytes", "planned_bytes"):
        assert need[name] == device[name]
    assert need["compute_bytes"] == device["compute_high_bytes"]
    assert at["exact"]
    rates = {point["n_on_gpu"]: point for point in first["speed"]["curves"][0]["points"]}
    assert list(rates) == list(range(34))
    asked = json.loads(advisor("recommend", MODEL, *CARD, "--json").out)
    decode = asked["speed"]["decode_tokens_per_s"]
    assert rates[33]["tokens_per_s"] == {name: decode[name] for name in ("value", "low", "high")}
    assert first["summary"] == asked["summary"]


def test_a_hostile_name_makes_a_valid_file(tmp_path):
    document = json.loads(__import__("gzip").decompress(Path(MODEL).read_bytes()))
    document["metadata"]["general.name"] = {"type": "string", "value": "a<b>&\"'\x1b[31m\x07\u202e日"}
    model = tmp_path / "m.gguf"
    write_empty_gguf(document, model)
    for ending in ("svg", "html", "png"):
        out = tmp_path / f"o.{ending}"
        done = advisor("plot", model, *CARD, "-o", out)
        assert (done.status, done.err) == (0, "")
        if ending == "svg":
            assert ElementTree.fromstring(out.read_bytes()).find("{http://www.w3.org/2000/svg}title") is not None


# ------------------------------------------------------------------------------------------ in the terminal


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("unicode", [True, False])
def test_curves_in_the_terminal(case, width, unicode):
    memory, speed, _ = curves(case)
    lines = curve_lines(memory, speed, Screen(width=width, color=False, unicode=unicode))
    assert all(len(line) <= width for line in lines)
    assert unicode or all(line.isascii() for line in lines)
    text = "\n".join(lines)
    for curve in memory.curves:
        said = "nothing fits" if curve.max_n_ctx is None else f"fits up to {curve.max_n_ctx:,} tokens"
        assert said in text
    assert text.count("context, tokens") == len(memory.shown())
    assert ("tokens/s" in text) == (speed is not None)


def test_a_rising_line_rises():
    memory, speed, _ = curves("whole")
    lines = curve_lines(memory._replace(curves=memory.curves[:1]), speed, Screen(width=80, color=False, unicode=True))
    top = next(index for index, line in enumerate(lines) if "└" in line)
    rows = [(line[10:].find("●"), line[10:].find("○")) for line in lines[2:top]]
    columns = [max(each) for each in rows if max(each) >= 0]
    assert columns == sorted(columns, reverse=True)
    assert len(columns) > 5
    limit = next(index for index, line in enumerate(lines) if "────────" in line)
    assert all("●" not in line for line in lines[2:limit])  # nothing that fits lies above the limit


def test_recommend_draws_after_everything_else():
    plain, drawn = (advisor("recommend", MODEL, *CARD, *more) for more in ((), ("--plot",)))
    assert drawn.status == plain.status == 0
    before, figures = plain.out.rsplit("\n\n", 1)
    assert drawn.out.startswith(before)
    assert drawn.out.endswith(figures)
    assert "fits up to 53,504 tokens" in drawn.out


def test_a_drawing_is_no_json():
    line = assert_one_sentence(advisor("recommend", MODEL, *CARD, "--plot", "--json"), 2)
    assert "advisor plot" in line


def test_the_plain_path_loads_nothing_of_it(tmp_path):
    script = (
        "import sys; from advisor.cli.main import main; "
        f"main(['recommend', {MODEL!r}, '--gpu', 'RTX 3060', '--ram', '32GiB']); "
        "print([name for name in sys.modules if 'plots' in name or 'curves' in name or 'what_gpu' in name "
        "or 'compare' in name or name.startswith('PIL')], file=sys.stderr)"
    )
    import subprocess

    root = str(Path(__file__).resolve().parents[3])
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=root, env={**os.environ, "PYTHONPATH": root},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stderr.strip() == "[]"
