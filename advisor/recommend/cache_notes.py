"""What a person should know of the cache types that were chosen or asked for."""

from __future__ import annotations

from collections.abc import Iterable

from advisor.ggml_types import BY_NAME
from advisor.recommend.cache_safety import CacheRow
from advisor.recommend.recommendation import Note
from advisor.settings import RunSettings


def safety_notes(rows: Iterable[CacheRow], settings: RunSettings, backends: Iterable[str]) -> list[Note]:
    """Notes on the types of keys and values by the rows that apply, the gravest first.

    A quantised type of which no row speaks is said to be unknown.
    """
    known = list(rows)
    notes: list[tuple[float, Note]] = []
    for kind, side in ((settings.cache_type_k.lower(), "k"), (settings.cache_type_v.lower(), "v")):
        if not BY_NAME[kind].is_quantized or (side == "v" and kind == settings.cache_type_k.lower()):
            continue
        mine = [row for row in known if kind in row.types and not (row.keys_only and side == "v")]
        for row in mine:
            if row.effect != "fine":
                text = f"{_subject(row, kind)}: {row.text}."
                notes.append((row.factor, Note(f"cache_type_{row.effect}", text, f"policy.toml: {row.name}")))
        if not any(row.effect != "lossy_keys" for row in mine) and backends:
            where = " and ".join(sorted(set(backends)))
            text = f"How fast a {kind} cache is with {where} is not known here."
            notes.append((0.0, Note("cache_type_unknown", text, "policy.toml: cache_safety")))
    return [note for _, note in sorted(notes, key=lambda pair: -pair[0])]


def _subject(row: CacheRow, kind: str) -> str:
    if row.effect == "unknown":
        return f"How fast a {kind} cache is here is not known"
    return f"Keys in {kind} harm the answers" if row.effect == "lossy_keys" else f"A {kind} cache is slow here"
