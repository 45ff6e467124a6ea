"""ggml's graph allocator: best fit over a sorted list of free blocks, one growing buffer per backend.

Facts from ggml-alloc.c of llama.cpp b11434: leaves first, then explicit inputs, then every node in order; a node may
take over a parent's memory; memory returns when the last reader and the last view are gone; outputs never return.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import TypeAlias

from advisor.memory.graph.tensor import (
    BLOCK,
    F16,
    INPLACE_OPS,
    NO_PLACE,
    Q4_0,
    Q8_0,
    Extents,
    Tensor,
    n_bytes,
    n_elements,
    row_size,
    strides,
)
from advisor.records import NamedTuple

UNBOUNDED = 1 << 62


class FreeList:
    """One buffer: free blocks sorted by offset; the last one is the open end.

    `odd`: once a block of nothing was put in neither need be so, and everything goes in the engine's own order.
    """

    __slots__ = ("high", "odd", "offsets", "sizes")

    def __init__(self) -> None:
        self.offsets = [0]
        self.sizes = [UNBOUNDED]
        self.high = 0
        self.odd = False

    def take(self, size: int) -> int:
        """Offset of a block of `size` bytes (already aligned): the tightest hole, else the open end."""
        at = [0]
        run((self,), ((True, 0, 0, 0, size),), at)
        return at[0]

    def give(self, offset: int, size: int) -> None:
        """Return a block and merge it with its neighbours."""
        run((self,), ((False, 0, 0, 0, size),), [offset])

    def take_in_order(self, size: int) -> int:
        """As the engine comes by the holes."""
        sizes = self.sizes
        last = best = len(sizes) - 1
        best_size = UNBOUNDED
        for i in range(last):
            if size <= sizes[i] <= best_size:
                best_size, best = sizes[i], i
        offset = self.offsets[best]
        self.offsets[best] = offset + size
        sizes[best] -= size
        if sizes[best] == 0:
            del sizes[best], self.offsets[best]
        self.high = max(self.high, offset + size)
        return offset

    def give_in_order(self, offset: int, size: int) -> None:
        """Merge with the neighbours as the engine comes by them."""
        offsets, sizes = self.offsets, self.sizes
        end = offset + size
        for i in range(len(offsets)):
            if offsets[i] + sizes[i] == offset:
                sizes[i] += size
                if i + 1 < len(offsets) and offsets[i] + sizes[i] == offsets[i + 1]:
                    sizes[i] += sizes[i + 1]
                    del sizes[i + 1], offsets[i + 1]
                return
            if end == offsets[i]:
                offsets[i] = offset
                sizes[i] += size
                if i > 0 and offsets[i - 1] + sizes[i - 1] == offset:
                    sizes[i - 1] += sizes[i]
                    del sizes[i], offsets[i]
                return
        position = 0
        while position < len(offsets) and offsets[position] < offset:
            position += 1
        offsets.insert(position, offset)
        sizes.insert(position, size)


class BufferRule:
    """How one backend's buffers size and align tensors.

    `row_multiple`: elements to which the last row of a quantised tensor is padded, 0 = none. `scratch`: flash
    attention keeps f16 copies of a cache of another type behind its result.
    """

    __slots__ = ("_known", "alignment", "row_multiple", "scratch")

    def __init__(self, alignment: int, row_multiple: int = 0, scratch: bool = False) -> None:
        self.alignment = alignment
        self.row_multiple = row_multiple
        self.scratch = scratch
        self._known: dict[tuple[int, Extents], int] = {}  # of contiguous tensors

    def size(self, t: Tensor) -> int:
        """Bytes the buffer reserves for `t`, aligned."""
        if t.nb is None and t.op != "FLASH_ATTN_EXT":
            key = (t.type, t.ne)
            size = self._known.get(key)
            if size is None:
                size = self._known[key] = self._padded(t, n_bytes(t))
            return size
        size = n_bytes(t)
        if self.scratch and t.op == "FLASH_ATTN_EXT":
            size = attention_bytes(t, size)
        return self._padded(t, size)

    def _padded(self, t: Tensor, size: int) -> int:
        multiple = self.row_multiple
        if multiple and BLOCK[t.type] > 1 and t.ne[0] % multiple:
            size += row_size(t.type, multiple - t.ne[0] % multiple)
        return -(-size // self.alignment) * self.alignment


def attention_bytes(t: Tensor, size: int) -> int:
    """A flash-attention result with the f16 copies of keys and values that its batch kernel needs behind it."""
    q, k, v = t.src[0], t.src[1], t.src[2]
    head = q.ne[0]
    compiled = k.type == v.type and k.type in (Q4_0, Q8_0)  # vector kernels of a build with GGML_CUDA_FA_QUANTS unset
    if compiled and q.ne[1] <= 2 and head <= 256 and head % 64 == 0 and head != 192 and k.ne[1] % 256 == 0:
        return size
    same_memory = v.root is not None and (
        v.root is k or (k.root is not None and v.root is k.root and v.view_offset == k.view_offset)
    )
    if k.type != F16:
        size = -(-size // 128) * 128 + n_elements(k) * 2
    if v.type != F16 and not same_memory:
        size = -(-size // 128) * 128 + n_elements(v) * 2
    return size


Event: TypeAlias = tuple[bool, int, int, int, int]
"""Something the allocator does: (takes, buffer, number of the memory block, shift, bytes).

It takes that many bytes, or gives them back from `shift` on. A node that takes over a parent's memory goes on under
the parent's number. A plain tuple, since hundreds are made per estimate.
"""

State: TypeAlias = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


class Trace(NamedTuple):
    """What a graph does to the buffers; nothing in it depends on addresses. `cuts`: where the asked nodes begin.

    `like`: the trace with unknowns in its sizes that this one was read off. `handed`: what `chain` found out about it.
    """

    events: list[Event]
    cuts: list[int]
    n_blocks: int
    handed: dict[tuple[int, ...], tuple[list[list[int]] | None, bool]]
    like: "Trace | None" = None


def trace(
    rules: Sequence[BufferRule], leaves: Sequence[Tensor], nodes: Sequence[Tensor], cuts: Sequence[int] = ()
) -> Trace:
    """The events of a graph given in execution order, a backend set on each tensor; `cuts`: ascending node indices."""
    events: list[Event] = []
    add = events.append
    sizes = [rule.size for rule in rules]
    n_blocks = 0

    def allocate(t: Tensor, backend: int) -> None:
        nonlocal n_blocks
        t.allocated = True
        if t.op in INPLACE_OPS:
            for s in t.src:
                # a view is never "own" memory, so only a parent that holds memory itself can be taken over
                if s.allocated and not s.is_output and s.n_children == 1 and s.n_views == 0 and same_layout(t, s):
                    t.buffer, t.block = s.buffer, s.block
                    t.size = sizes[s.buffer](t)
                    s.allocated = False
                    if s.size > t.size:
                        add((False, t.buffer, t.block, t.size, s.size - t.size))
                    return
        t.buffer, t.block = backend, n_blocks
        t.size = size = sizes[backend](t)
        add((True, backend, n_blocks, 0, size))
        n_blocks += 1

    for t in leaves:
        if not t.allocated:
            allocate(t, t.backend)
    for t in nodes:
        if t.root is not None and t.op != "NONE":
            t.root.n_views += 1
        if t.is_input and not t.allocated:
            allocate(t, t.backend)
        for s in t.src:
            s.n_children += 1
            if s.is_input and not s.allocated:
                allocate(s, t.backend)
    marks: list[int] = []
    begin = 0
    for end in (*cuts, len(nodes)):
        for t in nodes[begin:end]:
            src = t.src
            for s in src:
                if not s.allocated and s.place == NO_PLACE and s.root is None:
                    allocate(s, t.backend)
            if not t.allocated and t.root is None:
                allocate(t, t.backend)
            for s in src:
                s.n_children -= 1
                if not s.n_children and not s.n_views:
                    root = s.root
                    if root is not None:
                        root.n_views -= 1
                        if root.n_views or root.n_children:
                            continue
                        s = root
                    if s.allocated and not s.is_output:
                        add((False, s.buffer, s.block, 0, s.size))
                        s.allocated = False
        marks.append(len(events))
        begin = end
    return Trace(events, marks[:-1], n_blocks, {})


class Buffers:
    """The free lists of all backends, and where the memory blocks lie."""

    __slots__ = ("at", "lists")

    def __init__(self, n_buffers: int, n_blocks: int) -> None:
        self.lists = [FreeList() for _ in range(n_buffers)]
        self.at = [0] * n_blocks

    def run(self, events: Sequence[Event]) -> None:
        """Do what the events say."""
        run(self.lists, events, self.at)

    def state(self) -> State:
        """The free lists, to compare and to come back to; the widest moment is not part of it."""
        return tuple([(tuple(free.offsets), tuple(free.sizes)) for free in self.lists])

    def restore(self, state: State) -> None:
        """Go back to such free lists."""
        for free, (offsets, sizes) in zip(self.lists, state, strict=True):
            free.offsets, free.sizes = list(offsets), list(sizes)

    def high(self) -> list[int]:
        """Bytes per backend at the widest moment so far."""
        return [free.high for free in self.lists]


def run(lists: Sequence[FreeList], events: Sequence[Event], at: list[int]) -> None:
    """Do what the events say to the free lists; `at`: where each memory block lies. In one piece, being done so often.

    A block of nothing is taken and given in the engine's own order, and so is everything once one lies among the holes.
    """
    current, free, high = -1, lists[0], 0
    offsets, sizes, odd = free.offsets, free.sizes, free.odd
    for takes, buffer, block, shift, size in events:
        if buffer != current:  # what follows is mostly of one buffer
            if current >= 0:
                free.high = high
            current, free = buffer, lists[buffer]
            offsets, sizes, high, odd = free.offsets, free.sizes, free.high, free.odd
        if odd or not size:
            free.high = high
            if takes:
                at[block] = free.take_in_order(size)
            else:
                n_holes = len(sizes)
                free.give_in_order(at[block] + shift, size)
                free.odd = odd = odd or len(sizes) != n_holes  # nothing, beside a hole, changes nothing
            high = free.high
            continue
        if takes:
            best = len(sizes) - 1
            tightest = sizes[best]  # the open end is the largest
            if best:
                i = 0
                for hole in sizes:
                    if size <= hole <= tightest:  # of equal ones the last
                        best, tightest = i, hole
                    i += 1  # noqa: SIM113 - quicker than enumerate here
            offset = at[block] = offsets[best]
            if tightest == size:
                del sizes[best], offsets[best]
            else:
                sizes[best] = tightest - size
                offsets[best] = end = offset + size
                if end > high:
                    high = end
            continue
        offset = at[block] + shift
        after = bisect_left(offsets, offset)
        joins_next = offsets[after] == offset + size  # the open end lies behind everything
        if after:
            before = after - 1
            if offsets[before] + sizes[before] == offset:
                if joins_next:
                    sizes[before] += size + sizes[after]
                    del sizes[after], offsets[after]
                else:
                    sizes[before] += size
                continue
        if joins_next:
            offsets[after] = offset
            sizes[after] += size
        else:
            offsets.insert(after, offset)
            sizes.insert(after, size)
    if current >= 0:
        free.high = high


def same_layout(a: Tensor, b: Tensor) -> bool:
    """Same type, extents and strides."""
    if a.type != b.type or a.ne != b.ne:
        return False
    return a.nb == b.nb or strides(a) == strides(b)
