"""What a person should know of the cache types that were chosen or asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from advisor.ggml_types import BY_NAME
from advisor.memory.types import MemoryPlan
from advisor.recommend.cache_safety import ON_CPU, CacheRow, runs_cache, slow_row
from advisor.recommend.evaluate import Evaluator, Judged
from advisor.recommend.recommendation import Note
from advisor.settings import RequestedSettings
from advisor.units import format_bytes

_KERNELS = ("slow_prefill", "slow_decode", "on_cpu", "unknown")  # effects of flash attention's kernels


def safety_notes(rows: Iterable[CacheRow], plan: MemoryPlan, backends: Iterable[str]) -> list[Note]:
    """Notes on the types of keys and values by the rows that apply, the gravest first.

    A quantised type of which no row speaks is said to be unknown. What is known of flash attention's kernels is told
    where a GPU runs them.
    """
    known, settings = list(rows), plan.settings
    in_use = plan.flash_attn and (not plan.devices or any(device.cache_bytes for device in plan.devices))
    pair = (settings.cache_type_k.lower(), settings.cache_type_v.lower())
    notes: list[tuple[float, Note]] = []
    mixed = [row for row in known if row.mixed and pair[0] != pair[1] and not {*pair}.isdisjoint(row.types)]
    if in_use:
        for row in mixed:
            text = f"Keys in {pair[0]} with values in {pair[1]} are slow here: {row.text}.{_divided(row)}"
            notes.append((row.factor, Note(f"cache_types_mixed_{row.effect}", text, f"policy.toml: {row.name}")))
    stuck = [row for row in known if row.heads]
    if in_use and plan.devices:
        for row in stuck:
            text = (
                f"Attention is slow here: {row.text}. The speeds here are divided by {row.factor:g} for that; "
                f"-fa auto with values in f16 leaves it on the GPU."
            )
            notes.append((row.factor, Note("attention_on_cpu", text, f"policy.toml: {row.name}")))
        known = [row for row in known if row not in stuck] if stuck else known
    for kind, side in zip(pair, "kv", strict=True):
        if not BY_NAME[kind].is_quantized or (side == "v" and kind == pair[0]):
            continue
        mine = [row for row in known if kind in row.types and not row.mixed and not (row.keys_only and side == "v")]
        for row in mine:
            if row.effect == "fine" or (row.effect in _KERNELS and (mixed or not in_use)):
                continue
            text = f"{_subject(row, kind)}: {row.text}.{_divided(row)}"
            notes.append((row.factor, Note(f"cache_type_{row.effect}", text, f"policy.toml: {row.name}")))
        if not any(row.effect != "lossy_keys" for row in mine) and backends and not stuck:
            where = " and ".join(sorted(set(backends)))
            text = f"How fast a {kind} cache is with {where} is not known here."
            notes.append((0.0, Note("cache_type_unknown", text, "policy.toml: cache_safety")))
    return [note for _, note in sorted(notes, key=lambda pair: -pair[0])]


def offered_notes(rows: Sequence[CacheRow], plan: MemoryPlan, kinds: Iterable[str]) -> list[Note]:
    """A warning of each type that is not chosen but stands beside the choice with its contexts, where it is slow."""
    notes = []
    for kind in kinds:
        slow = slow_row(rows, kind)
        if slow is not None and kind != plan.settings.cache_type_k and any(one.cache_bytes for one in plan.devices):
            text = f"{_subject(slow, kind)}: {slow.text}; the table's speeds are divided by {slow.factor:g} for that."
            notes.append(Note("cache_type_offered_on_cpu", text, f"policy.toml: {slow.name}"))
    return notes


def pair_note(evaluator: Evaluator, judged: Judged, pinned: RequestedSettings) -> list[Note]:
    """What the other half of the cache would save in the same type, where only one was asked for in a quantised one."""
    keys, values = pinned.cache_type_k, pinned.cache_type_v
    kind = (keys or values or "f16").lower()
    if (keys and values) or not BY_NAME[kind].is_quantized or pinned.flash_attn == "off":
        return []
    backends = [device.backend for device in evaluator.host.devices]
    if not runs_cache(kind, evaluator.spec, evaluator.engine, backends):
        return []
    alike = judged.request._replace(cache_type_k=kind, cache_type_v=kind)
    now, then = evaluator.cache_bytes(judged.request), evaluator.cache_bytes(alike)
    if then >= now:
        return []
    given, other, half = ("-ctk", "-ctv", "values") if keys else ("-ctv", "-ctk", "keys")
    price = "that is near lossless" if kind == "q8_0" else "at the price of some quality"
    text = (
        f"{given} {kind} alone leaves the {half} in f16: with {other} {kind} too the cache takes {format_bytes(then)} "
        f"instead of {format_bytes(now)}, {format_bytes(now - then)} less; {price}."
    )
    return [Note("cache_half_quantized", text)]


def _divided(row: CacheRow) -> str:
    """What the speeds carry of it."""
    if row.effect != ON_CPU:
        return ""
    return f" The speeds here are divided by {row.factor:g} for that; with a build that has the kernels they are not."


def _subject(row: CacheRow, kind: str) -> str:
    if row.effect == "unknown":
        return f"How fast a {kind} cache is here is not known"
    return f"Keys in {kind} harm the answers" if row.effect == "lossy_keys" else f"A {kind} cache is slow here"
