"""One change of one file: planned without touching anything, then made so that it can be taken back.

plan_change   read, merge by slot, edit, validate, diff; a `refused` says why the file is left alone
apply_change  validate, lost-update check, backup, announce in the ledger, replace, read back, remember
"""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Iterable, Mapping

from advisor.errors import OutputError, unexpected
from advisor.gguf_header.errors import printable
from advisor.managed.atomic import Standing, digest, look, remove_file, staged
from advisor.managed.ledger import Ledger
from advisor.managed.merge import Merge, Pin, merge
from advisor.managed.records import Entry, FileRecord, Intent, alike
from advisor.managed.types import Format
from advisor.managed.values_json import details_text
from advisor.records import NamedTuple
from advisor.slots import GONE, Gone, Slot, SlotChange, Value, is_plain, same, shown

KEPT_BACKUPS = 20  # of each file, besides the very first
_BOM = "\ufeff"


class Pinned(NamedTuple):
    """A slot that stays the user's (GONE: it stays away) although we would write something else (GONE: nothing)."""

    slot: Slot
    theirs: Value | Gone
    ours: Value | Gone


class PlannedChange(NamedTuple):
    """What would be done to a file; nothing when `before` is `after`. None stands for no file."""

    path: str
    before: bytes | None
    after: bytes | None
    diff: str  # unified; holds text of the file, so clean it before printing
    changes: tuple[SlotChange, ...] = ()
    pinned: tuple[Pinned, ...] = ()
    unpinned: tuple[Slot, ...] = ()
    refused: str | None = None  # a sentence
    note: str | None = None  # a sentence about what could only be done in part
    standing: Standing | None = None
    known: FileRecord | None = None  # the ledger's record when this was planned
    record: FileRecord | None = None  # and after it, without this change's own entry; None: forgotten
    kind: str = "apply"
    format: Format | None = None


def plan_change(
    path: str,
    fmt: Format,
    wanted: Mapping[Slot, Value],
    ledger: Ledger,
    *,
    adopt: bool = False,
    create: bool = False,
) -> PlannedChange:
    """Plan to have `wanted`, and nothing else of ours, in the file at `path`.

    `adopt` takes over a file that is not in the ledger, slots of the user's, and what an undo took away. A file that
    other programs share is made only with `create`. Whatever stands against it is in `refused`; nothing is raised.
    """
    path = os.path.abspath(path)
    known = ledger.files.get(path)
    try:
        return _plan(path, fmt, wanted, known, adopt, create)
    except OutputError as error:
        return PlannedChange(path, None, None, "", refused=about(path, error), known=known)


def about(path: str, error: Exception) -> str:
    """The sentence of any error; formats know texts only, so the file is named here."""
    name, sentence = printable(path), unexpected(error)
    return sentence if name in sentence else f"{name}: {sentence}"


def _plan(
    path: str, fmt: Format, wanted: Mapping[Slot, Value], known: FileRecord | None, adopt: bool, create: bool
) -> PlannedChange:
    standing = look(path)
    name = printable(path)
    if known is not None and known.format != fmt.name:
        raise OutputError(f"{name} was written as {printable(known.format)}, not {fmt.name}; undo that first.")
    if known is not None and known.held and not adopt:
        raise OutputError(f"{name} was taken away by undo and stays away; 'advisor apply --adopt' writes it again.")
    record = known or FileRecord(fmt.name, {}, {})
    if standing.data is None:
        if fmt.shares != "own" and not create:
            raise OutputError(f"{name} does not exist, and the program that reads it makes it; start that once.")
        record = record._replace(created=True, wrote={}, pinned={}, tables={})
        if not wanted:
            return PlannedChange(path, None, None, "", standing=standing, known=known, record=known)
    elif known is None and fmt.shares == "own" and not adopt:
        raise OutputError(f"{name} was not written by advisor and is left alone; --adopt lets advisor change it.")
    record = record._replace(held=False)
    mark, text = decode(path, standing.data, fmt)
    now = fmt.parse(text)
    merged = merge(record.wrote, record.pinned, now, wanted, {}, adopt=adopt)
    tables = record.tables
    if merged.changes or merged.pinned or merged.wrote != record.wrote:
        # what we want, as the format would read it back
        asked = {*(change.slot for change in merged.changes), *merged.pinned}
        some = {slot: value for slot, value in wanted.items() if slot in asked}
        wanted = {**wanted, **(_read_back(fmt, some) if some else {})}
        spelled = fmt.spelled(text)
        merged = merge(record.wrote, record.pinned, now, wanted, spelled, adopt=adopt)
        new = (
            *(change.slot for change in merged.changes),
            *(slot for slot in merged.wrote if slot not in record.wrote),
        )
        tables = tables_with_ours(record, now, spelled, new)
    _check_plain(name, merged)
    edited = edit_checked(fmt, text, now, merged.changes, tables, name)
    fmt.validate(edited)
    after = standing.data if edited == text and standing.data is not None else (mark + edited).encode()
    return PlannedChange(
        path=path, before=standing.data, after=after, diff=make_diff(path, standing.data, after),
        changes=merged.changes, pinned=_disagreeing(merged.pinned), unpinned=merged.unpinned, standing=standing,
        known=known, record=record._replace(wrote=merged.wrote, pinned=merged.pinned, tables=tables),
        format=fmt,
    )  # fmt: skip


def decode(path: str, data: bytes | None, fmt: Format) -> tuple[str, str]:
    """(byte order mark or "", text) of a file. Raises OutputError when it is not UTF-8."""
    if data is None:
        return "", fmt.new_text
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise OutputError(f"{printable(path)}, line {line}: not UTF-8 text; save the file as UTF-8.") from None
    return (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)


def _read_back(fmt: Format, wanted: Mapping[Slot, Value]) -> dict[Slot, Value]:
    found = fmt.parse(fmt.edit(fmt.new_text, wanted))
    return {slot: found.get(slot, value) for slot, value in wanted.items()}


def tables_with_ours(
    record: FileRecord, now: Mapping[Slot, Value | Gone], spelled: Mapping[Slot, str], new: Iterable[Slot]
) -> dict[Slot, str]:
    """The user's tables that hold something of ours, also once the slots in `new` are ours.

    They are there before anything of ours stands in them for the first time.
    """
    ours = [slot for slot, each in record.wrote.items() if same(now.get(slot, GONE), each.value)]
    held = {slot[:n] for slot in ours for n in range(len(slot))}
    found = {place: text for place, text in record.tables.items() if place in spelled}
    for slot in new:
        above = (slot[:n] for n in range(len(slot)))
        found.update({place: spelled[place] for place in above if place in spelled and place not in held})
    return found


def edit_checked(
    fmt: Format,
    text: str,
    now: Mapping[Slot, Value],
    changes: tuple[SlotChange, ...],
    tables: Mapping[Slot, str],
    name: str,
) -> str:
    """The edited text, of which was made sure that it says what is meant and that no other slot changed."""
    if not changes:
        return text
    written = {change.slot: change.new_text for change in changes if change.new_text is not None}
    edited = fmt.edit(text, {change.slot: change.new for change in changes}, {**tables, **written})
    expected: dict[Slot, Value | Gone] = {**now, **{change.slot: change.new for change in changes}}
    found = fmt.parse(edited)
    for slot in {**expected, **found}:
        is_, should = found.get(slot, GONE), expected.get(slot, GONE)
        # a table that lost its last value, or got its first one, is no change of a value
        if not same(is_, should) and not ({} in (is_, should) and GONE in (is_, should)):
            raise OutputError(
                f"{name}: {printable(shown(slot))} cannot be changed safely in this file; change it by hand."
            )
    return edited


def _check_plain(name: str, merged: Merge) -> None:
    values = [(slot, value) for slot, ours in merged.wrote.items() for value in ours[:2]]
    values += [(slot, value) for slot, pin in merged.pinned.items() for value in pin]
    for slot, value in values:
        if not is_plain(value):
            raise OutputError(
                f"{name}: {printable(shown(slot))} holds a value that advisor cannot remember; remove it."
            )


def _disagreeing(pinned: Mapping[Slot, Pin]) -> tuple[Pinned, ...]:
    return tuple(Pinned(slot, *pin) for slot, pin in pinned.items() if not same(pin.theirs, pin.ours))


def make_diff(path: str, before: bytes | None, after: bytes | None) -> str:
    """A unified diff; /dev/null stands for no file."""
    if before == after:
        return ""
    old, new = ((data or b"").decode(errors="replace").splitlines(keepends=True) for data in (before, after))
    from_name, to_name = (printable(path) if data is not None else "/dev/null" for data in (before, after))
    lines = difflib.unified_diff(old, new, from_name, to_name)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def apply_change(planned: PlannedChange, ledger: Ledger, *, now_s: float, keep: int = KEPT_BACKUPS) -> bool:
    """Make a planned change; whether the file was written. `ledger` is one from `open_ledger`; `now_s` is the clock's.

    Raises OutputError: refused, changed since it was planned, or not possible; the old file then stands.
    """
    if planned.refused is not None:
        raise OutputError(planned.refused)
    path, before, after, standing = planned.path, planned.before, planned.after, planned.standing
    if ledger.files.get(path) != planned.known:
        raise OutputError(f"{printable(path)} was changed by another advisor just now; try again.")
    if before == after:
        if not alike(planned.record, planned.known) and (planned.known or (planned.record and planned.record.wrote)):
            ledger.commit(path, planned.record)
        return False
    assert standing is not None
    if after is not None and planned.format is not None:
        planned.format.validate(decode(path, after, planned.format)[1])
    backup = ledger.backups.keep(before)
    ledger.sequence += 1
    record, dropped = _with_entry(planned, backup, ledger.sequence, now_s, keep)
    intent = Intent(path, standing.target, backup, digest(after), None, record)
    made = False
    try:
        if after is None:
            ledger.intent = intent
            ledger.save()
            remove_file(standing)
            made = True
            ledger.commit(path, record)
        else:
            ledger.enter(os.path.dirname(standing.target))
            with staged(standing, after) as new:
                ledger.intent = intent._replace(temporary=new.temporary)
                ledger.save()
                new.commit()
                made = True
                ledger.commit(path, record)
    except BaseException:
        if not made:
            ledger.intent = None
            with contextlib.suppress(OutputError):  # then the announcement stays, and the next run settles it
                ledger.save()
        raise
    if dropped:
        ledger.backups.drop(name for name in dropped if not ledger.files.mention(f'"backup": "{name}"'))
    if look(path).data != after:
        raise OutputError(f"{printable(path)} was changed by somebody else right after advisor wrote it; look at it.")
    return True


def _with_entry(
    planned: PlannedChange, backup: str | None, sequence: int, now_s: float, keep: int
) -> tuple[FileRecord | None, set[str]]:
    """The record with this change in its history, and the backups that fell out of it."""
    record, known = planned.record, planned.known
    if record is None:
        return None, set()
    wrote = known.wrote if known is not None else {}
    slots = dict.fromkeys((*wrote, *record.wrote))
    # by their text: to Python false is 0
    before = [(slot, wrote.get(slot)) for slot in slots if repr(wrote.get(slot)) != repr(record.wrote.get(slot))]
    entry = Entry(
        sequence=sequence, time_s=now_s, kind=planned.kind, backup=backup, sha_after=digest(planned.after),
        clean=not record.history or record.sha256 == backup, undone=False,
        details=details_text(planned.changes, before),
    )  # fmt: skip
    history = (*record.history, entry)
    if len(history) > keep + 1:
        first, gone, rest = history[0], history[1:-keep], history[-keep:]
        clean = rest[0].clean and all(each.clean for each in gone)
        history = (first, rest[0]._replace(clean=clean), *rest[1:])
    shortened = record._replace(history=history)
    return shortened, record.backups - shortened.backups
