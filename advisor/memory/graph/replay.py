"""Repeat one round of a pattern of blocks in the allocator without building its graph.

What a block does to the buffers (sizes, order, which memory is taken over, what is freed when) is the same in every
round; only addresses differ. Two logged rounds give that program, and running it for the rounds left out moves the
free lists and the peak exactly as the full graph would.
"""

from advisor.memory.graph.alloc import Allocator, Event
from advisor.memory.graph.tensor import Tensor
from advisor.records import NamedTuple

TAKE, INHERIT, GIVE = 0, 1, 2


class Step(NamedTuple):
    """One action: on buffer `buffer` for the round's `ordinal`-th result; `before` = it was made a round earlier."""

    kind: int
    buffer: int
    size: int
    ordinal: int
    source: int
    before: bool
    extra: int


def program(first: list[Event], second: list[Event]) -> list[Step] | None:
    """What both rounds do, with every reference made relative; None when they differ or reach further back."""
    if len(first) != len(second):
        return None
    made_first = ordinals(first)
    made_second = ordinals(second)
    steps: list[Step] = []
    for a, b in zip(first, second, strict=True):
        if a.kind != b.kind or a.buffer != b.buffer or a.size != b.size or a.extra != b.extra:
            return None
        ordinal = made_second.get(b.tensor, -1)
        source, before = -1, False
        if a.kind != TAKE:
            old, new = (a.source, b.source) if a.kind == INHERIT else (a.tensor, b.tensor)
            assert old is not None
            assert new is not None
            if new in made_second and old in made_first:
                source = made_second[new]
                if source != made_first[old]:
                    return None
            elif new in made_first and new not in made_second and old not in made_first:
                source, before = made_first[new], True
            else:
                return None
        steps.append(Step(a.kind, a.buffer, a.size, ordinal, source, before, a.extra))
    return steps


def ordinals(events: list[Event]) -> dict[Tensor, int]:
    """Results of a round, numbered in the order of their making."""
    made: dict[Tensor, int] = {}
    for event in events:
        if event.kind != GIVE:
            made[event.tensor] = len(made)
    return made


def repeat(allocator: Allocator, first: list[Event], second: list[Event], times: int) -> bool:
    """Run the round of `second` `times` more times; False when the two rounds are no repetition."""
    if any(t.allocated and t.size for t in ordinals(first)):
        return False  # lives longer than a round
    steps = program(first, second)
    if steps is None:
        return False
    made = ordinals(second)
    previous = [t.offset for t in made]
    carried = sorted({s.source for s in steps if s.before})
    buffers = allocator.buffers
    seen: dict[tuple[object, ...], int] = {}
    done = 0
    while done < times:
        current = [0] * len(made)
        for kind, buffer, size, ordinal, source, before, extra in steps:
            if kind == TAKE:
                current[ordinal] = buffers[buffer].take(size)
            elif kind == GIVE:
                buffers[buffer].give((previous if before else current)[source], size)
            else:
                offset = (previous if before else current)[source]
                current[ordinal] = offset
                if extra:
                    buffers[buffer].give(offset + size, extra)
        previous = current
        done += 1
        state = (
            *(current[i] for i in carried),
            *(tuple(b.offsets) for b in buffers),
            *(tuple(b.sizes) for b in buffers),
        )
        earlier = seen.get(state)
        if earlier is not None:
            times = done + (times - done) % (done - earlier)
            seen.clear()
        else:
            seen[state] = done
    for t, offset in zip(made, previous, strict=True):
        t.offset = offset
    return True
