"""Which blocks of a model are enough to build: one of each kind of neighbours, which stands for all that are alike.

Blocks keep their numbers: weights, devices and caches stay those of the real ones.
"""

import re
from collections.abc import Sequence

from advisor.memory.graph.model import CPU, GraphModel, GraphPlacement, Hyper
from advisor.memory.placement import one_block
from advisor.records import NamedTuple

_LISTED = re.compile(r"blk\\\.\((\d+(?:\|\d+)*)\)\\\.(.*)")  # blk\.(0|1|2)\.REST
# Families whose blocks gather their state before the block before them is done.
GATHERS = frozenset(("delta", "lightning", "rwkv", "kda", "mamba"))
HANDS_ON = GATHERS - {"delta"}  # and what is gathered is another thing for the last block of a kind


def block_kinds(model: GraphModel, h: Hyper, detail: str) -> list[int]:
    """A number per block: equal numbers = the same tensors, shapes and attention.

    `detail`: "types" tells also types apart, which matter only where weights are copied, which is on the host;
    "attention" leaves the feed-forward part out, which reads none of the graph's inputs.
    """
    kinds = model.kinds.get(detail)
    if kinds is None:
        parts: list[list[object]] = [[h.swa[i], h.head[i], h.head_kv[i]] for i in range(h.n_layer_all)]
        if detail != "attention":
            for i, width in enumerate(h.ff[: h.n_layer_all]):
                parts[i].append(width)
        flags = h.get("attention.recurrent_layers")
        if isinstance(flags, (tuple, list)):
            for i, flag in enumerate(flags[: h.n_layer_all]):
                parts[i].append(flag)
        for i, name, shape, kind in block_tensors(model):
            if detail != "attention" or not is_feed_forward(name):
                parts[i].append((name, shape, kind if detail == "types" else -1))
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
        model.kinds[detail] = kinds
    return kinds


def block_tensors(model: GraphModel) -> list[tuple[int, str, tuple[int, ...], int]]:
    """Every block's tensors: number of the block, name within it, shape, type."""
    if not model.in_blocks:
        for name, (shape, kind) in model.tensors.items():
            if name.startswith("blk."):
                number, _, rest = name[4:].partition(".")
                if number.isdecimal():
                    model.in_blocks.append((int(number), rest, shape, kind))
    return model.in_blocks


def is_feed_forward(name: str) -> bool:
    """Whether a block's tensor belongs to its feed-forward part."""
    return name.startswith(("ffn_", "exp_probs_b"))


def matched_blocks(model: GraphModel, pattern: str) -> dict[int, tuple[str, ...]]:
    """The tensors of each block that an override finds."""
    found = model.matches.get(pattern)
    if found is None:
        listed = _LISTED.fullmatch(pattern)
        if listed is not None:  # of --n-cpu-moe: the same tensors for every number of blocks
            every = matched_blocks(model, rf"blk\.\d+\.{listed.group(2)}")
            wanted = {int(number) for number in listed.group(1).split("|")}
            found = model.matches[pattern] = {i: names for i, names in every.items() if i in wanted}
            return found
        expression = model.expression(pattern)
        by_block: dict[int, list[str]] = {}
        only = one_block(pattern)
        for i, rest, _, _ in block_tensors(model):
            if (only is None or i == only) and expression.search(f"blk.{i}.{rest}"):
                by_block.setdefault(i, []).append(rest)
        found = {i: tuple(names) for i, names in by_block.items()}
        model.matches[pattern] = found
    return found


def outside_blocks(model: GraphModel, pattern: str) -> tuple[str, ...]:
    """The tensors of no block that an override finds."""
    found = model.outside.get(pattern)
    if found is None:
        listed = _LISTED.fullmatch(pattern)
        if one_block(pattern) is not None:
            found = ()
        elif listed is not None:  # numbers that are compared are cheaper than as many expressions
            wanted = {int(number) for number in listed.group(1).split("|")}
            numbered = model.expression(rf"blk\.(\d+)\.{listed.group(2)}")
            hits = [(name, numbered.search(name)) for name in model.outer()]
            found = tuple([name for name, hit in hits if hit is not None and int(hit[1]) in wanted])
        else:
            found = tuple(filter(model.expression(pattern).search, model.outer()))
        model.outside[pattern] = found
    return found


class Reduction(NamedTuple):
    """The blocks to build; `stands[i]` is the position in `ids` of the one that stands for block i.

    `shape`: kind and place of each that is built; equal shapes make equal graphs.
    """

    ids: list[int]
    stands: list[int]
    shape: tuple[object, ...]


class Block(NamedTuple):
    """What tells a block from others: `attention` and `home` decide what it reads of the graph's inputs and where."""

    attention: object
    home: object  # where its attention lies
    place: object  # where all of it lies
    rest: object


def needed_blocks(model: GraphModel, h: Hyper, placement: GraphPlacement, together: bool) -> Reduction:
    """Blocks in which everything that happens in the model happens at least once.

    A block is told by its kind, its device, whether it is the first or the last there of its kind of attention (the
    first brings copies of inputs to a device, the last frees what only such blocks read; attention lies with the block
    also where feed-forward parts do not) and where the one before it ran. What the next one gathers or copies before it
    starts falls into the block's own time, so it stands for others with a like successor. Where every block lies
    `together` with its cache on one device, a device has all its copies from the start: no first is special, and where
    nothing is gathered a block stands for all that go on at its place.
    """
    plain, attention = block_kinds(model, h, "shapes"), block_kinds(model, h, "attention")
    copied = placement.n_gpu > 0 and (CPU in placement.layers or bool(placement.overrides))
    typed = block_kinds(model, h, "types") if copied else plain
    places: list[tuple[object, ...]] = [(device,) for device in placement.layers[: h.n_layer]]
    homes = list(places)
    rest: list[tuple[object, ...]] = [
        (plain[i], typed[i] if device == CPU else -1) for i, device in enumerate(placement.layers[: h.n_layer])
    ]
    for number, (pattern, _) in enumerate(placement.overrides):
        for i, names in matched_blocks(model, pattern).items():
            if i < h.n_layer:
                moved = tuple([name for name in names if not is_feed_forward(name)])
                places[i] = (*places[i], number, moved, len(moved) < len(names))
                if moved:
                    homes[i] = (*homes[i], number, moved)
                rest[i] = (*rest[i], names, tuple([model.tensors[f"blk.{i}.{name}"][1] for name in names]))
    blocks = [Block(*one) for one in zip(attention, homes, places, rest, strict=False)]
    family = h.style.family
    return shortened(blocks, not together or family in GATHERS, not together, family in HANDS_ON)


def shortened(blocks: Sequence[Block], ahead: bool, firsts: bool, lasts: bool = False) -> Reduction:
    """The same for any sequence of blocks.

    `ahead`: the attention of the next block tells blocks apart; `firsts`: the first of a kind is told from the others;
    `lasts`: the next block being the last of its kind tells blocks apart.
    """
    last = len(blocks) - 1  # a kind of its own: only the wanted rows go on
    readers = [(block.attention, block.home) for block in blocks]
    final = {reader: i for i, reader in enumerate(readers)}
    begun: set[object] = set()
    # what a block shows to the one before it, and that with what tells it from others of the same face
    faces: list[object] = []
    codes: list[object] = []
    before: object = None
    for i, (block, reader) in enumerate(zip(blocks, readers, strict=True)):
        face = (reader, block.place, i == last, firsts and reader not in begun, before, lasts and final[reader] == i)
        faces.append(face if ahead else (before, block.place))
        codes.append((face, final[reader] == i, block.rest))
        begun.add(reader)
        before = block.place
    faces.append(None)
    ids: list[int] = []
    at: dict[tuple[object, object], int] = {}
    stands: list[int] = []
    for i in range(last + 1):
        whole = (codes[i], faces[i + 1])
        if whole not in at:
            for j in (*_bridge(faces, ids[-1], i), i) if ids else (i,):
                at.setdefault((codes[j], faces[j + 1]), len(ids))
                ids.append(j)
        stands.append(at[whole])
    return Reduction(ids, stands, tuple([(*blocks[i], i == last) for i in ids]))


def _bridge(faces: Sequence[object], begin: int, end: int) -> list[int]:
    """The fewest blocks between two built ones, so that each is followed by a block like the one after it."""
    came: dict[int, int] = {begin: begin}
    queue = [begin]
    for at in queue:
        if faces[at + 1] == faces[end]:
            path: list[int] = []
            while at != begin:
                path.append(at)
                at = came[at]
            return path[::-1]
        reached: set[object] = set()
        for j in range(at + 1, end):
            if faces[j] == faces[at + 1] and j not in came and faces[j + 1] not in reached:
                reached.add(faces[j + 1])
                came[j] = at
                queue.append(j)
    return list(range(begin + 1, end))
