"""Run a model's blocks through the allocator when only some of them were built.

What a block does to the buffers depends on its kind, on the kind before it, and on whether it is the first or the last
of its kind; only addresses differ. So the events of one such block stand for all that are like it.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from advisor.memory.graph.alloc import Buffers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.memory.graph.alloc import Event, State, Trace

HEAD = -1  # what comes before the first block
LONG = (1, 3)  # blocks; the built ones lie closer together than those of the model


def run_blocks(found: Trace, n_buffers: int, stands: Sequence[int], own: Mapping[int, int]) -> list[int] | None:
    """Bytes per backend of the whole model; `stands[i]` is the built block that stands for block i.

    `own`: memory that is laid out in front for one built block alone, and which. None when the built blocks do not
    tell the others: memory that lives longer than the next block changes hands in a block that stands for several, or
    two blocks that follow each other do not hand over what they expect.
    """
    uses = Counter(stands)
    numbers = _handed_over(found, stands, uses, own)
    if numbers is None:
        return None
    head, parts = _parts(found)
    buffers = Buffers(n_buffers, found.n_blocks)
    places = _lay_out(buffers, head, stands, own) if own else {}
    if not own:
        buffers.run(head)
    at = buffers.at
    carried: tuple[int, ...] = ()
    known: dict[tuple[int, tuple[int, ...], State], tuple[tuple[int, ...], State]] = {}
    for i, k in enumerate(stands):
        repeated = uses[k] > 1 and not own
        if repeated:
            state = (k, carried, buffers.state())
            after = known.get(state)
            if after is not None:
                carried = after[0]
                buffers.restore(after[1])
                continue
        if k:
            for block, offset in zip(numbers[k - 1], carried, strict=True):
                at[block] = offset
        for block, offset in places.get(i, ()):
            at[block] = offset
        buffers.run(parts[k])
        carried = tuple([at[block] for block in numbers[k]])
        if repeated:
            known[state] = (carried, buffers.state())
    return buffers.high()


def _lay_out(
    buffers: Buffers, head: Sequence[Event], stands: Sequence[int], own: Mapping[int, int]
) -> dict[int, list[tuple[int, int]]]:
    """Run the head with the memory of the blocks that were not built in its place; per block (number, address)."""
    of_part: dict[int, list[Event]] = {}
    for event in head:
        if event[2] in own:
            of_part.setdefault(own[event[2]], []).append(event)
    places: dict[int, list[tuple[int, int]]] = {}
    done = 0
    for event in head:
        part = own.get(event[2])
        if part is None:
            buffers.run((event,))
        elif event is of_part[part][0] and part in stands:
            until = stands.index(part) + 1
            for i in range(done, until):
                taken = of_part.get(stands[i], ())
                buffers.run(taken)
                places[i] = [(block, buffers.at[block]) for _, _, block, _, _ in taken]
            done = max(done, until)
    return places


def _parts(found: Trace) -> tuple[list[Event], list[list[Event]]]:
    """What comes before the first block, and each block's own."""
    ends = [*found.cuts[1:], len(found.events)]
    parts = [found.events[begin:end] for begin, end in zip(found.cuts, ends, strict=True)]
    return found.events[: found.cuts[0]], parts


def _handed_over(
    found: Trace, stands: Sequence[int], uses: Counter[int], own: Mapping[int, int]
) -> list[list[int]] | None:
    """Per built block: numbers of the memory that it hands on for a later one to end, in the order of making.

    Sizes that are equal with their unknowns are so for all values, and then one answer holds for whatever is read off.
    """
    source = found if found.like is None else found.like
    key = tuple(stands)
    known = source.handed.get(key)
    if known is None:
        numbers, first = _compared(source, stands, uses, own)
        known = source.handed[key] = numbers, first or source is found
    return known[0] if known[1] or source is found else _compared(found, stands, uses, own)[0]


def _compared(
    found: Trace, stands: Sequence[int], uses: Counter[int], own: Mapping[int, int]
) -> tuple[list[list[int]] | None, bool]:
    """What is handed over, and whether no unequal sizes were met on the way to it.

    What lives between two blocks that stand for themselves is not handed on, if it lives long.
    """
    head, parts = _parts(found)
    made = {block: HEAD for _, _, block, _, _ in head}
    sizes: dict[int, int] = {}
    ended: dict[int, int] = {}
    for k, part in enumerate(parts):
        for takes, _, block, _, size in part:
            if takes:
                made[block] = k
                sizes[block] = size
            elif made[block] != k:
                ended[block] = k
    if any(made[block] == HEAD and uses[k] > 1 and own.get(block) != k for block, k in ended.items()):
        return None, True
    steps = {(p, q - 1) for p, q in pairwise(stands) if q != p + 1}
    for long in LONG:
        handed: list[list[tuple[int, int]]] = [[] for _ in parts]
        for block, k in ended.items():
            origin = made[block]
            if origin == HEAD or (k - origin > long and uses[k] == uses[origin] == 1):
                continue
            for at in range(origin, k):
                handed[at].append((block, sizes[block]))
        for blocks in handed:
            blocks.sort()
        widths = [[size for _, size in blocks] for blocks in handed]
        if all(widths[p] == widths[q] for p, q in steps):
            return [[block for block, _ in blocks] for blocks in handed], long == LONG[0]
    return None, False
