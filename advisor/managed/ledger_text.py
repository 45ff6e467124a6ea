"""The ledger's text: read record by record, and kept as text until somebody asks for one.

With a thousand models in each of three configs all records at once take thirty times the room of their text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, MutableMapping
from typing import Any

from advisor.managed.records import FileRecord, from_json, to_json

_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


class Files(MutableMapping[str, FileRecord]):
    """Records by path."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self._at_hand: tuple[str, FileRecord] | None = None  # the one that is worked with

    def __getitem__(self, path: str) -> FileRecord:
        if self._at_hand is None or self._at_hand[0] != path:
            self._at_hand = (path, from_json(json.loads(self.texts[path])))
        return self._at_hand[1]

    def __setitem__(self, path: str, record: FileRecord) -> None:
        self.texts[path] = json.dumps(to_json(record))
        self._at_hand = (path, record)

    def __delitem__(self, path: str) -> None:
        del self.texts[path]
        self._at_hand = None

    def __contains__(self, path: object) -> bool:
        return path in self.texts

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    def mention(self, words: str) -> bool:
        """Whether a record has these words in its text; to unfold them all for that would take long."""
        return any(words in text for text in self.texts.values())


def read_document(text: str) -> tuple[dict[str, Any], Files]:
    """Everything but the records, and these. Raises ValueError, TypeError, KeyError or AttributeError."""
    document: dict[str, Any] = {}
    files = Files()
    at = _past(text, 0, "{")
    while True:
        key, at = _key(text, at)
        if key == "files":
            at = _read_files(text, at, files)
        else:
            document[key], at = _DECODER.raw_decode(text, at)
        at = _BLANK.match(text, at).end()  # type: ignore[union-attr]
        if text[at : at + 1] == "}":
            break
        at = _past(text, at, ",")
    if text[at + 1 :].strip():
        raise ValueError("more than one document")
    return document, files


def _read_files(text: str, at: int, files: Files) -> int:
    """Hold every record against what one must be, and keep its text; the place behind them."""
    at = _past(text, at, "{")
    if text[at : at + 1] == "}":
        return at + 1
    while True:
        path, at = _key(text, at)
        record, end = _DECODER.raw_decode(text, at)
        from_json(record)
        files.texts[path] = text[at:end]
        at = _BLANK.match(text, end).end()  # type: ignore[union-attr]
        if text[at : at + 1] == "}":
            return at + 1
        at = _past(text, at, ",")


def _key(text: str, at: int) -> tuple[str, int]:
    key, at = _DECODER.raw_decode(text, at)
    if not isinstance(key, str):
        raise TypeError("no key")
    return key, _past(text, at, ":")


def _past(text: str, at: int, mark: str) -> int:
    """The place behind a mark and the blanks around it."""
    at = _BLANK.match(text, at).end()  # type: ignore[union-attr]
    if text[at : at + 1] != mark:
        raise ValueError(f"no {mark}")
    return _BLANK.match(text, at + 1).end()  # type: ignore[union-attr]
