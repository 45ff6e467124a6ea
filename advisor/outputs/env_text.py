r"""Environment files as systemd reads them (EnvironmentFile=), byte for byte.

Format facts: systemd.exec(5) and systemd's env-file.c (252 to 257): `#` and `;` begin a comment at the beginning of a
line only; single quotes hold everything, double quotes know \" \\ \` \$; outside quotes a backslash takes the
next character as it is, before a line end it joins the lines; blanks around an unquoted value go.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

from advisor.errors import OutputError
from advisor.gguf_header.errors import excerpt
from advisor.outputs.line_text import Grammar, Row, lines_of
from advisor.outputs.types import Slot, Value

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_ESCAPED = '"\\`$'


def scan(text: str) -> list[Row]:
    """Rows of an environment file. Raises OutputError for what no assignment is, and for open quotes."""
    rows = []
    at = 0
    lines = lines_of(text)
    stops = [stop for _, stop, _ in lines]
    for start, stop, end in lines:
        if start < at:  # inside a value of several lines
            continue
        line = text[start:stop]
        bare = line.lstrip(" \t")
        if not bare or bare[0] in "#;":
            if bare.endswith("\\"):  # before systemd 254 it goes on in the next line
                raise OutputError(f"the comment '{excerpt(line)}' ends in a backslash; take that away.")
            rows.append(Row(start, end, ()))
            continue
        name, equals, _ = line.partition("=")
        if not equals or not _NAME.fullmatch(name.strip(" \t")):
            raise OutputError(f"'{excerpt(line)}' is no NAME=VALUE of an environment file; correct that line.")
        first = start + len(name) + 1
        first += len(text[first:stop]) - len(text[first:stop].lstrip(" \t"))
        value, last = _value(text, first)
        at = lines[min(bisect_left(stops, last), len(lines) - 1)][2]  # a backslash may go on behind the last line
        rows.append(Row(start, at, (), False, (name.strip(" \t"),), name.strip(" \t"), value, first, last))
    return rows


def _value(text: str, at: int) -> tuple[str, int]:
    """(value, place after it) of what begins at `at`."""
    found: list[str] = []
    state, n_kept, end = "before", 0, at  # n_kept: characters that are no blanks at the end of an unquoted part
    while at < len(text):
        char = text[at]
        following = text[at + 1 : at + 2]
        if state in "\"'":
            if char == state:
                state, n_kept, end = "before", len(found), at + 1
            elif char == "\\" and state == '"' and following:
                found += [] if following == "\n" else [following] if following in _ESCAPED else [char, following]
                at += 1
            else:
                found.append(char)
        elif char in "\r\n":
            break
        elif char in "\"'" and state == "before":
            state = char
        elif char == "\\" and following:
            found += [] if following in "\r\n" else [following]
            at += 2 if text[at + 1 : at + 3] == "\r\n" else 1
            state, n_kept, end = "inside", len(found), at + 1
        elif char not in " \t":
            found.append(char)
            state, n_kept, end = "inside", len(found), at + 1
        elif state == "inside":
            found.append(char)
        at += 1
    if state in "\"'":
        raise OutputError("a quote in the environment file is not closed; close it.")
    return "".join(found[:n_kept]), end


def quoted(value: Value, name: str) -> str:
    """A value as an environment file carries it. Raises OutputError."""
    if not isinstance(value, str) or not value.isprintable():
        raise OutputError(f"{excerpt(name)} '{excerpt(str(value))}' holds what an environment file cannot; rename it.")
    if not value or _PLAIN.fullmatch(value):
        return value
    return '"' + "".join(f"\\{char}" if char in _ESCAPED else char for char in value) + '"'


def _new_line(slot: Slot, value: Value) -> str:
    if len(slot) != 1 or not _NAME.fullmatch(slot[0]):
        raise OutputError(f"'{excerpt('.'.join(slot))}' is no name of a variable.")
    return f"{slot[0]}={quoted(value, slot[0])}"


def _new_value(row: Row, value: Value, old: str) -> str:
    new = quoted(value, row.spelling)
    if old[:1] == "'" and "'" not in value:
        return f"'{value}'"
    return f'"{new}"' if old[:1] == '"' and not new.startswith('"') else new


def _winners(rows: Sequence[Row]) -> dict[Slot, Row]:
    return {row.slot: row for row in rows if row.slot is not None}


GRAMMAR = Grammar(scan, _winners, _new_line, _new_value, lambda _: "", lambda _: ())
