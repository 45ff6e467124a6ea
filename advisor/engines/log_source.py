"""Lines of a log that say something: from a file, a pipe or the journal of a systemd unit; bounded, whatever they hold.

A server's log may be of months. What counts of it is its newest start and its newest part: these are kept of the last
MAX_LOG_BYTES and the first few, everything else is passed over and counted.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import overload

from advisor.engines import load_log, timings
from advisor.engines.log_filter import GAP, MAX_LINE_BYTES, telling
from advisor.engines.process import CRUMB_BYTES, GATHERING_S
from advisor.errors import EngineError, UsageError
from advisor.records import NamedTuple
from advisor.units import format_bytes

MAX_LOG_BYTES = 256 << 20  # looked through; of a file the last ones and its beginning, of a pipe the first
BLOCK_BYTES = 1 << 20
JOURNAL_LINES = 200_000
_BEFORE, _AFTER, _NEWEST = 4, 3, 5  # blocks, or parts of them, around the newest start and at the end
_LINES_FROM_START, _LINES_NEWEST, _LINES_BEFORE = 6000, 12_000, 2000
_STARTS = (b"loaded meta data with", b"loading model '")
_MARKS = (*load_log.MARKS, *timings.MARKS)
_TIME_LIMIT_S = 10.0
_WRITER_LIMIT_S = 10.0


class Lines(Sequence[str]):
    """Lines that are text only while they are looked at: one of 5,000 bytes takes up to 20,000 as text."""

    def __init__(self, lines: list[bytes]) -> None:
        """`lines` as they stand in the log."""
        self._lines = lines

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Lines: ...
    def __getitem__(self, index: int | slice) -> str | Lines:
        if isinstance(index, slice):
            return Lines(self._lines[index])
        return self._lines[index].decode("utf-8", "replace").rstrip("\r\n")


class LogLines(NamedTuple):
    """Lines in their order, with GAP where others were left out, and how much that was."""

    lines: Lines
    n_bytes: int  # of the log, as far as it was looked at; of a file its size
    left_out_bytes: int
    ended: bool  # False: of a pipe that goes on

    @property
    def note(self) -> str | None:
        """A sentence when something was left out."""
        if not self.left_out_bytes and self.ended:
            return None
        what = "its newest start and its newest lines were read"
        if not self.ended:
            return f"only the first {format_bytes(self.n_bytes)} of the log were looked at; of these {what}."
        return f"{format_bytes(self.left_out_bytes)} of the log's {format_bytes(self.n_bytes)} were left out: {what}."


class Collector:
    """Takes a log in pieces and keeps what counts."""

    def __init__(self) -> None:
        """Nothing seen yet; the beginning counts as a start."""
        self.n_bytes = 0
        self.n_blocks = 0
        self.start = 0  # the block that holds the newest start
        self.around: list[tuple[int, bytes]] = []
        self.recent: deque[tuple[int, bytes]] = deque(maxlen=max(_NEWEST, _BEFORE))
        self.rest = bytearray()  # of a line that is not yet whole
        self.skipping = False  # the rest of a very long line

    def take(self, piece: bytes) -> bool:
        """The next piece; whether it is enough."""
        self.n_bytes += len(piece)
        self.rest += piece
        if len(self.rest) >= BLOCK_BYTES:
            end = self.rest.rfind(b"\n") + 1
            self._block(bytes(self.rest[:end] if end else self.rest), whole=bool(end))
            del self.rest[: end or len(self.rest)]
        return self.n_bytes >= MAX_LOG_BYTES

    def jump(self) -> None:
        """What comes next is from further down, and begins within a line."""
        if self.rest:
            self._block(bytes(self.rest.rpartition(b"\n")[0]), whole=True)
            self.rest.clear()
        self.n_blocks += 1
        self.skipping = True

    def _block(self, block: bytes, *, whole: bool) -> None:
        if self.skipping:
            block = block.partition(b"\n")[2]
        self.skipping = not whole
        if not whole:  # one line without end
            block = block[:MAX_LINE_BYTES]
        at = max(block.rfind(mark) for mark in _STARTS)
        if at >= 0:
            at = block.rfind(b"\n", 0, at) + 1
            self._keep(block[:at])
            self.start = self.n_blocks
            self.around = list(self.recent)[-_BEFORE:]
            block = block[at:]
        self._keep(block)

    def _keep(self, block: bytes) -> None:
        if not block:
            return
        if self.n_blocks <= self.start + _AFTER:
            self.around.append((self.n_blocks, block))
        self.recent.append((self.n_blocks, block))
        self.n_blocks += 1

    def lines(self, *, n_bytes: int | None = None, ended: bool = True) -> LogLines:
        """What was kept. `n_bytes`: the log's, where its beginning was not even given."""
        if self.rest:
            self._block(bytes(self.rest), whole=True)
            self.rest.clear()
        blocks = dict((*self.around, *self.recent))
        numbers = sorted(blocks)
        total = max(n_bytes or 0, self.n_bytes)
        left_out = total - sum(map(len, blocks.values()))
        found: dict[int, list[bytes]] = {}
        cut: set[int] = set()  # blocks that lines are left out of
        from_start = [number for number in numbers if self.start <= number <= self.start + _AFTER]
        newest = [number for number in reversed(numbers) if number > self.start + _AFTER]
        before = [number for number in reversed(numbers) if number < self.start]
        for most, order, backwards in (
            (_LINES_FROM_START, from_start, False), (_LINES_NEWEST, newest, True), (_LINES_BEFORE, before, True),
        ):  # fmt: skip
            for number in order:
                if number in found:
                    continue
                found[number], more = telling(blocks[number], _MARKS, most, newest=backwards)
                most -= len(found[number])
                if more:
                    cut.add(number)
                    left_out += len(blocks[number]) - sum(len(line) + 1 for line in found[number])
        return LogLines(self._joined(numbers, found, cut), total, max(left_out, 0), ended)

    def _joined(self, numbers: Sequence[int], found: Mapping[int, list[bytes]], cut: set[int]) -> Lines:
        lines: list[bytes] = []
        for index, number in enumerate(numbers):
            gap = index > 0 and (numbers[index - 1] != number - 1 or number in cut or numbers[index - 1] in cut)
            lines += [GAP.encode()] if gap else []
            lines += found[number]
        return Lines(lines)


def file_lines(path: str) -> LogLines:
    """Lines of a file, "-" for standard input. Raises EngineError when it cannot be read."""
    try:
        if path == "-":
            return _read(sys.stdin.fileno(), b"")
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
            return _read(descriptor, _first(descriptor, path) if is_pipe else b"")
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no such file"
        raise EngineError(f"{path} cannot be read ({reason}); give the log of a load, or - for a pipe.") from None


def _first(descriptor: int, path: str) -> bytes:
    """What comes first out of a pipe with a name: somebody must write to it soon, and may then take any time."""
    deadline = time.monotonic() + _WRITER_LIMIT_S
    while True:
        try:
            if piece := os.read(descriptor, BLOCK_BYTES):
                return piece
        except BlockingIOError:
            return b""
        finally:
            os.set_blocking(descriptor, True)
        if time.monotonic() >= deadline:
            raise EngineError(f"{path} is a pipe that nobody writes to; give the log of a load, or - for a pipe.")
        os.set_blocking(descriptor, False)
        time.sleep(0.05)


def _read(descriptor: int, first: bytes) -> LogLines:
    collector = Collector()
    collector.take(first)
    status = os.fstat(descriptor)
    size = status.st_size if stat.S_ISREG(status.st_mode) else None
    if size is not None and size > MAX_LOG_BYTES:
        while collector.n_bytes < _AFTER * BLOCK_BYTES and (piece := os.read(descriptor, BLOCK_BYTES)):
            collector.take(piece)
        os.lseek(descriptor, size - MAX_LOG_BYTES + collector.n_bytes, os.SEEK_SET)
        collector.jump()
    while piece := os.read(descriptor, BLOCK_BYTES):
        if collector.take(piece):
            return collector.lines(n_bytes=size, ended=size is not None)
        if size is None and len(piece) < CRUMB_BYTES:
            time.sleep(GATHERING_S)
    return collector.lines(n_bytes=size if size is not None and size > MAX_LOG_BYTES else None)


def unit_lines(unit: str, environ: Mapping[str, str]) -> LogLines:
    """Lines of a unit's journal, of the user's units first, then of the system's."""
    from advisor.engines.process import stream_until

    if unit.startswith("-") or not unit.strip() or len(unit) > 256 or not unit.isprintable():
        raise UsageError(f"--unit '{unit[:40]}' is no name of a unit; give for example llama-server.service.")
    reasons = []
    for scope in (["--user"], []):
        command = ["journalctl", *scope, "-u", unit, "-n", str(JOURNAL_LINES), "-o", "cat", "--no-pager", "-q"]
        collector = Collector()
        try:
            stream_until(command, environ, _TIME_LIMIT_S / 2, collector.take)
        except EngineError:
            raise EngineError(
                "journalctl is not on this machine; give the log as a file or as - through a pipe."
            ) from None
        read = collector.lines()
        if any("buffer size" in line or "eval time" in line for line in read.lines):
            return read
        reasons.append(f"{'user' if scope else 'system'} journal: {format_bytes(read.n_bytes)}")
    raise EngineError(
        f"the journal of {unit} tells of no load ({'; '.join(reasons)}); the engine prints buffer sizes at its default "
        "verbosity from -lv 4 on."
    )


def existing(path: str | None, beside: str | None) -> str | None:
    """The model file that a log names, where it is: as it stands, or in the folder of the log."""
    if not path:
        return None
    candidates = [path]
    if beside and beside != "-" and not os.path.isabs(path):
        candidates.append(os.path.join(os.path.dirname(os.path.abspath(beside)), path))
    return next((name for name in candidates if os.path.isfile(name)), None)
