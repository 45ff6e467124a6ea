"""The events of a graph at another context, from two contexts that were built.

The context only widens tensors: masks, scores, copies of the cache grow by the same bytes for every cell, and no node
comes or goes. So what a block does to the buffers keeps its order, and each size lies on a line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.memory.graph.alloc import Event, Trace
from advisor.memory.graph.sched import Traced

if TYPE_CHECKING:
    from advisor.memory.graph.model import GraphSettings, Hyper

PADDING = 256  # cells; contexts are multiples of it, and sizes are known to lie on a line only there
# Families whose graphs have no other bound on the context than the window, or what an indexer chooses.
FAMILIES = frozenset(
    ("transformer", "mla", "mla_full", "dsa", "delta", "mamba", "gemma4", "gemma3n", "lightning", "kda")
)


def may_stretch(h: Hyper, s: GraphSettings) -> bool:
    """Whether the graph at this context is one of a line: above what bounds a batch or a window."""
    if h.style.family not in FAMILIES or s.n_ctx_seq % PADDING or s.n_ctx < max(s.n_batch, s.n_ubatch):
        return False
    if h.style.family == "dsa" and s.n_ctx_seq < h.whole("attention.indexer.top_k"):
        return False
    if not h.window or s.swa_full:
        return True
    return s.n_ctx_seq >= h.window * (s.n_seq if s.unified else 1) + s.n_ubatch + PADDING


def stretched(a: Traced, at_a: int, b: Traced, at_b: int, at: int) -> Traced | None:
    """The events at `at` cells, None when those at `at_a` and `at_b` are not of one kind."""
    if len(a.trace.events) != len(b.trace.events) or a.trace.cuts != b.trace.cuts or a.own != b.own:
        return None
    span, way = (at_b - at_a) // PADDING, (at - at_a) // PADDING
    events: list[Event] = []
    for old, new in zip(a.trace.events, b.trace.events, strict=True):
        if old == new:
            events.append(old)
            continue
        takes, buffer, block, shift, size = old
        if takes != new[0] or buffer != new[1] or block != new[2]:
            return None
        step, rest = divmod(new[4] - size, span)
        shift_step, shift_rest = divmod(new[3] - shift, span)
        if rest or shift_rest:
            return None
        events.append((takes, buffer, block, shift + shift_step * way, size + step * way))
    copies: list[tuple[int, int, int]] = []
    for (part, backend, size), other in zip(a.copies, b.copies, strict=True):
        step, rest = divmod(other[2] - size, span)
        if rest or (part, backend) != other[:2]:
            return None
        copies.append((part, backend, size + step * way))
    return Traced(Trace(events, a.trace.cuts, a.trace.n_blocks), copies, a.own)
