"""What loads on this machine were seen to take beyond the engine's own accounting, per backend and card.

One small JSON file in the state folder. The memory breakdown's "unaccounted" holds other programs' memory too, so the
least of the recent figures is the one that counts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from advisor.regular import read_regular

SCHEMA = "advisor.overheads/1"
FILE = "overheads.json"
MAX_FILE_BYTES = 1 << 20
MAX_CARDS = 200
KEPT = 20
SANE_BYTES = (1 << 20, 2 << 30)  # less is no context at all, more is another program's
_VENDORS = frozenset(("nvidia", "geforce", "amd", "radeon", "intel", "intel(r)", "apple"))

Cards = dict[tuple[str, str], tuple[int, ...]]  # (backend, card_key) -> recent figures


def card_key(name: str) -> str:
    """A card's name as both the engine and the probes would say it."""
    return " ".join(word for word in name.lower().split() if word not in _VENDORS)


def load_overheads(folder: str) -> dict[tuple[str, str], int]:
    """Bytes by (backend, card_key); empty without a file or with a broken one."""
    return {card: min(recent) for card, recent in _read(os.path.join(folder, FILE)).items()}


def remember_overheads(folder: str, seen: Mapping[tuple[str, str], int]) -> str | None:
    """Add figures by (backend, card name) that are sane; a sentence when the file cannot be written."""
    sane = {key: n_bytes for key, n_bytes in seen.items() if SANE_BYTES[0] <= n_bytes <= SANE_BYTES[1]}
    if not sane:
        return None
    path = os.path.join(folder, FILE)
    cards = _read(path)
    for (backend, name), n_bytes in sane.items():
        recent = cards.pop((backend, card_key(name)), ())
        cards[backend, card_key(name)] = (*recent, n_bytes)[-KEPT:]
    try:
        _write(folder, path, cards)
    except OSError as error:
        return f"{path} cannot be written ({error.strerror}); the overhead is not remembered."
    return None


def _read(path: str) -> Cards:
    try:
        data, _ = read_regular(path, MAX_FILE_BYTES)
    except OSError:
        return {}
    import json  # only where there is something to read

    cards: Cards = {}
    try:
        document = json.loads(data) if len(data) <= MAX_FILE_BYTES else {}
        if document["schema"] != SCHEMA:
            return {}
        for entry in document["cards"][:MAX_CARDS]:
            recent = tuple(n for n in entry["recent_bytes"] if type(n) is int and SANE_BYTES[0] <= n <= SANE_BYTES[1])
            if recent:
                cards[str(entry["backend"]), str(entry["card"])] = recent[-KEPT:]
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}
    return cards


def _write(folder: str, path: str, cards: Cards) -> None:
    import json

    os.makedirs(folder, mode=0o700, exist_ok=True)
    entries = [
        {"backend": backend, "card": card, "recent_bytes": list(recent)}
        for (backend, card), recent in list(cards.items())[-MAX_CARDS:]
    ]
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "w", encoding="utf-8") as file:
            json.dump({"schema": SCHEMA, "cards": entries}, file, indent=1)
            file.write("\n")
        os.replace(part, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)
