"""When a file has settled: quiet, and the same size and time in two looks. Pure: the clock and the looks are given."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from advisor.records import NamedTuple

# From the last byte to the batch: QUIET_S, then GATHER_S if nothing else happens and HOLD_S at most. That leaves a
# second of the three within which a model that was copied in must stand in the enabled configs.
QUIET_S = 1.0  # after the last event; the looks are half of it apart
GATHER_S = 0.2  # what settles within it is one batch
HOLD_S = 1.0  # and no batch waits longer for others
BACKOFF_S = 30.0  # between looks at a file that still grows and sends no events
MAX_PATHS = 20_000

Look = Callable[[str], Hashable | None]  # size, time, inode, ...; None: nothing there


class Settled(NamedTuple):
    """A batch. `paths` is None when there were too many to remember: look at everything."""

    paths: frozenset[str] | None


class _Waiting(NamedTuple):
    due: float
    gap_s: float
    seen: Hashable | None  # the first look, None before it


class Settler:
    """Collects paths that had events and hands them out in batches once they have settled.

    At most `max_paths` are remembered; beyond, the next batch is None. Every `now` comes from one monotonic clock.
    """

    def __init__(self, quiet_s: float = QUIET_S, max_paths: int = MAX_PATHS) -> None:
        self._quiet_s, self._max_paths = quiet_s, max_paths
        self._waiting: dict[str, _Waiting] = {}
        self._ready: set[str] = set()
        self._everything = False
        self._first_ready = self._last = 0.0  # of the batch: its first path; the last thing that happened

    def be_quiet_for(self, quiet_s: float) -> None:
        """How long a path must have been quiet, for events from now on."""
        self._quiet_s = quiet_s

    def note(self, path: str, now: float, *, gone: bool = False) -> None:
        """An event on `path`. What is gone needs no second look."""
        self._last = now
        if self._everything:
            return
        self._waiting.pop(path, None)
        self._ready.discard(path)
        if len(self._waiting) + len(self._ready) >= self._max_paths:
            self.note_everything(now)
        elif gone:
            self._make_ready(path, now)
        else:
            self._waiting[path] = _Waiting(now + self._quiet_s / 2, self._quiet_s / 2, None)

    def note_everything(self, now: float) -> None:
        """More happened than can be told: the next batch is everything, once nothing more happens."""
        self._waiting.clear()
        self._ready.clear()
        if not self._everything:
            self._everything, self._first_ready = True, now
        self._last = now

    def take(self, now: float, look: Look) -> Settled | None:
        """The batch that is due, if one is; looks at the files whose time has come."""
        due = [path for path, waiting in self._waiting.items() if waiting.due <= now]
        for path in due:
            waiting = self._waiting.pop(path)
            seen = look(path)
            if seen is None or seen == waiting.seen:
                self._make_ready(path, now)
            elif waiting.seen is None:
                self._waiting[path] = _Waiting(now + waiting.gap_s, waiting.gap_s, seen)
            else:  # still grows: looked at ever more rarely, until its writer's last event
                gap_s = min(waiting.gap_s * 2, BACKOFF_S)
                self._waiting[path] = _Waiting(now + gap_s, gap_s, seen)
        when = self._batch_due()
        if when is None or when > now:
            return None
        batch = Settled(None if self._everything else frozenset(self._ready))
        self._ready, self._everything = set(), False
        return batch

    def next_due(self) -> float | None:
        """When `take` has something to do, None: only after another event."""
        times = [waiting.due for waiting in self._waiting.values()]
        batch = self._batch_due()
        return min(times if batch is None else [*times, batch], default=None)

    def _make_ready(self, path: str, now: float) -> None:
        if not self._ready:
            self._first_ready = now
        self._last = now  # a burst settles as it came, one file after the other
        self._ready.add(path)

    def _batch_due(self) -> float | None:
        if self._everything:  # the same bounds, counted from the first loss
            return min(self._last + self._quiet_s, self._first_ready + self._quiet_s + HOLD_S)
        if not self._ready:
            return None
        return min(self._last + GATHER_S, self._first_ready + HOLD_S)
