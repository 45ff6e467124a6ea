"""From what files should hold to planned changes of them, and making these."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence

from advisor.errors import OutputError
from advisor.gguf_header.errors import printable
from advisor.keeper.passes import TargetPass, WantedFile
from advisor.keeper.seen import Seen, SeenModel, is_away, is_below, mount_point
from advisor.managed.change import PlannedChange, about, apply_change, plan_change
from advisor.managed.ledger import Ledger
from advisor.managed.types import Format
from advisor.managed.undo import plan_restore
from advisor.outputs import registry
from advisor.records import NamedTuple
from advisor.slots import Slot, Value

# files of other programs that are absent until somebody sets something
_MADE_WHERE_ABSENT = ("llama-config-ini", "lm-studio", "text-generation-webui")


class FileChange(NamedTuple):
    """A planned change, the target it belongs to, and the models that the file is made for, by id."""

    target: str
    planned: PlannedChange
    models: Mapping[str, SeenModel]
    note: str = ""  # what could not be done for some of them, a sentence

    @property
    def changes_file(self) -> bool:
        """Whether there is something to write."""
        return self.planned.refused is None and self.planned.before != self.planned.after

    @property
    def held(self) -> bool:
        """Whether the file stays away because the user's undo took it away, which is no error."""
        return self.planned.refused is not None and self.planned.known is not None and self.planned.known.held


def formats() -> Mapping[str, Format]:
    """Every format by the name that the ledger knows it by."""
    return {name: registry.load(name) for name in registry.OUTPUTS}


class StoppedError(Exception):
    """A look was ended because nobody waits for it any more."""


def plan_changes(
    made: TargetPass,
    ledger: Ledger,
    seen: Seen,
    away: Sequence[str],
    others: Sequence[str],
    should_stop: Callable[[], bool],
    *,
    adopt: bool = False,
) -> list[FileChange]:
    """The changes of one target's files, files of models that are gone among them.

    `away`: model folders that cannot be looked into now; what was written for models in them stays. `others`: the
    paths of the other targets. Raises StoppedError when told to stop.
    """
    if made.failure is not None or not made.finished:
        return []
    found, mounts = [], dict[str, str]()
    for wanted in made.files:
        if should_stop():
            raise StoppedError
        models = {
            name: SeenModel(model_path, wanted.prefixes[name], _mount(model_path, mounts))
            for name, model_path in wanted.models.items()
        }
        try:
            change = _change(made, wanted, models, ledger, seen, away, adopt=adopt)
        except Exception as error:  # of this file; the others are planned all the same
            change = FileChange(made.target.name, _refused(wanted.path, error, ledger), models)
        found += [change] if change is not None else []
    return found + _gone(made, ledger, seen, away, others)


def _change(
    made: TargetPass,
    wanted: WantedFile,
    models: Mapping[str, SeenModel],
    ledger: Ledger,
    seen: Seen,
    away: Sequence[str],
    *,
    adopt: bool,
) -> FileChange | None:
    """The change of one file; None for no file."""
    before = seen.models.get(wanted.path, {})
    vanished = {name: model for name, model in before.items() if name not in models}
    kept = {name: model for name, model in vanished.items() if name in made.unsure or is_away(model, away)}
    if not (models or kept or wanted.path in ledger.files):  # no file for nothing
        return None
    planned, note = _planned(made, wanted, kept, ledger, adopt=adopt), ""
    gone = {name: model for name, model in vanished.items() if name not in kept}
    if planned.refused is not None and gone:
        whole = _planned(made, wanted, vanished, ledger, adopt=adopt)
        if whole.refused is None:  # what the user set for a model that is gone cannot stand without ours
            names = ", ".join(map(printable, gone))
            note = f"the model is gone, but you set something for it; take out all of {names}."
            planned, kept = whole, vanished
    elif left := {name: model for name, model in gone.items() if _is_left(planned, wanted, model.prefix)}:
        names = ", ".join(map(printable, left))
        note = f"the model is gone; what you set for {names} stays for when it comes back, else take it out."
        kept |= left
    return FileChange(made.target.name, planned, {**kept, **models}, note)


def _refused(path: str, error: Exception, ledger: Ledger) -> PlannedChange:
    """A file that is left alone for an error, which names it."""
    path = os.path.abspath(path)
    return PlannedChange(path, None, None, "", refused=about(path, error), known=ledger.files.get(path))


def _planned(
    made: TargetPass, wanted: WantedFile, kept: Mapping[str, SeenModel], ledger: Ledger, *, adopt: bool
) -> PlannedChange:
    """The change of one file in which the values for the `kept` models stay as they were written."""
    record = ledger.files.get(os.path.abspath(wanted.path))
    prefixes = [model.prefix for model in kept.values()]
    slots: dict[Slot, Value] = {
        slot: ours.value
        for slot, ours in (record.wrote if record is not None else {}).items()
        if any(slot[: len(prefix)] == prefix for prefix in prefixes)
    }
    create = made.target.format in _MADE_WHERE_ABSENT
    return plan_change(wanted.path, wanted.output, {**slots, **wanted.slots}, ledger, adopt=adopt, create=create)


def _is_left(planned: PlannedChange, wanted: WantedFile, prefix: Slot) -> bool:
    """Whether a model that is gone leaves an entry, with values of the user's, that llama-server cannot start."""
    if wanted.output.name != "llama-server-preset" or planned.after is None:
        return False
    slots = wanted.output.parse(planned.after.decode())
    mine = [slot for slot in slots if prefix and slot[: len(prefix)] == prefix]
    return bool(mine) and (*prefix, "model") not in mine


def _mount(path: str, known: dict[str, str]) -> str:
    folder = os.path.dirname(path)
    if folder not in known:
        known[folder] = mount_point(folder)
    return known[folder]


def _gone(made: TargetPass, ledger: Ledger, seen: Seen, away: Sequence[str], others: Sequence[str]) -> list[FileChange]:
    """Files in the target's folder that were made for models which are no more."""
    output = registry.load(made.target.format)
    if not output.per_model:
        return []
    wanted, place = {os.path.abspath(file.path) for file in made.files}, os.path.abspath(made.target.path)
    inner = [other for other in map(os.path.abspath, others) if is_below(other, [place])]
    found = []
    for path, record in ledger.files.items():
        if path in wanted or record.format != output.name or not is_below(path, [place]) or is_below(path, inner):
            continue
        models = seen.models.get(path, {})
        if record.held or any(name in made.unsure or is_away(model, away) for name, model in models.items()):
            continue
        try:
            planned = plan_restore(path, ledger, formats())
        except Exception as error:
            planned = _refused(path, error, ledger)._replace(known=None)
        if (
            planned.after is not None and record.created
        ):  # what the user put in stays, and so does that the file is ours
            planned = planned._replace(record=record._replace(wrote={}, pinned={}))
        found.append(FileChange(made.target.name, planned, {}))
    return found


class Applied(NamedTuple):
    """What became of one file: it was written, or the sentence why not."""

    change: FileChange
    written: bool
    error: str | None


def apply_changes(
    changes: Collection[FileChange], ledger: Ledger, now_s: float, should_stop: Callable[[], bool]
) -> list[Applied]:
    """Make the changes, each for itself, until told to stop; what only has to be remembered is remembered.

    `ledger` is one from `open_ledger`.
    """
    results: list[Applied] = []
    for change in changes:
        if should_stop():
            break
        if change.held:
            results.append(Applied(change, False, None))
            continue
        if change.planned.refused is not None:
            results.append(Applied(change, False, change.planned.refused))
            continue
        try:
            if change.planned.after is not None:
                _make_folder(os.path.dirname(change.planned.path))
            results.append(Applied(change, apply_change(change.planned, ledger, now_s=now_s), None))
        except Exception as error:  # of this file; the others are written all the same
            results.append(Applied(change, False, about(change.planned.path, error)))
    return results


def _make_folder(folder: str) -> None:
    """Make the folder of a new file, below the user's home only: elsewhere it may be a disk that is not mounted."""
    home = os.path.join(os.path.expanduser("~"), "")
    if folder.startswith(home) and not os.path.exists(folder):
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{folder} cannot be made ({error.strerror}); make it or correct the path.") from None
