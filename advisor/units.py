"""Sizes in bytes: reading them from people, writing them for people, rounding them as allocators do."""

from __future__ import annotations

from advisor.errors import UsageError
from advisor.excerpts import excerpt

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB

# K/M/G/T alone are powers of two, as llama.cpp and Docker read them.
_UNITS = {
    "": 1, "b": 1,
    "k": KIB, "m": MIB, "g": GIB, "t": TIB,
    "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
}  # fmt: skip
_MAX_BYTES = 1 << 60
_LONGEST = 100  # characters of a number


def round_up(value: int, multiple: int) -> int:
    """`value` rounded up to a multiple of `multiple` (both >= 0, multiple > 0)."""
    return -(-value // multiple) * multiple


def parse_size(text: str) -> int:
    """Bytes of a SIZE such as `12GiB`, `9.5 GiB`, `500MB`, `16G` or `1048576`.

    Raises UsageError for anything else, for negative sizes, for more than 2**60 bytes, and for a small number without a
    unit: nobody who writes 32 means 32 bytes.
    """
    compact = text.strip()
    number = compact.rstrip("BbKkMmGgTtIi ")
    unit = compact[len(number) :].strip().lower()
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if unit not in _UNITS or not number.isascii() or not number.replace(".", "", 1).isdecimal() or value < 0:
        raise UsageError(f"'{excerpt(text)}' is not a size; write for example 12GiB, 9.5GiB, 500MB or 16G.")
    if len(number) > _LONGEST:  # inf, or more digits than Python reads
        raise UsageError(f"'{excerpt(text)}' is larger than any memory; write for example 12GiB.")
    n_bytes = int(number) * _UNITS[unit] if number.isdecimal() else int(value * _UNITS[unit])
    if not unit and 0 < value < MIB:
        raise UsageError(f"'{excerpt(text)}' has no unit; did you mean {_with_unit(number, value)}?")
    if n_bytes > _MAX_BYTES:
        raise UsageError(f"'{excerpt(text)}' is larger than any memory; write for example 12GiB.")
    return n_bytes


def _with_unit(number: str, value: float) -> str:
    """What a number without a unit can mean as a size of memory: GiB when it is small, MiB when it is large."""
    if value <= 128:
        return f"{number}GiB"
    return f"{number}MiB or {number}GiB" if value <= 1024 else f"{number}MiB"


def format_bytes(n_bytes: int) -> str:
    """`n_bytes` for people: TiB and GiB with two decimals from 1 GiB on, MiB with one or none below, KiB, B."""
    size = abs(n_bytes)
    if size >= TIB:
        return f"{n_bytes / TIB:.2f} TiB"
    if size >= GIB:
        return f"{n_bytes / GIB:.2f} GiB"
    if size >= 10 * MIB:
        return f"{n_bytes / MIB:.0f} MiB"
    if size >= MIB:
        return f"{n_bytes / MIB:.1f} MiB"
    if size >= KIB:
        return f"{n_bytes / KIB:.0f} KiB"
    return f"{n_bytes} B"
