"""Line-wise configs: rows with places, and edits that touch the places of the changed values only."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from advisor.outputs.types import GONE, Gone, Slot, Value
from advisor.records import NamedTuple

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


def spelled_lines(text: str, grammar: Grammar) -> dict[Slot, str]:
    """The text of every value that counts; a section's header stays where it is, so its text is empty."""
    rows = grammar.scan(text)
    found: dict[Slot, str] = {row.section: "" for row in rows if row.is_header}
    found |= {slot: text[row.value_start : row.value_end] for slot, row in grammar.winners(rows).items()}
    return found


def edit_lines(text: str, changes: Mapping[Slot, Value | Gone], grammar: Grammar, spelled: Mapping[Slot, str]) -> str:
    """`text` with the changes; rows of others, comments and blank lines stay.

    A changed value is replaced where it stands. A new key goes after the last key of its section, a new section to the
    end. A key is taken out with its line, its comment stays; a section whose last key went loses its header, unless it
    is in `spelled`.
    """
    return with_open_end(text, lambda whole: _edit(whole, changes, grammar, spelled))


def _edit(text: str, changes: Mapping[Slot, Value | Gone], grammar: Grammar, spelled: Mapping[Slot, str]) -> str:
    rows = grammar.scan(text)
    winners = grammar.winners(rows)
    newline = newline_of(text)
    sections = _sections(rows)
    splices: list[tuple[int, int, str]] = []
    gone: set[Slot] = set()
    new: dict[tuple[str, ...], list[str]] = {}
    for slot, value in changes.items():
        if value is GONE:
            gone.add(slot)
        elif slot in winners:
            row = winners[slot]
            fresh = spelled.get(slot)
            if fresh is None:
                fresh = grammar.new_value(row, value, text[row.value_start : row.value_end])
            splices.append((row.value_start, row.value_end, fresh))
        else:
            new.setdefault(grammar.section_of(slot), []).append(grammar.new_line(slot, value))
    # what is added to the last section stands before a new one, although both go to the same place
    for section, lines in sorted(new.items(), key=lambda item: item[0] not in sections):
        block = "".join(line + newline for line in lines)
        if section in sections:
            place = sections[section].end
        else:
            place, block = len(text), (grammar.header(section) + newline if section else "") + block
        splices.append((place, place, block))
    removed = {row.start for row in rows if row.slot in gone and row.start >= sections[row.section].start}
    removed |= _emptied(rows, removed, {*new, *spelled}, sections)
    for row in rows:
        if row.start in removed:
            kept = row.comment + last_end(text[row.start : row.end]) if row.comment else ""
            splices.append((row.start, row.end, kept))
    return spliced(text, splices)


class _Section(NamedTuple):
    start: int  # of the header that counts, the last one of its name
    end: int  # of its last key, or of the header: where a new key goes
    n_headers: int


def _sections(rows: Sequence[Row]) -> dict[tuple[str, ...], _Section]:
    """The sections that have a header or keys."""
    found: dict[tuple[str, ...], _Section] = {}
    for row in rows:
        old = found.get(row.section)
        if row.is_header:
            found[row.section] = _Section(row.start, row.end, (old.n_headers if old else 0) + 1)
        elif row.slot is not None:
            found[row.section] = _Section(old.start if old else 0, row.end, old.n_headers if old else 0)
    return found


def _emptied(
    rows: Sequence[Row],
    removed: set[int],
    kept: set[tuple[str, ...]],
    sections: Mapping[tuple[str, ...], _Section],
) -> set[int]:
    """The headers of sections that lost their last key. One that hides an earlier section of its name stays."""
    touched = {row.section for row in rows if row.start in removed} - kept
    touched -= {row.section for row in rows if row.slot is not None and row.start not in removed}
    return {row.start for row in rows if row.is_header and row.section in touched
            and sections[row.section].n_headers == 1}  # fmt: skip
