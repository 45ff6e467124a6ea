"""The daemon's work: after every event a pass over all enabled targets, lines for the journal, and what is pending."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping

from advisor.errors import OutputError
from advisor.gguf_header.errors import printable
from advisor.keeper.keeper import Keeper, Look, StoppedError, Told
from advisor.keeper.left_behind import left_behind_notes
from advisor.keeper.reload import BY_HAND
from advisor.keeper.sentences import describe_fully, failures, left_out, notes, pending, pinned
from advisor.keeper.settings import KeeperSettings
from advisor.managed.atomic import digest
from advisor.managed.atomic import look as read_file
from advisor.managed.change import PlannedChange
from advisor.managed.ledger import open_ledger, read_ledger
from advisor.rule_folders import SYSTEM_FOLDER
from advisor.stores.scan import watched_folders
from advisor.watch.worker import HARDWARE, INFO, RESCAN, WARNING, Change, Summary, Watched


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
        self._said: set[str] = set()

    def reload(self) -> None:
        """See Worker."""
        settings = self._read_settings()
        if self._keeper is None:
            self._keeper = Keeper(settings, self._environ)
        else:
            self._keeper.settings = settings
            self._keeper.forget(host=False)

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
            look = keeper.look(keeper.settings.targets, should_stop=should_stop)
            self._last = self._act(keeper, look, should_stop)
        except StoppedError:
            return Summary("stopped in the middle of a pass")
        return self._last

    def _act(self, keeper: Keeper, look: Look, should_stop: Callable[[], bool]) -> Summary:
        enabled = {target.name for target in keeper.settings.targets if target.enabled}
        quiet = keeper.settings.is_quiet(time.time())
        told: list[Told] = []
        if enabled and not quiet:
            with open_ledger(keeper.ledger_folder) as ledger:
                repaired = list(ledger.notes)
                changes = keeper.changes(look, ledger, should_stop=should_stop)
                now = {name: each for name, each in changes.items() if name in enabled}
                told = keeper.apply(look, now, ledger, time.time(), should_stop)
        else:
            ledger = read_ledger(keeper.ledger_folder)
            repaired = []
            changes = keeper.changes(look, ledger, should_stop=should_stop)
        lines = [Change(note, WARNING) for note in repaired]
        failed = failures(look, enabled)
        for one in told:
            lines += _lines(one, self._said)
            failed += [each.error for each in one.applied if each.error]
            failed += [one.error] if one.error else []
        waiting = [each for name, those in changes.items() if quiet or name not in enabled for each in those]
        everything = [each for those in changes.values() for each in those]
        written = {each.change.planned.path for one in told for each in one.applied if each.written}
        self._own = {each.planned.path: _left(each.planned, written) for each in everything}
        waits = [pending(each, quiet=quiet) for each in waiting if each.changes_file]
        stays = [pinned(each.planned.path, pin) for each in everything for pin in each.planned.pinned]
        known = [*failures(look, {made.target.name for made in look.passes} - enabled), *left_out(look)]
        known += [*notes(everything), *left_behind_notes(ledger, keeper.settings.targets)]
        known += [text for one in told for text in one.differs]
        models = f"{look.n_models} model{'' if look.n_models == 1 else 's'}"
        status = f"{models}, {len(enabled)} of {len(keeper.settings.targets)} targets enabled"
        again = any(each.planned.refused is not None and not each.held for each in everything if each.target in enabled)
        again = again or any(one.error is not None or any(each.error for each in one.applied) for one in told)
        return Summary(
            status, tuple(lines), tuple(waits), tuple(stays), tuple(dict.fromkeys(failed)),
            tuple(dict.fromkeys(known)), again,
        )  # fmt: skip


def _left(planned: PlannedChange, written: Collection[str]) -> str | None:
    """The sha256 of a config file after a pass; of one that was refused, as it is."""
    if planned.refused is None:
        return digest(planned.after if planned.path in written else planned.before)
    try:
        return digest(read_file(planned.path).data)
    except OutputError:
        return None


def _lines(told: Told, said: set[str]) -> list[Change]:
    lines = []
    for one in told.applied:
        if one.written:
            path = printable(one.change.planned.path)
            lines += [Change(f"{path}: {text}") for text in describe_fully(one.change.planned.changes)]
    if told.engine and told.engine not in said:
        lines.append(Change(f"{told.target.name}: {told.engine}", INFO))
        said.update(set(BY_HAND.values()) & {told.engine})  # what a person has to do is said once
    if told.error is not None:  # a failure until the engine listens; the journal has it once
        text = f"{told.target.name}: {told.error}"
        lines += [Change(text, WARNING)] if text not in said else []
        said.add(text)
    return lines
