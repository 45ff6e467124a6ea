"""What happened, what waits and what stands against it, for people: each fact once."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from advisor.gguf_header.errors import printable
from advisor.keeper.changes import FileChange
from advisor.keeper.keeper import Look
from advisor.managed.change import Pinned
from advisor.slots import GONE, Slot, SlotChange

MAX_SHOWN_SLOTS = 12
MAX_SHOWN_PROBLEMS = 20
MAX_SHOWN_MODELS = 50
_MAX_VALUE = 80


def failures(look: Look, names: Collection[str]) -> list[str]:
    """What makes the targets in `names` impossible, or failed for a model: each reason once, with all its targets."""
    meant = [made for made in look.passes if made.target.name in names]
    whole = [(made.target.name, made.failure) for made in meant if made.failure]
    return _with_targets(
        [*whole, *((made.target.name, text) for made in meant for name, text in made.problems if name in made.unsure)]
    )


def _with_targets(reasons: Iterable[tuple[str, str]]) -> list[str]:
    targets: dict[str, list[str]] = {}
    for name, text in dict.fromkeys(reasons):
        targets.setdefault(text, []).append(name)
    return [f"{', '.join(names)}: {text}" for text, names in targets.items()]


def left_out(look: Look) -> list[str]:
    """Why models are in no config, or stay in it unseen: each reason once, with all its targets."""
    found = _with_targets(
        (made.target.name, text) for made in look.passes for name, text in made.problems if name not in made.unsure
    )
    found += _with_targets((made.target.name, text) for made in look.passes for text in made.notes)
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


def describe_fully(changes: tuple[SlotChange, ...]) -> list[str]:
    """Every old and new value: a line for each model in the file, and one for the models beyond MAX_SHOWN_MODELS."""
    groups: dict[Slot, list[SlotChange]] = {}
    for change in changes:
        groups.setdefault(change.slot[:-1], []).append(change)
    lines = [_group(group, each) for group, each in list(groups.items())[:MAX_SHOWN_MODELS]]
    rest = tuple(change for group in list(groups)[MAX_SHOWN_MODELS:] for change in groups[group])
    return [*(lines or ["made anew"]), *([f"and {describe(rest)}"] if rest else [])]


def _group(group: Slot, changes: list[SlotChange]) -> str:
    added, removed = (all(change[at] is GONE for change in changes) for at in (1, 2))
    if len(changes) == 1 or not (added or removed):
        return ", ".join(map(_value, changes))
    values = (f"{printable(one.slot[-1])} = {_shown(one.new if added else one.old)}" for one in changes)
    name = f" {_name(group)}:" if group else ""
    return f"{'added' if added else 'removed'}{name} {', '.join(values)}"


def _value(change: SlotChange) -> str:
    if change.old is GONE:
        return f"{_name(change.slot)} = {_shown(change.new)}"
    if change.new is GONE:
        return f"{_name(change.slot)} = {_shown(change.old)} taken out"
    old, new = _parts_that_differ(str(change.old), str(change.new))
    return f"{_name(change.slot)} {_shown(old)} -> {_shown(new)}"


def _parts_that_differ(old: str, new: str) -> tuple[str, str]:
    """Of two long texts, such as command lines, the words that differ, with the one before them."""
    if max(len(old), len(new)) <= _MAX_VALUE:
        return old, new
    left, right = old.split(), new.split()
    start = next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    room = min(len(left), len(right)) - start
    end = next((at for at in range(room) if left[-1 - at] != right[-1 - at]), room)
    start = max(start - 1, 0)
    before, behind = "… " if start else "", " …" if end else ""
    shown = [before + " ".join(words[start : len(words) - end]) + behind for words in (left, right)]
    return shown[0], shown[1]


def _name(slot: Slot) -> str:
    return printable(".".join(slot))


def _shown(value: object) -> str:
    text = printable(str(value))
    return text if len(text) <= _MAX_VALUE else text[: _MAX_VALUE - 1] + "…"
