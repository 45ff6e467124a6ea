"""Lines for the journal: a priority in front where the journal reads stderr, the time elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping

from advisor.cli.secrets import without_secrets
from advisor.cli.terminal import clean
from advisor.watch.worker import DEBUG, ERROR

MAX_LINE = 2000
FIRST_AGAIN_S, LAST_AGAIN_S = 60.0, 3600.0
MAX_KINDS = 200


class Journal:
    """Writes to stderr. Text from files is made one plain line; what cannot be written is dropped."""

    def __init__(self, environ: Mapping[str, str], descriptor: int = 2) -> None:
        self._descriptor = descriptor
        self.is_journal = reads_stream(environ, descriptor)

    def log(self, priority: int, text: str) -> None:
        """One line, priorities as in `advisor.watch.worker`."""
        line = clean(without_secrets(text[: 4 * MAX_LINE]), MAX_LINE)
        if self.is_journal:
            line = f"<{min(max(priority, ERROR), DEBUG)}>{line}\n"  # sd-daemon(3)
        else:
            line = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {line}\n"
        try:
            os.write(self._descriptor, line.encode("utf-8", "replace"))
        except OSError:  # a closed terminal or a full disk must not end the daemon
            return


def reads_stream(environ: Mapping[str, str], descriptor: int) -> bool:
    """Whether the journal reads that descriptor: JOURNAL_STREAM is "device:inode" of it (systemd.exec(5))."""
    try:
        device, _, inode = environ.get("JOURNAL_STREAM", "").partition(":")
        status = os.fstat(descriptor)
        return (int(device), int(inode)) == (status.st_dev, status.st_ino)
    except (OSError, ValueError):
        return False


class Repeats:
    """Says whether a sentence that comes again and again is to be logged: at once, after a minute, after two, ..."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kinds: dict[str, tuple[float, float, int]] = {}  # -> (when again, after which time, how often dropped)

    def to_log(self, kind: str, text: str) -> str | None:
        """The line to log for an error of this kind, None while it would only repeat itself."""
        now = self._clock()
        due, again_s, dropped = self._kinds.pop(kind, (now, FIRST_AGAIN_S / 2, 0))
        if now < due:
            self._kinds[kind] = (due, again_s, dropped + 1)
            return None
        again_s = min(again_s * 2, LAST_AGAIN_S)
        self._kinds[kind] = (now + again_s, again_s, 0)
        while len(self._kinds) > MAX_KINDS:
            del self._kinds[next(iter(self._kinds))]
        return f"{text} ({dropped} times more since)" if dropped else text

    def forget(self) -> None:
        """All is well again: the next error is news."""
        self._kinds.clear()


def to_stderr() -> Journal:
    """The journal of this process."""
    return Journal(os.environ, sys.__stderr__.fileno() if sys.__stderr__ is not None else 2)
