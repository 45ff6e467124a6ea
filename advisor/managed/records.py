"""What the ledger knows about each file, and its JSON. Pure; everything read is checked, since files break."""

from __future__ import annotations

from typing import Any

from advisor.managed.merge import Ours, Pin
from advisor.records import NamedTuple
from advisor.slots import GONE, Gone, Slot, SlotChange, Value, same


class Entry(NamedTuple):
    """One change of a file. `backup` and `sha_after` are None for no file; order is by `sequence`, never by time."""

    sequence: int
    time_s: float  # what the clock said, since 1970
    kind: str  # "apply" | "undo"
    backup: str | None  # the sha256 of the bytes before, and the name of their copy
    sha_after: str | None
    clean: bool  # the bytes before were those that the entry before this one left
    undone: bool
    changes: tuple[SlotChange, ...]
    wrote_before: tuple[tuple[Slot, Ours | None], ...]  # of the slots in which `wrote` changed


class FileRecord(NamedTuple):
    """One file that advisor changes; `history` starts with the very first change and goes on with the last ones.

    `tables`: the sections, maps and lists that the user had written and in which values of ours stand, each with what
    it is when it is empty.
    """

    format: str
    wrote: dict[Slot, Ours]
    pinned: dict[Slot, Pin]
    tables: dict[Slot, str] = {}  # noqa: RUF012 - never changed
    created: bool = False  # there was no file before us
    held: bool = False  # taken away by undo, and to stay away
    history: tuple[Entry, ...] = ()

    @property
    def sha256(self) -> str | None:
        """The hash of what we last wrote."""
        return self.history[-1].sha_after if self.history else None

    @property
    def applied(self) -> tuple[Entry, ...]:
        """The changes in force: those that no undo took back."""
        return tuple(entry for entry in self.history if entry.kind == "apply" and not entry.undone)

    @property
    def backups(self) -> set[str]:
        """Names of the copies that the history refers to."""
        return {entry.backup for entry in self.history if entry.backup is not None}


def alike(one: FileRecord | None, other: FileRecord | None) -> bool:
    """Whether two records say the same; to Python itself false would be 0."""
    if one is None or other is None:
        return one is other
    slots = [({s: list(v) for s, v in a.items()}, {s: list(v) for s, v in b.items()}) for a, b in
             ((one.wrote, other.wrote), (one.pinned, other.pinned))]  # fmt: skip
    bare = [record._replace(wrote={}, pinned={}) for record in (one, other)]
    return bare[0] == bare[1] and all(same(a, b) for a, b in slots)


class Intent(NamedTuple):
    """A change that was about to be made; `record` is what the file's record is once it is (None: forgotten)."""

    path: str
    target: str
    sha_before: str | None
    sha_after: str | None
    temporary: str | None  # the new file beside the old one, there until it takes its place
    record: FileRecord | None


def to_json(record: FileRecord) -> dict[str, Any]:
    """A record as JSON."""
    return {
        "format": record.format,
        "created": record.created,
        "held": record.held,
        "wrote": [[list(slot), *_ours(ours)] for slot, ours in record.wrote.items()],
        "pinned": [[list(slot), _maybe(pin.theirs), _maybe(pin.ours)] for slot, pin in record.pinned.items()],
        "tables": [[list(slot), text] for slot, text in record.tables.items()],
        "history": [
            {
                **entry._asdict(),
                "changes": [_change(change) for change in entry.changes],
                "wrote_before": [[list(slot), *(_ours(ours) if ours else ())] for slot, ours in entry.wrote_before],
            }
            for entry in record.history
        ],
    }


def from_json(document: Any) -> FileRecord:
    """A record from JSON, also of the first schema, without texts. Raises ValueError, TypeError or KeyError."""
    return FileRecord(
        format=_text(document["format"]),
        created=_flag(document["created"]),
        held=_flag(document["held"]),
        wrote={_slot(slot): _read_ours(parts) for slot, *parts in document["wrote"]},
        pinned={_slot(slot): Pin(_read(theirs), _read(ours)) for slot, theirs, ours in document["pinned"]},
        tables={_place(slot): _text(text) for slot, text in document.get("tables", ())},
        history=tuple(_entry(entry) for entry in document["history"]),
    )


def _entry(document: Any) -> Entry:
    if document["kind"] not in ("apply", "undo"):
        raise ValueError("no kind")
    return Entry(
        sequence=whole(document["sequence"]),
        time_s=float(document["time_s"]),
        kind=document["kind"],
        backup=sha(document["backup"]),
        sha_after=sha(document["sha_after"]),
        clean=_flag(document["clean"]),
        undone=_flag(document["undone"]),
        changes=tuple(_read_change(*parts) for parts in document["changes"]),
        wrote_before=tuple(
            (_slot(slot), _read_ours(parts) if parts else None) for slot, *parts in document["wrote_before"]
        ),
    )


def _maybe(value: Value | Gone) -> list[Any]:
    return [] if value is GONE else [value]


def _read(parts: Any) -> Any:
    if not isinstance(parts, list) or len(parts) > 1:
        raise ValueError("no value")
    return parts[0] if parts else GONE


def _change(change: SlotChange) -> list[Any]:
    text = [] if change.old_text is None else [change.old_text]
    return [list(change.slot), _maybe(change.old), _maybe(change.new), *text]


def _read_change(slot: Any, old: Any, new: Any, text: Any = None) -> SlotChange:
    return SlotChange(_slot(slot), _read(old), _read(new), None if text is None else _text(text))


def _ours(ours: Ours) -> list[Any]:
    behind = [] if ours.behind is GONE else [ours.behind]
    return [ours.value, *behind, *([ours.text] if behind and ours.text is not None else [])]


def _read_ours(parts: list[Any]) -> Ours:
    if not 1 <= len(parts) <= 3:
        raise ValueError("no value of ours")
    return Ours(*parts[:2], *(_text(text) for text in parts[2:]))


def _slot(parts: Any) -> Slot:
    slot = _place(parts)
    if not slot:
        raise ValueError("no slot")
    return slot


def _place(parts: Any) -> Slot:
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise ValueError("no place")
    return tuple(parts)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("no text")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("no flag")
    return value


def whole(value: Any) -> int:
    """A whole number of at least 0. Raises ValueError."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("no whole number")
    return value


def sha(value: Any) -> str | None:
    """A sha256 in hex, or None; nothing else may become the name of a file. Raises ValueError."""
    if value is None or (isinstance(value, str) and len(value) == 64 and not value.strip("0123456789abcdef")):
        return value
    raise ValueError("no sha256")
