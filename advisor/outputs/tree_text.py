"""A tree of values with the places where they stand in a text, and edits of what is written in brackets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from advisor.errors import OutputError
from advisor.gguf_header.errors import excerpt
from advisor.outputs.shape import Op, Path, Place
from advisor.outputs.types import Slot
from advisor.records import NamedTuple

Splice = tuple[int, int, str]


class Node(NamedTuple):
    """A value from `start` to `end`. `entries` of a map or list."""

    kind: str  # "map", "list", "scalar", "alias"
    start: int
    end: int
    in_brackets: bool  # {...} or [...], not by indentation
    entries: tuple[Entry, ...] = ()


class Entry(NamedTuple):
    """A member of a container: from the beginning of its key, or of the item itself."""

    key: str | None
    start: int
    node: Node


class Container(NamedTuple):
    """What is to happen in one container."""

    node: Node
    deleted: set[int]  # indices of entries
    inserted: list[tuple[str | None, Any]]
    empty: list[str]  # what is to stand in its brackets when nothing else does any more; at most one


def find(root: Node, path: Path) -> tuple[Node, int, Node]:
    """(container, index of the entry, node) of a place. Raises OutputError where it is not written in the text."""
    holder, index, node = root, 0, root
    for part in path:
        holder = node
        index = next(
            (at for at, entry in enumerate(node.entries) if (at if node.kind == "list" else entry.key) == part), -1
        )
        if index < 0:
            raise OutputError(
                f"'{excerpt('.'.join(map(str, path)))}' is not written out where advisor could change it."
            )
        node = node.entries[index].node
    return holder, index, node


def spelled_places(text: str, root: Node, places: Mapping[Slot, Place]) -> dict[Slot, str]:
    """How the values at `places` stand in the text, and what is left of the containers when nothing is in them.

    What is not written out in the text is left out.
    """
    nodes: dict[Path, Node] = {}

    def walk(node: Node, path: Path) -> None:
        nodes[path] = node
        for index, entry in enumerate(node.entries):
            walk(entry.node, (*path, index if node.kind == "list" or entry.key is None else entry.key))

    walk(root, ())
    found = {}
    for slot, place in places.items():
        node = nodes.get(place.path)
        if node is None or node.kind == "alias":
            continue
        found[slot] = text[node.start : node.end]
        if place.is_container and node.entries:
            found[slot] = found[slot][0] + found[slot][-1] if node.in_brackets else ""
    return found


def containers(root: Node, ops: Sequence[Op]) -> list[Container]:
    """Deletions and insertions, by container, the inner ones first: what both add at one place is in that order."""
    found: dict[int, Container] = {}
    for op in ops:
        if op.kind == "delete":
            holder, index, _ = find(root, op.path)
            found.setdefault(holder.start, Container(holder, set(), [], [])).deleted.add(index)
        elif op.kind == "insert":
            node = find(root, op.path)[2]
            found.setdefault(node.start, Container(node, set(), [], [])).inserted.append((op.key, op.value))
        elif op.kind == "empty" and (op.text or "")[:1] in ("{", "["):
            node = find(root, op.path)[2]
            found[node.start].empty.append((op.text or "")[1:-1])
    return [found[start] for start in sorted(found, reverse=True)]


def edit_in_brackets(
    text: str, todo: Container, written: Callable[[str | None, Any, str], str], *, spread: bool
) -> list[Splice]:
    """Splices for a container in brackets.

    `written` gives a new entry from its key, value and the indentation of its line ("" when all is on one line). What
    stands between two entries is taken over for the new ones; `spread`: those of an empty container get lines of their
    own if the text has lines. Raises OutputError where a comment would be lost.
    """
    node, entries = todo.node, todo.node.entries
    splices: list[Splice] = []
    kept = [index for index in range(len(entries)) if index not in todo.deleted]
    last_kept = kept[-1] if kept else -1
    for index in sorted(todo.deleted):
        if index < last_kept:
            splices.append((entries[index].start, entries[index + 1].start, ""))
    tail_start = entries[last_kept].node.end if kept else node.start + 1
    tail_end = entries[-1].node.end if entries else node.start + 1
    if not kept and not todo.inserted:
        tail_end = node.end - 1
    added = "".join(todo.empty) if not todo.inserted else _added(text, todo, written, bool(kept), spread)
    if not kept and todo.inserted:
        tail_end = node.end - 1
    if tail_start != tail_end or added:
        splices.append((tail_start, tail_end, added))
    for start, end, _ in splices:
        if any(char != "," and not char.isspace() for char in _between(text, start, end, node)):
            line = text.count("\n", 0, start) + 1
            raise OutputError(f"a comment stands between the values to be changed at line {line}; change them by hand.")
    return splices


def _between(text: str, start: int, end: int, node: Node) -> str:
    """What a splice takes out besides entries."""
    parts = []
    at = start
    for entry in node.entries:
        if start <= entry.start and entry.node.end <= end:
            parts.append(text[at : entry.start])
            at = entry.node.end
    return "".join([*parts, text[at:end]])


def _added(
    text: str, todo: Container, written: Callable[[str | None, Any, str], str], after_others: bool, spread: bool
) -> str:
    """The new entries with what goes before, between and after them."""
    node, entries = todo.node, todo.node.entries
    newline = "\r\n" if "\r\n" in text else "\n"
    if entries:
        lead = text[node.start + 1 : entries[0].start]
        between = text[entries[-2].node.end : entries[-1].start] if len(entries) > 1 else "," + (lead or " ")
        if between.strip() != "," or "#" in lead:
            between, lead = ", ", ""
        tail = text[entries[-1].node.end : node.end - 1]
    else:
        outer = indent_of_line(text, node.start)
        if spread and ("\n" in text.strip() or text.strip() == text[node.start : node.end]):
            lead, tail = f"{newline}{outer}{step_of(text)}", f"{newline}{outer}"
        else:
            lead = tail = ""
        between = "," + (lead or (" " if ": " in text or ", " in text else ""))
    indent = between.rpartition("\n")[2] if "\n" in between else ""
    new = between.join(written(key, value, indent) for key, value in todo.inserted)
    return between + new if after_others else lead + new + tail


def indent_of_line(text: str, at: int) -> str:
    """The blanks at the beginning of the line that holds a place."""
    start = max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1
    return text[start : len(text) - len(text[start:].lstrip(" \t"))]


def step_of(text: str) -> str:
    """The first indentation of the text, two blanks without one."""
    for line in text.splitlines():
        blanks = line[: len(line) - len(line.lstrip(" \t"))]
        if blanks and line.strip():
            return blanks
    return "  "
