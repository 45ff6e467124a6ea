"""Slots, values and changes as JSON. Pure; everything that is read is checked, since files break."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from advisor.managed.merge import Ours
from advisor.slots import GONE, Gone, Slot, SlotChange, Value


def wrote_to_json(wrote: Mapping[Slot, Ours]) -> list[Any]:
    """Slots by what is above them: with a thousand models in a file that is half of the text and of the memory."""
    groups: dict[Slot, dict[str, list[Any]]] = {}
    for slot, ours in wrote.items():
        groups.setdefault(slot[:-1], {})[slot[-1]] = ours_to_json(ours)
    return [[list(above), values] for above, values in groups.items()]


def wrote_from_json(document: Any) -> dict[Slot, Ours]:
    """Raises ValueError, TypeError or AttributeError."""
    found: dict[Slot, Ours] = {}
    for above, values in document:
        place = place_of(above)
        found.update({(*place, name): ours_of(parts) for name, parts in values.items()})
    return found


def details_text(changes: Iterable[SlotChange], wrote_before: Iterable[tuple[Slot, Ours | None]]) -> str:
    """What one change did, as one text: it is read by an undo only, and takes a tenth of the room."""
    return json.dumps([
        [
            [list(change.slot), maybe(change.old), maybe(change.new)]
            + ([] if change.old_text is None else [change.old_text])
            for change in changes
        ],
        [[list(slot), *(ours_to_json(ours) if ours else ())] for slot, ours in wrote_before],
    ])  # fmt: skip


def details_of(text: str) -> tuple[tuple[SlotChange, ...], tuple[tuple[Slot, Ours | None], ...]]:
    """The changes and what was ours before. Raises ValueError, TypeError or RecursionError."""
    changes, before = json.loads(text)
    return (
        tuple(_change_of(*parts) for parts in changes),
        tuple((slot_of(slot), ours_of(parts) if parts else None) for slot, *parts in before),
    )


def _change_of(slot: Any, old: Any, new: Any, text: Any = None) -> SlotChange:
    return SlotChange(slot_of(slot), maybe_of(old), maybe_of(new), None if text is None else text_of(text))


def ours_to_json(ours: Ours) -> list[Any]:
    """One to three parts: the value, what was there before, how that was written."""
    behind = [] if ours.behind is GONE else [ours.behind]
    return [ours.value, *behind, *([ours.text] if behind and ours.text is not None else [])]


def ours_of(parts: Any) -> Ours:
    """Raises ValueError."""
    if not isinstance(parts, list) or not 1 <= len(parts) <= 3:
        raise ValueError("no value of ours")
    return Ours(*parts[:2], *(text_of(text) for text in parts[2:]))


def maybe(value: Value | Gone) -> list[Any]:
    """A value or GONE, which JSON does not have."""
    return [] if value is GONE else [value]


def maybe_of(parts: Any) -> Any:
    """Raises ValueError."""
    if not isinstance(parts, list) or len(parts) > 1:
        raise ValueError("no value")
    return parts[0] if parts else GONE


def slot_of(parts: Any) -> Slot:
    """Raises ValueError."""
    slot = place_of(parts)
    if not slot:
        raise ValueError("no slot")
    return slot


def place_of(parts: Any) -> Slot:
    """A slot, or the beginning of one. Raises ValueError."""
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise ValueError("no place")
    return tuple(parts)


def text_of(value: Any) -> str:
    """Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError("no text")
    return value


def flag_of(value: Any) -> bool:
    """Raises ValueError."""
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
