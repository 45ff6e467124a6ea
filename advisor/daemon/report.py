"""What the daemon tells: lines for the journal, one line for systemd, and status.json."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence

from advisor import __version__
from advisor.daemon.journal import Journal, Repeats
from advisor.daemon.notify import Notifier
from advisor.daemon.status import MAX_ITEMS, Said, Status, write_status
from advisor.errors import unexpected
from advisor.watch.events import Place
from advisor.watch.roots import POLLING
from advisor.watch.worker import ERROR, INFO, NOTICE, WARNING, Change, Summary

MAX_LOGGED = 20  # new failures of one pass


class Report:
    """Remembers the last outcome. `folder` takes status.json."""

    def __init__(self, notifier: Notifier, journal: Journal, folder: str, clock: Callable[[], float]) -> None:
        self._notifier, self._journal, self._folder = notifier, journal, folder
        self._repeats = Repeats(clock)
        self._said: deque[Said] = deque(maxlen=MAX_ITEMS)
        self._summary = Summary("")
        self._bugs, self._since = 0, _now()
        self._last_pass: str | None = None
        self._written: Status | None = None
        self._failing: tuple[str, ...] = ()  # when it was last looked for what is over
        self._unwritten = ""  # why it could not be written last
        self.broken = ""  # why the settings could not be read
        self.failed = ""  # why a pass did not come to an end, until one over everything does

    def say(self, change: Change) -> None:
        """A line for the journal and for `advisor status`."""
        self._journal.log(change.priority, change.text)
        self._said.append(Said(_now(), change.priority, change.text))

    def again(self, kind: str, text: str, priority: int = ERROR) -> None:
        """A line that may come over and over, said ever more rarely."""
        line = self._repeats.to_log(kind, text)
        if line is not None:
            self.say(Change(line, priority))

    def bug(self, error: Exception) -> str:
        """Log an exception that nobody expected, and count it; the sentence."""
        self._bugs += 1
        text = unexpected(error)
        self.again(text.partition(": ")[0], text)
        return text

    def done(self, summary: Summary) -> None:
        """A pass has come to its end."""
        self.made(summary)
        before, self._summary, self._last_pass = self._summary, summary, _now()
        for texts, old, what in (
            (summary.pinned, before.pinned, "values are yours and stay"),
            (summary.notes, before.notes, "are to be known"),
        ):
            new = [text for text in texts if text not in set(old)]
            for text in new[:MAX_LOGGED]:
                self._journal.log(NOTICE, text)
            if len(new) > MAX_LOGGED:
                self._journal.log(NOTICE, f"{len(new) - MAX_LOGGED} more {what}; see: advisor status")
        new = [text for text in summary.failures if text not in set(before.failures)]
        for text in new[:MAX_LOGGED]:
            self.again(text, text, WARNING)
        if len(new) > MAX_LOGGED:
            self.say(Change(f"{len(new) - MAX_LOGGED} more failures; see: advisor status", WARNING))
        if self.all_well:
            self._repeats.forget()

    def made(self, summary: Summary) -> None:
        """What a pass has changed, also one that was cut short."""
        for change in summary.changes:
            self.say(change)

    def know(self, text: str) -> None:
        """A line for the journal alone."""
        self._journal.log(INFO, text)

    @property
    def all_well(self) -> bool:
        """Whether nothing at all has failed."""
        return not self._failures()

    def line(self, n_folders: int, places: Sequence[Place]) -> str:
        """The state in one line."""
        polled = sum(POLLING in place.how for place in places)
        failures = len(self._failures())
        parts = (
            f"watching {_count(n_folders, 'folder')}{f' ({polled} by polling)' if polled else ''}",
            self._summary.status_text,
            _count(failures, "failure") if failures else "",
        )
        return ", ".join(part for part in parts if part)

    def publish(self, state: str, n_folders: int, places: Sequence[Place]) -> None:
        """Tell systemd and `advisor status` where something has changed."""
        self._say_what_is_over()
        status = self.status(state, n_folders, places)
        if status == self._written:
            return
        if self._written is None or status.status_text != self._written.status_text:
            self._notifier.status(status.status_text)
        self._written = status
        try:
            write_status(self._folder, status)
            self._unwritten = ""
        except OSError as error:
            if self._unwritten != error.strerror:  # said once: it would be tried after every pass
                self._unwritten = str(error.strerror)
                text = (
                    f"{self._folder}: status.json cannot be written ({error.strerror}); advisor status knows nothing."
                )
                self._journal.log(WARNING, text)

    def status(self, state: str, n_folders: int, places: Sequence[Place]) -> Status:
        """How all stands."""
        return Status(
            os.getpid(), self._since, __version__, state, self.line(n_folders, places), tuple(places), self._last_pass,
            tuple(self._said), self._summary.pending, self._summary.pinned, self._failures(), self._summary.notes,
            self._bugs,
        )  # fmt: skip

    def _say_what_is_over(self) -> None:
        now = set(self._failures())
        over = [text for text in self._failing if text not in now]
        self._failing = self._failures()
        for text in over[:MAX_LOGGED]:
            self.say(Change(f"over: {text}"))
        if len(over) > MAX_LOGGED:
            self.say(Change(f"over: {len(over) - MAX_LOGGED} more failures"))

    def _failures(self) -> tuple[str, ...]:
        return tuple(text for text in (self.broken, self.failed, *self._summary.failures) if text)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
