"""Keeping the configs of engines right: look, plan, compare, change, tell. One pass at a time, from one thread."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256

from advisor.app import App
from advisor.errors import HardwareError, RuleError, unexpected
from advisor.gguf_header.errors import printable
from advisor.host import HostSnapshot
from advisor.keeper.changes import Applied, FileChange, StoppedError, apply_changes, plan_changes
from advisor.keeper.models import is_own_tag, with_ids
from advisor.keeper.passes import Passes, TargetPass
from advisor.keeper.reload import NEW, owed_for, tell_engine
from advisor.keeper.seen import FILE as SEEN
from advisor.keeper.seen import Seen, SeenModel, devices, is_away, is_below, read_seen, unreachable, write_seen
from advisor.keeper.settings import KeeperSettings
from advisor.keeper.targets import Target
from advisor.managed.ledger import FILE as LEDGER
from advisor.managed.ledger import Ledger
from advisor.records import NamedTuple
from advisor.state import state_folder
from advisor.steady import at_rest
from advisor.stores.cache import Cache, cache_folder
from advisor.stores.scan import scan_stores
from advisor.stores.types import StoredModel, StoreReport

_GPUS = "GPUs that configs were written for"


class Found(NamedTuple):
    """The models that are there. Two with the same `key` hold the same, as long as nothing else changes."""

    reports: tuple[StoreReport, ...]
    named: tuple[tuple[str, StoredModel], ...]  # those that may stand in a config, each with its id
    away: tuple[str, ...]  # model folders that cannot be looked into now
    unseen: tuple[str, ...]  # ids of models in other folders that are out of reach
    seen: Seen
    key: str


class Look(NamedTuple):
    """What one pass found, before anything is changed."""

    reports: tuple[StoreReport, ...]
    passes: tuple[TargetPass, ...]
    away: tuple[str, ...]  # model folders that cannot be looked into now
    unseen: tuple[str, ...]  # ids of models in other folders that are out of reach
    seen: Seen
    n_models: int


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
        self._n_passes = 0  # how often everything was planned anew
        self._stamp: object = None

    def set(self, settings: KeeperSettings) -> None:
        """Other settings from now on. Plans that rest on nothing that changed are kept."""
        before, self.settings = self.settings, settings
        kept = ("keep_free_bytes", "keep_free_ram_bytes")
        if any(getattr(before, name) != getattr(settings, name) for name in kept):
            self._passes = None
        self.recheck()

    def probe(self) -> bool:
        """Look at the machine again; whether it changed so that everything has to be planned anew."""
        before, self._host = self._host, None
        now = self._machine()
        if before is None or _lasting(now) == _lasting(before):
            return before is None
        self._passes = None
        return True

    def recheck(self) -> None:
        """Plan everything anew if the rules or what was observed changed."""
        if self._passes is not None and self._stamp != self._basis():
            self._passes = None

    def _basis(self) -> object:
        """What plans rest on besides models and machine."""
        app = App(self._rules_folder)
        try:
            return app.rules.fingerprint(), app.overheads(self._machine())
        except RuleError as error:
            return str(error)

    def find(self, should_stop: Callable[[], bool], progress: Callable[[int, int], None] | None = None) -> Found:
        """Scan the stores. Raises StoppedError when told to stop."""

        def shown(done: int, n: int) -> None:
            if should_stop():
                raise StoppedError
            if progress is not None:
                progress(done, n)

        if self._passes is None:
            self._n_passes += 1
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
        seen = read_seen(self._state)
        away = unreachable(reports, seen)
        usable = [
            model
            for report in reports
            for model in report.models
            if model.kind == "model" and model.problem is None and model.path and not is_own_tag(model)
        ]
        known, missing = _known(usable, seen, away)
        named = tuple(with_ids(usable, known, missing))
        unseen = tuple(name for name, model in missing.items() if not is_below(model.path, away))
        text = repr((self._n_passes, reports, named, away, unseen))
        return Found(reports, named, away, unseen, seen, sha256(text.encode("utf-8", "surrogateescape")).hexdigest())

    def begin(self) -> None:
        """From now on `looked_at` collects anew."""
        if self._passes is not None:
            self._passes.looked_at.clear()

    def forget_unused(self) -> None:
        """Let go of plans that no look has asked for since the last time."""
        if self._passes is not None:
            self._passes.forget_unused()

    def looked_at(self) -> tuple[str, ...]:
        """Files that the last look rested on besides the models, and what is remembered of it."""
        passes = () if self._passes is None else self._passes.looked_at
        return (os.path.join(self.ledger_folder, LEDGER), os.path.join(self._state, SEEN), *sorted(passes))

    def look(
        self,
        targets: Sequence[Target],
        found: Found | None = None,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Look:
        """Plan every model that was `found` for each of `targets`. Raises StoppedError when told to stop."""
        if found is None:
            found = self.find(should_stop, progress)
        assert self._passes is not None
        made = []
        for target in targets:
            other = _same_place(target, self.settings.targets)
            if other is not None:
                sentence = f"{printable(target.path)} is the target {other} too; give each a place of its own."
                made.append(TargetPass(target, failure=sentence))
                continue
            try:
                one = self._passes.make(target, found.named, self.settings.wish_of, self.settings.sets, should_stop)
            except Exception as error:  # the other targets are looked at all the same
                one = TargetPass(target, failure=unexpected(error))
            made.append(one)
            if not made[-1].finished:
                raise StoppedError
        return Look(found.reports, tuple(made), found.away, found.unseen, found.seen, len(found.named))

    def changes(
        self, look: Look, ledger: Ledger, *, adopt: bool = False, should_stop: Callable[[], bool] = lambda: False
    ) -> dict[str, list[FileChange]]:
        """The planned changes by target name. Raises StoppedError when told to stop."""
        return {
            made.target.name: self.changes_of(made, look, ledger, adopt=adopt, should_stop=should_stop)
            for made in look.passes
        }

    def changes_of(
        self,
        made: TargetPass,
        look: Look,
        ledger: Ledger,
        *,
        adopt: bool = False,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> list[FileChange]:
        """The planned changes of one target. Raises StoppedError when told to stop."""
        if should_stop():
            raise StoppedError
        others = [target.path for target in self.settings.targets if target.name != made.target.name]
        return plan_changes(made, ledger, look.seen, look.away, others, should_stop, adopt=adopt)

    def apply(
        self,
        look: Look,
        changes: Mapping[str, Sequence[FileChange]],
        ledger: Ledger,
        now_s: float,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> list[Told]:
        """Make the changes of the targets in `changes` and tell their engines. `ledger` is one from `open_ledger`.

        `should_stop` is called before every file and engine. Told to stop, what was written is remembered, and engines
        are told the next time.
        """
        before = read_seen(self._state)  # another advisor may have written since the look
        told, models = [], {path: dict(each) for path, each in before.models.items()}
        owed = {name: dict(each) for name, each in before.owed.items()}
        for made in look.passes:
            wanted = changes.get(made.target.name)
            if wanted is None:
                continue
            applied = apply_changes(wanted, ledger, now_s, should_stop)
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
            if len(applied) < len(wanted) or should_stop():
                told.append(Told(made.target, tuple(applied), "", (), None))
                continue
            try:
                said = tell_engine(made.target, made, applied, debts, should_stop)
                told.append(Told(made.target, tuple(applied), said.text, said.differs, None))
            except Exception as error:  # the engines of other targets are told all the same
                told.append(Told(made.target, tuple(applied), "", (), unexpected(error)))
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
