"""YAML, byte for byte: single values set and taken out in the text itself, and the check that nothing else changed."""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_right
from collections.abc import Mapping
from functools import partial
from typing import Any

from advisor.errors import OutputError
from advisor.outputs.base import identity, unsafe
from advisor.outputs.line_text import lines_of, newline_of, spliced, with_open_end
from advisor.outputs.shape import Keys, Listed, Op, applied_to, operations, places_in
from advisor.outputs.tree_text import (
    Container,
    Node,
    Splice,
    containers,
    edit_in_brackets,
    find,
    spelled_places,
    step_of,
)
from advisor.outputs.types import Gone, Slot, Value
from advisor.outputs.yaml_nodes import Document, comments, document
from advisor.outputs.yaml_scalars import block, entry, in_brackets, key, scalar

_BLANKS = re.compile(" *")
_BLOCK_HEAD = re.compile(r"([|>][-+0-9]*)([ \t]+#[^\r\n]*)")
_BLOCK_MARK = re.compile(r"[|>][-+0-9]*(?=[\r\n])")
_OPEN_HEAD = re.compile(r"\A([|>][1-9]?)\+?(?=[\r\n])")
_ANCHORED = "it holds an anchor, an alias or a tag"


def data_of(text: str, title: str) -> Any:
    """The document, not to be changed; an empty one is an empty map. Raises OutputError."""
    return document(text, title).data


def spelled_yaml(text: str, shape: Keys | Listed, title: str) -> dict[Slot, str]:
    """See Output.spelled; the mark of a text in lines is without the comment behind it. Raises OutputError."""
    root = document(text, title).root
    if root is None:
        return {}
    found = spelled_places(text, root, places_in(data_of(text, title), shape))
    return {slot: _BLOCK_HEAD.sub(r"\1", value, count=1) for slot, value in found.items()}


def edit_yaml(
    text: str, changes: Mapping[Slot, Value | Gone], shape: Keys | Listed, title: str, spelled: Mapping[Slot, str]
) -> str:
    """`text` with the changes and every other byte as it was. Raises OutputError where that cannot be done."""
    expected = applied_to(data_of(text, title), _operations(document(text, title), shape, changes, spelled))
    # a text in lines that ended with the file had no line end; with something behind it, "-" says so
    without_end = {slot: _OPEN_HEAD.sub(r"\1-", written) for slot, written in spelled.items()}
    for some in (spelled,) if without_end == spelled else (spelled, without_end):
        after = with_open_end(text, partial(_edited, title=title, changes=changes, shape=shape, spelled=some))
        with contextlib.suppress(OutputError):
            if identity(data_of(after, title)) == identity(expected):
                return after
    raise unsafe(changes, "the text would then say something else")


def _edited(
    text: str, title: str, changes: Mapping[Slot, Value | Gone], shape: Keys | Listed, spelled: Mapping[Slot, str]
) -> str:
    return _Edit(text, title).done(changes, shape, spelled)


def _operations(
    parsed: Document, shape: Keys | Listed, changes: Mapping[Slot, Value | Gone], spelled: Mapping[Slot, str]
) -> list[Op]:
    ops = operations(parsed.data, shape, changes, spelled)
    root = parsed.root
    if root is None:
        return ops
    # by indentation a key without a value is left
    return [
        op._replace(value=None) if op.kind == "empty" and op.path and not find(root, op.path)[2].in_brackets else op
        for op in ops
    ]


class _Edit:
    def __init__(self, text: str, title: str) -> None:
        self.text, self.newline = text, newline_of(text)
        self.document = document(text, title)
        self.comments = comments(text, self.document.scalars)
        self.lines = lines_of(text)
        self.starts = [line[0] for line in self.lines]

    def done(self, changes: Mapping[Slot, Value | Gone], shape: Keys | Listed, spelled: Mapping[Slot, str]) -> str:
        ops = _operations(self.document, shape, changes, spelled)
        root = self.document.root
        if root is None:
            added = "".join(entry(op.key, op.value, "", self.newline) for op in ops)
            return self.text + added
        splices: list[Splice] = []
        for op in ops:
            if op.kind == "replace":
                holder, _, node = find(root, op.path)
                splices.append(self._replaced(node, op.value, holder, op.text))
        for todo in containers(root, ops):
            if todo.node.in_brackets:
                splices += edit_in_brackets(self.text, todo, _in_brackets, spread=False)
            elif todo.node.kind == "scalar":
                splices.append(self._filled(todo, root))
            else:
                splices += self._in_block(todo)
        return spliced(self.text, splices)

    def _refuse(self, at: int, why: str) -> OutputError:
        line = bisect_right(self.starts, at)
        return OutputError(f"line {line} cannot be changed safely: {why}; change it by hand.")

    def _replaced(self, node: Node, value: Value, holder: Node, spelled: str | None) -> Splice:
        old = self.text[node.start : node.end]
        line = self._line_of(node.start)
        if node.kind == "alias" or old[:1] in tuple("&*!"):
            raise self._refuse(node.start, _ANCHORED)
        head = _BLOCK_HEAD.match(old)  # "|" with a comment behind it, which stays
        behind = head[2] if head else ""
        within = [start for start, _ in self.comments if node.start <= start < node.end]
        if len(within) > bool(behind):
            raise self._refuse(within[-1], "a comment stands within the value")
        rest = self.text[node.end : self._line_of(node.end)[1]]
        if spelled is not None:
            return self._spelled(node, spelled, behind or (rest if rest.lstrip().startswith("#") else ""))
        new = None
        if not holder.in_brackets and not rest.strip():
            new = block(value, self._indent(line[0]), self.newline, behind)
        new = new or (scalar(value, old) if not isinstance(value, dict | list) else in_brackets(value)) + behind
        return node.start, node.end, new if old or self.text[node.start - 1 : node.start] != ":" else f" {new}"

    def _spelled(self, node: Node, spelled: str, comment: str) -> Splice:
        """A value as it was written, before the comment that stands behind it now."""
        start, end = node.start, node.end
        if not spelled and self.text[start - 1 : start] == " ":  # the blank that came with a value where none was
            start -= 1
        mark = _BLOCK_MARK.match(spelled)
        if mark is None:
            return start, end, spelled + (comment if self.text[start:end].startswith(("|", ">")) else "")
        if not self.text[start:end].startswith(("|", ">")):
            end += len(comment)
        return start, end, mark[0] + comment + spelled[mark.end() :]

    def _filled(self, todo: Container, root: Node) -> Splice:
        """New entries below a key that has no value yet."""
        if todo.node.start != todo.node.end or todo.node is root:
            raise self._refuse(todo.node.start, "it holds a single value where a map belongs")
        start, _, end = self._line_of(max(todo.node.start - 1, 0))
        indent = self._indent(start) + step_of(self.text)
        return end, end, "".join(entry(name, value, indent, self.newline) for name, value in todo.inserted)

    def _in_block(self, todo: Container) -> list[Splice]:
        entries = todo.node.entries
        if todo.node.kind == "alias" or not entries:
            raise self._refuse(todo.node.start, _ANCHORED)
        splices: list[Splice] = []
        for index in todo.deleted:
            splices += self._without(entries[index].start, entries[index].node.end)
        if todo.inserted:
            start = self._line_of(entries[0].start)[0]
            indent = " " * (entries[0].start - start)
            end = self._line_of(max(entries[-1].node.end - 1, 0))[2]
            added = "".join(entry(name, value, indent, self.newline) for name, value in todo.inserted)
            splices.append((end, end, added))
        return splices

    def _without(self, start: int, end: int) -> list[Splice]:
        """The lines from `start` to `end` taken out; their comments and the blank lines between them stay."""
        splices = []
        for first, stop, after in self.lines:
            if after <= start or first >= max(end, start + 1):
                continue
            if first <= start and self.text[first:start].strip():
                raise self._refuse(start, "something else stands in it")
            comment = next((place for place in self.comments if first <= place[0] < after), None)
            content = self.text[first : comment[0] if comment else stop]
            if not content.strip() and not self._in_scalar(first):
                continue
            kept = ""
            if comment is not None:
                kept = self._indent(first) + self.text[comment[0] : after]
            splices.append((first, after, kept))
        return splices

    def _in_scalar(self, at: int) -> bool:
        return any(start <= at < end for start, end in self.document.scalars)

    def _line_of(self, at: int) -> tuple[int, int, int]:
        """The line that holds a place."""
        return self.lines[bisect_right(self.starts, at) - 1]

    def _indent(self, line_start: int) -> str:
        match = _BLANKS.match(self.text, line_start)
        return match[0] if match else ""


def _in_brackets(name: str | None, value: Any, _indent: str) -> str:
    return ("" if name is None else f"{key(name)}: ") + in_brackets(value)
