"""What the machine of a user and advisor at one file is made for, and what it remembers of the user's values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple

from hypothesis import strategies as st

from advisor.managed.types import Format
from advisor.slots import Slot, Value


class Case(NamedTuple):
    """A format, and what people put into its files."""

    format: Format
    texts: st.SearchStrategy[str]  # files that a user may have before advisor comes; `slots` may be in them
    slots: tuple[Slot, ...]  # that advisor may want; none may be a part of another
    values: Callable[[Slot], st.SearchStrategy[Value]]  # as the format reads them back
    mark: Callable[[str, int, str], str] | None = None  # (text, any number, word): the word put in as a comment
    wishes: st.SearchStrategy[dict[Slot, Value]] | None = None  # what advisor may want together; else any `slots`


class Written(NamedTuple):
    """A value of the user's, and how it stands in the file."""

    value: Value
    text: str | None


KEEPS_ENDS = re.compile(r"[|>]\d?\+")  # YAML's mark of a text to which the blank lines behind it belong
ANYHOW = "in any way of writing"


# other ways to write a value; those that mean something else in a format are not taken there
RESPELLED: tuple[Callable[[Value], str], ...] = (
    lambda value: str(value),
    lambda value: f"'{value}'",
    lambda value: f'"{value}"',
    lambda value: json.dumps(value) + ".0",
    lambda value: json.dumps(value) + "e0",
    lambda value: '"' + "".join(f"\\u{ord(char):04x}" for char in str(value)) + '"',
    lambda value: f"|-\n        {value}",
    lambda value: f">-  \n          {value}",
    lambda value: f"0x{value:x}" if isinstance(value, int) else "",
    lambda value: json.dumps(value, indent=1),
)
CRASH = st.one_of(st.none(), st.none(), st.integers(1, 60))


def without_marks(text: str) -> str:
    """A text as it would be if the user had put nothing in; whether its last line has an end does not count.

    What was the last line when a comment was put behind it has one since, and see `as_lines`.
    """
    marked = re.sub(r"(?m)^(\ufeff?)# thought\d+z(?:\r?\n|\Z)", r"\1", text).rstrip("\r\n")
    return re.sub(r"(?m)(?<= )([|>]\d?)[-+](?=(?: +#.*)?\r?$)", r"\1", marked)


def as_lines(text: str | None) -> str | None:
    """How a value stands, but for "-" and "+" behind the mark of a text in lines, to be asked of equal values only.

    YAML's "|" at the end of a file that has no line end has none either; with a line behind it, "|-" has none.
    """
    return None if text is None else re.sub(r"\A([|>]\d?)[-+](?=\r?\n)", r"\1", text)
