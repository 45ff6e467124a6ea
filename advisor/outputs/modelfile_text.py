"""Ollama's Modelfile, byte for byte: FROM and PARAMETER lines; everything else is left alone.

Format facts: Ollama 0.33 parser/parser.go: instructions in any case, one a line, values in triple quotes over several
lines, `#` comments.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from advisor.errors import OutputError
from advisor.gguf_header.errors import excerpt
from advisor.outputs.line_text import Grammar, Row, lines_of
from advisor.outputs.types import Slot, Value

_INSTRUCTION = re.compile(r"[ \t]*([A-Za-z]+)[ \t]+(.*?)[ \t]*")
_PARAMETER = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)[ \t]+(.*)", re.DOTALL)
_KNOWN = frozenset(
    ("FROM", "PARAMETER", "TEMPLATE", "SYSTEM", "ADAPTER", "LICENSE", "MESSAGE", "RENDERER", "PARSER", "REQUIRES",
     "DRAFT")
)  # fmt: skip


def scan(text: str) -> list[Row]:
    """Rows of a Modelfile. Raises OutputError for other text."""
    rows = []
    open_until = -1  # in a value in triple quotes
    for start, stop, end in lines_of(text):
        line = text[start:stop]
        if start < open_until or not line.strip() or line.lstrip().startswith("#"):
            rows.append(Row(start, end, ()))
            continue
        match = _INSTRUCTION.fullmatch(line)
        if match is None or match[1].upper() not in _KNOWN:
            raise OutputError(f"'{excerpt(line)}' is no line of a Modelfile; correct it.")
        opening = text.find('"""', start, stop)
        if opening >= 0:
            closing = text.find('"""', opening + 3)
            if closing < 0:
                raise OutputError('a """ in the Modelfile is not closed; close it.')
            open_until = closing + 3
        rows.append(_row(match, start, end) if opening < 0 else Row(start, end, ()))
    return rows


def _row(match: re.Match[str], start: int, end: int) -> Row:
    word, first = match[1].upper(), start + match.start(2)
    if word == "FROM":
        return Row(start, end, (), False, ("FROM",), match[1], _unquoted(match[2]), first, first + len(match[2]))
    parameter = _PARAMETER.fullmatch(match[2]) if word == "PARAMETER" else None
    if parameter is None:
        return Row(start, end, ())
    first += parameter.start(2)
    slot = ("PARAMETER", parameter[1].lower())
    return Row(start, end, (), False, slot, parameter[1], _unquoted(parameter[2]), first, first + len(parameter[2]))


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def _checked(value: Value, what: str) -> str:
    if not isinstance(value, str) or not value or not value.isprintable() or '"' in value or value != value.strip():
        raise OutputError(f"{excerpt(what)} '{excerpt(str(value))}' cannot stand in a Modelfile; rename it.")
    return value


def _new_line(slot: Slot, value: Value) -> str:
    if slot != ("FROM",) and (len(slot) != 2 or slot[0] != "PARAMETER" or not re.fullmatch(r"[a-z_]+", slot[1])):
        raise OutputError(f"'{excerpt('.'.join(slot))}' cannot stand in a Modelfile.")
    return f"{' '.join(slot)} {_checked(value, slot[-1])}"


def _new_value(row: Row, value: Value, old: str) -> str:
    text = _checked(value, row.spelling)
    return f'"{text}"' if old.startswith('"') else text


def _winners(rows: Sequence[Row]) -> dict[Slot, Row]:
    return {row.slot: row for row in rows if row.slot is not None}


GRAMMAR = Grammar(scan, _winners, _new_line, _new_value, lambda _: "", lambda _: ())
