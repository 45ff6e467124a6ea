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

MAX_BYTES = 4 << 20  # of an engine; with everything it can print in debug mode some 2 MB
CRUMB_BYTES = 4096  # what comes in smaller pieces is given time to gather: a read costs the same for any size
GATHERING_S = 0.005
_QUIET_S = 0.3  # after the program has ended: how long a child of its may still write


class Ran(NamedTuple):
    """What came out. `status` is None when it was stopped by us."""

    text: str
    status: int | None
    ended: str  # "status" | "enough" | "time" | "size"
    seconds: float


def run_until(command: Sequence[str], environ: Mapping[str, str], seconds: float, enough: Callable[[str], bool]) -> Ran:
    """Run `command`, read both its streams, stop it as soon as `enough(text so far)`, in a process group of its own.

    Raises EngineError when it cannot be started.
    """
    pieces: list[str] = []
    tail, total, ended = "", 0, None

    def take(data: bytes) -> bool:
        nonlocal tail, total, ended
        piece = data.decode("utf-8", "replace")
        pieces.append(piece)
        total += len(data)
        tail = (tail + piece)[-(1 << 17) :]
        ended = "enough" if enough(tail) else "size" if total >= MAX_BYTES else None
        return ended is not None

    ran = stream_until(command, environ, seconds, take)
    return ran._replace(text="".join(pieces), ended=ended or ran.ended)


def stream_until(
    command: Sequence[str], environ: Mapping[str, str], seconds: float, take: Callable[[bytes], bool]
) -> Ran:
    """The same, every piece of its streams given to `take` until that says that it is enough; the text is empty."""
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
        ended = _read(process, process.stdout.fileno(), started + seconds, take)
        status = process.poll()
    finally:
        end_group(process)
    return Ran("", status if ended == "status" else None, ended, time.monotonic() - started)


def _read(process: subprocess.Popen[bytes], stream: int, deadline: float, take: Callable[[bytes], bool]) -> str:
    quiet_until = None
    while True:
        now = time.monotonic()
        if now >= deadline:
            return "time"
        if quiet_until is None and process.poll() is not None:
            quiet_until = now + _QUIET_S
        if quiet_until is not None and now >= quiet_until:
            return "status"
        ready, _, _ = select.select([stream], [], [], min(0.05, deadline - now))
        if not ready:
            continue
        data = os.read(stream, 1 << 16)
        if not data:  # closed by all of them; the program itself may go on
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(min(deadline - time.monotonic(), 2.0), 0))
            return "status" if process.poll() is not None else "time"
        if take(data):
            return "enough"
        if len(data) < CRUMB_BYTES:
            time.sleep(GATHERING_S)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the whole group, whether its leader has ended or not."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(2)
    if process.stdout is not None:
        process.stdout.close()
