"""Which blocks of a model are enough to build: of a repeated pattern two rounds, the rest is replayed.

Blocks keep their numbers: weights, devices and caches stay those of the real ones.
"""

from advisor.memory.graph.model import BLOCK_NAME, CPU, GraphModel, GraphPlacement, Hyper
from advisor.records import NamedTuple

MAX_PERIOD = 8
LEAD = 2


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
                parts[i].append((i + 1) % period == 0)
            parts[i].append(i < h.whole("n_deepstack_layers"))
            parts[i].append(h.style.family == "gemma3n" and (i < 10, i < 20))
            parts[i].append(h.style.family == "gemma4" and i < h.n_layer_all - h.whole("attention.shared_kv_layers"))
            parts[i].append(h.style.family == "rwkv" and i == 0)
            kinds.append(seen.setdefault(tuple(parts[i]), len(seen)))
        model.kinds[typed] = kinds
    return kinds


def matched_blocks(model: GraphModel, pattern: str) -> dict[int, tuple[str, ...]]:
    """The tensors of each block that an override finds."""
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


class Gap(NamedTuple):
    """Rounds left out at block position `end`; the two rounds before it start at `first` and `second`."""

    first: int
    second: int
    end: int
    times: int


class Reduction(NamedTuple):
    """The blocks to build, and the gaps between them."""

    ids: list[int]
    gaps: list[Gap]


def needed_blocks(model: GraphModel, h: Hyper, placement: GraphPlacement, simple: bool) -> Reduction:
    """The reduced list of blocks: of every run of a repeated pattern two rounds and what frames them.

    In front two blocks, because a feed-forward part runs inside the next block's round and a stream that comes from
    another device is freed otherwise; a whole round unless the graph is `simple` (everything on GPUs), because
    inputs are copied when a split first needs them. Behind one block, or a whole round of a longer pattern: inputs
    that only some blocks read are freed with their last reader, which must not fall into the two rounds.
    """
    plain = block_kinds(model, h, False)
    typed = block_kinds(model, h, True) if placement.n_gpu else plain
    keys: list[object] = [
        (device, typed[i] if device == CPU else -1, plain[i]) for i, device in enumerate(placement.layers[: h.n_layer])
    ]
    for pattern, _ in placement.overrides:
        found = matched_blocks(model, pattern)
        keys = [(key, found.get(i), typed[i] if i in found else -1) for i, key in enumerate(keys)]
    numbers: dict[object, int] = {}
    codes = [numbers.setdefault(key, len(numbers)) for key in keys]
    last = h.n_layer - 1  # a kind of its own: only the wanted rows go on
    ids: list[int] = []
    gaps: list[Gap] = []
    i = 0
    while i < last:
        period, length = longest_run(codes, i, last)
        lead = LEAD if simple else max(LEAD, period)
        keep = lead + 2 * period + (1 if period == 1 else period)
        times = (length - keep) // period
        if times > 0:
            keep = length - times * period
            begin = len(ids)
            ids.extend(range(i, i + keep))
            first = begin + lead
            gaps.append(Gap(first, first + period, first + 2 * period, times))
            i += length
        else:
            ids.append(i)
            i += 1
    ids.append(last)
    return Reduction(ids, gaps)


def longest_run(codes: list[int], start: int, end: int) -> tuple[int, int]:
    """Period and length of the repeating pattern at `start` that covers most; the shortest period among equals."""
    best, best_length = 1, 1
    for period in range(1, MAX_PERIOD + 1):
        j = start + period
        while j < end and codes[j] == codes[j - period]:
            j += 1
        length = j - start
        if length >= 2 * period and length > best_length + period:
            best, best_length = period, length
    return best, best_length
