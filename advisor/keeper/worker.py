"""The daemon's work: after every event a pass over all enabled targets, lines for the journal, and what is pending."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from advisor.gguf_header.errors import printable
from advisor.keeper.changes import FileChange
from advisor.keeper.keeper import Keeper, Look, StoppedError, Told
from advisor.keeper.reload import BY_HAND
from advisor.keeper.settings import KeeperSettings
from advisor.managed.ledger import open_ledger, read_ledger
from advisor.slots import GONE, Slot, SlotChange
from advisor.stores.scan import watched_folders
from advisor.watch.worker import ENGINE, FILES, HARDWARE, INFO, WARNING, Change, Summary, Watched

MAX_SHOWN_SLOTS = 12
_MAX_VALUE = 80


class KeeperWorker:
    """A Worker; `read_settings` reads the configuration and raises AdvisorError where it is broken."""

    def __init__(
        self, read_settings: Callable[[], KeeperSettings], config_folder: str, environ: Mapping[str, str]
    ) -> None:
        self._read_settings, self._environ = read_settings, environ
        self._settings_folders = (config_folder,)  # the rules of the user lie in it
        self._keeper: Keeper | None = None
        self._own: frozenset[str] = frozenset()
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
        folders = watched_folders(self._environ, settings.folders) if settings.stores else settings.folders
        engines = tuple(os.path.expanduser(target.binary) for target in settings.targets if target.binary)
        return Watched(
            folders, settings.sources, self._settings_folders, engines, self._own, settings.rescan_s, settings.quiet_s
        )

    def refresh(self, reason: str, changed: frozenset[str] | None, should_stop: Callable[[], bool]) -> Summary:  # noqa: ARG002
        """See Worker. Headers and plans are remembered, so that looking at everything is quick."""
        if self._keeper is None:
            self.reload()
        keeper = self._keeper
        assert keeper is not None
        if reason == HARDWARE and not keeper.probe() and self._last is not None:
            return self._last._replace(changes=())
        if reason not in (FILES, ENGINE, HARDWARE):
            keeper.forget(host=False)
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
                notes = list(ledger.notes)
                changes = keeper.changes(look, ledger, should_stop=should_stop)
                now = {name: each for name, each in changes.items() if name in enabled}
                told = keeper.apply(look, now, ledger, time.time())
                self._own = frozenset(ledger.files)
        else:
            ledger = read_ledger(keeper.ledger_folder)
            notes = []
            changes = keeper.changes(look, ledger, should_stop=should_stop)
        lines = [Change(note, WARNING) for note in notes]
        failures = [f"{made.target.name}: {made.failure}" for made in look.passes if made.failure]
        failures += [f"{made.target.name}: {text}" for made in look.passes for _, text in made.problems]
        failures += [
            f"{folder} cannot be looked into now; what was written for its models stays." for folder in look.away
        ]
        for one in told:
            lines += _lines(one, self._said)
            failures += [each.error for each in one.applied if each.error]
            failures += [one.error] if one.error else []
            failures += list(one.differs)
        waiting = [each for name, those in changes.items() if quiet or name not in enabled for each in those]
        pending = [_pending(each, quiet) for each in waiting if each.changes_file]
        pinned = [
            f"{printable(each.planned.path)}: {_name(pin.slot)} stays {_shown(pin.theirs)}, advisor would write "
            f"{_shown(pin.ours)}."
            for those in changes.values() for each in those for pin in each.planned.pinned
        ]  # fmt: skip
        status = f"{look.n_models} models, {len(enabled)} of {len(keeper.settings.targets)} targets enabled"
        return Summary(status, tuple(lines), tuple(pending), tuple(pinned), tuple(dict.fromkeys(failures)))


def _lines(told: Told, said: set[str]) -> list[Change]:
    lines = []
    for one in told.applied:
        if one.written:
            lines.append(Change(f"{printable(one.change.planned.path)}: {describe(one.change.planned.changes)}"))
    if told.engine and told.engine not in said:
        lines.append(Change(f"{told.target.name}: {told.engine}", INFO))
        said.update(set(BY_HAND.values()) & {told.engine})  # what a person has to do is said once
    if told.error is not None:
        lines.append(Change(f"{told.target.name}: {told.error}", WARNING))
    return lines


def describe(changes: tuple[SlotChange, ...]) -> str:
    """Old and new values in one line; what is new or gone as a whole is named as a whole."""
    groups: dict[Slot, list[SlotChange]] = {}
    for change in changes:
        groups.setdefault(change.slot[:-1], []).append(change)
    shown = []
    for group, each in groups.items():
        count = f"{len(each)} values" if len(each) > 1 else "one value"
        if all(change.old is GONE for change in each) and len(each) > 1:
            shown.append(f"added {_name(group)} ({count})" if group else f"added {count}")
        elif all(change.new is GONE for change in each) and len(each) > 1:
            shown.append(f"removed {_name(group)} ({count})" if group else f"removed {count}")
        else:
            new = [change for change in each if change.old is GONE]
            alone = len(new) < 2
            shown += [
                f"{_name(change.slot)} {_shown(change.old)} -> {_shown(change.new)}"
                for change in each if alone or change.old is not GONE
            ]  # fmt: skip
            if not alone:
                shown.append(f"{_name(group)} added {', '.join(printable(change.slot[-1]) for change in new)}")
    more = f" and {len(shown) - MAX_SHOWN_SLOTS} more" if len(shown) > MAX_SHOWN_SLOTS else ""
    return (", ".join(shown[:MAX_SHOWN_SLOTS]) or "made anew") + more


def _pending(change: FileChange, quiet: bool) -> str:
    why = "waits for the end of the quiet hours" if quiet else f"target {change.target} is not enabled"
    return f"{printable(change.planned.path)}: {describe(change.planned.changes)} ({why})"


def _name(slot: Slot) -> str:
    return printable(".".join(slot))


def _shown(value: object) -> str:
    if value is GONE:
        return "(nothing)"
    text = printable(str(value))
    return text if len(text) <= _MAX_VALUE else text[: _MAX_VALUE - 1] + "…"
