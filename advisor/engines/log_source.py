"""Lines of a log: from a file, standard input or the journal of a systemd unit; bounded, whatever they hold."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import IO

from advisor.engines.load_log import MAX_LINE
from advisor.errors import EngineError, UsageError

MAX_LOG_BYTES = 256 << 20
JOURNAL_LINES = 200_000
_MAX_JOURNAL_BYTES = 32 << 20
_TIME_LIMIT_S = 10.0


def file_lines(path: str) -> Iterator[str]:
    """Lines of a file, "-" for standard input. Raises EngineError when it cannot be read."""
    if path == "-":
        yield from _lines(sys.stdin.buffer)
        return
    try:
        with open(path, "rb") as file:
            yield from _lines(file)
    except OSError as error:
        raise EngineError(
            f"{path} cannot be read ({error.strerror}); give the log of a load, or - for a pipe."
        ) from None


def unit_lines(unit: str, environ: Mapping[str, str]) -> list[str]:
    """Lines of a unit's journal, of the user's units first, then of the system's."""
    from advisor.engines.process import run_until

    if unit.startswith("-") or not unit.strip() or len(unit) > 256 or not unit.isprintable():
        raise UsageError(f"--unit '{unit[:40]}' is no name of a unit; give for example llama-server.service.")
    reasons = []
    for scope in (["--user"], []):
        command = ["journalctl", *scope, "-u", unit, "-n", str(JOURNAL_LINES), "-o", "cat", "--no-pager", "-q"]
        try:
            ran = run_until(command, environ, _TIME_LIMIT_S / 2, lambda _: False, _MAX_JOURNAL_BYTES)
        except EngineError:
            raise EngineError(
                "journalctl is not on this machine; give the log as a file or as - through a pipe."
            ) from None
        lines = ran.text.split("\n")
        if any("buffer size" in line or "eval time" in line for line in lines):
            return lines
        reasons.append(
            f"{'user' if scope else 'system'} journal: {len([line for line in lines if line.strip()])} lines"
        )
    raise EngineError(
        f"the journal of {unit} tells of no load ({'; '.join(reasons)}); the engine prints buffer sizes at its default "
        "verbosity from -lv 4 on."
    )


def _lines(file: IO[bytes]) -> Iterator[str]:
    left, whole = MAX_LOG_BYTES, True
    while left > 0:
        piece = file.readline(MAX_LINE * 4)
        if not piece:
            return
        left -= len(piece)
        if whole:  # the rest of a very long line is skipped
            yield piece.decode("utf-8", "replace").rstrip("\r\n")
        whole = piece.endswith(b"\n")


def existing(path: str | None, beside: str | None) -> str | None:
    """The model file that a log names, where it is: as it stands, or in the folder of the log."""
    if not path:
        return None
    candidates = [path]
    if beside and beside != "-" and not os.path.isabs(path):
        candidates.append(os.path.join(os.path.dirname(os.path.abspath(beside)), path))
    return next((name for name in candidates if os.path.isfile(name)), None)
