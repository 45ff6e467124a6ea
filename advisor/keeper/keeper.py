"""Keeping the configs of engines right: look, plan, compare, change, tell. One pass at a time, from one thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from advisor.app import App
from advisor.errors import EngineError
from advisor.host import HostSnapshot
from advisor.keeper.changes import Applied, FileChange, apply_changes, plan_changes
from advisor.keeper.models import with_ids
from advisor.keeper.passes import Passes, TargetPass
from advisor.keeper.reload import tell_engine
from advisor.keeper.seen import Seen, devices, read_seen, unreachable, write_seen
from advisor.keeper.settings import KeeperSettings
from advisor.keeper.targets import Target
from advisor.managed.ledger import Ledger
from advisor.state import state_folder
from advisor.steady import steady
from advisor.stores.cache import Cache, cache_folder
from advisor.stores.scan import scan_stores
from advisor.stores.types import StoreReport


class Look(NamedTuple):
    """What one pass found, before anything is changed."""

    reports: tuple[StoreReport, ...]
    passes: tuple[TargetPass, ...]
    away: tuple[str, ...]  # model folders that cannot be looked into now
    seen: Seen
    n_models: int


class StoppedError(Exception):
    """A look was ended because nobody waits for it any more."""


class Told(NamedTuple):
    """What became of one target: its files, and what the engine said."""

    target: Target
    applied: tuple[Applied, ...]
    engine: str  # a sentence, "" where nothing was written
    differs: tuple[str, ...]
    error: str | None  # the engine could not be told


class Keeper:
    """Knows the machine and the plans; `settings` may be replaced between passes."""

    def __init__(self, settings: KeeperSettings, environ: Mapping[str, str], rules_folder: str | None = None) -> None:
        self.settings = settings
        self._environ, self._rules_folder = environ, rules_folder
        self._state = state_folder(environ)
        self._host: HostSnapshot | None = None
        self._passes: Passes | None = None

    def forget(self, *, host: bool = True) -> None:
        """Read rules again at the next pass, and with `host` probe the machine."""
        self._passes = None
        if host:
            self._host = None

    def probe(self) -> bool:
        """Look at the machine again; whether it changed so that everything has to be planned anew."""
        before, self._host = self._host, None
        now = self._machine()
        if before is None or now == before:
            return before is None
        self._passes = None
        return True

    def look(
        self,
        targets: Sequence[Target],
        *,
        should_stop: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Look:
        """Scan the stores and plan every model for each of `targets`. Raises StoppedError when told to stop."""

        def shown(done: int, n: int) -> None:
            if should_stop():
                raise StoppedError
            if progress is not None:
                progress(done, n)

        if self._passes is None:
            app = App(self._rules_folder)
            self._passes = Passes(
                app,
                self._machine(),
                self._environ,
                keep_free_bytes=self.settings.keep_free_bytes,
                keep_free_ram_bytes=self.settings.keep_free_ram_bytes,
            )
        with Cache(cache_folder(self._environ)) as cache:
            reports = scan_stores(
                self._environ,
                self.settings.folders,
                include_defaults=bool(self.settings.stores),
                cache=cache,
                progress=shown,
            )
        looked_into = {"folder", "textgen", *self.settings.stores}
        reports = tuple(report for report in reports if report.store in looked_into)
        usable = [
            model
            for report in reports
            for model in report.models
            if model.kind == "model" and model.problem is None and model.path
        ]
        named = with_ids(usable)
        made = []
        for target in targets:
            made.append(self._passes.make(target, named, self.settings.wish_of, should_stop))
            if not made[-1].finished:
                raise StoppedError
        self._passes.forget_unused()
        seen = read_seen(self._state)
        return Look(reports, tuple(made), unreachable(reports, seen), seen, len(usable))

    def changes(
        self, look: Look, ledger: Ledger, *, adopt: bool = False, should_stop: Callable[[], bool] = lambda: False
    ) -> dict[str, list[FileChange]]:
        """The planned changes by target name. Raises StoppedError when told to stop."""
        planned = {}
        for made in look.passes:
            if should_stop():
                raise StoppedError
            planned[made.target.name] = plan_changes(made, ledger, look.seen, look.away, adopt=adopt)
        return planned

    def apply(
        self, look: Look, changes: Mapping[str, Sequence[FileChange]], ledger: Ledger, now_s: float
    ) -> list[Told]:
        """Make the changes of the targets in `changes` and tell their engines. `ledger` is one from `open_ledger`."""
        told, models = [], {path: dict(each) for path, each in look.seen.models.items()}
        for made in look.passes:
            wanted = changes.get(made.target.name)
            if wanted is None:
                continue
            applied = apply_changes(wanted, ledger, now_s)
            for one in applied:
                if one.error is None:
                    path = one.change.planned.path
                    models[path] = dict(one.change.models)
                    if not one.change.models:
                        del models[path]
            try:
                said = tell_engine(made.target, made, applied)
                told.append(Told(made.target, tuple(applied), said.text, said.differs, None))
            except EngineError as error:
                told.append(Told(made.target, tuple(applied), "", (), str(error)))
        after = Seen(devices(look.reports, look.seen, look.away), models)
        if after != look.seen:
            write_seen(self._state, after)
        return told

    def _machine(self) -> HostSnapshot:
        """The machine at rest: what others take for a while does not count, the most that was free does."""
        if self._host is None:
            with Cache(cache_folder(self._environ)) as cache:
                self._host = steady(App(self._rules_folder).host(), cache, devices=True, ram=True)
        return self._host

    @property
    def ledger_folder(self) -> str:
        """Where the ledger lies."""
        return ledger_folder(self._environ)


def ledger_folder(environ: Mapping[str, str]) -> str:
    """Where the ledger of changed files and the backups lie."""
    return os.path.join(state_folder(environ), "managed")
