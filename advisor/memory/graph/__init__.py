"""Compute buffers by a model of the engine's own graph: build it in shapes, schedule it, allocate it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from advisor.gguf_header.types import ArraySummary
from advisor.memory.graph.alloc import BufferRule
from advisor.memory.graph.coverage import UNMODELLED, VERIFIED
from advisor.memory.graph.model import CPU, GraphModel, GraphPlacement, GraphSettings, Hyper
from advisor.memory.graph.reduce import needed_blocks
from advisor.memory.graph.sched import Scheduler
from advisor.memory.graph.support import cuda_supports, flash_resolves

if TYPE_CHECKING:
    from advisor.gguf_header.types import GgufHeader
    from advisor.memory.graph.ffn import Builder

GPU_ALIGNMENT = 128
HOST_ALIGNMENT = 32
WHOLE = frozenset(("dsa",))  # a leaf per block: every block counts
SLICED = frozenset(("gemma3n", "gemma4"))  # per-block slices cross devices, one copy each

FAMILIES: dict[str, tuple[str, str]] = {
    "transformer": ("transformer", "Transformer"),
    "mamba": ("mamba", "Mamba"),
    "delta": ("delta", "DeltaNet"),
    "mla": ("mla", "Latent"),
    "mla_full": ("mla", "Latent"),
    "dsa": ("mla", "SparseLatent"),
    "gemma4": ("gemma", "Gemma4"),
    "gemma3n": ("gemma", "Gemma3n"),
    "lightning": ("lightning", "Lightning"),
    "rwkv": ("rwkv", "Rwkv"),
    "bert": ("encoder", "Bert"),
    "encoder": ("encoder", "Encoder"),
    "diffusion": ("encoder", "NoCache"),
    "kda": ("kda", "Kimi"),
}

__all__ = [
    "CPU",
    "GraphModel",
    "GraphPlacement",
    "GraphSettings",
    "Hyper",
    "UnmodelledGraphError",
    "compute_bytes",
    "confidence",
    "graph_model",
]


class UnmodelledGraphError(LookupError):
    """The architecture's graph has parts that are not modelled, or the header lacks tensors its graph needs."""


def confidence(arch: str) -> str:
    """What a result for `arch` rests on.

    "verified": compared with the engine byte for byte; "assumed": taken for a transformer of known parts;
    "unmodelled": compute_bytes raises.
    """
    if arch in UNMODELLED:
        return "unmodelled"
    return "verified" if arch in VERIFIED else "assumed"


def graph_model(header: GgufHeader) -> GraphModel:
    """The graph's view of a header."""
    meta = {key: value for key, value in header.metadata.items() if not isinstance(value, ArraySummary)}
    tensors = {t.name: (t.shape, t.ggml_type) for t in header.tensors}
    return GraphModel(meta, tensors, header.n_vocab or 0)


def builder_class(family: str) -> type[Builder]:
    """The builder of an architecture family; its module is loaded when first needed."""
    module, name = FAMILIES[family]
    found: type[Builder] = getattr(importlib.import_module(f"advisor.memory.graph.{module}"), name)
    return found


def compute_bytes(
    model: GraphModel, settings: GraphSettings, placement: GraphPlacement, hyper: Hyper | None = None,
    full: bool = False, pins: bool = False,
) -> dict[int, int]:  # fmt: skip
    """Bytes of the compute buffer of every GPU (0, 1, ...) and of the host (CPU).

    `pins`: the builder ties a few nodes to a device. The engine's size-only reserve (its own fit, its memory report)
    forgets these ties before it schedules; a real load keeps them. `full`: build every block.
    """
    if model.arch in UNMODELLED:
        raise UnmodelledGraphError(model.arch)
    h = hyper if hyper is not None else Hyper(model)
    try:
        return _compute(model, h, settings, placement, full, pins)
    except KeyError as error:
        raise UnmodelledGraphError(f"{model.arch}: no tensor {error.args[0]}") from error


def _compute(
    model: GraphModel, h: Hyper, settings: GraphSettings, placement: GraphPlacement, full: bool, pins: bool
) -> dict[int, int]:
    n = min(settings.n_ctx, settings.n_ubatch)
    tokens = -(-n // settings.n_seq) * settings.n_seq
    outputs = min(n, settings.n_outputs or settings.n_batch)
    full_offload = all(d != CPU for d in placement.layers)
    cls = builder_class(h.style.family)
    rules = [BufferRule(GPU_ALIGNMENT, True) for _ in range(placement.n_gpu)] + [BufferRule(HOST_ALIGNMENT, False)]
    simple = full_offload and settings.kv_offload and not placement.host_patterns
    pipeline = simple and placement.n_gpu > 1
    flash = flash_resolves(h, settings, placement)
    scheduler = Scheduler(rules, cuda_supports, settings.op_offload, pipeline)

    def build(ids: list[int], try_flash: bool, probe: bool = False) -> Builder:
        n_tokens, n_rows = (settings.n_seq, settings.n_seq) if probe else (tokens, outputs)
        builder = cls(
            model, h, settings, placement, try_flash, n_tokens, n_rows, full_offload, pins or probe, ids
        )  # fmt: skip
        builder.build()
        return builder

    everything = list(range(h.n_layer))
    whole = full or h.style.family in WHOLE or (pipeline and h.style.family in SLICED)
    reduction = None if whole else needed_blocks(model, h, placement, simple)
    if reduction is not None and not reduction.gaps:
        reduction = None
    if flash is None:
        probe = build(reduction.ids if reduction is not None else everything, True, True)
        scheduler.assign(probe.graph)
        flash = all(t.backend == probe.backend(il) for t, il in probe.fused)
    sizes = None
    if reduction is not None:
        sizes = scheduler.sizes(build(reduction.ids, flash).graph, reduction.gaps)
    if sizes is None:
        sizes = scheduler.sizes(build(everything, flash).graph)
    assert sizes is not None
    result = {i: sizes[i] for i in range(placement.n_gpu)}
    result[CPU] = sizes[-1]
    return result
