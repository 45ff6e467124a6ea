"""From what files should hold to planned changes of them, and making these."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from advisor.errors import OutputError
from advisor.keeper.passes import TargetPass, WantedFile
from advisor.keeper.seen import Seen, is_below
from advisor.managed.change import PlannedChange, apply_change, plan_change
from advisor.managed.ledger import Ledger
from advisor.managed.types import Format
from advisor.managed.undo import plan_restore
from advisor.outputs import registry
from advisor.slots import Slot, Value

# files of other programs that are absent until somebody sets something
_MADE_WHERE_ABSENT = ("llama-config-ini", "lm-studio", "text-generation-webui")


class FileChange(NamedTuple):
    """A planned change, the target it belongs to, and the models that the file is made for, id -> path."""

    target: str
    planned: PlannedChange
    models: Mapping[str, str]

    @property
    def changes_file(self) -> bool:
        """Whether there is something to write."""
        return self.planned.refused is None and self.planned.before != self.planned.after


def formats() -> Mapping[str, Format]:
    """Every format by the name that the ledger knows it by."""
    return {name: registry.load(name) for name in registry.OUTPUTS}


def plan_changes(
    made: TargetPass, ledger: Ledger, seen: Seen, away: Sequence[str], *, adopt: bool = False
) -> list[FileChange]:
    """The changes of one target's files, files of models that are gone among them.

    `away`: model folders that cannot be looked into now; what was written for models in them stays.
    """
    if made.failure is not None or not made.finished:
        return []
    found = []
    for wanted in made.files:
        kept, slots = _kept(wanted, ledger, seen, away)
        models = {**kept, **{name: model.model_path for name, model in wanted.models.items()}}
        if models or wanted.path in ledger.files:  # no file for nothing
            create = made.target.format in _MADE_WHERE_ABSENT
            planned = plan_change(
                wanted.path, wanted.output, {**slots, **wanted.slots}, ledger, adopt=adopt, create=create
            )
            found.append(FileChange(made.target.name, planned, models))
    return found + _gone(made, ledger, seen, away)


def _kept(
    wanted: WantedFile, ledger: Ledger, seen: Seen, away: Sequence[str]
) -> tuple[dict[str, str], dict[Slot, Value]]:
    """Models that are away, and what stands in the file for them."""
    record = ledger.files.get(os.path.abspath(wanted.path))
    kept = {
        name: path
        for name, path in seen.models.get(wanted.path, {}).items()
        if name not in wanted.models and is_below(path, away)
    }
    wrote = record.wrote if record is not None else {}
    return kept, {slot: ours.value for slot, ours in wrote.items() if not kept.keys().isdisjoint(slot)}


def _gone(made: TargetPass, ledger: Ledger, seen: Seen, away: Sequence[str]) -> list[FileChange]:
    """Files below the target's folder that were made for models which are no more."""
    output = registry.load(made.target.format)
    if not output.per_model:
        return []
    wanted = {os.path.abspath(file.path) for file in made.files}
    found = []
    for path, record in ledger.files.items():
        if path in wanted or record.format != output.name or not is_below(path, [os.path.abspath(made.target.path)]):
            continue
        models = seen.models.get(path, {})
        if record.held or any(is_below(model, away) for model in models.values()):
            continue
        try:
            planned = plan_restore(path, ledger, formats())
        except OutputError as error:
            planned = PlannedChange(path, None, None, "", refused=str(error))
        found.append(FileChange(made.target.name, planned, {}))
    return found


class Applied(NamedTuple):
    """What became of one file: it was written, or the sentence why not."""

    change: FileChange
    written: bool
    error: str | None


def apply_changes(changes: Collection[FileChange], ledger: Ledger, now_s: float) -> list[Applied]:
    """Make the changes, each for itself; what only has to be remembered is. `ledger` is one from `open_ledger`."""
    results = []
    for change in changes:
        if change.planned.refused is not None:
            results.append(Applied(change, False, change.planned.refused))
            continue
        try:
            if change.planned.after is not None:
                _make_folder(os.path.dirname(change.planned.path))
            results.append(Applied(change, apply_change(change.planned, ledger, now_s=now_s), None))
        except OutputError as error:
            results.append(Applied(change, False, str(error)))
    return results


def _make_folder(folder: str) -> None:
    """Make the folder of a new file, below the user's home only: elsewhere it may be a disk that is not mounted."""
    home = os.path.join(os.path.expanduser("~"), "")
    if folder.startswith(home) and not os.path.exists(folder):
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{folder} cannot be made ({error.strerror}); make it or correct the path.") from None
