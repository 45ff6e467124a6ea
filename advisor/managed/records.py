"""What the ledger knows about each file, and its JSON. Pure; everything read is checked, since files break."""

from __future__ import annotations

from typing import Any

from advisor.errors import OutputError
from advisor.managed.merge import Ours, Pin
from advisor.managed.values_json import (
    details_of,
    details_text,
    flag_of,
    maybe,
    maybe_of,
    ours_of,
    place_of,
    sha,
    slot_of,
    text_of,
    whole,
    wrote_from_json,
    wrote_to_json,
)
from advisor.records import NamedTuple
from advisor.slots import Slot, SlotChange, same


class Entry(NamedTuple):
    """One change of a file. `backup` and `sha_after` are None for no file; order is by `sequence`, never by time."""

    sequence: int
    time_s: float  # what the clock said, since 1970
    kind: str  # "apply" | "undo"
    backup: str | None  # the sha256 of the bytes before, and the name of their copy
    sha_after: str | None
    clean: bool  # the bytes before were those that the entry before this one left
    undone: bool
    details: str  # what it did, as `values_json.details_text`

    def unfolded(self) -> tuple[tuple[SlotChange, ...], tuple[tuple[Slot, Ours | None], ...]]:
        """The changes, and of the slots in which `wrote` changed what it was before. Raises OutputError."""
        try:
            return details_of(self.details)
        except (ValueError, TypeError, RecursionError):
            raise OutputError(
                "what advisor noted of an earlier change is damaged; 'advisor undo --all FILE' takes back all of them."
            ) from None


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
        "ours": wrote_to_json(record.wrote),
        "pinned": [[list(slot), maybe(pin.theirs), maybe(pin.ours)] for slot, pin in record.pinned.items()],
        "tables": [[list(slot), text] for slot, text in record.tables.items()],
        "history": [entry._asdict() for entry in record.history],
    }


def from_json(document: Any) -> FileRecord:
    """A record from JSON, also of the first schema. Raises ValueError, TypeError, KeyError or AttributeError."""
    return FileRecord(
        format=text_of(document["format"]),
        created=flag_of(document["created"]),
        held=flag_of(document["held"]),
        wrote=wrote_from_json(document["ours"]) if "ours" in document else _first_wrote(document["wrote"]),
        pinned={slot_of(slot): Pin(maybe_of(theirs), maybe_of(ours)) for slot, theirs, ours in document["pinned"]},
        tables={place_of(slot): text_of(text) for slot, text in document.get("tables", ())},
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
        clean=flag_of(document["clean"]),
        undone=flag_of(document["undone"]),
        details=text_of(document["details"]) if "details" in document else _first_details(document),
    )


def _first_wrote(document: Any) -> dict[Slot, Ours]:
    return {slot_of(slot): ours_of(parts) for slot, *parts in document}


def _first_details(document: Any) -> str:
    """The details of an entry of the first schema, which had them unfolded."""
    changes = [
        SlotChange(slot_of(slot), maybe_of(old), maybe_of(new)) for slot, old, new in document["changes"]
    ]  # fmt: skip
    before = [(slot_of(slot), ours_of(parts) if parts else None) for slot, *parts in document["wrote_before"]]
    return details_text(changes, before)
