"""Running a program that may misbehave: bounded in time and output, and nothing of it is left."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from advisor.errors import EngineError
from advisor.records import NamedTuple

MAX_BYTES = 8 << 20  # of an engine; with everything it can print in debug mode some 2 MB
_QUIET_S = 0.3  # after the program has ended: how long a child of its may still write


class Ran(NamedTuple):
    """What came out. `status` is None when it was stopped by us."""

    text: str
    status: int | None
    ended: str  # "status" | "enough" | "time" | "size"
    seconds: float


def run_until(
    command: Sequence[str],
    environ: Mapping[str, str],
    seconds: float,
    enough: Callable[[str], bool],
    max_bytes: int = MAX_BYTES,
) -> Ran:
    """Run `command`, read both its streams, stop it as soon as `enough(text so far)`, in a process group of its own.

    Raises EngineError when it cannot be started.
    """
    started = time.monotonic()
    try:
        process = subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=dict(environ), start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise EngineError(f"{command[0]} cannot be run ({reason}); give another one with --engine-binary.") from None
    try:
        assert process.stdout is not None
        text, ended = _read(process, process.stdout.fileno(), started + seconds, enough, max_bytes)
        status = process.poll()
    finally:
        end_group(process)
    return Ran(text, status if ended == "status" else None, ended, time.monotonic() - started)


def _read(
    process: subprocess.Popen[bytes], stream: int, deadline: float, enough: Callable[[str], bool], max_bytes: int
) -> tuple[str, str]:
    pieces: list[str] = []
    tail, total, quiet_until = "", 0, None
    while True:
        now = time.monotonic()
        if now >= deadline:
            return "".join(pieces), "time"
        if quiet_until is None and process.poll() is not None:
            quiet_until = now + _QUIET_S
        if quiet_until is not None and now >= quiet_until:
            return "".join(pieces), "status"
        ready, _, _ = select.select([stream], [], [], min(0.05, deadline - now))
        if not ready:
            continue
        data = os.read(stream, 1 << 16)
        if not data:  # closed by all of them; the program itself may go on
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(min(deadline - time.monotonic(), 2.0), 0))
            return "".join(pieces), "status" if process.poll() is not None else "time"
        piece = data.decode("utf-8", "replace")
        pieces.append(piece)
        total += len(data)
        tail = (tail + piece)[-(1 << 17) :]
        if enough(tail):
            return "".join(pieces), "enough"
        if total >= max_bytes:
            return "".join(pieces), "size"


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the whole group, whether its leader has ended or not."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(2)
    if process.stdout is not None:
        process.stdout.close()
