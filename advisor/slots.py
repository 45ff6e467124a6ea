"""Places in a config file and what stands there: formats edit them, managed files decide about them.

A slot is the path of one value, such as ("qwen3-8b", "ctx-size"). `None` is a value (JSON's null); that nothing stands
in a slot is GONE.
"""

import math
from enum import Enum
from typing import Any, TypeAlias

from advisor.records import NamedTuple

Slot: TypeAlias = tuple[str, ...]
Value: TypeAlias = Any  # as JSON has them: str, int, float, bool, None, list, dict


class Gone(Enum):
    """The type of GONE, so that a type checker knows it from a value."""

    GONE = "gone"

    def __repr__(self) -> str:
        return "GONE"


GONE = Gone.GONE


_MOST_BITS = 4096  # 1,234 digits; Python reads and writes 4,300


class SlotChange(NamedTuple):
    """One slot that gets another value."""

    slot: Slot
    old: Value | Gone
    new: Value | Gone
    old_text: str | None = None  # how the old one stands in the file; None: not known
    new_text: str | None = None  # how the new one is to be written; None: as the format does


def same(one: object, other: object) -> bool:
    """Whether two values (or GONE) are the same to a config file: true is not 1, nan is nan, 1 is 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    return bool(one == other or (one != one and other != other))


def is_plain(value: object) -> bool:
    """Whether a value can be remembered as JSON.

    Dates of TOML and YAML cannot, nor can infinite numbers (1e400), nor whole ones of more digits than Python reads.
    """
    if isinstance(value, list):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_plain(item) for key, item in value.items())
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return value.bit_length() <= _MOST_BITS
    return value is None or value is GONE or isinstance(value, str)


def shown(slot: Slot) -> str:
    """A slot as messages name it."""
    return ".".join(slot)
