"""A YAML document as plain data and as places in its text. ruamel.yaml parses; nothing is ever written by it."""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from typing import Any

from advisor.errors import OutputError
from advisor.gguf_header.errors import excerpt
from advisor.outputs.base import MAX_DEPTH, too_deep
from advisor.outputs.tree_text import Entry, Node
from advisor.outputs.yaml_simple import Piece, read_simple
from advisor.records import NamedTuple

_MAX_NODES = 200_000  # aliases unfolded: a few lines of them can stand for billions
# lines, keys and values that ruamel reads, some 40 microseconds each; of a whole document twice
_MAX_INVOLVED = 14_000
_START = 8  # before ruamel reads anything
_MARK_WITHIN = re.compile(r"(?:^|[\r\n])\ufeff")
_WHOLE_COMMENT = re.compile(r"^[ \t]*#[^\r\n]*(?:\r\n?|\n|\Z)", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|(?<=[ \t]))#[^\r\n]*", re.MULTILINE)


class Document(NamedTuple):
    """`data` is not to be changed. `scalars` are the places of every key and scalar, in the order of the text."""

    data: Any
    root: Node | None  # None: nothing but comments
    scalars: tuple[tuple[int, int], ...]


@lru_cache(maxsize=4)  # an edit looks at the text before and after more than once
def document(text: str, title: str) -> Document:
    """Raises OutputError for text that is no single YAML document, or too large. `text` is without byte order mark."""
    stray = _MARK_WITHIN.search(text)
    if stray is not None:  # to libyaml and Go's readers it is nothing there, to Python's a letter of the key
        line = len(text[: stray.end()].splitlines())
        raise OutputError(
            f"this is no config of {title}: line {line} begins with a byte order mark (U+FEFF), which programs take in "
            "different ways; remove it."
        )
    left = _MAX_INVOLVED

    def involved(part: str) -> Document:
        nonlocal left
        whole = len(part) == len(text)
        left -= 2 * _weight(part) if whole else _weight(part) + _START
        if left < 0:
            raise _TooInvolved
        return by_ruamel(part) if whole else piece(part)

    try:
        simple = read_simple(text, lambda part: Piece(*involved(part)), _TooInvolved)
        return Document(*simple) if simple is not None else involved(text)
    except OutputError:
        raise
    except (_TooDeep, RecursionError):
        raise too_deep(title) from None
    except _TooInvolved:
        raise OutputError(
            f"this is no config of {title} that advisor changes: it holds more than {_MAX_INVOLVED // 2:,} lines and "
            "values that are not written in the plainest way; split it or give another file."
        ) from None
    except Exception as error:  # ruamel raises errors of many kinds on broken text, int one for many digits
        reason = " ".join(str(error).split()) or type(error).__name__
        raise OutputError(f"this is no config of {title}: {excerpt(reason)}; correct it.") from None


class _TooInvolved(Exception):  # noqa: N818 - told as an OutputError
    """More than ruamel reads in half a second."""


class _TooDeep(Exception):  # noqa: N818 - told as an OutputError
    """More lists and maps in each other than MAX_DEPTH."""


def _weight(text: str) -> int:
    """What ruamel takes its time for: lines that are no comments, and marks between keys and values."""
    bare = _WHOLE_COMMENT.sub("", text) if "#" in text else text
    return sum(map(bare.count, "\n[{,:}?&*!")) - bare.count("\n\n") + 1


@lru_cache(maxsize=2000)  # an edit changes one of many
def piece(text: str) -> Document:
    """`by_ruamel`, remembered: one entry of a document."""
    return by_ruamel(text)


def by_ruamel(text: str) -> Document:
    """The same without a short way. Raises whatever ruamel does, and OutputError."""
    from ruamel.yaml import YAML

    from advisor.outputs.yaml_depth import scanner

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yaml = YAML(typ="safe", pure=True)
        yaml.Scanner = scanner(MAX_DEPTH, _TooDeep)
        constructor, _ = yaml.get_constructor_parser(text)
        node = constructor.composer.get_single_node()
        if node is None:
            return Document({}, None, ())
        _count(node, {})
        places = _Places(text)
        root = places.node(node, -1)
        data = constructor.construct_document(node)
    if data is None:
        return Document({}, None, ())
    return Document(data, root, tuple(sorted(places.scalars)))


def _count(node: Any, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """(nodes below and with `node`, how deep they lie in each other), aliases unfolded.

    Raises OutputError for too many and for circles, _TooDeep.
    """
    if id(node) in known:
        if not known[id(node)][0]:
            raise OutputError("the YAML holds an alias to what it stands in; write it out.")
        return known[id(node)]
    if node.id == "scalar":
        return 1, 0
    known[id(node)] = 0, 0
    below = [child for pair in node.value for child in pair] if node.id == "mapping" else node.value
    total, depth = 1, 0
    for child in below:
        n_nodes, n_deep = _count(child, known)
        total, depth = total + n_nodes, max(depth, n_deep)
    if total > _MAX_NODES:
        raise OutputError("the YAML is larger than any config; give another file.")
    if depth >= MAX_DEPTH:
        raise _TooDeep
    known[id(node)] = total, depth + 1
    return known[id(node)]


class _Places:
    """Nodes of ruamel to ours."""

    def __init__(self, text: str) -> None:
        self.text, self.scalars = text, list[tuple[int, int]]()

    def node(self, node: Any, after: int) -> Node:
        """`after`: where the key or bracket before it begins. What begins earlier is an alias."""
        start, end = node.start_mark.index, node.end_mark.index
        if start < after:
            return Node("alias", after, after, False)
        if node.id == "scalar":
            end = start + len(self.text[start:end].rstrip()) if node.style in ("|", ">") else end
            self._add_scalar(start, end, node.style)
            return Node("scalar", start, end, False)
        entries = self._entries(node)
        in_brackets = bool(node.flow_style)
        if in_brackets:  # behind an anchor or a tag
            start = self.text.index("{" if node.id == "mapping" else "[", start)
        end = end if in_brackets else max((entry.node.end for entry in entries), default=end)
        return Node("map" if node.id == "mapping" else "list", start, end, in_brackets, tuple(entries))

    def _add_scalar(self, start: int, end: int, style: str | None) -> None:
        comment = _COMMENT.search(self.text, start, end) if style in ("|", ">") else None
        first_line = re.search(r"[\r\n]", self.text[start:end])
        if comment is not None and first_line is not None and comment.start() < start + first_line.start():
            self.scalars += [(start, comment.start()), (comment.end(), end)]
        else:
            self.scalars.append((start, end))

    def _entries(self, node: Any) -> list[Entry]:
        found = []
        for child in node.value:
            if node.id == "mapping":
                name, content = child
                first = name.start_mark.index
                below = self.node(content, name.end_mark.index)
                if below.kind == "scalar" and below.start == below.end:  # no value: its place is behind the colon
                    colon = self.text.find(":", name.end_mark.index) + 1 or name.end_mark.index
                    below = below._replace(start=colon, end=colon)
                found.append(Entry(str(name.value), first, below))
                self.scalars.append((first, name.end_mark.index))
                continue
            below = self.node(child, found[-1].node.end if found else node.start_mark.index)
            first = below.start
            if not node.flow_style:
                first = len(self.text[:first].rstrip()) - 1  # the dash
            found.append(Entry(None, first, below))
        return found


def comments(text: str, scalars: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
    """Places of the comments of a document."""
    found = []
    index = 0
    for match in _COMMENT.finditer(text):
        while index < len(scalars) and scalars[index][1] <= match.start():
            index += 1
        if index == len(scalars) or match.start() < scalars[index][0]:
            found.append(match.span())
    return found
