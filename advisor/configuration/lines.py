"""Where in a TOML text each key stands. The parser does not say, so the text is read a second time, line by line."""

from __future__ import annotations

from typing import Any, TypeAlias

import tomli

from advisor.records import NamedTuple

Path: TypeAlias = tuple[str | int, ...]  # of a value; a number counts the tables of an array
# whoever writes longer lists, or much longer ones all in all, gets no line numbers for what comes after
_LONGEST_VALUE = 500  # lines
_READ_AGAIN, _READ_AT_LEAST = 2, 200_000  # the text's length so many times, and characters


class Span(NamedTuple):
    """Lines `first` to `last`, counted from 1; `header` for [table] lines."""

    first: int
    last: int
    header: bool


def locate(text: str) -> dict[Path, Span]:
    """The lines of every key and table of a valid TOML text; tables in one line have that line."""
    spans: dict[Path, Span] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    lines = text.replace("\r\n", "\n").split("\n")  # a line that ends with a lone CR is none for the parser
    left = _READ_AGAIN * len(text) + _READ_AT_LEAST
    number = 0
    while number < len(lines):
        line = lines[number].strip()
        first = number
        number += 1
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            table = _header(line, counts)
            for end in range(1, len(table)):
                spans.setdefault(table[:end], Span(first + 1, first + 1, header=False))
            spans[table] = Span(first + 1, first + 1, header=True)
            continue
        for number in range(first + 1, min(first + _LONGEST_VALUE, len(lines)) + 1):
            value = "\n".join(lines[first:number])
            left -= len(value)
            if left < 0:
                return spans
            try:
                document = tomli.loads(value)
                break
            except tomli.TOMLDecodeError:
                continue
        else:
            return spans
        _add(document, table, Span(first + 1, number, header=False), spans)
    return spans


def line_of(spans: dict[Path, Span], path: Path) -> int | None:
    """The line of `path`, or of the table around it."""
    while path:
        if path in spans:
            return spans[path].first
        path = path[:-1]
    return None


def _header(line: str, counts: dict[Path, int]) -> Path:
    """The path of a [table] or [[table]] line; of an array, the table that is open."""
    value: Any = tomli.loads(line)
    path: Path = ()
    while value:
        (name,) = value
        value = value[name]
        path = (*path, name)
        if isinstance(value, list):
            counts[path] = counts.get(path, -1) + 1
            value = value[0]
        if path in counts:
            path = (*path, counts[path])
    return path


def _add(value: object, path: Path, span: Span, spans: dict[Path, Span]) -> None:
    if isinstance(value, dict):
        for name, item in value.items():
            spans.setdefault((*path, name), span)
            _add(item, (*path, name), span, spans)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict):
                spans.setdefault((*path, index), span)
                _add(item, (*path, index), span, spans)
