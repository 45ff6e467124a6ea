"""Where slots stand in a tree of maps and lists (JSON, YAML), and what changes of slots mean for the tree.

A `Shape` says how a document is divided: `Keys` is a map with a shape for each key, `Listed` a list whose items are
found by a name that they hold, `LEAF` a whole value. `operations` turns changes of slots into operations on places of
the tree, which the writers of JSON and YAML carry out in the text; `applied_to` carries them out on the data.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from advisor.errors import OutputError
from advisor.gguf_header.errors import excerpt
from advisor.outputs.types import GONE, Gone, Slot, Value
from advisor.records import NamedTuple

Path: TypeAlias = tuple[str | int, ...]  # keys and places in lists


class Op(NamedTuple):
    """A "replace" of the value at `path`, "delete" of it with its key, or "insert" at the end of a container.

    "empty": the container at `path`, whose last value goes, stays, and is then `value`.
    """

    kind: str
    path: Path
    value: Value = None
    key: str | None = None  # None: the container is a list
    text: str | None = None  # how the value is to be written


class Leaf(NamedTuple):
    """A whole value."""


LEAF = Leaf()


class Keys(NamedTuple):
    """A map. `each` is the shape of keys that are not `known`, None when they are nobody's business."""

    each: Any  # Shape | None
    known: Mapping[str, Any] = {}
    same: Callable[[str], str] = str  # what two spellings of one key have in common
    stays: bool = False  # also when it is empty

    def shape_of(self, key: str) -> Any:
        """The shape below a key, None for none."""
        return self.known.get(key, self.each)


class Listed(NamedTuple):
    """A list of items with names: `split` gives (name, content) or None, `join` makes an item of them.

    `inside` is the place of the content within the item: one more key, or () for the whole item.
    """

    split: Callable[[Any], tuple[str, Any] | None]
    join: Callable[[str, Any], Any]
    inside: Path
    shape: Any  # of the content
    stays: bool = False


_Changes: TypeAlias = Mapping[Slot, Value | Gone]


def slots_in(data: Any, shape: Any, above: Slot = ()) -> dict[Slot, Value]:
    """Every value that stands in a place of the shape."""
    if isinstance(shape, Leaf):
        return {above: data}
    found: dict[Slot, Value] = {}
    for head, content, _ in _members(data, shape):
        below = shape.shape_of(head) if isinstance(shape, Keys) else shape.shape
        if below is not None:
            found.update(slots_in(content, below, (*above, head)))
    return found


class Place(NamedTuple):
    """Where a value stands, or a container of values."""

    path: Path
    is_container: bool


def places_in(data: Any, shape: Any, above: Slot = (), path: Path = ()) -> dict[Slot, Place]:
    """The places of all values and of the containers above them; of several of one name the last."""
    if isinstance(shape, Leaf):
        return {above: Place(path, False)}
    if not isinstance(data, dict | list | None):
        return {}
    found = {above: Place(path, True)}
    for head, content, place in _members(data, shape):
        below = shape.shape_of(head) if isinstance(shape, Keys) else shape.shape
        if below is not None:
            found.update(places_in(content, below, (*above, head), (*path, *place)))
    return found


def _members(data: Any, shape: Keys | Listed) -> list[tuple[str, Any, Path]]:
    """(name, content, place) of what stands in a container; nothing for data of another kind."""
    if isinstance(shape, Keys):
        items = data.items() if isinstance(data, dict) else ()
        return [(shape.same(key), value, (key,)) for key, value in items if isinstance(key, str)]
    found = []
    for index, item in enumerate(data if isinstance(data, list) else ()):
        split = shape.split(item)
        if split is not None:
            found.append((split[0], split[1], (index, *shape.inside)))
    return found


def operations(
    data: Any, shape: Keys | Listed, changes: _Changes, spelled: Mapping[Slot, str], above: Slot = (), path: Path = ()
) -> list[Op]:
    """What the changes mean for the tree. Raises OutputError where something else stands in the way."""
    grouped: dict[str, dict[Slot, Value | Gone]] = {}
    for slot, value in changes.items():
        if not slot or (len(slot) < 2 and not isinstance(_below(shape, slot[0]), Leaf)):
            raise OutputError(f"'{excerpt('.'.join(slot))}' is no place for a value in this file.")
        grouped.setdefault(slot[0], {})[slot[1:]] = value
    members = _members(data, shape)
    if data is not None and not isinstance(data, list if isinstance(shape, Listed) else dict):
        raise OutputError(f"'{excerpt('.'.join(map(str, path)))}' holds another kind of value; take it out.")
    found: list[Op] = []
    for head, changed in grouped.items():
        below = _below(shape, head)
        places = [(content, place) for name, content, place in members if name == head]
        if not places:
            fresh = _fresh(below, changed)
            if fresh is not GONE:
                listed = isinstance(shape, Listed)
                value = shape.join(head, fresh) if isinstance(shape, Listed) else fresh
                found.append(Op("insert", path, value, None if listed else head))
        elif isinstance(below, Leaf):
            at = [(*path, *place) for _, place in places]
            found += _on_leaf(shape, head, changed[()], at, spelled.get((*above, head)))
        else:
            for index, (content, place) in enumerate(places):
                mine = {slot: value for slot, value in changed.items() if _belongs(slot, value, index, places, below)}
                if mine:
                    found += _inside(content, below, mine, (*path, *place), shape, spelled, (*above, head))
    n_gone = sum(op.kind == "delete" and len(op.path) == len(path) + 1 for op in found)
    if above in spelled and n_gone and n_gone == len(found) == len(data or ()):
        found.append(Op("empty", path, [] if isinstance(data, list) else {}, text=spelled[above]))
    return found


def _below(shape: Keys | Listed, head: str) -> Any:
    below = shape.shape_of(head) if isinstance(shape, Keys) else shape.shape
    if below is None:
        raise OutputError(f"'{excerpt(head)}' is no place for a value in this file.")
    return below


def _on_leaf(shape: Keys | Listed, head: str, value: Value | Gone, places: list[Path], text: str | None) -> list[Op]:
    if value is GONE:
        return [Op("delete", _item(place, shape)) for place in places]
    whole = isinstance(shape, Listed) and not shape.inside
    value = shape.join(head, value) if whole and isinstance(shape, Listed) else value
    return [Op("replace", places[-1], value, text=text)]


def _item(place: Path, shape: Keys | Listed) -> Path:
    """The whole item of a list, or the key's place in a map."""
    return place[: len(place) - len(shape.inside)] if isinstance(shape, Listed) else place


def _belongs(slot: Slot, value: Value | Gone, index: int, places: list[tuple[Any, Path]], below: Any) -> bool:
    """Whether a change concerns this one of several entries of one name: the last that has the value, or the last."""
    if len(places) == 1:
        return True
    having = [at for at, (content, _) in enumerate(places) if slot in slots_in(content, below)]
    return index in having if value is GONE else index == (having[-1] if having else len(places) - 1)


def _inside(
    content: Any,
    below: Any,
    changes: _Changes,
    path: Path,
    shape: Keys | Listed,
    spelled: Mapping[Slot, str],
    above: Slot,
) -> list[Op]:
    """Operations in a container; taking out its last value takes it out as a whole, unless it belongs to the file."""
    found = operations(content, below, changes, spelled, above, path)
    if above in spelled:
        return found
    n_gone = sum(op.kind == "delete" and len(op.path) == len(path) + 1 for op in found)
    n_named = 1 if isinstance(shape, Listed) and isinstance(content, dict) else 0  # the name stands among the values
    if not below.stays and n_gone and n_gone == len(found) == len(content) - n_named:
        return [Op("delete", _item(path, shape))]
    return found


def _fresh(shape: Any, changes: _Changes) -> Any:
    """New data of a shape from nothing but changes; GONE when they only take out."""
    if isinstance(shape, Leaf):
        return changes[()]
    ops = operations([] if isinstance(shape, Listed) else {}, shape, changes, {})
    return applied_to([] if isinstance(shape, Listed) else {}, ops) if ops else GONE


def applied_to(data: Any, ops: list[Op]) -> Any:
    """The data after the operations; the data itself is left as it is."""
    root = [copy.deepcopy(data)]
    deleted: list[tuple[Any, str | int]] = []
    emptied: list[tuple[Any, str | int, Value]] = []
    for op in ops:
        holder: Any = root
        at: str | int = 0
        for part in op.path:
            holder, at = holder[at], part
        if op.kind == "replace":
            holder[at] = op.value
        elif op.kind == "delete":
            deleted.append((holder, at))
        elif op.kind == "empty":
            emptied.append((holder, at, op.value))
        elif op.key is None:
            holder[at] = holder[at] if holder[at] is not None else []
            holder[at].append(op.value)
        else:
            holder[at] = holder[at] if holder[at] is not None else {}
            holder[at][op.key] = op.value
    for holder, at in sorted(deleted, key=lambda place: place[1] if isinstance(place[1], int) else 0, reverse=True):
        del holder[at]
    for holder, at, value in emptied:
        holder[at] = value
    return root[0]
