"""Keeping the configs of engines right: look, plan, compare, change, tell. One pass at a time, from one thread."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence

from advisor.app import App
from advisor.errors import EngineError, HardwareError, RuleError
from advisor.gguf_header.errors import printable
from advisor.host import HostSnapshot
from advisor.keeper.changes import Applied, FileChange, apply_changes, plan_changes
from advisor.keeper.models import is_own_tag, with_ids
from advisor.keeper.passes import Passes, TargetPass
from advisor.keeper.reload import NEW, owed_for, tell_engine
from advisor.keeper.seen import Seen, SeenModel, devices, is_away, is_below, read_seen, unreachable, write_seen
from advisor.keeper.settings import KeeperSettings
from advisor.keeper.targets import Target
from advisor.managed.ledger import Ledger
from advisor.records import NamedTuple
from advisor.state import state_folder
from advisor.steady import at_rest
from advisor.stores.cache import Cache, cache_folder
from advisor.stores.scan import scan_stores
from advisor.stores.types import StoredModel, StoreReport

_GPUS = "GPUs that configs were written for"


class Look(NamedTuple):
    """What one pass found, before anything is changed."""

    reports: tuple[StoreReport, ...]
    passes: tuple[TargetPass, ...]
    away: tuple[str, ...]  # model folders that cannot be looked into now
    unseen: tuple[str, ...]  # ids of models in other folders that are out of reach
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
        self._stamp: object = None

    def forget(self, *, host: bool = True) -> None:
        """Read rules again at the next pass, and with `host` probe the machine."""
        self._passes = None
        if host:
            self._host = None

    def probe(self) -> bool:
        """Look at the machine again; whether it changed so that everything has to be planned anew."""
        before, self._host = self._host, None
        now = self._machine()
        if before is None or _lasting(now) == _lasting(before):
            return before is None
        self._passes = None
        return True

    def recheck(self) -> None:
        """Plan everything anew if the rules or what was observed changed without an event that tells."""
        if self._passes is not None and self._stamp != self._basis():
            self._passes = None

    def _basis(self) -> object:
        """What plans rest on besides models and machine."""
        app = App(self._rules_folder)
        try:
            return app.rules.fingerprint(), app.overheads(self._machine())
        except RuleError as error:
            return str(error)

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
            self._stamp = self._basis()
            self._passes = Passes(
                App(self._rules_folder),
                self._machine(),
                self._environ,
                keep_free_bytes=self.settings.keep_free_bytes,
                keep_free_ram_bytes=self.settings.keep_free_ram_bytes,
            )
        with Cache(cache_folder(self._environ)) as cache:
            reports = scan_stores(
                self._environ, self.settings.folders, self.settings.stores, cache=cache, progress=shown
            )  # fmt: skip
        usable = [
            model
            for report in reports
            for model in report.models
            if model.kind == "model" and model.problem is None and model.path and not is_own_tag(model)
        ]
        seen = read_seen(self._state)
        away = unreachable(reports, seen)
        known, missing = _known(usable, seen, away)
        named = with_ids(usable, known, missing)
        made = []
        for target in targets:
            other = _same_place(target, self.settings.targets)
            if other is not None:
                sentence = f"{printable(target.path)} is the target {other} too; give each a place of its own."
                made.append(TargetPass(target, failure=sentence))
                continue
            made.append(self._passes.make(target, named, self.settings.wish_of, should_stop))
            if not made[-1].finished:
                raise StoppedError
        self._passes.forget_unused()
        unseen = tuple(name for name, model in missing.items() if not is_below(model.path, away))
        return Look(reports, tuple(made), away, unseen, seen, len(usable))

    def changes(
        self, look: Look, ledger: Ledger, *, adopt: bool = False, should_stop: Callable[[], bool] = lambda: False
    ) -> dict[str, list[FileChange]]:
        """The planned changes by target name. Raises StoppedError when told to stop."""
        found = {}
        for made in look.passes:
            if should_stop():
                raise StoppedError
            others = [target.path for target in self.settings.targets if target.name != made.target.name]
            found[made.target.name] = plan_changes(made, ledger, look.seen, look.away, others, adopt=adopt)
        return found

    def apply(
        self,
        look: Look,
        changes: Mapping[str, Sequence[FileChange]],
        ledger: Ledger,
        now_s: float,
        progress: Callable[[], object] = lambda: None,
    ) -> list[Told]:
        """Make the changes of the targets in `changes` and tell their engines. `ledger` is one from `open_ledger`.

        `progress` is called before every file and engine.
        """
        before = read_seen(self._state)  # another advisor may have written since the look
        told, models = [], {path: dict(each) for path, each in before.models.items()}
        owed = {name: dict(each) for name, each in before.owed.items()}
        for made in look.passes:
            wanted = changes.get(made.target.name)
            if wanted is None:
                continue
            applied = apply_changes(wanted, ledger, now_s, progress)
            debts = owed.setdefault(made.target.name, {})
            for one in applied:
                if one.error is not None or one.change.held:
                    continue
                path = one.change.planned.path
                if one.written or (made.target.format == "ollama" and _other_files(models.get(path), one)):
                    debts[path] = owed_for(one) or (NEW if debts.get(path) == NEW else "")
                models[path] = dict(one.change.models)
                if not one.change.models:
                    del models[path]
            try:
                said = tell_engine(made.target, made, applied, debts, progress)
                told.append(Told(made.target, tuple(applied), said.text, said.differs, None))
            except EngineError as error:
                told.append(Told(made.target, tuple(applied), "", (), str(error)))
        names = {target.name for target in self.settings.targets}
        left = {name: each for name, each in owed.items() if each and name in names}
        models = {path: each for path, each in models.items() if path in ledger.files}
        after = Seen(devices(look.reports, before, look.away), models, left)
        if after != before:
            write_seen(self._state, after)
        return told

    def _machine(self) -> HostSnapshot:
        """The machine at rest: what others take for a while does not count, the most that was free does."""
        if self._host is None:
            host = App(self._rules_folder).host()
            with Cache(cache_folder(self._environ)) as cache:
                _check_gpus(host, cache)
                self._host = at_rest(host, cache, time.time())
        return self._host

    @property
    def ledger_folder(self) -> str:
        """Where the ledger lies."""
        return ledger_folder(self._environ)


def _check_gpus(host: HostSnapshot, cache: Cache) -> None:
    """Raise HardwareError when GPUs that were there are not seen because a driver does not answer.

    After an upgrade of the driver, until the next start of the machine, that must not rewrite every config for the CPU.
    """
    now, before = [device.id for device in host.devices], cache.note(_GPUS)
    lost = [name for name in before if isinstance(name, str) and name not in now] if isinstance(before, list) else []
    failed = [report for report in host.probes if report.status == "failed"]
    if lost and failed:
        raise HardwareError(
            f"{', '.join(lost)} cannot be seen ({failed[0].name}: {failed[0].detail}); configs stay as they are until "
            "the driver answers, 'advisor hardware' shows when."
        )
    if now != before:
        cache.remember_note(_GPUS, now)


def _lasting(host: HostSnapshot) -> HostSnapshot:
    """A machine without what is another at every look and changes no plan."""
    idle = tuple(device._replace(free_bytes=0, used_by_engines_bytes=0, processes=()) for device in host.idle_devices)
    devices = tuple(device._replace(processes=()) for device in host.devices)
    return host._replace(devices=devices, idle_devices=idle, probes=(), notes=())


def _known(
    models: Sequence[StoredModel], seen: Seen, away: Sequence[str]
) -> tuple[dict[str, str], dict[str, SeenModel]]:
    """The ids that models have in the configs by path, and the models that are away by id."""
    there = {model.path for model in models}
    written = [(name, model) for each in seen.models.values() for name, model in each.items()]
    missing = {name: model for name, model in written if model.path not in there and is_away(model, away)}
    return {model.path: name for name, model in written}, missing


def _same_place(target: Target, targets: Sequence[Target]) -> str | None:
    """The name of the target before this one that has the same path."""
    place = os.path.realpath(target.path)
    earlier = itertools.takewhile(lambda other: other.name != target.name, targets)
    return next((other.name for other in earlier if os.path.realpath(other.path) == place), None)


def _other_files(before: Mapping[str, SeenModel] | None, one: Applied) -> bool:
    """Whether the models of a config file were other files when it was written."""
    return {name: model.path for name, model in (before or {}).items()} != {
        name: model.path for name, model in one.change.models.items()
    }


def ledger_folder(environ: Mapping[str, str]) -> str:
    """Where the ledger of changed files and the backups lie."""
    return os.path.join(state_folder(environ), "managed")
