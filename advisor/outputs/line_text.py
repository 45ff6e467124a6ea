"""Line-wise configs: rows with places, and edits that touch the places of the changed values only."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from advisor.outputs.types import GONE, Gone, Slot, Value

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_ENDS = ("\r\n", "\n", "\r")


class Row(NamedTuple):
    """One logical line: a header opens `section`, a key row holds `slot`; other rows are comments and blanks.

    Places count characters from the text's beginning. `end` includes the line end.
    """

    start: int
    end: int
    section: tuple[str, ...]
    is_header: bool = False
    slot: Slot | None = None
    spelling: str = ""  # the key as written
    value: Value = None
    value_start: int = 0
    value_end: int = 0
    comment: str = ""  # a comment at the end of the line, with its mark


class Grammar(NamedTuple):
    """How one line-wise format is written."""

    scan: Callable[[str], list[Row]]  # raises OutputError for text that is not of the format
    winners: Callable[[Sequence[Row]], dict[Slot, Row]]  # the rows whose values count
    new_line: Callable[[Slot, Value], str]  # a whole line without its end
    new_value: Callable[[Row, Value, str], str]  # the value's text in a row, from the row and its old text
    header: Callable[[tuple[str, ...]], str]  # the line that opens a section
    section_of: Callable[[Slot], tuple[str, ...]]


def lines_of(text: str) -> list[tuple[int, int, int]]:
    """(start, end of the content, end with the line end) of every line."""
    found = []
    for match in _LINE.finditer(text):
        if match.start() == len(text):
            break
        content = match[0].rstrip("\r\n")
        found.append((match.start(), match.start() + len(content), match.end()))
    return found


def newline_of(text: str) -> str:
    """The line end that a text uses, the first one it has."""
    match = re.search(r"\r\n|\r|\n", text)
    return match[0] if match else "\n"


def last_end(text: str) -> str:
    """The line end at the end of a text, "" without one."""
    return next((end for end in _ENDS if text.endswith(end)), "")


def spliced(text: str, splices: Sequence[tuple[int, int, str]]) -> str:
    """`text` with the places replaced; insertions at one place keep their order."""
    parts = []
    at = 0
    for start, end, new in sorted(splices, key=lambda splice: (splice[0], splice[1])):
        parts += [text[at:start], new]
        at = max(at, end)
    return "".join(parts) + text[at:]


def with_open_end(text: str, edit: Callable[[str], str]) -> str:
    """`edit` on a text whose last line has an end, which is taken away again if it had none before."""
    if not text or last_end(text):
        return edit(text)
    after = edit(text + newline_of(text))
    return after[: len(after) - len(last_end(after))]


def edit_lines(text: str, changes: Mapping[Slot, Value | Gone], grammar: Grammar) -> str:
    """`text` with the changes; rows of others, comments and blank lines stay.

    A changed value is replaced where it stands. A new key goes after the last key of its section, a new section to the
    end. A key is taken out with its line, its comment stays; a section whose last key went loses its header.
    """
    return with_open_end(text, lambda whole: _edit(whole, changes, grammar))


def _edit(text: str, changes: Mapping[Slot, Value | Gone], grammar: Grammar) -> str:
    rows = grammar.scan(text)
    winners = grammar.winners(rows)
    newline = newline_of(text)
    splices: list[tuple[int, int, str]] = []
    removed: set[int] = set()  # starts of rows
    new: dict[tuple[str, ...], list[str]] = {}
    for slot, value in changes.items():
        if value is GONE:
            removed |= {row.start for row in rows if row.slot == slot and not _hidden(row, rows)}
        elif slot in winners:
            row = winners[slot]
            fresh = grammar.new_value(row, value, text[row.value_start : row.value_end])
            splices.append((row.value_start, row.value_end, fresh))
        else:
            new.setdefault(grammar.section_of(slot), []).append(grammar.new_line(slot, value))
    for section, lines in new.items():
        block = "".join(line + newline for line in lines)
        place = _end_of_section(rows, section)
        if place is None:
            place, block = len(text), (grammar.header(section) + newline if section else "") + block
        splices.append((place, place, block))
    removed |= _emptied(rows, removed, set(new))
    for row in rows:
        if row.start in removed:
            kept = row.comment + last_end(text[row.start : row.end]) if row.comment else ""
            splices.append((row.start, row.end, kept))
    return spliced(text, splices)


def _end_of_section(rows: Sequence[Row], section: tuple[str, ...]) -> int | None:
    """Where a new key of the section goes: after its last key, or after its last header; None without the section."""
    place = None
    for row in rows:
        if row.section == section and (row.is_header or row.slot is not None):
            place = row.end
    return place


def _hidden(row: Row, rows: Sequence[Row]) -> bool:
    """Whether a later section of the same name replaces the row's."""
    return any(other.is_header and other.section == row.section and other.start > row.start for other in rows)


def _emptied(rows: Sequence[Row], removed: set[int], kept: set[tuple[str, ...]]) -> set[int]:
    """The headers of sections that lost their last key. One that hides an earlier section of its name stays."""
    touched = {row.section for row in rows if row.start in removed}
    gone = set()
    for section in touched - kept:
        left = [row for row in rows if row.section == section and row.slot is not None and row.start not in removed]
        headers = [row for row in rows if row.section == section and row.is_header]
        if not left and len(headers) == 1:
            gone.add(headers[0].start)
    return gone
