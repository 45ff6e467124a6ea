"""Where the lines of a log come from, what is passed over, and that nothing is lost that says something."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from advisor.engines import log_source
from advisor.engines.load_log import parse_load_log
from advisor.engines.log_filter import GAP, telling, text_lines
from advisor.engines.log_source import BLOCK_BYTES, Lines, LogLines, file_lines, unit_lines
from advisor.engines.process import CRUMB_BYTES, GATHERING_S, stream_until
from advisor.engines.timings import SpeedReader
from advisor.errors import EngineError
from tests.fuzz.seeds import LOG
from tests.tools.fake_engine import program
from tests.unit.engines.test_load_log import CUDA, PROBE
from tests.unit.engines.test_timings import CLI, NEW, OLD

MIB = 1 << 20
REQUESTS = "srv  update_slots: all slots are idle\n" * 20 + NEW.partition("\n")[2]


def everything(lines: list[str]) -> tuple:
    reader = SpeedReader()
    found = parse_load_log(reader.watch(lines))
    return found, reader.log


def of_file(path: Path, text: str) -> LogLines:
    path.write_text(text)
    return file_lines(str(path))


@pytest.mark.parametrize("text", [CUDA, PROBE + CUDA, NEW, OLD, CLI, LOG, LOG.replace("\n", "\r\n"), ""])
def test_what_is_passed_over_says_nothing(tmp_path, text):
    between = "\n".join(
        f"{line}\nslot update_slots: id  0 | n_past = 7, memory_seq_rm [7, end)" for line in text.split("\n")
    )
    read = of_file(tmp_path / "log", between)
    assert everything(read.lines) == everything(text.replace("\r", "").split("\n"))
    assert (read.n_bytes, read.left_out_bytes, read.ended, read.note) == (len(between), 0, True, None)


def test_every_log_of_the_tests_says_the_same_through_the_filter():
    for text in (CUDA, PROBE, LOG, NEW, OLD, CLI):
        assert everything(text_lines(text, log_source._MARKS)) == everything(text.split("\n"))


def test_the_newest_start_counts_wherever_it_stands(tmp_path):
    old, new = CUDA.replace("1024.00", "512.00"), CUDA
    months = old + REQUESTS * (12 * MIB // len(REQUESTS))
    read = of_file(tmp_path / "log", f"{months}{new}{months}")
    found, speeds = everything(read.lines)
    assert [len(read.lines) < 25_000, GAP in read.lines, len(found.loads)] == [True, True, 2]
    assert found.last == parse_load_log(old.split("\n")).last  # of the second half
    found, _ = everything(of_file(tmp_path / "log", f"{months}{new}{months[len(old) :]}").lines)
    assert found.last == parse_load_log(new.split("\n")).last
    assert len(speeds.timings) > 1000
    assert set(speeds.timings) == set(everything(NEW.split("\n"))[1].timings)
    assert speeds.n_disturbed == 0
    assert 10 * MIB < read.left_out_bytes < read.n_bytes
    assert read.note is not None
    assert "MiB were left out" in read.note


def test_only_the_end_of_a_file_is_looked_through(tmp_path, monkeypatch):
    monkeypatch.setattr(log_source, "MAX_LOG_BYTES", 8 * MIB)
    text = "x\n" * (2 * MIB) + CUDA + "x" * 50 + "\n" * (5 * MIB) + REQUESTS
    read = of_file(tmp_path / "log", text)
    found, speeds = everything(read.lines)
    assert (found.last, len(speeds.timings), read.n_bytes, read.ended) == (None, 1, len(text), True)
    assert read.left_out_bytes >= len(text) - 8 * MIB
    lasting = CUDA + REQUESTS * (9 * MIB // len(REQUESTS))
    read = of_file(tmp_path / "log", lasting)  # of a server that was started once
    found, speeds = everything(read.lines)
    assert found.last == parse_load_log(CUDA.split("\n")).last
    assert len(speeds.timings) > 1000
    assert set(speeds.timings) == set(everything(NEW.split("\n"))[1].timings)
    assert (speeds.n_disturbed, read.n_bytes) == (0, len(lasting))
    assert 0 < read.left_out_bytes < len(lasting)


def test_a_pipe_is_read_to_its_limit_and_that_is_said(monkeypatch):
    monkeypatch.setattr(log_source, "MAX_LOG_BYTES", 2 * MIB)
    reading, writing = os.pipe()

    def write() -> None:
        with open(writing, "wb") as file:
            try:
                file.write(CUDA.encode())
                for _ in range(100):
                    file.write(b"\n" * MIB)
            except BrokenPipeError:
                return

    thread = threading.Thread(target=write)
    thread.start()
    read = file_lines(f"/dev/fd/{reading}")
    os.close(reading)
    thread.join(10)
    assert not thread.is_alive()
    assert everything(read.lines)[0] == parse_load_log(CUDA.split("\n"))
    assert read.ended is False
    assert read.note is not None
    assert read.note.startswith("only the first 2.")


def test_a_pipe_with_a_name_waits_for_its_writer_but_not_for_ever(tmp_path, monkeypatch):
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def late() -> None:
        time.sleep(0.2)
        with open(path, "wb") as file:
            file.write(CUDA[:100].encode())
            file.flush()
            time.sleep(0.2)
            file.write(CUDA[100:].encode())

    thread = threading.Thread(target=late)
    thread.start()
    assert everything(file_lines(str(path)).lines)[0] == parse_load_log(CUDA.split("\n"))
    thread.join()
    monkeypatch.setattr(log_source, "_WRITER_LIMIT_S", 0.1)
    with pytest.raises(EngineError, match="nobody writes to"):
        file_lines(str(path))


@pytest.mark.parametrize("tail", ["", "\n"])
def test_a_line_without_end_is_one_line(tmp_path, tail):
    path = tmp_path / "log"
    path.write_bytes(
        b"load_tensors: CUDA0 model buffer size = 1.00 MiB " + b"VRAM used: 5.00 MiB " * (3 * MIB // 10) + tail.encode()
    )
    found, _ = everything(file_lines(str(path)).lines)
    assert [buffer.n_bytes for buffer in found.last.weights] == [MIB]


def test_the_lines_around_a_cut_are_not_one_request(tmp_path):
    begun = "slot launch_slot_: id  3 | task 5 | processing task\n"
    text = f"{NEW}{begun}" + "\n" * (12 * BLOCK_BYTES) + REQUESTS
    _, speeds = everything(of_file(tmp_path / "log", text).lines)
    assert (len(speeds.timings), speeds.n_disturbed) == (2, 0)


def test_a_flood_of_lines_that_say_something_is_cut_too(tmp_path):
    text = CUDA + "load_tensors: CUDA0 model buffer size = 1.00 MiB\n" * 100_000
    began = time.process_time()
    read = of_file(tmp_path / "log", text)
    everything(read.lines)
    assert len(read.lines) < 20_100
    assert read.left_out_bytes > MIB
    assert time.process_time() - began < 1


@pytest.mark.parametrize("newest", [False, True])
def test_the_first_or_the_last_lines(newest):
    data = b"".join(b"%d VRAM\nnothing\n%d BLAS VRAM\n" % (number, number) for number in range(100))
    lines, more = telling(data, [b"VRAM", b"BLAS"], 7, newest=newest)
    told = [line for line in data.split(b"\n") if b"VRAM" in line]
    assert (lines, more) == (told[-7:] if newest else told[:7], True)
    assert telling(data, [b"VRAM", b"BLAS"], 200, newest=newest) == (told, False)
    assert telling(b"VRAM", [b"VRAM"], 1) == ([b"VRAM"], False)
    assert telling(data, [b"VRAM"], 0, newest=newest) == ([], True)


def test_the_journal_is_streamed(tmp_path, monkeypatch):
    folder = program(tmp_path, f"import sys\nsys.stdout.write({CUDA!r})\nfor _ in range(40): print('x' * (1 << 20))\n")
    (tmp_path / "bin").mkdir()
    os.symlink(folder, tmp_path / "bin" / "journalctl")
    environ = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    monkeypatch.setenv("PATH", environ["PATH"])
    read = unit_lines("llama.service", environ)
    assert everything(read.lines)[0].last == parse_load_log(CUDA.split("\n")).last
    assert read.n_bytes > 40 * MIB


def test_a_stream_is_stopped_when_it_is_enough(tmp_path):
    pieces: list[bytes] = []

    def take(data: bytes) -> bool:
        pieces.append(data)
        return sum(map(len, pieces)) > 100_000

    ran = stream_until(["yes"], os.environ, 10, take)
    assert (ran.ended, ran.status, ran.text) == ("enough", None, "")
    assert sum(map(len, pieces)) < 200_000


def test_a_pipe_in_crumbs_is_read_in_pieces(monkeypatch):
    reading, writing = os.pipe()
    reads = 0
    real = os.read

    def counted(descriptor: int, most: int) -> bytes:
        nonlocal reads
        reads += descriptor == reading
        return real(descriptor, most)

    def write() -> None:
        for byte in CUDA.encode() * 4:
            os.write(writing, bytes((byte,)))
        os.close(writing)

    monkeypatch.setattr(log_source.os, "read", counted)
    thread = threading.Thread(target=write)
    thread.start()
    began = time.monotonic()
    read = log_source._read(reading, b"")
    seconds = time.monotonic() - began
    thread.join()
    os.close(reading)
    assert everything(read.lines)[0] == parse_load_log((CUDA * 4).split("\n"))
    assert reads <= 3 + seconds / GATHERING_S + read.n_bytes / CRUMB_BYTES
    assert reads < read.n_bytes / 20


def test_lines_are_a_sequence_of_texts():
    lines = Lines([b"one\r", b"tw\xff", GAP.encode()])
    assert (list(lines), len(lines), lines[-1], GAP in lines) == (["one", "tw\ufffd", GAP], 3, GAP, True)
    assert list(lines[:2]) == ["one", "tw\ufffd"]
