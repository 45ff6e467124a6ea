"""Three-way merge, slot by slot: what we last wrote, what stands in the file now, what we want. Pure.

the user's slot      any value that we did not write; one of ours that was changed or removed; one that an undo gave
                     back. It stays as it is and is pinned, until the user puts our value back or `adopt` is given.
our slot             stands as we wrote it: changed freely, and when it is no longer wanted it goes, or becomes
                     again what the user had there before it was adopted
"""

from __future__ import annotations

from collections.abc import Mapping

from advisor.records import NamedTuple
from advisor.slots import GONE, Gone, Slot, SlotChange, Value, same


class Ours(NamedTuple):
    """A value that we wrote, and what the user had in its place when it was adopted, with the very text."""

    value: Value
    behind: Value | Gone = GONE
    text: str | None = None

    def __eq__(self, other: object) -> bool:
        """As config files compare: Python's own would take 1 and true for the same."""
        return isinstance(other, Ours) and all(map(same, self, other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def as_it_stands(self, stands: Value | Gone, text: str | None) -> Ours:
        """Where the file holds what lies behind it, the user wrote that as it is written now; `text`: how."""
        if stands is GONE or text is None or not same(stands, self.behind):
            return self
        return self._replace(behind=stands, text=text)


class Pin(NamedTuple):
    """A slot that is the user's: what stands there (GONE: it stays away), and what we would write."""

    theirs: Value | Gone
    ours: Value | Gone

    def __eq__(self, other: object) -> bool:
        """See Ours."""
        return isinstance(other, Pin) and all(map(same, self, other))

    def __ne__(self, other: object) -> bool:
        return not self == other


class Merge(NamedTuple):
    """What is to be changed, and what is to be remembered once it is."""

    changes: tuple[SlotChange, ...]
    wrote: dict[Slot, Ours]
    pinned: dict[Slot, Pin]
    unpinned: tuple[Slot, ...]


def merge(
    wrote: Mapping[Slot, Ours],
    pinned: Mapping[Slot, Pin],
    now: Mapping[Slot, Value],
    wanted: Mapping[Slot, Value],
    spelled: Mapping[Slot, str],
    *,
    adopt: bool = False,
) -> Merge:
    """Merge; `adopt` takes over the user's slots that are wanted, and remembers what they held.

    `spelled`: how the values stand in the file.
    """
    changes: list[SlotChange] = []
    wrote_after: dict[Slot, Ours] = {}
    pinned_after: dict[Slot, Pin] = {}
    unpinned: list[Slot] = []
    for slot in dict.fromkeys((*wanted, *wrote, *pinned)):
        ours, pin = wrote.get(slot), pinned.get(slot)
        stands, want = now.get(slot, GONE), wanted.get(slot, GONE)
        ours = ours.as_it_stands(stands, spelled.get(slot)) if ours is not None else None
        theirs = _is_theirs(ours, pin, stands)
        if theirs and (want is GONE or not adopt):
            as_written = ours is not None and same(stands, ours.value)
            if ours is not None and (want is not GONE or as_written):
                wrote_after[slot] = ours
            if not (stands is GONE and want is GONE) and (ours or pin or not same(stands, want)):
                pinned_after[slot] = Pin(stands, want)
            continue
        if pin is not None:
            unpinned.append(slot)
        # what the user took out with our value in its place is not to come back
        behind, text = (ours.behind, ours.text) if ours is not None and stands is not GONE else (GONE, None)
        if theirs and not (ours is not None and same(stands, ours.value)):
            behind, text = stands, spelled.get(slot)
        if want is not GONE:
            wrote_after[slot] = Ours(want, behind, text)
        # what the user had is written as the user wrote it, also while it is what we want
        gives_back = stands is not GONE and (want is GONE or same(want, behind))
        after = behind if gives_back else want
        if not same(stands, after):
            changes.append(SlotChange(slot, stands, after, spelled.get(slot), text if gives_back else None))
    return Merge(tuple(changes), wrote_after, pinned_after, tuple(unpinned))


def _is_theirs(ours: Ours | None, pin: Pin | None, stands: Value | Gone) -> bool:
    if pin is not None and same(stands, pin.theirs):
        return True  # as it was when it was pinned: that our wish came to agree makes it no less the user's
    if ours is None:
        return stands is not GONE
    if same(stands, ours.value):
        return False
    return pin is None or not same(stands, pin.ours)
