"""The scheduler: which backend runs each node, where the graph splits, and which tensors are copied across.

Backends are numbered GPUs first, the CPU last. Facts from ggml-backend.cpp of llama.cpp b11434.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from advisor.memory.graph.alloc import BufferRule, Buffers, Trace, trace
from advisor.memory.graph.chain import run_blocks
from advisor.memory.graph.support import CHOOSY
from advisor.memory.graph.tensor import NO_PLACE, VIEW_OPS, Tensor
from advisor.records import NamedTuple

PIPELINE_COPIES = 4
OFFLOAD_MIN_BATCH = 32

Supports = Callable[[int, Tensor], bool]
Split: TypeAlias = tuple[int, int, list[Tensor]]  # backend, first node, inputs copied to it


class Graph:
    """Nodes and leaves in the order a depth-first walk from each expanded result finds them.

    Weights and caches, which lie somewhere already, are no leaves here.
    """

    def __init__(self) -> None:
        self.nodes: list[Tensor] = []
        self.leaves: list[Tensor] = []
        self.leaves_at: list[int] = []  # the number of nodes when each was found
        self.marks: list[Tensor] = []

    def mark(self, t: Tensor) -> None:
        """Note what enters a block; the block begins behind it."""
        self.marks.append(t)

    def expand(self, t: Tensor) -> Tensor:
        """Append `t` and everything it needs that is not there yet; what has a place of its own needs none here."""
        if not t.visited:
            self._visit(t)
        return t

    def _visit(self, t: Tensor) -> None:
        t.visited = True
        for s in t.src:
            if not s.visited and s.place == NO_PLACE:
                self._visit(s)
        if t.op == "NONE":
            self.leaves.append(t)
            self.leaves_at.append(len(self.nodes))
        else:
            self.nodes.append(t)


class Traced(NamedTuple):
    """A scheduled graph's events.

    `copies`: what a pipeline copies, as (block that needs it, backend, bytes); they are laid out before everything
    else and never freed, so each block adds its own. `own`: memory blocks of constants, laid out in front too, that
    one block of the model alone reads, and which.
    """

    trace: Trace
    copies: list[tuple[int, int, int]]
    own: dict[int, int]


class Scheduler:
    """Assigns, splits and sizes one graph. `supports(backend, node)` says whether a GPU can run a node."""

    def __init__(self, rules: list[BufferRule], supports: Supports, op_offload: bool, pipeline: bool) -> None:
        self.rules = rules
        self.n = len(rules)
        self.cpu = self.n - 1
        self.gpu_supports = supports
        self.op_offload = op_offload
        self.copies = PIPELINE_COPIES if pipeline else 1

    def traced(self, graph: Graph, marked: bool = True) -> Traced:
        """What the graph does to the buffers; `marked` False: as one piece, without looking for its blocks."""
        self.assign(graph)
        nodes, leaves, splits = self.split(graph)
        if not marked:
            return Traced(trace(self.rules, leaves, nodes), [], {})
        cuts, homes, begins = _cuts(graph, splits)
        copies: list[tuple[int, int, int]] = []
        if self.copies > 1:
            for (backend, _, inputs), part in zip(splits, homes, strict=True):
                for s in inputs:
                    assert s.copies is not None
                    copies.append((part, backend, sum(self.rules[backend].size(copy) for copy in s.copies[backend])))
        events = trace(self.rules, leaves, nodes, cuts)
        own = {
            t.block: bisect_right(begins, at) - 1
            for t, at in zip(graph.leaves, graph.leaves_at, strict=True)
            if not t.is_input and at >= begins[0]
        }
        return Traced(events, copies, own)

    def sizes(self, found: Traced, stands: Sequence[int] = ()) -> list[int] | None:
        """Bytes of the compute buffer of every backend.

        `stands`: per block of the model the built block that stands for it. None when the built blocks do not tell the
        others.
        """
        if not stands:
            buffers = Buffers(self.n, found.trace.n_blocks)
            buffers.run(found.trace.events)
            return buffers.high()
        sizes = run_blocks(found.trace, self.n, stands, found.own)
        if sizes is not None and found.copies:
            uses = Counter(stands)
            for part, backend, size in found.copies:
                if part >= 0:
                    sizes[backend] += (uses[part] - 1) * size
        return sizes

    def supports(self, backend: int, t: Tensor) -> bool:
        """Whether `backend` can run `t`."""
        return t.op not in CHOOSY or backend == self.cpu or self.gpu_supports(backend, t)

    def assign(self, graph: Graph) -> None:
        """Passes 1 to 4: a backend for every node and source."""
        nodes = graph.nodes
        if not self.cpu:
            for t in (*graph.leaves, *nodes):
                t.backend = 0
            return
        for t in graph.leaves:
            if t.backend == NO_PLACE and t.is_input:
                t.backend = self.cpu
        for t in nodes:
            if t.backend == NO_PLACE:
                t.backend = self._initial(t)
        work = [t for t in nodes if t.op not in VIEW_OPS]
        self._expand(work, False)
        self._expand(work[::-1], False)
        if any(t.backend == NO_PLACE for t in work):
            self._expand(work, True)
            self._expand(work[::-1], True)
            for t in work:
                if t.backend == NO_PLACE:
                    t.backend = self._best(t)
        for t in nodes:
            if t.backend == NO_PLACE and t.root is not None:
                t.backend = t.root.backend
            for s in t.src:
                if s.backend == NO_PLACE:
                    s.backend = s.root.backend if s.root is not None else t.backend
            if t.backend == NO_PLACE:
                t.backend = next(b for b in range(self.n) if self.supports(b, t))

    def _initial(self, t: Tensor) -> int:
        holder = t.root if t.root is not None else t
        if holder.place != NO_PLACE:
            return holder.place
        if t.is_input:
            return self.cpu
        if t.op in ("ROPE", "FLASH_ATTN_EXT"):
            return NO_PLACE
        for s in t.src:
            if s.is_weight:
                home = s.place if self.supports(s.place, t) else NO_PLACE
                if self.op_offload and home == self.cpu and batch_size(t) >= OFFLOAD_MIN_BATCH:
                    for b in range(self.cpu):
                        if self.supports(b, t):
                            return b
                return home
        return NO_PLACE

    def _expand(self, order: list[Tensor], any_backend: bool) -> None:
        current, cpu = NO_PLACE, self.cpu
        for t in order:
            if t.backend != NO_PLACE:
                current = t.backend
                if current == cpu and not any_backend:
                    current = NO_PLACE
            elif current != NO_PLACE and (t.op not in CHOOSY or self.supports(current, t)):
                t.backend = current

    def _best(self, t: Tensor) -> int:
        best, best_count = NO_PLACE, -1
        for b in range(self.n):
            if self.supports(b, t):
                count = sum(1 for s in t.src if self._readable(s, b))
                if count > best_count:
                    best, best_count = b, count
        return best

    def _readable(self, t: Tensor, backend: int) -> bool:
        holder = t.root if t.root is not None else t
        if holder.place != NO_PLACE:
            return holder.place == backend
        home = t.backend if t.backend != NO_PLACE else holder.backend
        return home == backend

    def split(self, graph: Graph) -> tuple[list[Tensor], list[Tensor], list[Split]]:
        """Passes 5 and 6: nodes with the copies put in at each split's start, the leaves to allocate first, splits."""
        nodes, n_copies = graph.nodes, self.copies
        splits: list[Split] = []
        first = next((t for t in nodes if t.op not in VIEW_OPS), None)
        current = first.backend if first is not None else self.cpu
        inputs: list[Tensor] = []
        splits.append((current, 0, inputs))
        if not self.cpu:
            return nodes, graph.leaves, splits
        for i, t in enumerate(nodes):
            if t.op in VIEW_OPS:
                continue
            home = t.backend
            fresh = home != current
            if not fresh and inputs:
                for s in t.src:
                    if s.is_weight and s.backend != current and s.place != current:
                        fresh = True
                        break
            if fresh:
                current, inputs = home, []
                splits.append((current, i, inputs))
            for j, s in enumerate(t.src):
                if s.backend != current and not self._readable(s, current):
                    if s.copies is None:
                        s.copies = {}
                    if current not in s.copies:
                        s.copies[current] = [self._copy(s, current) for _ in range(n_copies)]
                        inputs.append(s)
                    t.src[j] = s.copies[current][0]
        ordered: list[Tensor] = []
        for k, (backend, start, wanted) in enumerate(splits):
            end = splits[k + 1][1] if k + 1 < len(splits) else len(nodes)
            for s in wanted:
                dependency = Tensor("NONE", s.type, s.ne, [s])
                dependency.nb = s.nb
                dependency.root = s.root if s.root is not None else s
                dependency.backend = s.backend
                ordered.append(dependency)
                assert s.copies is not None
                ordered.append(s.copies[backend][0])
            ordered += nodes[start:end]
        leaves: list[Tensor] = []
        if n_copies > 1:
            for t in graph.leaves:
                if t.is_input:
                    t.is_output = True
                    leaves.append(t)
                    leaves.extend(self._copy(t, t.backend) for _ in range(n_copies - 1))
            for backend, _, wanted in splits:
                for s in wanted:
                    assert s.copies is not None
                    leaves += s.copies[backend]
        leaves += graph.leaves
        return ordered, leaves, splits

    def _copy(self, t: Tensor, backend: int) -> Tensor:
        copy = Tensor("NONE", t.type, t.ne, [])
        copy.nb = t.nb
        copy.backend = backend
        copy.is_input = copy.is_output = self.copies > 1
        return copy


def _cuts(graph: Graph, splits: Sequence[Split]) -> tuple[list[int], list[int], list[int]]:
    """Where blocks begin among the nodes once the copies at the splits' starts stand between them.

    And the block that each split starts in, -1 = before all of them, and where blocks begin without the copies.
    """
    wanted = set(graph.marks)
    found = {t: i for i, t in enumerate(graph.nodes) if t in wanted}
    begins = [found[mark] + 1 for mark in graph.marks]
    cuts: list[int] = []
    homes: list[int] = []
    shift = 0
    for begin in begins:
        while len(homes) < len(splits) and splits[len(homes)][1] < begin:
            shift += 2 * len(splits[len(homes)][2])
            homes.append(len(cuts) - 1)
        cuts.append(begin + shift)
    homes.extend([len(cuts) - 1] * (len(splits) - len(homes)))
    return cuts, homes, begins


def batch_size(t: Tensor) -> int:
    """Tokens an operation works on, as the offload rule counts them."""
    if t.op == "GET_ROWS":
        return 0
    if t.op == "MUL_MAT":
        return t.ne[1]
    if t.op in ("MUL_MAT_ID", "ROPE"):
        return t.ne[2]
    return t.ne[1] * t.ne[2] * t.ne[3]
