"""Lies in the logs of engines: figures, lines without end, and logs without end."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from pathlib import Path

from advisor.engines import log_source
from advisor.engines.load_log import parse_load_log
from advisor.engines.log_source import file_lines
from advisor.engines.timings import SpeedReader
from tests.fuzz.seeds import LOG
from tests.hostile.lies import READ, Case, Group, Lie, Made

JUNK = (
    "",
    "x",
    "-1",
    "1e999",
    "9" * 4000,
    "²",
    "٣",
    "nan",
    "\x1b[2J",
    "\0",
    "1.000.000,5",
    ".",
    ",",
    "1.",
    "0x10",
    "$(id)",
)


def logs(folder: Path) -> Made:
    """Logs with every figure replaced, and lines without end."""
    import re

    figures = list(re.finditer(r"\d[\d.,]*", LOG))
    for number, (figure, junk) in enumerate(itertools.product(figures, JUNK)):
        text = LOG[: figure.start()] + junk + LOG[figure.end() :]
        yield Case(f"figure {number // len(JUNK)} is {junk[:9]!r}", lambda t=text: parse_load_log(t.split("\n")), READ)
    buffer = "load_tensors: CUDA0 model buffer size = 1.00 MiB\n"
    for label, text in (
        ("100,000 buffers", buffer * 100_000), ("a line of 10 MB", buffer.rstrip() * 200_000), ("NUL", "\0" * 100_000),
        ("100,000 loads", "llama_model_loader: loaded meta data with 1 key-value pairs and 1 tensors from x\n" * 100_000),
        ("blanks before a size", "CUDA0" + " " * 1900 + "buffer size"), ("many colons", "a:" * 900 + " buffer size = 1 MiB"),
        ("many brackets", "| +- x (" + "(" * 1900), ("a table without end", "| memory breakdown [MiB] |\n" + "|   - CUDA0 (x) | 1 = 1 + (1 = 1 + 1 + 1) + 1 |\n" * 20_000),
        ("devices without end", "".join(f"  - CUDA{n} : x (1 MiB, 1 MiB free)\n" for n in range(20_000))),
    ):  # fmt: skip
        path = folder / "x.log"
        path.write_text(text)
        yield Case(label, lambda p=str(path): parse_load_log(file_lines(p).lines), READ)
    (folder / "junk.log").write_bytes(bytes(range(256)) * 4000)
    yield Case("all bytes", lambda: parse_load_log(file_lines(str(folder / "junk.log")).lines), READ)
    yield Case("a folder", lambda: file_lines(str(folder)), "EngineError")
    yield Case("missing", lambda: file_lines(str(folder / "no")), "EngineError")


def long_logs(folder: Path) -> Made:
    """Logs of megabytes, and those that never end."""
    request = "slot launch_slot_: id 0 | task 1 | processing task\n"
    for label, line, times in (
        ("newlines", "\n", 8 << 20), ("200,000 requests", request, 200_000), ("one mark and no end", "VRAM", 2 << 20),
        ("colons as far as one looks", "~:" * 240 + " VRAM iB buffer size MiB\n", 20_000), ("bytes that are no text", "\udcff", 8 << 20),
        ("caches in caches", "KV self size = 1 MiB K (" * 20 + "task eval time\n", 20_000), ("empty marks", "VRAM\n", 2 << 20),
        ("devices in brackets", " - A : (" * 60 + " MiB free size MiB\n", 20_000),
        ("long lines that take four times as much as text", "print_info: \U0001f600 build lash Att" + "a" * 4962 + "\n", 5600),
        ("sizes once more", "x: CUDA0 compute buffer size = 1 MiB\n~x: CUDA1 compute buffer size is 9 MiB\n", 100_000),
    ):  # fmt: skip
        path = folder / "long.log"
        with path.open("w", errors="surrogateescape") as file:
            for _ in range(100):
                file.write(line * (times // 100))
        yield Case(label, lambda p=str(path): _read_log(p), READ)
    yield Case("zeros without end", lambda: "cut" if file_lines("/dev/zero").note else READ, "cut")
    yield Case("a pipe without end", _flooding_pipe, "cut")
    os.mkfifo(folder / "pipe")
    yield Case("a pipe that nobody writes to", lambda: _unwritten(str(folder / "pipe")), "EngineError")


def _read_log(path: str) -> None:
    reader = SpeedReader()
    parse_load_log(reader.watch(file_lines(path).lines))


def _flooding_pipe() -> str:
    reading, writing = os.pipe()

    def write() -> None:
        with contextlib.suppress(BrokenPipeError):
            while True:
                os.write(writing, b"x MiB free\n" * 5000)
        os.close(writing)

    thread = threading.Thread(target=write)
    thread.start()
    most, log_source.MAX_LOG_BYTES = log_source.MAX_LOG_BYTES, 32 << 20  # the writer's time counts here, too
    try:
        read = file_lines(f"/dev/fd/{reading}")
    finally:
        log_source.MAX_LOG_BYTES = most
        os.close(reading)
        thread.join()
    return READ if read.ended else "cut"


def _unwritten(path: str) -> None:
    limit, log_source._WRITER_LIMIT_S = log_source._WRITER_LIMIT_S, 0.1
    try:
        file_lines(path)
    finally:
        log_source._WRITER_LIMIT_S = limit


LOGS = Group(
    "engine logs",
    (
        Lie("figures and lines", "float() of anything; expressions that take for ever", logs),
        Lie("logs without end", "a second of work for each megabyte, and no end of megabytes", long_logs),
    ),
)
