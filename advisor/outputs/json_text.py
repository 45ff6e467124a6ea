"""JSON, byte for byte: places of values, edits, and the check that nothing else changed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from advisor.errors import OutputError
from advisor.gguf_header.errors import excerpt
from advisor.outputs.base import check_depth, identity, too_deep, unsafe
from advisor.outputs.line_text import spliced
from advisor.outputs.shape import Keys, Listed, applied_to, operations, places_in
from advisor.outputs.tree_text import Entry, Node, Splice, containers, edit_in_brackets, find, spelled_places, step_of
from advisor.outputs.types import Gone, Slot, Value

_BLANK = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r"[^\s,\]}]+")


def data_of(text: str, title: str) -> Any:
    """The document. Raises OutputError for text that is no JSON, and for keys that stand twice in an object."""
    try:
        data = json.loads(text, object_pairs_hook=_unique)
    except RecursionError:
        raise too_deep(title) from None
    except ValueError as error:
        raise OutputError(f"this is no config of {title}: {excerpt(str(error))}; correct it.") from None
    check_depth(data, title)
    return data


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return dict(pairs)


def nodes_of(text: str) -> Node:
    """The places of the values of a document that `data_of` takes."""
    return _node(text, _skip(text, 0))


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _node(text: str, start: int) -> Node:
    if text[start] not in "{[":
        if text[start] == '"':  # not an expression, which takes a hundred bytes for each escape
            return Node("scalar", start, scanstring(text, start + 1)[1], False)
        match = _SCALAR.match(text, start)
        return Node("scalar", start, match.end() if match else start, False)
    kind, closing = ("map", "}") if text[start] == "{" else ("list", "]")
    entries = []
    at = _skip(text, start + 1)
    while text[at] != closing:
        first, key = at, None
        if kind == "map":
            key, end = scanstring(text, at + 1)
            at = _skip(text, _skip(text, end) + 1)
        node = _node(text, at)
        entries.append(Entry(key, first, node))
        at = _skip(text, node.end)
        at = _skip(text, at + 1) if text[at] == "," else at
    return Node(kind, start, at + 1, True, tuple(entries))


def written(value: Value, indent: str = "", step: str = "  ", newline: str = "\n") -> str:
    """A value as JSON; containers over several lines when `indent`, that of their first line, is not empty."""
    if not indent or not isinstance(value, dict | list) or not value:
        return _escaped(_dumps(value))
    inner = indent + step
    if isinstance(value, list):
        if not any(isinstance(item, dict | list) for item in value):
            return _escaped(_dumps(value))
        lines = [written(item, inner, step, newline) for item in value]
    else:
        lines = [f"{written(key)}: {written(item, inner, step, newline)}" for key, item in value.items()]
    opening, closing = "[]" if isinstance(value, list) else "{}"
    return f"{opening}{newline}{inner}" + f",{newline}{inner}".join(lines) + f"{newline}{indent}{closing}"


def _dumps(value: Value) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:  # 1e400 is read as infinite
        raise OutputError("a number in this file is too large to be written back; change it by hand.") from None


def _escaped(text: str) -> str:
    """JSON with everything invisible escaped: marks that turn the direction of text do not belong in a config."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def spelled_json(text: str, shape: Keys | Listed, title: str) -> dict[Slot, str]:
    """See Output.spelled. Raises OutputError."""
    return spelled_places(text, nodes_of(text), places_in(data_of(text, title), shape))


def edit_json(
    text: str, changes: Mapping[Slot, Value | Gone], shape: Keys | Listed, title: str, spelled: Mapping[Slot, str]
) -> str:
    """`text` with the changes and every other byte as it was. Raises OutputError where that cannot be done."""
    data = data_of(text, title)
    ops = operations(data, shape, changes, spelled)
    root = nodes_of(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    splices: list[Splice] = []
    for op in ops:
        if op.kind == "replace":
            node = find(root, op.path)[2]
            splices.append((node.start, node.end, written(op.value) if op.text is None else op.text))

    def entry(key: str | None, value: Any, indent: str) -> str:
        return ("" if key is None else f"{written(key)}: ") + written(value, indent, step_of(text), newline)

    for todo in containers(root, ops):
        if todo.node.kind == "scalar":
            line = text.count("\n", 0, todo.node.start) + 1
            raise OutputError(f"line {line} holds null where values belong; take it out.")
        splices += edit_in_brackets(text, todo, entry, spread=True)
    after = spliced(text, splices)
    if identity(data_of(after, title)) != identity(applied_to(data, ops)):
        raise unsafe(changes, "the text would then say something else")
    return after
