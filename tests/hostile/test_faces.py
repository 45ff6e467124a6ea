"""Names from files through every verb: on the screen, in JSON, in pictures, in the journal, in pasted commands."""

from __future__ import annotations

import html.parser
import json
import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from advisor.cli.main import VERBS, main
from advisor.cli.terminal import clean
from advisor.daemon.journal import Journal
from advisor.gguf_header.errors import printable
from advisor.hardware.snapshot_file import to_json
from advisor.host import Cpu, Device, HostSnapshot, ProbeReport, Ram
from advisor.outputs.command import command_line, quote_file
from tests.hostile.texts import BIDI, BROKEN, EVERYTHING, LONG, NASTY, SHELL
from tests.tools.gguf_files import kv
from tests.tools.kept import configure, write_config
from tests.tools.tiny_models import tiny_model

GIB = 1 << 30
FORBIDDEN = {*BIDI} - {*map(chr, range(32, 127))}
FILE_NAME = "m" + "".join(NASTY.values()).replace("/", "")[:60] + ".gguf"
MODEL_VERBS = ("recommend", "estimate", "inspect", "quants", "compare", "check", "doctor")
FEW = ("--no-gpu", "--ram", "8GiB")


def model_file(folder: Path, name: str | bytes, file_name: str = FILE_NAME) -> Path:
    """A model that plans well and is called so, in a file that is called so too."""
    data = tiny_model("NAME")
    written = kv("general.name", "string", name)
    assert kv("general.name", "string", "NAME") in data
    path = folder / file_name
    start = data.index(kv("general.name", "string", "NAME"))
    more = len(written) - len(kv("general.name", "string", "NAME"))
    # the table is padded to 32 bytes: lengthen by whole blocks
    written = kv("general.name", "string", (name.encode() if isinstance(name, str) else name) + b" " * (-more % 32))
    path.write_bytes(data[:start] + written + data[start + len(kv("general.name", "string", "NAME")) :])
    return path


def said(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """(status, stdout, stderr) of a command line."""
    status = main([os.fspath(word) if isinstance(word, Path) else str(word) for word in words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def assert_plain(text: str, most_lines: int = 400) -> None:
    """Nothing that a terminal would not print as letters, and no line that a name has begun."""
    for line in text.split("\n"):
        odd = {char for char in line if not char.isprintable() or char in FORBIDDEN}
        assert not odd, line
        assert len(line) < 3000
        assert not line.startswith(("advisor: all is well", "Fits whole.", "y", "z"))
    assert text.count("\n") < most_lines


@pytest.fixture(params=["everything", "10 MB", "broken UTF-8"])
def nasty(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    names = {"everything": EVERYTHING, "10 MB": LONG, "broken UTF-8": os.fsencode(BROKEN)}
    return model_file(tmp_path, names[request.param])


@pytest.mark.parametrize("verb", MODEL_VERBS)
def test_a_models_names_on_the_screen_and_in_json(verb, nasty, capsys):
    options = () if verb in ("inspect", "doctor") else (*FEW, *((nasty,) if verb == "compare" else ()))
    status, out, err = said(capsys, verb, nasty, *options)
    assert status in (0, 3, 4), err
    assert out
    assert_plain(out + err)
    status, out, err = said(capsys, verb, nasty, *options, "--json")
    assert status in (0, 3, 4), err
    document = json.loads(out)
    assert out.isascii()  # control characters and marks are escapes there
    assert len(out) < 4_000_000
    assert document["schema"].startswith("advisor.")


def test_every_verb_that_takes_a_model_is_here():
    taking = {verb for verb in VERBS if "MODEL" in _help(verb)}
    # those that ask an engine or write a picture; calibrate and verify take what recommend takes
    assert taking - set(MODEL_VERBS) <= {"plot", "verify", "observe", "calibrate", "together", "scan", "diff", "apply"}


def _help(verb: str) -> str:
    import importlib

    import click

    command = importlib.import_module(VERBS[verb][0]).command
    return str(command.get_usage(click.Context(command, info_name=verb)))


class Tags(html.parser.HTMLParser):
    """What stands in a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)


def test_pictures_hold_names_as_text(nasty, tmp_path, capsys):
    for ending in ("svg", "html"):
        path = tmp_path / f"picture.{ending}"
        status, out, err = said(capsys, "plot", nasty, *FEW, "-o", path)
        assert status == 0, err
        assert_plain(out + err)
        text = path.read_text(encoding="utf-8")
        assert len(text) < 2_000_000
        assert not FORBIDDEN & set(text)
        assert "\x1b" not in text
        if ending == "svg":
            assert not [tag for tag in ElementTree.fromstring(text).iter() if "script" in tag.tag]
        tags = Tags()
        tags.feed(text)
        assert not tags.tags & {"script", "b", "img", "iframe", "link", "object"}


@pytest.mark.parametrize("what", [*NASTY, "everything"])
def test_a_machines_names(what, tmp_path, capsys):
    name = EVERYTHING if what == "everything" else NASTY[what]
    card = Device("CUDA0", "cuda", name[:4000], 8 * GIB, 8 * GIB)
    host = HostSnapshot(
        (card,),
        Ram(GIB, GIB),
        Cpu(name[:4000], 4, 8),
        "linux",
        probes=(ProbeReport(name, "ok", name, 0.1),),
        notes=(name,),
    )
    path = tmp_path / "h.json"
    path.write_text(json.dumps(to_json(host)))
    model = model_file(tmp_path, "plain", "m.gguf")
    for words in (
        ("hardware", "--hardware", path),
        ("recommend", model, "--hardware", path),
        ("doctor", "--hardware", path),
    ):
        _, out, err = said(capsys, *words)
        assert_plain(out + err)


@pytest.mark.parametrize("form", ["llama-server-preset", "llama-swap", "llama-cpp-python"])
def test_a_difference_and_what_the_keeper_says(form, nasty, tmp_path, home, capsys):
    target = tmp_path / "config" / "x"
    target.parent.mkdir()
    write_config(configure([tmp_path], target, form), home)
    for verb in ("diff", "scan", "apply", "status", "undo"):
        _, out, err = said(capsys, verb, *(("--all",) if verb == "undo" else ()))
        assert_plain(out + err)
    assert "EVIL" not in os.listdir(tmp_path)


def test_a_journals_line_stays_one_line(tmp_path):
    path = tmp_path / "journal"
    with open(path, "wb") as file:
        for name in (*NASTY.values(), EVERYTHING, BROKEN, LONG):
            Journal({}, file.fileno()).log(3, f"{name}: changed")
    lines = path.read_text(encoding="utf-8").split("\n")
    assert len(lines) == len(NASTY) + 3 + 1
    for line in lines:
        assert_plain(line)


def test_a_pasted_command_is_one_command(tmp_path, capsys):
    """The command that recommend prints, run by a shell with a program in the engine's place."""
    folder = tmp_path / "it's $(touch EVIL) `touch EVIL`; touch EVIL & #"
    folder.mkdir()
    model = model_file(folder, "x", f"m {SHELL.replace('/', '')}\n\x1b[31m.gguf")
    _, out, _ = said(capsys, "recommend", model, *FEW)
    (line,) = [line for line in out.split("\n") if line.startswith("  llama-server ")]
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "llama-server").write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
    (bin_folder / "llama-server").chmod(0o755)
    environ = {"PATH": f"{bin_folder}:/usr/bin:/bin", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["bash", "-c", line.strip()], env=environ, cwd=tmp_path, capture_output=True, check=True)
    words = done.stdout.split(b"\0")
    assert words[words.index(b"-m") + 1] == os.fsencode(model)
    assert not list(tmp_path.rglob("EVIL"))


def test_clean_costs_no_more_than_it_keeps():
    assert len(clean(LONG, 200)) <= 200
    assert clean(EVERYTHING, 10_000).isprintable()


def test_a_name_is_spelled_in_one_way(tmp_path, capsys):
    """What errors say of a path and what the rest of the screen says of it."""
    name = "a\x1b[2J\tb\u202e c.gguf"
    model = model_file(tmp_path, "x", name)
    _, out, _ = said(capsys, "scan", model)  # both stand in one answer
    assert "Folder: " in out
    assert " ".join(out.split()).count("a?[2J b? c.gguf") == 2
    for verb in MODEL_VERBS:
        out = "".join(map(str, said(capsys, verb, model, *(() if verb in ("inspect", "doctor") else FEW))))
        assert "a [2J" not in out
    assert clean(name) == printable(name) == "a?[2J b? c.gguf"


@pytest.mark.parametrize("name", ["-rf.gguf", "--help", "-"])
def test_a_name_that_looks_like_an_option_is_a_path_in_commands(name):
    line = command_line("llama-server", name, [("ctx-size", "5"), ("mmproj", name), ("spec-draft-model", name)])
    assert line == f"llama-server -m ./{name} -c 5 --mmproj ./{name} --spec-draft-model ./{name}"
    assert quote_file(f"{name} x") == f"'./{name} x'"
    assert command_line("x", "/m/-a", [("main-gpu", "-1")]) == "x -m /m/-a -mg -1"


def test_the_printed_command_of_such_a_file(tmp_path, monkeypatch, capsys):
    model_file(tmp_path, "x", "-rf.gguf")
    monkeypatch.chdir(tmp_path)
    status, out, err = said(capsys, "recommend", *FEW, "--", "-rf.gguf")
    assert status in (0, 3), err
    assert " -m ./-rf.gguf " in out
