"""Text and values of others as sentences show them: on one line, short, and whatever they are."""

from __future__ import annotations

import re

_LONGEST_TEXT = 80
_LONGEST_SENTENCE = 1000
_LONG_WORD = re.compile(r"\S{200,}")
_MOST_BITS = 256  # of a whole number as decimals; Python refuses to write 4,300 digits
_LONG_NUMBER = re.compile(r"0[xob][0-9a-fA-F_]{1000}")  # in TOML: more than Python reads or writes as decimals


def printable(text: str) -> str:
    """`text` as one plain line: what a terminal would not print is `?`, other blanks than the usual one are such."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " if char.isspace() else "?" for char in text)


def excerpt(value: object) -> str:
    """A text or any other value from a file, made printable and cut to 80 characters; this never fails."""
    text = printable(_text(value)[: _LONGEST_TEXT + 1])
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"


def shortened(sentence: str) -> str:
    """A sentence in which no word is so long that its end could be cut off; as it is when it is short enough."""
    return sentence if len(sentence) <= _LONGEST_SENTENCE else _LONG_WORD.sub(lambda word: excerpt(word[0]), sentence)


def _text(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return hex(value)
    try:
        return str(value)
    except (ValueError, RecursionError):  # a list with such a number in it, or nested without end
        return f"a {type(value).__name__} that cannot be shown"


def line_of_long_number(text: str) -> int | None:
    """The first line of a TOML text with a hexadecimal, octal or binary number that cannot be shown as decimals.

    None for no such line. Decimals as long are refused by the parser.
    """
    if not any(mark in text for mark in ("0x", "0o", "0b")):
        return None
    found = _LONG_NUMBER.search(text)
    return None if found is None else text.count("\n", 0, found.start()) + 1
