"""The daemon's work: after every event a pass over all enabled targets, lines for the journal, and what is pending."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping

from advisor.errors import AdvisorError, unexpected
from advisor.keeper.changes import StoppedError
from advisor.keeper.keeper import Found, Keeper
from advisor.keeper.left_behind import left_behind_notes
from advisor.keeper.outcome import Outcome, digest_now
from advisor.keeper.passes import TargetPass
from advisor.keeper.settings import KeeperSettings
from advisor.keeper.targets import Target
from advisor.managed.ledger import Ledger, open_ledger, read_ledger
from advisor.outputs import registry
from advisor.rule_folders import SYSTEM_FOLDER
from advisor.stores.scan import watched_folders
from advisor.watch.worker import ENGINE, FILES, HARDWARE, RESCAN, WARNING, Change, Summary, Watched


class KeeperWorker:
    """A Worker; `read_settings` reads the configuration and raises AdvisorError where it is broken."""

    def __init__(
        self, read_settings: Callable[[], KeeperSettings], config_folder: str, environ: Mapping[str, str]
    ) -> None:
        self._read_settings, self._environ = read_settings, environ
        self._settings_folders = (config_folder, SYSTEM_FOLDER)  # the rules of the user lie in the first
        self._keeper: Keeper | None = None
        self._own: dict[str, str | None] = {}
        self._last: Summary | None = None
        self._basis: object = None  # of the last pass, where nothing was left to be done
        self._said: set[str] = set()

    def reload(self) -> None:
        """See Worker."""
        settings = self._read_settings()
        if self._keeper is None:
            self._keeper = Keeper(settings, self._environ)
        else:
            self._keeper.set(settings)

    def watched(self) -> Watched:
        """See Worker."""
        if self._keeper is None:
            return Watched(settings_folders=self._settings_folders)
        settings = self._keeper.settings
        folders = watched_folders(self._environ, settings.folders, settings.stores)
        engines = tuple(os.path.expanduser(target.binary) for target in settings.targets if target.binary)
        return Watched(
            folders, settings.sources, self._settings_folders, engines, self._own, settings.rescan_s, settings.quiet_s
        )

    def refresh(self, reason: str, changed: frozenset[str] | None, should_stop: Callable[[], bool]) -> Summary:
        """See Worker. Headers and plans are remembered, so that looking at everything is quick."""
        if self._keeper is None:
            self.reload()
        keeper = self._keeper
        assert keeper is not None
        if reason == HARDWARE and not keeper.probe() and not changed and self._last is not None:
            return self._last._replace(changes=())
        if reason == RESCAN:
            keeper.recheck()
        try:
            found = keeper.find(should_stop)
            basis = (found.key, keeper.settings.is_quiet(time.time()))
            if self._last is not None and reason in (FILES, ENGINE, HARDWARE) and self._stands(basis):
                return self._last._replace(changes=())
            self._basis = None
            keeper.begin()
            summary, finished = self._act(keeper, found, should_stop)
        except StoppedError:
            return Summary("stopped in the middle of a pass")
        finally:
            registry.forget_texts()
        if finished:
            keeper.forget_unused()
            self._last = summary
            self._basis = None if summary.again else (basis, self._stamps())
        return summary

    def _stands(self, basis: object) -> bool:
        """Whether a pass would find what the last one left: the same models and wishes, files, and memory of them."""
        return (
            self._basis is not None
            and self._basis == (basis, self._stamps())
            and all(digest_now(path) == left for path, left in self._own.items())
        )

    def _stamps(self) -> object:
        assert self._keeper is not None
        return [(path, _stamp(path)) for path in self._keeper.looked_at()]

    def _act(self, keeper: Keeper, found: Found, should_stop: Callable[[], bool]) -> tuple[Summary, bool]:
        """One target after the other; what came of it, and whether it came to the end."""
        targets = keeper.settings.targets
        quiet = keeper.settings.is_quiet(time.time())
        outcome = Outcome(targets, self._said, quiet=quiet)
        with _ledger(keeper.ledger_folder, any(target.enabled for target in targets) and not quiet) as ledger:
            outcome.lines += [Change(note, WARNING) for note in ledger.notes]
            for target in targets:
                try:
                    self._keep_right(keeper, target, found, ledger, outcome, should_stop)
                except StoppedError:
                    outcome.finished = False
                except AdvisorError:  # of what all targets share
                    raise
                except Exception as error:  # the other targets are kept right all the same
                    outcome.add(TargetPass(target, failure=unexpected(error)), (), None)
                if not outcome.finished:
                    break
            more = left_behind_notes(ledger, targets)
        self._own = outcome.own if outcome.finished else {**self._own, **outcome.own}
        return outcome.summary(keeper.look((), found), more), outcome.finished

    def _keep_right(
        self,
        keeper: Keeper,
        target: Target,
        found: Found,
        ledger: Ledger,
        outcome: Outcome,
        should_stop: Callable[[], bool],
    ) -> None:
        look = keeper.look((target,), found, should_stop=should_stop)
        (made,) = look.passes
        changes = keeper.changes_of(made, look, ledger, should_stop=should_stop)
        if not target.enabled or ledger.lock is None:
            outcome.add(made, changes, None)
            return
        (told,) = keeper.apply(look, {target.name: changes}, ledger, time.time(), should_stop)
        outcome.add(made, changes, told)


@contextlib.contextmanager
def _ledger(folder: str, writes: object) -> Iterator[Ledger]:
    """The ledger for changing files, or for looking; then what it has to say is said by whoever writes next."""
    if writes:
        with open_ledger(folder) as ledger:
            yield ledger
    else:
        ledger = read_ledger(folder)
        ledger.notes.clear()
        yield ledger


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
