"""Values as YAML that readers of 1.1 (PyYAML), of 1.2 and Go's understand alike."""

from __future__ import annotations

import json
import re
from typing import Any

from advisor.errors import OutputError
from advisor.gguf_header.errors import excerpt
from advisor.outputs.types import Value

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./\\$-]*")  # no text that YAML 1.1 or 1.2 takes for a number, date or time
_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null", "inf", "nan"))
_MAX_PLAIN = 200
MAX_KEY = 1000  # YAML: at most 1,024 characters up to its colon


def is_plain(text: str) -> bool:
    """Whether the text means itself without quotes in every reader."""
    return _PLAIN.fullmatch(text) is not None and text.lower() not in _WORDS and len(text) <= _MAX_PLAIN


def double_quoted(text: str) -> str:
    """The text in double quotes, everything invisible escaped."""
    return '"' + "".join(char if char.isprintable() and char not in '"\\' else _escape(char) for char in text) + '"'


def _escape(char: str) -> str:
    number = ord(char)
    if char in '"\\':
        return "\\" + char
    short = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char)
    return short or (
        f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}" if number < 65536 else f"\\U{number:08x}"
    )


def scalar(value: Value, like: str = "") -> str:
    """A string, number, truth or null on one line; a string in the quotes that `like`, the old text, has."""
    if not isinstance(value, str):
        return json.dumps(value)
    if like[:1] == "'" and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return value if like[:1] != '"' and is_plain(value) else double_quoted(value)


def key(text: str) -> str:
    """A key; one that is no plain word in quotes. Raises OutputError for one that readers would not take for a key."""
    written = scalar(text)
    if len(written) > MAX_KEY:
        raise OutputError(f"'{excerpt(text)}' is too long for a key of YAML; rename it.")
    return written


def in_brackets(value: Value) -> str:
    """Any value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key(name)}: {in_brackets(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(in_brackets(item) if not isinstance(item, str) else double_quoted(item)
                               for item in value) + "]"  # fmt: skip
    return scalar(value)


def block(value: Value, indent: str, newline: str, behind: str = "") -> str | None:
    """A string of several lines below a key at `indent`; None when it has to be written on one line.

    `behind`: a comment for the first line, with the blanks before it.
    """
    if not isinstance(value, str) or "\n" not in value:
        return None
    lines = value.split("\n")
    if not all(line and line.isprintable() and line == line.strip() for line in lines):
        return None
    return f"|-{behind}" + "".join(f"{newline}{indent}  {line}" for line in lines)


def entry(name: str | None, value: Any, indent: str, newline: str, step: str = "  ") -> str:
    """New lines for a map's entry, or a list's when `name` is None, each with its line end."""
    head = f"{indent}- " if name is None else f"{indent}{key(name)}: "
    if name is not None and isinstance(value, dict) and not _is_short(value) and value:
        inner = "".join(entry(below, item, indent + step, newline, step) for below, item in value.items())
        return f"{indent}{key(name)}:{newline}{inner}"
    return head + (block(value, indent, newline) or in_brackets(value)) + newline


def _is_short(value: dict[str, Any]) -> bool:
    return len(value) == 1 and not any(isinstance(item, dict | list) for item in value.values())
