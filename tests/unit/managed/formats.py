"""Two small formats to test the managed files with, as strict about other bytes as real ones must be."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from advisor.errors import OutputError
from advisor.slots import GONE, Gone, Slot, Value

NOTHING: Mapping[Slot, str] = MappingProxyType({})
_LINE = re.compile(r"(?m)^(?P<key>[a-z][a-z0-9-]*)(?P<gap> *= *)(?P<value>[^#\n]*?)(?P<rest> *(?:#.*)?)$")


class Lines(NamedTuple):
    """`key = value # comment`, one a line; every other line is the user's. Slots are (key,), values are texts."""

    shares: str = "own"
    name: str = "lines"
    new_text: str = "# made by advisor\n"

    def parse(self, text: str) -> dict[Slot, Value]:
        for line in text.split("\n"):
            if line.strip() and not line.startswith("#") and not _LINE.fullmatch(line):
                raise OutputError(f"'{line[:40]}' is no line of key = value.")
        return {(match["key"],): match["value"] for match in _LINE.finditer(text)}

    def spelled(self, text: str) -> dict[Slot, str]:
        return {slot: str(value) for slot, value in self.parse(text).items()}

    def edit(self, text: str, changes: Mapping[Slot, Value | Gone], _spelled: Mapping[Slot, str] = NOTHING) -> str:
        lines = text.split("\n")
        for (key,), value in changes.items():
            if value is not GONE and re.search(r"[#\n]", str(value)):
                raise OutputError(f"{key} cannot hold '#'.")
            places = [i for i, line in enumerate(lines) if (match := _LINE.fullmatch(line)) and match["key"] == key]
            if value is GONE:
                lines = [line for i, line in enumerate(lines) if i not in places]
            elif places:
                match = _LINE.fullmatch(lines[places[-1]])
                assert match is not None
                lines[places[-1]] = f"{key}{match['gap']}{value}{match['rest']}"
            else:
                end = [""] if lines[-1] == "" else []
                lines = [*lines[: len(lines) - len(end)], f"{key} = {value}", *end]
        return "\n".join(lines)

    def validate(self, text: str) -> None:
        if "forbidden = " in text:
            raise OutputError("forbidden is not a key that the program knows.")


class Flat(NamedTuple):
    """One JSON object; slots are (key,). Values are replaced where they stand."""

    shares: str = "merge"
    name: str = "flat-json"
    new_text: str = "{}\n"

    def parse(self, text: str) -> dict[Slot, Value]:
        return {(key,): value for key, value, *_ in self._pairs(text)}

    def spelled(self, text: str) -> dict[Slot, str]:
        pairs = self._pairs(text)
        empty = "{}" if pairs else text[text.index("{") : text.rindex("}") + 1]
        return {(): empty, **{(key,): text[first:end] for key, _, _, first, end in pairs}}

    def edit(self, text: str, changes: Mapping[Slot, Value | Gone], spelled: Mapping[Slot, str] = NOTHING) -> str:
        for (key,), value in changes.items():
            pairs = self._pairs(text)
            index = next((i for i, pair in enumerate(pairs) if pair[0] == key), None)
            if value is GONE:
                if index is not None and len(pairs) == 1 and () in spelled:
                    text = text[: text.index("{")] + spelled[()] + text[text.rindex("}") + 1 :]
                elif index is not None:
                    text = self._without(text, pairs, index)
            elif index is not None:
                _, _, _, first, end = pairs[index]
                text = text[:first] + spelled.get((key,), json.dumps(value)) + text[end:]
            elif pairs:
                end = pairs[-1][4]
                text = f"{text[:end]},\n  {json.dumps(key)}: {json.dumps(value)}{text[end:]}"
            else:
                start = text.index("{") + 1
                text = f"{text[:start]}\n  {json.dumps(key)}: {json.dumps(value)}\n{text[start:]}"
        return text

    @staticmethod
    def _without(text: str, pairs: list[tuple[str, Value, int, int, int]], index: int) -> str:
        if index:
            return text[: pairs[index - 1][4]] + text[pairs[index][4] :]
        after = pairs[1][2] if len(pairs) > 1 else pairs[0][4]
        return text[: pairs[0][2]] + text[after:]

    def _pairs(self, text: str) -> list[tuple[str, Value, int, int, int]]:
        """(key, value, start of the key, start and end of the value)."""
        decoder = json.JSONDecoder()
        try:
            if not isinstance(json.loads(text), dict):
                raise ValueError
            pairs, at = [], text.index("{") + 1
            while (place := re.compile(r'[\s,]*(")').match(text, at)) is not None:
                start = place.start(1)
                key, at = decoder.raw_decode(text, start)
                first = re.compile(r"\s*:\s*").match(text, at).end()  # type: ignore[union-attr]
                value, at = decoder.raw_decode(text, first)
                pairs.append((key, value, start, first, at))
            return pairs
        except (ValueError, RecursionError):
            raise OutputError("this is no JSON object.") from None

    def validate(self, text: str) -> None:
        self.parse(text)
