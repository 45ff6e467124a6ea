"""Which blocks of a model are enough to find the peak: repeats of a pattern add nothing after the first few.

The allocator returns to the same state after every round of a repeated pattern of blocks, so a long run of equal
rounds is cut to its first few. Blocks keep their numbers: weights, devices and caches stay those of the real ones.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from advisor.memory.graph.model import BLOCK_NAME, CPU, GraphModel, GraphPlacement, Hyper

MAX_PERIOD = 8


def block_kinds(model: GraphModel, h: Hyper, typed: bool) -> list[int]:
    """A number per block: equal numbers = the same tensors, shapes and attention, with `typed` also the same types.

    Types matter only where weights are copied, which is on the host.
    """
    kinds = model.kinds.get(typed)
    if kinds is None:
        parts: list[list[object]] = [[h.swa[i], h.head[i], h.head_kv[i], h.ff[i]] for i in range(h.n_layer_all)]
        flags = h.get("attention.recurrent_layers")
        if isinstance(flags, (tuple, list)):
            for i, flag in enumerate(flags[: h.n_layer_all]):
                parts[i].append(flag)
        for name, info in model.tensors.items():
            match = BLOCK_NAME.match(name)
            if match:
                parts[int(match.group(1))].append((name[match.end() :], info if typed else info[0]))
        step = h.whole("no_rope_layer_step", h.style.no_rope_step)
        interval = h.whole("full_attention_interval", 8 if h.style.family == "lightning" else 4)
        period = step if h.style.no_rope_step > 0 else interval if h.style.family in ("delta", "lightning") else 0
        seen: dict[tuple[object, ...], int] = {}
        kinds = []
        for i in range(h.n_layer):
            if period:
                parts[i].append(i % period == 0 if h.style.no_rope_first else (i + 1) % period == 0)
            parts[i].append(i < h.whole("n_deepstack_layers"))
            parts[i].append(h.style.family == "gemma3n" and (i < 10, i < 20))
            parts[i].append(h.style.family == "gemma4" and i < h.n_layer_all - h.whole("attention.shared_kv_layers"))
            parts[i].append(h.style.family == "rwkv" and i == 0)
            kinds.append(seen.setdefault(tuple(parts[i]), len(seen)))
        model.kinds[typed] = kinds
    return kinds


def matched_blocks(model: GraphModel, pattern: str) -> dict[int, tuple[str, ...]]:
    """The tensors of each block that a host pattern finds."""
    found = model.matches.get(pattern)
    if found is None:
        expression = model.expression(pattern)
        by_block: dict[int, list[str]] = {}
        for name in model.tensors:
            match = BLOCK_NAME.match(name)
            if match and expression.search(name):
                by_block.setdefault(int(match.group(1)), []).append(name[match.end() :])
        found = {i: tuple(names) for i, names in by_block.items()}
        model.matches[pattern] = found
    return found


class Check(NamedTuple):
    """Positions in the list of blocks: the state at `end` must be that at one of `earlier`."""

    end: int
    earlier: tuple[int, ...]


class Reduction(NamedTuple):
    """The blocks to build, and what must hold for the result to be that of all blocks."""

    ids: list[int]
    checks: list[Check]


def needed_blocks(
    model: GraphModel, h: Hyper, placement: GraphPlacement, rounds: int, lags: tuple[int, ...]
) -> Reduction:
    """The reduced list of blocks: of every run of a repeated pattern at least `rounds` rounds.

    What is cut is a multiple of every lag in rounds, so that a state which comes back after 2 or 3 rounds, as where
    the residual stream moves between places, is met in the same phase.
    """
    step = math.lcm(*lags)
    plain = block_kinds(model, h, False)
    typed = block_kinds(model, h, True) if placement.n_gpu else plain
    keys: list[object] = [
        (device, typed[i] if device == CPU else -1, plain[i]) for i, device in enumerate(placement.layers[: h.n_layer])
    ]
    for pattern in placement.host_patterns:
        found = matched_blocks(model, pattern)
        keys = [(key, found.get(i), typed[i] if i in found else -1) for i, key in enumerate(keys)]
    numbers: dict[object, int] = {}
    codes = [numbers.setdefault(key, len(numbers)) for key in keys]
    last = h.n_layer - 1  # a kind of its own: only the wanted rows go on
    ids: list[int] = []
    checks: list[Check] = []
    i = 0
    while i < last:
        period, length = longest_run(codes, i, last)
        count = length // period
        least = rounds if period == 1 else max(3, rounds - 1)  # a long round settles sooner
        keep = least + (count - least) % step
        if count > keep:
            end = len(ids) + keep * period
            ids.extend(range(i, i + keep * period))
            inside = end - period  # not at the very end, where the next run's splits already begin
            checks.append(Check(inside, tuple(inside - lag * period for lag in lags)))
            i += count * period
        else:
            ids.append(i)
            i += 1
    ids.append(last)
    return Reduction(ids, checks)


def longest_run(codes: list[int], start: int, end: int) -> tuple[int, int]:
    """Period and length of the repeating pattern at `start` that covers most; the shortest period among equals."""
    best, best_length = 1, 1
    for period in range(1, MAX_PERIOD + 1):
        j = start + period
        while j < end and codes[j] == codes[j - period]:
            j += 1
        length = (j - start) // period * period
        if length >= 2 * period and length > best_length:
            best, best_length = period, length
    return best, best_length
