"""llama.cpp's INI files, byte for byte: presets of llama-server and llama.cpp's own config.

Format facts: llama.cpp b11434 common/preset.cpp. `;` and `#` begin a comment anywhere and cannot be quoted; a blank
before a key or header is an error; a repeated section replaces the earlier one; the keys of a section are taken in
byte order, so that of several spellings of one option the last in that order counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from advisor.errors import OutputError
from advisor.gguf_header.errors import excerpt
from advisor.outputs.line_text import Grammar, Row, lines_of
from advisor.outputs.option_names import canonical_name
from advisor.outputs.types import Slot, Value

TRUTHS = frozenset(("on", "enabled", "true", "1"))
_HEADER = re.compile(r"\[[ \t]*([^\]\r\n]+)\][ \t]*([;#].*)?")
_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*(.*)")


def carries(value: str) -> bool:
    """Whether a value, path or section can stand in the file: nothing that reads as a comment or a line's end."""
    return not any(char in ";#\r\n\x00" for char in value) and value.isprintable() and value == value.strip()


def section_fits(name: str) -> bool:
    """Whether a model's section can be called so; what follows a ':' would be read as a quantization."""
    return name not in ("", "*") and carries(name) and not any(char in "[]:" for char in name)


def grammar(preamble: str, preamble_slots: str) -> Grammar:
    """The format; keys before the first header are in a section `preamble`, their slots in `preamble_slots`."""

    def scan(text: str) -> list[Row]:
        rows = []
        section = preamble
        for number, (start, stop, end) in enumerate(lines_of(text), 1):
            row = _row(text[start:stop], start, end, section)
            if row is None:
                raise OutputError(
                    f"line {number} is no line of llama.cpp's config format: '{excerpt(text[start:stop])}'; "
                    f"write KEY = VALUE or [SECTION], without blanks before it."
                )
            section = row.section[0]
            if row.slot is not None and section == preamble:
                row = row._replace(slot=(preamble_slots, row.slot[1]))
            rows.append(row)
        return rows

    return Grammar(scan, _winners, _new_line, _new_value, lambda section: f"[{section[0]}]", lambda slot: slot[:1])


def _row(line: str, start: int, end: int, section: str) -> Row | None:
    if not line.strip(" \t") or line.lstrip(" \t")[0] in ";#":
        return Row(start, end, (section,))
    header = _HEADER.fullmatch(line)
    if header is not None:
        return Row(start, end, (header[1],), is_header=True, comment=header[2] or "")
    key = _KEY.fullmatch(line)
    if key is None:
        return None
    mark = re.search(r"[;#]", key[2])
    content = (key[2][: mark.start()] if mark else key[2]).rstrip(" \t")
    value_start = start + key.start(2)
    name, negated = canonical_name(key[1])
    value = ("false" if content in TRUTHS else "true") if negated else content
    return Row(
        start, end, (section,), False, (section, name), key[1], value, value_start, value_start + len(content),
        key[2][mark.start() :] if mark else "",
    )  # fmt: skip


def _winners(rows: Sequence[Row]) -> dict[Slot, Row]:
    found: dict[Slot, Row] = {}
    seen: set[tuple[str, ...]] = set()
    for row in rows:
        if row.is_header and row.section in seen:  # forgets the earlier section of this name
            found = {slot: other for slot, other in found.items() if other.section != row.section}
        elif row.slot is not None:
            other = found.get(row.slot)
            seen.add(row.section)
            if other is None or other.section != row.section or row.spelling.encode() >= other.spelling.encode():
                found[row.slot] = row
    return found


def _checked(value: Value, what: str) -> str:
    if not isinstance(value, str) or not carries(value):
        raise OutputError(
            f"{excerpt(what)} '{excerpt(str(value))}': presets cannot hold '#', ';' or control characters in a value, "
            f"because everything after them is read as a comment; write it another way."
        )
    return value


def _new_line(slot: Slot, value: Value) -> str:
    section, name = slot
    if not _KEY.fullmatch(f"{name}=") or not (section == "*" or section_fits(section)):
        raise OutputError(f"'{excerpt(name)}' in '{excerpt(section)}' cannot stand in llama.cpp's config format.")
    if value == "false" and canonical_name(f"no-{name}") == (name, True):
        return f"no-{name} = true"  # every build has the long negated option
    return f"{name} = {_checked(value, name)}"


def _new_value(row: Row, value: Value, _old: str) -> str:
    text = _checked(value, row.spelling)
    if canonical_name(row.spelling)[1]:
        return "false" if text in TRUTHS else "true"
    return text
