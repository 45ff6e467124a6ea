"""TOML of simple keys in tables, byte for byte; the result of an edit is held against a whole parse.

Values over several lines, inline tables and dotted keys are read, and refused when they would have to be changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import tomli

from advisor.errors import OutputError
from advisor.gguf_header.errors import excerpt
from advisor.outputs.base import MAX_VALUES, check_depth, too_deep, too_large
from advisor.outputs.line_text import Grammar, Row, lines_of
from advisor.outputs.types import Slot, Value

_MAX_LINE = 1 << 16  # a longer one holds nothing of ours, and expressions take a hundred bytes for each escape
_BARE = r"[A-Za-z0-9_-]+"
_HEADER = re.compile(rf"[ \t]*\[[ \t]*({_BARE}(?:[ \t]*\.[ \t]*{_BARE})*)[ \t]*\][ \t]*(#.*)?")
_KEY = re.compile(rf"[ \t]*({_BARE})[ \t]*=[ \t]*(\"[^\"\\]*(?:\\.[^\"\\]*)*\"|'[^']*'|[A-Za-z0-9+._:-]+)[ \t]*(#.*)?")


def data_of(text: str, title: str) -> dict[str, Any]:
    """The whole document. Raises OutputError for text that is no TOML."""
    if sum(map(text.count, "...[{,=\n")) > MAX_VALUES:  # each dot of a key is a table, of a kilobyte to the parser
        raise too_large(title)
    try:
        data = tomli.loads(text)
    except RecursionError:
        raise too_deep(title) from None
    except ValueError as error:  # TOMLDecodeError is one, as int's for many digits
        raise OutputError(f"this is no config of {title}: {excerpt(str(error))}; correct it.") from None
    check_depth(data, title)
    return data


def leaves(data: Mapping[str, Any], above: Slot = ()) -> dict[Slot, Value]:
    """Every value below tables, by its path; lists are values."""
    found: dict[Slot, Value] = {}
    for key, value in data.items():
        found.update(leaves(value, (*above, key)) if isinstance(value, dict) else {(*above, key): value})
    return found


def _scan(text: str) -> list[Row]:
    rows: list[Row] = []
    section: tuple[str, ...] = ()
    for start, stop, end in lines_of(text):
        line = text[start:stop]
        short = len(line) <= _MAX_LINE
        header, key = (_HEADER.fullmatch(line), _KEY.fullmatch(line)) if short else (None, None)
        if header is not None:
            section = tuple(part.strip() for part in header[1].split("."))
            rows.append(Row(start, end, section, is_header=True, comment=header[2] or ""))
        elif line.lstrip(" \t").startswith("["):
            section = ("", line)  # a quoted name or a list of tables: nothing of ours
            rows.append(Row(start, end, section))
        elif key is not None:
            slot, value = (*section, key[1]), tomli.loads(f"v = {key[2]}")["v"] if _is_value(key[2]) else None
            places = (start + key.start(2), start + key.end(2))
            rows.append(Row(start, end, section, False, slot, key[1], value, *places, key[3] or ""))
        else:
            rows.append(Row(start, end, section))
    return rows


def _is_value(text: str) -> bool:
    try:
        tomli.loads(f"v = {text}")
    except ValueError:
        return False
    return True


def written(value: Value) -> str:
    """A value as TOML. Raises OutputError for one that is no string, number or truth."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str) and value.isprintable():
        return json.dumps(value, ensure_ascii=False)
    raise OutputError(f"'{excerpt(str(value))}' cannot stand in this file; rename it.")


def _new_line(slot: Slot, value: Value) -> str:
    if not all(re.fullmatch(_BARE, part) for part in slot):
        raise OutputError(f"'{excerpt('.'.join(slot))}' cannot stand in this file.")
    return f"{slot[-1]} = {written(value)}"


def _new_value(_row: Row, value: Value, old: str) -> str:
    if old.startswith("'") and isinstance(value, str) and "'" not in value and value.isprintable():
        return f"'{value}'"
    return written(value)


def _winners(rows: Sequence[Row]) -> dict[Slot, Row]:
    return {row.slot: row for row in rows if row.slot is not None}


GRAMMAR = Grammar(
    _scan, _winners, _new_line, _new_value, lambda section: f"[{'.'.join(section)}]", lambda slot: slot[:-1]
)
