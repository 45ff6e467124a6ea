"""Compute buffers by a model of the engine's own graph: build it in shapes, schedule it, allocate it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from advisor.memory.graph.alloc import BufferRule
from advisor.memory.graph.coverage import UNMODELLED, VERIFIED
from advisor.memory.graph.model import CPU, GraphModel, GraphPlacement, GraphSettings, Hyper
from advisor.memory.graph.reduce import Reduction, needed_blocks
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
    "flash_attention",
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
    from advisor.gguf_header.types import ArraySummary  # only here: the graph itself needs no reader

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
        sizes = _Job(model, h, settings, placement, pins).sizes(full)
    except KeyError as error:
        raise UnmodelledGraphError(f"{model.arch}: no tensor {error.args[0]}") from error
    return {**{i: sizes[i] for i in range(placement.n_gpu)}, CPU: sizes[-1]}


def flash_attention(
    model: GraphModel, settings: GraphSettings, placement: GraphPlacement, hyper: Hyper | None = None
) -> bool:
    """Whether flash attention ends up on, as "auto" decides it: every node must land on its block's device."""
    if model.arch in UNMODELLED:
        raise UnmodelledGraphError(model.arch)
    return _Job(model, hyper if hyper is not None else Hyper(model), settings, placement, False).flash()


class _Job:
    """One estimate: what its graphs have in common."""

    def __init__(
        self, model: GraphModel, h: Hyper, settings: GraphSettings, placement: GraphPlacement, pins: bool
    ) -> None:
        self.model, self.h, self.s, self.p, self.pins = model, h, settings, placement, pins
        n = min(settings.n_ctx, settings.n_ubatch)
        self.tokens = -(-n // settings.n_seq) * settings.n_seq
        self.outputs = min(n, settings.n_outputs or settings.n_batch)
        self.full_offload = all(d != CPU for d in placement.layers)
        self.simple = self.full_offload and settings.kv_offload and not placement.overrides
        self.pipeline = self.simple and placement.n_gpu > 1
        gpu, host = BufferRule(GPU_ALIGNMENT, True), BufferRule(HOST_ALIGNMENT, False)
        self.scheduler = Scheduler([gpu] * placement.n_gpu + [host], cuda_supports, settings.op_offload, self.pipeline)

    def build(self, ids: list[int], flash: bool, probe: bool = False) -> Builder:
        """The graph of the blocks `ids`; `probe` = the small one, a token per sequence, that tries flash attention."""
        n = self.s.n_seq
        tokens, outputs = (n, n) if probe else (self.tokens, self.outputs)
        builder = builder_class(self.h.style.family)(
            self.model, self.h, self.s, self.p, flash, tokens, outputs, self.full_offload, self.pins or probe, ids
        )
        builder.build()
        return builder

    def reduction(self) -> Reduction | None:
        """The blocks to build, None for all."""
        family = self.h.style.family
        if family in WHOLE or (self.pipeline and family in SLICED):
            return None
        found = needed_blocks(self.model, self.h, self.p, self.simple)
        return found if found.gaps else None

    def flash(self, reduction: Reduction | None = None) -> bool:
        """What the flash-attention setting comes to."""
        known = flash_resolves(self.h, self.s, self.p)
        if known is not None:
            return known
        probe = self.build(reduction.ids if reduction is not None else list(range(self.h.n_layer)), True, True)
        self.scheduler.assign(probe.graph)
        return all(t.backend == probe.backend(il) for t, il in probe.fused)

    def sizes(self, full: bool) -> list[int]:
        """Bytes per backend."""
        reduction = None if full else self.reduction()
        flash = self.flash(reduction)
        sizes = None
        if reduction is not None:
            sizes = self.scheduler.sizes(self.build(reduction.ids, flash).graph, reduction.gaps)
        if sizes is None:
            sizes = self.scheduler.sizes(self.build(list(range(self.h.n_layer)), flash).graph)
        assert sizes is not None
        return sizes
