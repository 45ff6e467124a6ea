"""What happened, what waits and what stands against it, for people: each fact once."""

from __future__ import annotations

from collections.abc import Iterable

from advisor.gguf_header.errors import printable
from advisor.keeper.changes import FileChange
from advisor.keeper.keeper import Look
from advisor.managed.change import Pinned
from advisor.slots import GONE, Slot, SlotChange

MAX_SHOWN_SLOTS = 12
MAX_SHOWN_PROBLEMS = 20
_MAX_VALUE = 80


def problems(look: Look) -> list[str]:
    """What makes a target impossible, and why models are left out: each reason once, with all its targets."""
    targets: dict[str, list[str]] = {}
    for made in look.passes:
        for text in dict.fromkeys([*([made.failure] if made.failure else []), *(text for _, text in made.problems)]):
            targets.setdefault(text, []).append(made.target.name)
    found = [f"{', '.join(names)}: {text}" for text, names in targets.items()]
    if len(found) > MAX_SHOWN_PROBLEMS:
        more = len(found) - MAX_SHOWN_PROBLEMS
        found = [*found[:MAX_SHOWN_PROBLEMS], f"{more} more are left out; 'advisor diff --json' lists them all."]
    if look.unseen:
        names = look.unseen[:MAX_SHOWN_PROBLEMS]
        others = f" and {len(look.unseen) - len(names)} more" if len(names) < len(look.unseen) else ""
        found.append(f"{', '.join(map(printable, names))}{others}: not within reach now; what was written stays.")
    return found + [
        f"{printable(folder)} cannot be looked into now; what was written for its models stays." for folder in look.away
    ]


def notes(changes: Iterable[FileChange]) -> list[str]:
    """What is to be known about files that are no errors."""
    found, held = [], dict[str, list[str]]()
    for change in changes:
        if change.held:
            held.setdefault(change.target, []).append(printable(change.planned.path))
        elif change.note:
            found.append(f"{printable(change.planned.path)}: {change.note}")
    for target, paths in held.items():
        what = paths[0] if len(paths) == 1 else f"{target}: {len(paths)} files"
        were, stay, them = ("was", "stays", "it") if len(paths) == 1 else ("were", "stay", "them")
        found.append(f"{what} {were} taken away by undo and {stay} away; --adopt brings {them} back.")
    return found


def pending(change: FileChange, *, quiet: bool) -> str:
    """A change that is not made now."""
    why = "waits for the end of the quiet hours" if quiet else f"target {change.target} is not enabled"
    return f"{printable(change.planned.path)}: {describe(change.planned.changes)} ({why})"


def pinned(path: str, pin: Pinned) -> str:
    """A value of the user's that stays."""
    theirs = "stays away" if pin.theirs is GONE else f"stays {_shown(pin.theirs)}"
    ours = "take it out" if pin.ours is GONE else f"write {_shown(pin.ours)}"
    return f"{printable(path)}: {_name(pin.slot)} {theirs}, advisor would {ours}."


def describe(changes: tuple[SlotChange, ...]) -> str:
    """Old and new values in one line; what is new or gone as a whole is named as a whole."""
    groups: dict[Slot, list[SlotChange]] = {}
    for change in changes:
        groups.setdefault(change.slot[:-1], []).append(change)
    shown = []
    for group, each in groups.items():
        count = f"{len(each)} values" if len(each) > 1 else "one value"
        if all(change.old is GONE for change in each) and len(each) > 1:
            shown.append(f"added {_name(group)} ({count})" if group else f"added {count}")
        elif all(change.new is GONE for change in each) and len(each) > 1:
            shown.append(f"removed {_name(group)} ({count})" if group else f"removed {count}")
        else:
            new = [change for change in each if change.old is GONE]
            listed = len(new) > 1  # with their names only
            shown += [_value(change) for change in each if not listed or change.old is not GONE]
            if listed:
                shown.append(f"{_name(group)} added {', '.join(printable(change.slot[-1]) for change in new)}")
    more = f" and {len(shown) - MAX_SHOWN_SLOTS} more" if len(shown) > MAX_SHOWN_SLOTS else ""
    return (", ".join(shown[:MAX_SHOWN_SLOTS]) or "made anew") + more


def _value(change: SlotChange) -> str:
    if change.old is GONE:
        return f"{_name(change.slot)} = {_shown(change.new)}"
    if change.new is GONE:
        return f"{_name(change.slot)} = {_shown(change.old)} taken out"
    return f"{_name(change.slot)} {_shown(change.old)} -> {_shown(change.new)}"


def _name(slot: Slot) -> str:
    return printable(".".join(slot))


def _shown(value: object) -> str:
    text = printable(str(value))
    return text if len(text) <= _MAX_VALUE else text[: _MAX_VALUE - 1] + "…"
