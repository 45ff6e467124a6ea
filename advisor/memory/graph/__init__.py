"""Compute buffers by a model of the engine's own graph: build it in shapes, schedule it, allocate it."""

from __future__ import annotations

from advisor.memory.graph.alloc import BufferRule
from advisor.memory.graph.build import Builder
from advisor.memory.graph.model import CPU, GraphModel, GraphPlacement, GraphSettings, Hyper
from advisor.memory.graph.sched import Scheduler
from advisor.memory.graph.support import cuda_supports, flash_resolves
from advisor.memory.graph.transformer import Transformer

GPU_ALIGNMENT = 128
HOST_ALIGNMENT = 32

__all__ = ["CPU", "GraphModel", "GraphPlacement", "GraphSettings", "Hyper", "compute_bytes"]


def builder_class(family: str) -> type[Builder]:
    """The builder of an architecture family."""
    if family == "transformer":
        return Transformer
    raise NotImplementedError(family)


def compute_bytes(
    model: GraphModel, settings: GraphSettings, placement: GraphPlacement, hyper: Hyper | None = None,
    full: bool = True, pins: bool = False,
) -> dict[int, int]:  # fmt: skip
    """Bytes of the compute buffer of every GPU (0, 1, ...) and of the host (CPU).

    `pins`: the builder ties a few nodes to a device. The engine's size-only reserve (its own fit, its memory report)
    forgets these ties before it schedules; a real load keeps them.
    """
    h = hyper if hyper is not None else Hyper(model)
    n = min(settings.n_ctx, settings.n_ubatch)
    tokens = -(-n // settings.n_seq) * settings.n_seq
    outputs = min(n, settings.n_outputs or settings.n_batch)
    full_offload = all(d != CPU for d in placement.layers)
    flash = flash_resolves(h, settings, placement)
    cls = builder_class(h.style.family)
    builder = cls(model, h, settings, placement, flash, tokens, outputs, full_offload, pins)
    graph = builder.build()
    rules = [BufferRule(GPU_ALIGNMENT, True) for _ in range(placement.n_gpu)] + [BufferRule(HOST_ALIGNMENT, False)]
    pipeline = placement.n_gpu > 1 and full_offload and settings.kv_offload and not placement.host_patterns
    sizes = Scheduler(rules, cuda_supports, settings.op_offload, pipeline).sizes(graph)
    result = {i: sizes[i] for i in range(placement.n_gpu)}
    result[CPU] = sizes[-1]
    return result
