"""Plain YAML read at once: maps by indentation with values on one line, as config files mostly are.

ruamel takes half a second for the thousand models of a large config, this a tenth of it. What is not of the plainest
kind is left to ruamel: one entry of the two upper levels alone, or the whole document. A test holds that both agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from advisor.outputs.base import MAX_DEPTH
from advisor.outputs.tree_text import Entry, Node
from advisor.outputs.yaml_scalars import MAX_KEY, is_plain
from advisor.records import NamedTuple

_LINE = re.compile(r"[^\n]*\n|[^\n]+\Z")
_PLAIN = r"[A-Za-z_/][A-Za-z0-9_./\\$-]*"
_QUOTED = r'"[^"\\]*"'
_KEY = re.compile(rf" *({_PLAIN}|{_QUOTED}):(?: +(?=\S)|(?=\s*\Z))")
_VALUE = re.compile(rf"(?:({_PLAIN}|{_QUOTED}|-?(?:0|[1-9][0-9]*))|(\{{.*\}}|\[.*\]))(?: +#.*)?")
_BLOCK = re.compile(r"\|-")
_MEMBER = re.compile(rf" ?(?:({_PLAIN}|{_QUOTED}): )?({_PLAIN}|{_QUOTED}|-?(?:0|[1-9][0-9]*))(?:,(?=.)|\Z)")
_WORDS = {"true": True, "false": False, "null": None}
_WHOLE_LEVELS = 2  # entries of so many levels are left to ruamel one by one


class Piece(NamedTuple):
    """Part of a document: its data, its node and the places of its keys and scalars."""

    data: Any
    node: Node | None
    scalars: tuple[tuple[int, int], ...]


class _Complex(Exception):  # noqa: N818 - no error
    """Not of the plainest kind."""


class _Unreadable(Exception):  # noqa: N818 - no error
    """Nothing that could be read in pieces."""


def read_simple(text: str, by_ruamel: Callable[[str], Piece], enough: type[Exception] | tuple[()] = ()) -> Piece | None:
    """The document, None where that has to be left to ruamel as a whole.

    `by_ruamel` reads one entry of a map as a document of its own; whatever it raises means the whole is its, but for
    `enough`, which is passed on.
    """
    if "\t" in text or "\r" in text.replace("\r\n", "") or re.search(r"^(?:%|\.\.\.)", text, re.MULTILINE):
        return None
    try:
        return _Reader(text, by_ruamel, enough).document()
    except (_Complex, _Unreadable):
        return None


class _Reader:
    def __init__(self, text: str, by_ruamel: Callable[[str], Piece], enough: type[Exception] | tuple[()]) -> None:
        self.text, self.by_ruamel, self.enough = text, by_ruamel, enough
        self.starts, self.contents, self.indents = list[int](), list[str](), list[int]()
        for match in _LINE.finditer(text):
            content = match[0].rstrip()
            bare = content.lstrip(" ")
            self.starts.append(match.start())
            self.contents.append(content)
            self.indents.append(-1 if not bare or bare[0] == "#" else len(content) - len(bare))  # -1: says nothing
        self.starts.append(len(text))
        self.scalars: list[tuple[int, int]] = []

    def document(self) -> Piece:
        first = next((at for at, indent in enumerate(self.indents) if indent >= 0), len(self.contents))
        if first < len(self.contents) and self.contents[first] == "---":
            self.indents[first] = -1
        if any(content.startswith("---") and self.indents[at] >= 0 for at, content in enumerate(self.contents)):
            raise _Unreadable
        if all(indent < 0 for indent in self.indents):
            raise _Unreadable
        data, entries = self.entries(0, len(self.contents), 0, 1)
        self.scalars.sort()
        return Piece(data, _map(entries), tuple(self.scalars))

    def entries(self, first: int, stop: int, indent: int, level: int) -> tuple[dict[str, Any], list[Entry]]:
        """The map whose keys stand at `indent` in these lines."""
        if level > MAX_DEPTH:
            raise _Unreadable
        heads = [at for at in range(first, stop) if self.indents[at] == indent]
        if not heads or any(0 <= self.indents[at] < indent for at in range(first, stop)):
            raise _Complex
        if any(self.indents[at] >= 0 for at in range(first, heads[0])):
            raise _Complex
        data: dict[str, Any] = {}
        found = []
        for head, end in zip(heads, [*heads[1:], stop], strict=True):
            n_scalars = len(self.scalars)
            try:
                key, value, entry = self.entry(head, end, indent, level)
            except _Complex:
                if level > _WHOLE_LEVELS:
                    raise
                del self.scalars[n_scalars:]
                key, value, entry = self.left_to_ruamel(head, end)
            if key in data:
                raise _Unreadable
            data[key] = value
            found.append(entry)
        return data, found

    def entry(self, head: int, end: int, indent: int, level: int) -> tuple[str, Any, Entry]:
        content, start = self.contents[head], self.starts[head]
        match = _KEY.match(content)
        if match is None or len(match[1]) > MAX_KEY:
            raise _Complex
        key = _scalar(match[1])
        if not isinstance(key, str):
            raise _Complex
        at = start + match.start(1)
        self.scalars.append((at, start + match.end(1)))
        rest = content[match.end() :]
        below = [line for line in range(head + 1, end) if self.indents[line] >= 0]
        if not rest:
            if not below or self.indents[below[0]] <= indent:
                raise _Complex
            value, entries = self.entries(head + 1, end, self.indents[below[0]], level + 1)
            return key, value, Entry(key, at, _map(entries))
        if _BLOCK.fullmatch(rest):
            return key, *self.block(head, end, indent, at, start + match.end())
        if below:
            raise _Complex
        value, node = self.value(rest, start + match.end())
        return key, value, Entry(key, at, node)

    def block(self, head: int, end: int, indent: int, at: int, start: int) -> tuple[str, Entry]:
        """A text of several lines without an end; its lines are all there is till the next key."""
        lines = self.contents[head + 1 : end]
        margin = len(lines[0]) - len(lines[0].lstrip(" ")) if lines else 0
        blanks = " " * margin
        if margin <= indent or not all(line.startswith(blanks) and line != blanks for line in lines):
            raise _Complex
        whole = self.text[self.starts[head + 1] : self.starts[end]]
        if any(line.endswith(" ") for line in whole.replace("\r\n", "\n").split("\n")) or not whole.isascii():
            raise _Complex
        stop = self.starts[end - 1] + len(self.contents[end - 1])
        self.scalars.append((start, stop))
        node = Node("scalar", start, stop, False)
        return "\n".join(line[margin:] for line in lines), Entry(_name(self.text, at), at, node)

    def value(self, rest: str, start: int) -> tuple[Any, Node]:
        match = _VALUE.fullmatch(rest)
        if match is None:
            raise _Complex
        if match[1] is not None:
            self.scalars.append((start, start + len(match[1])))
            return _scalar(match[1]), Node("scalar", start, start + len(match[1]), False)
        return self.brackets(match[2], start)

    def brackets(self, written: str, start: int) -> tuple[Any, Node]:
        """A map or list on one line, of scalars only."""
        is_map, inner = written[0] == "{", written[1:-1]
        data: Any = {} if is_map else []
        entries, at = [], 0
        while at < len(inner):
            match = _MEMBER.match(inner, at)
            if match is None or (match[1] is not None) != is_map or match.end() == at:
                raise _Complex
            first, last = (start + 1 + place for place in match.span(2))
            node = Node("scalar", first, last, False)
            if is_map:
                key = _scalar(match[1])
                if not isinstance(key, str) or key in data:
                    raise _Complex
                data[key] = _scalar(match[2])
                place = start + 1 + match.start(1)
                self.scalars.append((place, start + 1 + match.end(1)))
                entries.append(Entry(key, place, node))
            else:
                data.append(_scalar(match[2]))
                entries.append(Entry(None, first, node))
            self.scalars.append((first, last))
            at = match.end()
        return data, Node("map" if is_map else "list", start, start + len(written), True, tuple(entries))

    def left_to_ruamel(self, head: int, end: int) -> tuple[str, Any, Entry]:
        start = self.starts[head]
        text = self.text[start : self.starts[end]]
        if any(mark in text for mark in "&*!"):  # what an anchor holds can be meant elsewhere
            raise _Unreadable
        try:
            piece = self.by_ruamel(text)
        except self.enough:
            raise
        except Exception:
            raise _Unreadable from None
        if piece.node is None or len(piece.node.entries) != 1 or not isinstance(piece.data, dict):
            raise _Unreadable
        if any(first == last for first, last in piece.scalars):  # its place is where the next one begins
            raise _Unreadable
        ((key, value),) = piece.data.items()
        if not isinstance(key, str) or piece.node.in_brackets:
            raise _Unreadable
        self.scalars += [(first + start, last + start) for first, last in piece.scalars]
        return key, value, _moved(piece.node.entries[0], start)


def _moved(entry: Entry, by: int) -> Entry:
    node = entry.node
    moved = node._replace(
        start=node.start + by, end=node.end + by, entries=tuple(_moved(each, by) for each in node.entries)
    )
    return Entry(entry.key, entry.start + by, moved)


def _map(entries: list[Entry]) -> Node:
    return Node("map", entries[0].start, max(entry.node.end for entry in entries), False, tuple(entries))


def _name(text: str, at: int) -> str:
    match = _KEY.match(text, at)
    return str(_scalar(match[1])) if match else ""


def _scalar(written: str) -> Any:
    """The value of a scalar on one line. Raises _Complex for one that readers may take in several ways."""
    if written[0] == '"':
        if not written.isprintable():
            raise _Complex
        return written[1:-1]
    if written in _WORDS:
        return _WORDS[written]
    if written[0] in "-0123456789":
        return int(written)
    if not is_plain(written):
        raise _Complex
    return written
