"""Taking changes back. Where nobody edited the file since, the very bytes come back; else only our slots do.

What was undone is pinned, so that the daemon does not do it again; `adopt` gives it back to advisor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from advisor.errors import OutputError
from advisor.gguf_header.errors import printable
from advisor.managed.atomic import Standing, digest, look
from advisor.managed.change import PlannedChange, about, apply_change, decode, edit_checked, make_diff, tables_with_ours
from advisor.managed.ledger import Ledger
from advisor.managed.merge import Ours, Pin
from advisor.managed.records import Entry, FileRecord
from advisor.managed.types import Format
from advisor.records import NamedTuple
from advisor.slots import GONE, Gone, Slot, SlotChange, Value, same

_KEPT = "you edited it since, so only advisor's own values were taken back and yours kept"


def plan_undo(path: str, ledger: Ledger, formats: Mapping[str, Format], *, to_s: float | None = None) -> PlannedChange:
    """Plan to take back the last change of `path` that is in force, or every one from the first made after `to_s` on.

    "First" goes by the order of the changes, so a clock that was set back does no harm. Of changes older than those
    that are kept, all are taken back. Raises OutputError when there is nothing to undo or it cannot be.
    """
    known = ledger.files.get(path)
    if known is None or not known.applied:
        raise OutputError(f"{printable(path)} has no change by advisor that could be undone.")
    applied = known.applied
    since = (
        [entry for entry in applied if to_s is not None and entry.time_s > to_s] if to_s is not None else applied[-1:]
    )
    if to_s is not None and not since:
        when = datetime.fromtimestamp(applied[-1].time_s).isoformat(" ", "seconds")
        raise OutputError(f"{printable(path)} was last changed by advisor at {when}; give an earlier time.")
    return _named(path, ledger, since[0], formats, forget=False)


def plan_restore(path: str, ledger: Ledger, formats: Mapping[str, Format]) -> PlannedChange:
    """Plan to take back everything that advisor ever did to `path` and to forget it. Raises OutputError."""
    known = ledger.files[path]
    return _named(path, ledger, known.history[0] if known.history else None, formats, forget=True)


def _named(
    path: str, ledger: Ledger, first: Entry | None, formats: Mapping[str, Format], *, forget: bool
) -> PlannedChange:
    try:
        return _plan(path, ledger, first, formats, forget=forget)
    except OutputError as error:
        raise OutputError(about(path, error)) from None


class Undone(NamedTuple):
    """What `uninstall` did to one file: a sentence, or the error that left it as it was."""

    path: str
    done: str | None
    error: str | None


def uninstall(
    ledger: Ledger, formats: Mapping[str, Format], *, now_s: float, paths: Sequence[str] | None = None
) -> list[Undone]:
    """Take back everything in `paths`, or in every file; one that cannot be restored is reported and stays known."""
    results = []
    for path in list(ledger.files) if paths is None else paths:
        try:
            planned = plan_restore(path, ledger, formats)
            apply_change(planned, ledger, now_s=now_s)
            results.append(Undone(path, describe(planned), None))
        except Exception as error:  # of this file; the others are taken back all the same
            results.append(Undone(path, None, about(path, error)))
    return results


def describe(planned: PlannedChange) -> str:
    """What an undo does, as one sentence."""
    name = printable(planned.path)
    if planned.note is not None:
        return f"{name}: {planned.note}."
    if planned.before == planned.after:
        return f"{name} holds nothing of advisor's."
    return f"{name} was removed, advisor had made it." if planned.after is None else f"{name} is as it was before."


class _Back(NamedTuple):
    """Where a slot goes back to: what stood there, and what of it was ours."""

    value: Value | Gone
    text: str | None  # how it was written
    ours: Ours | None
    last: Value | Gone  # what stands there if nobody touched it since


def _plan(
    path: str, ledger: Ledger, first: Entry | None, formats: Mapping[str, Format], *, forget: bool
) -> PlannedChange:
    """Back to before `first`, the oldest change to take back; None when no change wrote anything."""
    known = ledger.files[path]
    fmt = formats.get(known.format)
    standing = look(path)
    before = _slots(path, standing.data, fmt)
    spelled: Mapping[Slot, str] = {}
    if standing.data is not None and fmt is not None and before:
        spelled = fmt.spelled(decode(path, standing.data, fmt)[1])
    now = known._replace(
        wrote={slot: ours.as_it_stands(before.get(slot, GONE), spelled.get(slot)) for slot, ours in known.wrote.items()}
    )
    steps = _steps_back(now, first)
    if standing.data is not None:  # what the user has made of a slot since is not ours to change
        steps = {slot: back for slot, back in steps.items() if same(before.get(slot, GONE), back.last)}
        steps = _as_written(steps, now, before, spelled)
        if spelled:
            new = (slot for slot, back in steps.items() if back.ours is not None and slot not in now.wrote)
            now = now._replace(tables=tables_with_ours(now, before, spelled, new))
    note, whole = None, _bytes_before(known, first, standing, ledger)
    if standing.data is None and forget:
        after = None
    elif whole is not None:
        after = whole.data
    elif standing.data is None:
        raise OutputError(f"{printable(path)} does not exist any more, and advisor had made it; nothing to take back.")
    else:
        everything = first is None or first is known.history[0]
        after = _by_slot(path, standing.data, steps, now, fmt, removable=known.created and everything)
        note = _KEPT if after != standing.data or not forget else None
    if (
        now.tables and standing.data is None and after is not None and fmt is not None
    ):  # what went with the file is gone
        there = fmt.spelled(decode(path, after, fmt)[1])
        now = now._replace(tables={place: text for place, text in now.tables.items() if place in there})
    slots = _slots(path, after, fmt)
    changes = [SlotChange(slot, before.get(slot, GONE), slots.get(slot, GONE)) for slot in steps]
    record = None if forget else _undone(now, first, steps, slots, held=after is None)
    return PlannedChange(
        path=path, before=standing.data, after=after, diff=make_diff(path, standing.data, after),
        changes=tuple(change for change in changes if not same(change.old, change.new)), note=note, standing=standing,
        known=known, record=record, kind="undo",
    )  # fmt: skip


def _steps_back(known: FileRecord, first: Entry | None) -> dict[Slot, _Back]:
    """Every slot that the changes from `first` on touched, back to before them.

    A value of the user's that one of them had replaced ends the way back: older ones are not what the user left. What
    lies behind ours now was left last, also where it was adopted, or written anew, without a change of the file.
    """
    if first is None or first is known.history[0]:  # also of changes that are no longer remembered
        return {slot: _Back(ours.behind, ours.text, None, ours.value) for slot, ours in known.wrote.items()}
    steps: dict[Slot, _Back] = {}
    ended: set[Slot] = set()
    for entry in reversed(known.applied):
        if entry.sequence < first.sequence:
            break
        changed, before = entry.unfolded()
        changes, wrote_before = {change.slot: change for change in changed}, dict(before)
        for slot in {**changes, **wrote_before}.keys() - ended:
            ours = wrote_before.get(slot)
            back = steps.get(slot)
            if back is None:
                now = known.wrote.get(slot)
                if now is None and not (ours and slot in changes and same(changes[slot].new, ours.behind)):
                    ended.add(slot)  # not removed by us, and yet not ours: the user has made it their own
                    continue
                last = now.value if now is not None else changes[slot].new
                back = _Back(last, None, now, last)
            elif back.ours is None and slot in changes and not same(changes[slot].new, back.value):
                ended.add(slot)  # what it wrote was no longer there: the user had been there
                continue
            ours = ours if slot in wrote_before else back.ours
            value, text = (changes[slot].old, changes[slot].old_text) if slot in changes else (back.value, back.text)
            if back.ours is not None and back.ours.behind is not GONE:
                left = back.ours.behind, back.ours.text
                ours = ours._replace(behind=left[0], text=left[1]) if ours and same(ours.behind, left[0]) else None
                if ours is None or same(value, left[0]):
                    value, text = left
            steps[slot] = _Back(value, text, ours, back.last)
            if not same(value, ours.value if ours is not None else GONE):
                ended.add(slot)
    return steps


def _as_written(
    steps: Mapping[Slot, _Back], known: FileRecord, before: Mapping[Slot, Value | Gone], spelled: Mapping[Slot, str]
) -> dict[Slot, _Back]:
    """What goes behind a value of ours again goes there as it stands now: the user may have written it anew since."""
    return {
        slot: back._replace(ours=back.ours._replace(behind=before[slot], text=spelled.get(slot)))
        if back.ours is not None and slot in before and slot not in known.wrote and same(back.ours.behind, before[slot])
        else back
        for slot, back in steps.items()
    }


class _Whole(NamedTuple):
    data: bytes | None


def _bytes_before(known: FileRecord, first: Entry | None, standing: Standing, ledger: Ledger) -> _Whole | None:
    """The very bytes before `first`, if nothing of the user's is lost with them."""
    if first is None:
        return None
    if standing.data is None:
        if first.backup is None:
            return None
    elif digest(standing.data) != known.sha256 or not all(
        entry.clean for entry in known.history if entry.sequence > first.sequence
    ):
        return None
    try:
        return _Whole(ledger.backups.read(first.backup))
    except OutputError:  # lost or damaged: our slots can still be taken back one by one
        return None


def _by_slot(
    path: str,
    data: bytes,
    steps: Mapping[Slot, _Back],
    known: FileRecord,
    fmt: Format | None,
    *,
    removable: bool,
) -> bytes | None:
    """The file with only our slots taken back; None when that leaves what we had made it from."""
    if fmt is None:
        name = printable(known.format)
        raise OutputError(f"{printable(path)} has the format {name}, which this advisor lacks; update it.")
    mark, text = decode(path, data, fmt)
    spelled = fmt.spelled(text)
    changes = tuple(
        SlotChange(s, back.last, back.value, None, back.text)
        for s, back in steps.items()
        if not same(back.last, back.value) or back.text not in (None, spelled.get(s))
    )
    edited = edit_checked(fmt, text, fmt.parse(text), changes, known.tables, printable(path))
    if removable and edited == fmt.new_text:
        return None
    return data if edited == text else (mark + edited).encode()


def _slots(path: str, data: bytes | None, fmt: Format | None) -> Mapping[Slot, Value | Gone]:
    if data is None or fmt is None:
        return {}
    try:
        return fmt.parse(decode(path, data, fmt)[1])
    except OutputError:  # not what it was any more; its bytes can still be put back
        return {}


def _undone(
    known: FileRecord,
    first: Entry | None,
    steps: Mapping[Slot, _Back],
    slots: Mapping[Slot, Value | Gone],
    *,
    held: bool,
) -> FileRecord:
    """The record afterwards: what was undone stays as it is now, although advisor would write it again."""
    sequence = first.sequence if first is not None else 0
    history = tuple(
        entry._replace(undone=True) if entry.kind == "apply" and entry.sequence >= sequence else entry
        for entry in known.history
    )
    if held:
        return known._replace(held=True, wrote={}, pinned={}, tables={}, history=history)
    wrote = {slot: ours for slot, ours in known.wrote.items() if slot not in steps}
    wrote.update({slot: back.ours for slot, back in steps.items() if back.ours is not None})
    pinned = dict(known.pinned)
    for slot in steps:
        ours = known.wrote.get(slot)
        pinned[slot] = Pin(slots.get(slot, GONE), ours.value if ours is not None else GONE)
    return known._replace(wrote=wrote, pinned=pinned, history=history)
