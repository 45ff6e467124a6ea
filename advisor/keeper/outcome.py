"""What one pass of the daemon came to, gathered target by target so that only one of them is in memory."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.errors import OutputError
from advisor.gguf_header.errors import printable
from advisor.keeper.changes import FileChange
from advisor.keeper.keeper import Look, Told
from advisor.keeper.passes import TargetPass
from advisor.keeper.reload import BY_HAND
from advisor.keeper.sentences import describe_fully, failures, left_out, notes, pending, pinned
from advisor.keeper.targets import Target
from advisor.managed.atomic import digest, look
from advisor.watch.worker import INFO, WARNING, Change, Summary


class Outcome:
    """`said`: sentences that were said by an earlier pass and are not said again."""

    def __init__(self, targets: Sequence[Target], said: set[str], *, quiet: bool) -> None:
        self.own: dict[str, str | None] = {}  # as `Watched.own`
        self.lines: list[Change] = []
        self.finished = True
        self._targets, self._said, self._quiet = targets, said, quiet
        self._made: list[TargetPass] = []
        self._failed: list[str] = []
        self._known: list[str] = []
        self._waits: list[str] = []
        self._stays: list[str] = []
        self._again = False

    def add(self, made: TargetPass, changes: Sequence[FileChange], told: Told | None) -> None:
        """One target; `told` is None where nothing was to be written."""
        self._made.append(made._replace(files=()))
        if told is None:
            self._waits += [pending(each, quiet=self._quiet) for each in changes if each.changes_file]
            told = Told(made.target, (), "", (), None)
        else:
            self.finished &= len(told.applied) == len(changes)
            self._again |= any(each.planned.refused is not None and not each.held for each in changes)
        self.lines += _lines(told, self._said)
        errors = [each.error for each in told.applied if each.error] + ([told.error] if told.error else [])
        self._again |= bool(errors)
        self._failed += errors
        self._known += [*told.differs, *notes(changes)]
        self._stays += [pinned(each.planned.path, pin) for each in changes for pin in each.planned.pinned]
        written = {each.change.planned.path for each in told.applied if each.written}
        self.own |= {each.planned.path: _left(each, each.planned.path in written) for each in changes}

    def summary(self, whole: Look, more: Sequence[str]) -> Summary:
        """Everything; `whole` is a look without targets, `more` is to be known too."""
        whole = whole._replace(passes=tuple(self._made))
        enabled = {target.name for target in self._targets if target.enabled}
        others = {target.name for target in self._targets} - enabled
        failed = [*failures(whole, enabled), *self._failed]
        known = [*failures(whole, others), *left_out(whole), *self._known, *more]
        models = f"{whole.n_models} model{'' if whole.n_models == 1 else 's'}"
        return Summary(
            f"{models}, {len(enabled)} of {len(self._targets)} targets enabled",
            tuple(self.lines),
            tuple(self._waits),
            tuple(self._stays),
            tuple(dict.fromkeys(failed)),
            tuple(dict.fromkeys(known)),
            self._again,
        )


def digest_now(path: str) -> str | None:
    """The sha256 of a file, None for none and for one that cannot be read."""
    try:
        return digest(look(path).data)
    except OutputError:
        return None


def _left(change: FileChange, written: bool) -> str | None:
    """The sha256 of a config file after a pass; of one that was refused, as it is."""
    planned = change.planned
    return digest(planned.after if written else planned.before) if planned.refused is None else digest_now(planned.path)


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
