"""Streams that are closed, full, cut off, or of few letters: the right status, at most one sentence, no traceback."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.gguf_files import F32, honest, kv

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = ROOT / "advisor/data/llama-3-8b-q4_k_m.json.gz"

# every verb that reports, both ways, and what click itself prints
COMMANDS = [
    ("recommend", SHIPPED, "--no-gpu", "--ram", "32GiB"),
    ("recommend", SHIPPED, "--no-gpu", "--ram", "32GiB", "--json"),
    ("estimate", SHIPPED, "--no-gpu", "--ram", "32GiB", "-c", "4096"),
    ("inspect", SHIPPED),
    ("inspect", SHIPPED, "--json"),
    ("hardware", "--no-gpu"),
    ("rules", "show"),
    ("rules", "check"),
    ("doctor", "--json"),
    ("--version",),
    ("--help",),
    ("recommend", "--help"),
]
IDS = [" ".join(str(word) for word in command if word is not SHIPPED) for command in COMMANDS]


def shell(command: tuple[object, ...], redirection: str, **environ: str) -> tuple[int, bytes, bytes]:
    """(status, stdout, stderr) of `python -m advisor …` as the shell starts it; stdin, too, is what it says."""
    line = shlex.join([sys.executable, "-m", "advisor", *(str(word) for word in command)])
    done = subprocess.run(
        ["bash", "-c", f"{line} {redirection}"], cwd=ROOT, env={**os.environ, **environ}, stdin=subprocess.DEVNULL,
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    for word in (b"Traceback", b"bug in advisor", b"Exception ignored"):
        assert word not in done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=IDS)
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_closed_stream_changes_nothing_else(command, closed):
    status, out, err = shell(command, closed)
    assert status == 0
    assert err == b""
    assert (out == b"") == (">&-" in closed.split())


@pytest.mark.parametrize("command", [("nosuch",), ("recommend", "no.gguf"), ("recommend",)], ids=str)
@pytest.mark.parametrize("closed", [">&-", "<&-"])
def test_an_error_is_told_though_a_stream_is_closed(command, closed):
    status, _, err = shell(command, closed)
    assert status == (1 if "no.gguf" in command else 2)
    assert err.startswith(b"advisor: ")
    assert err.count(b"\n") == 1


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-", "2>/dev/full", ">/dev/full 2>/dev/full"])
def test_an_error_that_cannot_be_told_has_its_status(closed):
    assert shell(("nosuch",), closed) == (2, b"", b"")
    assert shell((), closed) == (2, b"", b"")


def test_a_closed_stdin_is_an_empty_log():
    status, _, err = shell(("observe", "-"), "<&-")
    assert status == 1
    assert b"tells of no load" in err


def test_a_file_does_not_become_a_closed_stream(tmp_path):
    """The first file that is opened gets the lowest free number; what is printed must not end up in it."""
    path = tmp_path / "m.gguf"
    path.write_bytes(honest([kv("general.architecture", "string", "llama")], [("t", (32,), F32)]))
    before = path.read_bytes()
    exported = tmp_path / "m.json"
    assert shell(("inspect", path, "--export", exported), "<&- >&- 2>&-")[0] == 0
    assert path.read_bytes() == before
    assert exported.read_bytes().startswith(b"{")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", COMMANDS, ids=IDS)
def test_a_full_disk(command):
    assert shell(command, "> /dev/full") == (
        1, b"", b"advisor: the output cannot be written: No space left on device; give it another place.\n",
    )  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=IDS)
def test_a_reader_that_has_enough(command):
    """As every program that SIGPIPE ends: nothing is said, and the status is 141."""
    status, out, err = shell(command, "| true; echo ${PIPESTATUS[0]}")
    assert (status, out, err) == (0, b"141\n", b"")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8", "ascii:replace"])
def test_every_letter_can_be_written(tmp_path, encoding):
    name = "ünïcode→✓模型"
    path = tmp_path / f"{name}.gguf"
    path.write_bytes(honest([kv("general.architecture", "string", "clip")], [("v.t", (32,), F32)]))
    status, out, _ = shell(("inspect", path), "", PYTHONIOENCODING=encoding)
    assert status == 0
    codec = encoding.partition(":")[0]
    expected = {
        "ascii": "\\xfcn\\xefcode->fits\\u6a21\\u578b.gguf",
        "latin-1": "ünïcode->fits\\u6a21\\u578b.gguf",
        "cp1252": "ünïcode->fits\\u6a21\\u578b.gguf",
        "utf-8": f"{name}.gguf",
        "ascii:replace": "?n?code????.gguf",
    }[encoding]
    assert expected in out.decode(codec)
    status, _, err = shell(("recommend", path, "--no-gpu"), "", PYTHONIOENCODING=encoding)
    assert status == 1
    assert expected in err.decode(codec) or encoding == "ascii:replace"  # stderr keeps escapes under that


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_bars_and_ticks_become_plain(encoding):
    command = ("recommend", SHIPPED, "--gpu", "RTX 3060", "--ram", "32GiB")
    status, out, err = shell(command, "", PYTHONIOENCODING=encoding)
    assert (status, err) == (0, b"")
    text = out.decode("ascii")
    assert "\\u" not in text
    assert "\\x" not in text
    assert "5.71 GiB fits" in text


def test_a_name_that_is_no_text(tmp_path):
    path = os.fsencode(tmp_path) + b"/m\xff.gguf"
    with open(path, "wb") as file:
        file.write(honest([kv("general.architecture", "string", "clip")], [("v.t", (32,), F32)]))
    for encoding in ("utf-8", "ascii"):
        status, out, err = shell(("inspect", os.fsdecode(path)), "", PYTHONIOENCODING=encoding)
        assert (status, err) == (0, b"")
        out.decode(encoding)
