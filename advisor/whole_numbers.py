"""Whole numbers as people write them: read strictly, and where that fails the error says what to write instead."""

from __future__ import annotations

import re

from advisor.errors import UsageError
from advisor.excerpts import excerpt

LARGEST = (1 << 31) - 1
_LONGEST = 40  # characters
_THOUSANDS = {"": 1, "k": 1024, "m": 1024**2, "tokens": 1}


def read_whole(text: str, name: str, smallest: int, words: str = "") -> int:
    """The number that `text` is. `words` names what the option takes beside numbers (", all or auto").

    Raises UsageError naming the option, the limit that was broken, and the number to write where it can be guessed.
    """
    given = f"{name} '{excerpt(text)}'"
    try:
        number = int(text)
    except ValueError:
        meant = _meant(text)
        cure = f"write {meant}" if meant is not None and smallest <= meant <= LARGEST else (
            f"give a number from {smallest} to {LARGEST:,}{words}"
        )  # fmt: skip
        raise UsageError(f"{given} is no whole number; {cure}.") from None
    if number < smallest:
        raise UsageError(f"{given} is below the smallest possible, {smallest}; give a larger one{words}.")
    if number > LARGEST:
        raise UsageError(f"{given} is above the largest possible, {LARGEST:,}; give a smaller one{words}.")
    return number


def _meant(text: str) -> int | None:
    """The number behind 16k, 16K, 0.5M, 16,384, 16 384, 16'384, 16384.0 and 4e3; None when it is none of these."""
    plain = text.strip().lower()
    if len(plain) > _LONGEST:
        return None
    if re.fullmatch(r"\d{1,3}([,.' _]\d{3})+", plain):
        return int(re.sub(r"\D", "", plain))
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,9})?(?:e\d{1,2})?) ?(k|m|tokens)?(?:i|ib|b)?", plain)
    if found is None:
        return None
    value = float(found[1]) * _THOUSANDS[found[2] or ""]
    return int(value) if value == int(value) else None
