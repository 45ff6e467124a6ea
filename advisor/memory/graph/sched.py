"""The scheduler: which backend runs each node, where the graph splits, and which tensors are copied across.

Backends are numbered GPUs first, the CPU last. Facts from ggml-backend.cpp of llama.cpp b11434.
"""

from __future__ import annotations

from collections.abc import Callable

from advisor.memory.graph.alloc import Allocator, BufferRule, Event
from advisor.memory.graph.reduce import Gap
from advisor.memory.graph.replay import repeat
from advisor.memory.graph.tensor import NO_PLACE, VIEW_OPS, Tensor

PIPELINE_COPIES = 4
OFFLOAD_MIN_BATCH = 32

Supports = Callable[[int, Tensor], bool]


class Graph:
    """Nodes and leaves in the order a depth-first walk from each expanded result finds them."""

    def __init__(self) -> None:
        self.nodes: list[Tensor] = []
        self.leaves: list[Tensor] = []
        self.marks: list[int] = []

    def mark(self) -> None:
        """Note where a block begins."""
        self.marks.append(len(self.nodes))

    def expand(self, t: Tensor) -> Tensor:
        """Append `t` and everything it needs that is not there yet."""
        if not t.visited:
            self._visit(t)
        return t

    def _visit(self, t: Tensor) -> None:
        t.visited = True
        for s in t.src:
            if not s.visited:
                self._visit(s)
        (self.leaves if t.op == "NONE" else self.nodes).append(t)


class Scheduler:
    """Assigns, splits and sizes one graph. `supports(backend, node)` says whether a GPU can run a node."""

    def __init__(self, rules: list[BufferRule], supports: Supports, op_offload: bool, pipeline: bool) -> None:
        self.rules = rules
        self.n = len(rules)
        self.cpu = self.n - 1
        self.gpu_supports = supports
        self.op_offload = op_offload
        self.copies = PIPELINE_COPIES if pipeline else 1
        self.split_starts: list[tuple[int, int]] = []

    def sizes(self, graph: Graph, gaps: list[Gap] | None = None) -> list[int] | None:
        """Bytes of the compute buffer of every backend.

        `gaps`: rounds of blocks that were left out of the graph and are repeated in the allocator. None is returned
        when the rounds at a gap do not repeat, or when copies that are never freed would grow with the blocks.
        """
        self.assign(graph)
        nodes, leaves = self.split(graph)
        allocator = Allocator(self.rules)
        if not gaps:
            return allocator.run(leaves, nodes)
        if self.copies > 1 and len(self.split_starts) > self.n + 1:
            return None
        allocator.start(leaves, nodes)
        done = 0
        for gap in gaps:
            begin, middle, end = (self._position(graph.marks[i]) for i in (gap.first, gap.second, gap.end))
            logs: list[list[Event]] = []
            for a, b in ((begin, middle), (middle, end)):
                allocator.walk(nodes, done, a)
                allocator.log = []
                allocator.walk(nodes, a, b)
                logs.append(allocator.log)
                allocator.log = None
                done = b
            if not repeat(allocator, logs[0], logs[1], gap.times):
                return None
        allocator.walk(nodes, done, len(nodes))
        return [b.high for b in allocator.buffers]

    def _position(self, mark: int) -> int:
        return mark + sum(2 * n_inputs for start, n_inputs in self.split_starts if start < mark)

    def supports(self, backend: int, t: Tensor) -> bool:
        """Whether `backend` can run `t`."""
        return backend == self.cpu or self.gpu_supports(backend, t)

    def assign(self, graph: Graph) -> None:
        """Passes 1 to 4: a backend for every node and source."""
        nodes = graph.nodes
        for t in graph.leaves:
            if t.backend == NO_PLACE:
                t.backend = t.place if t.place != NO_PLACE else (self.cpu if t.is_input else NO_PLACE)
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
                        if self.gpu_supports(b, t):
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
            elif current != NO_PLACE and self.supports(current, t):
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

    def split(self, graph: Graph) -> tuple[list[tuple[Tensor, int]], list[tuple[Tensor, int]]]:
        """Passes 5 and 6: nodes with the copies put in at each split's start, and the leaves to allocate first."""
        nodes, n_copies = graph.nodes, self.copies
        splits: list[tuple[int, int, list[Tensor]]] = []  # backend, first node, inputs
        first = next((t for t in nodes if t.op not in VIEW_OPS), None)
        current = first.backend if first is not None else self.cpu
        inputs: list[Tensor] = []
        splits.append((current, 0, inputs))
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
                        s.copies[current] = [self._copy(s) for _ in range(n_copies)]
                        inputs.append(s)
                    t.src[j] = s.copies[current][0]
        self.split_starts = [(start, len(wanted)) for _, start, wanted in splits]
        ordered: list[tuple[Tensor, int]] = []
        for k, (backend, start, wanted) in enumerate(splits):
            end = splits[k + 1][1] if k + 1 < len(splits) else len(nodes)
            for s in wanted:
                dependency = Tensor("NONE", s.type, s.ne, [s])
                dependency.nb = s.nb
                dependency.root = s.root if s.root is not None else s
                ordered.append((dependency, s.backend))
                assert s.copies is not None
                ordered.append((s.copies[backend][0], backend))
            ordered.extend((t, t.backend) for t in nodes[start:end])
        leaves: list[tuple[Tensor, int]] = []
        if n_copies > 1:
            for t in graph.leaves:
                if t.is_input:
                    t.is_output = True
                    leaves.append((t, t.backend))
                    leaves.extend((self._copy(t), t.backend) for _ in range(n_copies - 1))
            for backend, _, wanted in splits:
                for s in wanted:
                    assert s.copies is not None
                    leaves.extend((c, backend) for c in s.copies[backend])
        leaves.extend((t, t.backend) for t in graph.leaves)
        return ordered, leaves

    def _copy(self, t: Tensor) -> Tensor:
        copy = Tensor("NONE", t.type, t.ne, [])
        copy.nb = t.nb
        copy.is_input = copy.is_output = self.copies > 1
        return copy


def batch_size(t: Tensor) -> int:
    """Tokens an operation works on, as the offload rule counts them."""
    if t.op == "GET_ROWS":
        return 0
    if t.op == "MUL_MAT":
        return t.ne[1]
    if t.op in ("MUL_MAT_ID", "ROPE"):
        return t.ne[2]
    return t.ne[1] * t.ne[2] * t.ne[3]
