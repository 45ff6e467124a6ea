"""The main loop: one thread that waits for events, signals and timers, and makes one pass at a time."""

from __future__ import annotations

import math
import os
import select
import time
from collections.abc import Callable, Collection

from advisor import __version__
from advisor.daemon.journal import Journal
from advisor.daemon.memory import give_back
from advisor.daemon.notify import Notifier
from advisor.daemon.report import Report
from advisor.daemon.status import Status
from advisor.errors import AdvisorError, OutputError
from advisor.managed.atomic import digest
from advisor.managed.atomic import look as read_file
from advisor.records import NamedTuple
from advisor.watch import worker as work
from advisor.watch.events import Watcher, look
from advisor.watch.roots import Noticed
from advisor.watch.settle import QUIET_S, Settler
from advisor.watch.worker import Change, Summary, Watched, Worker

RESCAN_S = 15 * 60.0  # for what no event told
HARDWARE_S = 5 * 60.0  # cards and drivers
MOST_UNTIL_AGAIN_S = 60.0  # a file that could not be written, an engine that did not listen
_NOTHING_IN_FORCE = "Until that is put right nothing is done."
FIRST_RETRY_S, LAST_RETRY_S = 10.0, 15 * 60.0


class Request(NamedTuple):
    """A pass that is due. `changed` None: everything."""

    reason: str
    changed: frozenset[str] | None

    def with_other(self, other: Request) -> Request:
        """One request for both: the weightier reason, all that changed."""
        reason = max(self.reason, other.reason, key=work.REASONS.index)
        if self.changed is None or other.changed is None:
            return Request(reason, None)
        return Request(reason, self.changed | other.changed)


class Daemon:
    """Runs until `stop`. `folder` takes status.json; `clock` is monotonic, in seconds."""

    def __init__(
        self,
        worker: Worker,
        watcher: Watcher,
        notifier: Notifier,
        journal: Journal,
        folder: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        rescan_s: float = RESCAN_S,
        hardware_s: float = HARDWARE_S,
    ) -> None:
        self._worker, self._watcher, self._notifier, self._journal = worker, watcher, notifier, journal
        self._clock, self._report = clock, Report(notifier, journal, folder, clock)
        self._rescan_s = rescan_s
        self._periods = {work.RESCAN: rescan_s, work.HARDWARE: hardware_s}
        self._due = {reason: clock() + period for reason, period in self._periods.items()}
        self._settler, self._watched = Settler(), Watched()
        self._stop = self._reload_wanted = False
        self._in_force = False  # whether settings could be read at least once
        self._request: Request | None = None
        self._retry_due: float | None = None
        self._retry_s = 0.0
        self._last_ping = -math.inf

    def stop(self) -> None:
        """End as soon as the worker yields. May be called in a signal handler, as `reload` may."""
        self._stop = True

    def reload(self) -> None:
        """Read configuration and rules again as soon as the worker yields."""
        self._reload_wanted = True

    # ------------------------------------------------------------ the loop

    def run(self, wake: int) -> None:
        """Watch and work until `stop`. `wake` is a descriptor that becomes readable when a signal has come."""
        self.begin()
        ready: list[int] = []
        while not self._stop:
            try:
                wait_s = self.turn(ready)
            except Exception as error:
                self._report.failed = self._report.bug(error)
                wait_s = 1.0
            ready = [] if self._stop else self._wait(wake, wait_s)
        self._notifier.stopping()

    def begin(self) -> None:
        """Read the settings, watch, say READY, and ask for the first pass."""
        self._read_settings()
        try:
            self._watch()
        except Exception as error:
            self._report.failed = self._report.bug(error)
        self._request = Request(work.START, None)
        self._notifier.ready(self._line())
        self._journal.log(work.INFO, f"advisor {__version__} {self._line()}")

    def turn(self, ready: Collection[int] = ()) -> float:
        """Do what is due; for how many seconds nothing is. `ready` are the descriptors that poll named."""
        now = self._clock()
        self._progress()
        self._collect(now, ready)
        if self._reload_wanted:
            self._reload()
        if self._retry_due is not None and now >= self._retry_due:
            self._ask(Request(work.RESCAN, None))
        for reason, due in self._due.items():
            if now >= due:
                self._ask(Request(reason, None if reason == work.RESCAN else frozenset()))
        if self._request is not None and not self._stop:
            self._pass(self._request)
        self._publish("stopping" if self._stop else "idle")
        return self._rest_s()

    def make_pass(self) -> Status:
        """One pass over everything, without watching; how all stands then."""
        self._read_settings()
        self._pass(Request(work.START, None))
        return self._report.status("stopping", len(self._watched.folders), self._watcher.places())

    def _collect(self, now: float, ready: Collection[int]) -> None:
        noticed = self._watcher.collect(now, self._stopping, ready)
        if now >= self._due[work.RESCAN]:
            self._watcher.recheck(noticed, self._stopping)
        self._note(noticed, now)
        batch = self._settler.take(now, look)
        if batch is None:
            return
        if batch.paths is None:  # the settings may be among what was missed
            self._reload_wanted = True
            return
        news = {path for path in batch.paths if not self._is_as_left(path)}
        changed = frozenset(path for path in news if path in self._watched.own or not self._is_setting(path))
        if len(changed) < len(news):
            self._reload_wanted = True
        if changed:
            upgraded = changed & set(self._watched.engines)
            self._ask(Request(work.ENGINE if upgraded else work.FILES, changed))

    def _note(self, noticed: Noticed, now: float) -> None:
        for warning in noticed.warnings:
            self._report.say(Change(warning, work.WARNING))
        if noticed.everything:
            self._settler.note_everything(now)
        for path, gone in noticed.paths.items():  # editors take a file away before they put it back
            self._settler.note(path, now, gone=gone and path not in self._watched.own)

    def _is_as_left(self, path: str) -> bool:
        """Whether a config file holds what the last pass left in it."""
        if path not in self._watched.own:
            return False
        try:
            return digest(read_file(path).data) == self._watched.own[path]
        except OutputError:  # a pass says why
            return False

    def _is_setting(self, path: str) -> bool:
        folders = self._watched.settings_folders
        return path in self._watched.settings or any(f"{path}/".startswith(f"{folder}/") for folder in folders)

    def _ask(self, request: Request) -> None:
        self._request = request if self._request is None else self._request.with_other(request)

    def _rest_s(self) -> float:
        if self._request is not None or self._reload_wanted:
            return 0.0
        times = [*self._due.values(), self._settler.next_due(), self._watcher.next_due(), self._retry_due]
        if self._notifier.ping_s is not None:
            times.append(self._last_ping + self._notifier.ping_s)
        return max(min(due for due in times if due is not None) - self._clock(), 0.0)

    def _wait(self, wake: int, wait_s: float) -> list[int]:
        poller = select.poll()
        poller.register(wake, select.POLLIN)
        for descriptor, events in self._watcher.descriptors():
            poller.register(descriptor, events)
        ready = [descriptor for descriptor, _ in poller.poll(math.ceil(wait_s * 1000))]
        if wake in ready:
            os.read(wake, 4096)
        return ready

    # ------------------------------------------------------------ the work

    def _pass(self, request: Request) -> None:
        self._request = None
        for reason, period in self._periods.items():  # a pass does what lighter reasons ask for
            if work.REASONS.index(request.reason) >= work.REASONS.index(reason):
                self._due[reason] = self._clock() + period
        self._publish("working")
        try:
            summary = self._worker.refresh(request.reason, request.changed, self._should_stop)
            self._watch()
        except AdvisorError as error:
            if str(error) == self._report.broken:  # the worker has no settings yet; that is said
                self._report.failed = ""
            else:
                self._report.failed = str(error)
                self._report.again(type(error).__name__, str(error))
            self._try_again()
        except Exception as error:
            self._report.failed = self._report.bug(error)
            self._try_again()
        else:
            self._done(request, summary)
        give_back()

    def _done(self, request: Request, summary: Summary) -> None:
        if not self._in_force:  # the worker could read them meanwhile
            self._read_settings()
        if self._should_stop():  # cut short: what it did not come to is asked for again
            self._ask(Request(work.RESCAN, None))
            self._report.made(summary)
            return
        if summary.again:
            self._try_again(MOST_UNTIL_AGAIN_S)
        elif request.changed is None:
            self._retry_due, self._retry_s, self._report.failed = None, 0.0, ""
        self._report.done(summary)

    def _try_again(self, most_s: float = LAST_RETRY_S) -> None:
        """Over everything, since it is not known how far the pass came."""
        self._retry_s = min(max(self._retry_s * 2, FIRST_RETRY_S), most_s)
        self._retry_due = self._clock() + self._retry_s

    def _watch(self) -> None:
        self._watched = self._worker.watched()
        self._settler.be_quiet_for(self._watched.quiet_s or QUIET_S)
        rescan_s = self._watched.rescan_s or self._rescan_s
        if rescan_s != self._periods[work.RESCAN]:
            self._periods[work.RESCAN], self._due[work.RESCAN] = rescan_s, self._clock() + rescan_s
        if self._watcher.update(self._watched, self._stopping, self._clock()):
            # something may have come between the worker's look and the watch
            self._ask(Request(work.RESCAN, None))

    def _reload(self) -> None:
        self._reload_wanted = False
        self._notifier.reloading(time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000)
        self._publish("reloading")
        self._report.broken = ""
        self._read_settings()
        if not self._report.broken:
            self._report.know("the configuration and the rules were read again.")
        self._notifier.ready(self._line())
        self._ask(Request(work.RELOAD, None))

    def _read_settings(self) -> None:
        said, self._report.broken = self._report.broken, ""
        try:
            self._worker.reload()
            self._in_force = True
        except AdvisorError as error:
            self._report.broken = str(error)
            then = (
                "What was in force before stays in force."
                if self._in_force
                else "Until that is put right nothing is done."
            )
            if said != str(error):
                self._report.say(Change(f"{error} {then}", work.ERROR))
        except Exception as error:
            self._report.broken = self._report.bug(error)

    # ------------------------------------------------------------ progress

    def _should_stop(self) -> bool:
        self._progress()
        return self._stop or self._reload_wanted

    def _stopping(self) -> bool:
        self._progress()
        return self._stop

    def _progress(self) -> None:
        """Only called where something was done: a loop that hangs sends no ping, and systemd starts it anew."""
        now = self._clock()
        if self._notifier.ping_s is not None and now - self._last_ping >= self._notifier.ping_s:
            self._last_ping = now
            self._notifier.ping()

    def _line(self) -> str:
        return self._report.line(len(self._watched.folders), self._watcher.places())

    def _publish(self, state: str) -> None:
        self._report.publish(state, len(self._watched.folders), self._watcher.places())
