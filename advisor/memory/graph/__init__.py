"""Compute buffers by a model of the engine's own graph: build it in shapes, schedule it, allocate it."""

from __future__ import annotations

from advisor.memory.graph.alloc import BufferRule
from advisor.memory.graph.build import Builder
from advisor.memory.graph.delta import DeltaNet
from advisor.memory.graph.encoder import Bert, Encoder
from advisor.memory.graph.gemma import Gemma3n, Gemma4
from advisor.memory.graph.lightning import Lightning
from advisor.memory.graph.mla import Latent, SparseLatent
from advisor.memory.graph.model import CPU, GraphModel, GraphPlacement, GraphSettings, Hyper
from advisor.memory.graph.recurrent import Recurrent
from advisor.memory.graph.rwkv import Rwkv
from advisor.memory.graph.sched import Scheduler
from advisor.memory.graph.support import cuda_supports, flash_resolves
from advisor.memory.graph.transformer import Transformer

GPU_ALIGNMENT = 128
HOST_ALIGNMENT = 32

FAMILIES: dict[str, type[Builder]] = {
    "transformer": Transformer,
    "mamba": Recurrent,
    "delta": DeltaNet,
    "mla": Latent,
    "mla_full": Latent,
    "dsa": SparseLatent,
    "gemma4": Gemma4,
    "gemma3n": Gemma3n,
    "lightning": Lightning,
    "rwkv": Rwkv,
    "bert": Bert,
    "encoder": Encoder,
}

__all__ = ["CPU", "GraphModel", "GraphPlacement", "GraphSettings", "Hyper", "compute_bytes"]


def builder_class(family: str) -> type[Builder]:
    """The builder of an architecture family."""
    if family not in FAMILIES:
        raise NotImplementedError(family)
    return FAMILIES[family]


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
    cls = builder_class(h.style.family)
    rules = [BufferRule(GPU_ALIGNMENT, True) for _ in range(placement.n_gpu)] + [BufferRule(HOST_ALIGNMENT, False)]
    pipeline = placement.n_gpu > 1 and full_offload and settings.kv_offload and not placement.host_patterns
    flash = flash_resolves(h, settings, placement)
    if flash is None:
        probe = cls(model, h, settings, placement, True, settings.n_seq, settings.n_seq, full_offload, True)
        tried = probe.build()
        Scheduler(rules, cuda_supports, settings.op_offload, pipeline).assign(tried)
        flash = all(t.backend == probe.backend(il) for t, il in probe.fused)
    graph = cls(model, h, settings, placement, flash, tokens, outputs, full_offload, pins).build()
    sizes = Scheduler(rules, cuda_supports, settings.op_offload, pipeline).sizes(graph)
    result = {i: sizes[i] for i in range(placement.n_gpu)}
    result[CPU] = sizes[-1]
    return result
