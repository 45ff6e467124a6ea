"""Compute buffers by a model of the engine's own graph: build it in shapes, schedule it, allocate it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.memory.graph.alloc import BufferRule
from advisor.memory.graph.model import CPU, GraphModel, GraphPlacement, GraphSettings, Hyper
from advisor.memory.graph.reduce import Reduction, needed_blocks, outside_blocks
from advisor.memory.graph.sched import Scheduler, Traced
from advisor.memory.graph.support import flash_resolves, runs_flash_everywhere, supports
from advisor.memory.graph.unknowns import PADDING, Unknowns, left_open, read_off, unknowns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.memory.engine_spec import BackendRules
    from advisor.memory.graph.ffn import Builder

HOST_ALIGNMENT = 32
KEPT_TRACES = 48  # per model, some 50 KiB each
KEPT_REDUCTIONS = 48  # contexts and micro-batches are tried one after another, by turns of a few placements
WHOLE = frozenset(("t5", "t5encoder"))  # every block counts
SLICED = frozenset(("gemma3n", "gemma4"))  # per-block slices cross to a pipeline's next device all at once
ALL_ROWS = frozenset(("t5", "t5encoder"))  # with an encoder the engine reserves a batch of logits, whatever is asked

__all__ = [
    "CPU",
    "GraphModel",
    "GraphPlacement",
    "GraphSettings",
    "Hyper",
    "Job",
    "UnmodelledGraphError",
    "compute_bytes",
    "flash_attention",
    "flash_resolves",
]


class UnmodelledGraphError(LookupError):
    """The architecture's graph has parts that are not modelled, or the header lacks tensors its graph needs."""


def builder_class(family: str) -> type[Builder]:
    """The builder of an architecture family; only its own module is loaded, each costs start-up time."""
    if family == "transformer":
        from advisor.memory.graph.transformer import Transformer

        return Transformer
    if family == "mamba":
        from advisor.memory.graph.mamba import Mamba

        return Mamba
    if family == "delta":
        from advisor.memory.graph.delta import DeltaNet

        return DeltaNet
    if family in ("mla", "mla_full", "dsa"):
        from advisor.memory.graph.mla import Latent, SparseLatent

        return SparseLatent if family == "dsa" else Latent
    if family in ("gemma4", "gemma3n"):
        from advisor.memory.graph.gemma import Gemma3n, Gemma4

        return Gemma4 if family == "gemma4" else Gemma3n
    if family == "lightning":
        from advisor.memory.graph.lightning import Lightning

        return Lightning
    if family == "rwkv":
        from advisor.memory.graph.rwkv import Rwkv

        return Rwkv
    if family == "kda":
        from advisor.memory.graph.kda import Kimi

        return Kimi
    if family in ("t5", "t5encoder"):
        from advisor.memory.graph.t5 import Decoder, EncoderAlone

        return Decoder if family == "t5" else EncoderAlone
    from advisor.memory.graph.encoder import Bert, Encoder, NoCache

    return {"bert": Bert, "encoder": Encoder, "diffusion": NoCache}[family]


def compute_bytes(
    model: GraphModel, settings: GraphSettings, placement: GraphPlacement, devices: Sequence[BackendRules],
    hyper: Hyper | None = None, full: bool = False, pins: bool = False,
) -> dict[int, int]:  # fmt: skip
    """Bytes of the compute buffer of every GPU (0, 1, ...) and of the host (CPU); `devices` are the GPUs' rules.

    `pins`: the builder ties a few nodes to a device. The engine's size-only reserve (its own fit, its memory report)
    forgets these ties before it schedules; a real load keeps them. `full`: build every block.
    """
    if not model.modelled:
        raise UnmodelledGraphError(model.arch)
    h = hyper if hyper is not None else Hyper(model)
    try:
        sizes = Job(model, h, settings, placement, devices, pins).sizes(full)
    except KeyError as error:
        raise UnmodelledGraphError(f"{model.arch}: no tensor {error.args[0]}") from error
    return {**{i: sizes[i] for i in range(placement.n_gpu)}, CPU: sizes[-1]}


def flash_attention(
    model: GraphModel, settings: GraphSettings, placement: GraphPlacement, devices: Sequence[BackendRules],
    hyper: Hyper | None = None,
) -> bool:  # fmt: skip
    """Whether flash attention ends up on, as "auto" decides it: every node must land on its block's device."""
    if not model.modelled:
        raise UnmodelledGraphError(model.arch)
    h = hyper if hyper is not None else Hyper(model)
    try:
        job = Job(model, h, settings, placement, devices, False)
        return job.flash(job.reduction())
    except KeyError as error:
        raise UnmodelledGraphError(f"{model.arch}: no tensor {error.args[0]}") from error


class Job:
    """One estimate: what its graphs have in common."""

    def __init__(
        self, model: GraphModel, h: Hyper, settings: GraphSettings, placement: GraphPlacement,
        devices: Sequence[BackendRules], pins: bool,
    ) -> None:  # fmt: skip
        self.model, self.h, self.s, self.p, self.pins = model, h, settings, placement, pins
        self.devices = devices
        n = min(settings.n_ctx, settings.n_ubatch)
        self.tokens = -(-n // settings.n_seq) * settings.n_seq
        wanted = 0 if h.style.family in ALL_ROWS else settings.n_outputs
        self.outputs = min(n, wanted or settings.n_batch)
        self.full_offload = all(d != CPU for d in placement.layers)
        self.simple = self.full_offload and settings.kv_offload and not placement.overrides
        self.pipeline = self.simple and placement.n_gpu > 1 and all(rules.pipeline_copies > 1 for rules in devices)
        buffers = [
            BufferRule(rules.alignment_bytes, rules.quantized_row_multiple, rules.f16_scratch_in_flash_attn)
            for rules in devices
        ]
        buffers.append(BufferRule(HOST_ALIGNMENT))
        self.scheduler = Scheduler(buffers, supports(devices), settings.op_offload, self.pipeline)

    def build(self, ids: list[int], flash: bool, probe: bool = False) -> Builder:
        """The graph of the blocks `ids`; `probe` = the small one, a token per sequence, that tries flash attention."""
        n = self.s.n_seq
        tokens, outputs = (n, n) if probe else (self.tokens, self.outputs)
        builder = self.make(flash, tokens, outputs, self.pins or probe, ids)
        builder.build()
        return builder

    def make(self, flash: bool, tokens: int, outputs: int, pins: bool, ids: list[int]) -> Builder:
        """The builder of this architecture's family."""
        kind = builder_class(self.h.style.family)
        return kind(self.model, self.h, self.s, self.p, flash, tokens, outputs, self.full_offload, pins, ids)

    def reduction(self) -> Reduction | None:
        """The blocks to build, None for all."""
        family = self.h.style.family
        if family in WHOLE or (self.pipeline and family in SLICED):
            return None
        on_device = self.s.flash == "off" or self.h.style.flash_never
        together = not self.p.n_gpu or (
            self.simple and (on_device or runs_flash_everywhere(self.h, self.s, self.devices))
        )
        found = self.model.reductions.get((self.p, together))
        if found is None:
            found = needed_blocks(self.model, self.h, self.p, together)
            if len(self.model.reductions) > KEPT_REDUCTIONS:
                self.model.reductions.clear()
            self.model.reductions[self.p, together] = found
        return found if len(found.ids) < self.h.n_layer else None

    def flash(self, reduction: Reduction | None = None) -> bool:
        """What the flash-attention setting comes to."""
        known = flash_resolves(self.h, self.s, self.p, self.devices)
        if known is not None:
            return known
        # of the context only the padding of the keys decides whether a node can run; the probe has a batch of its own
        settings = self.s._replace(n_ctx=0, n_ctx_seq=self.s.n_ctx_seq % PADDING, n_batch=0, n_ubatch=0, n_outputs=0)
        key: tuple[object, ...] | None = None
        if self.simple and len(set(self.devices)) == 1:  # whole blocks on GPUs that are alike run everywhere or nowhere
            key = (settings, self.devices[0])
        elif reduction is not None:
            key = self._key(settings, reduction)
        known = self.model.flash.get(key) if key is not None else None
        if known is None:
            probe = self.build(reduction.ids if reduction is not None else list(range(self.h.n_layer)), True, True)
            self.scheduler.assign(probe.graph)
            known = all(t.backend == probe.backend(il) for t, il in probe.fused)
            if key is not None:
                self.model.flash[key] = known
        return known

    def _key(self, settings: GraphSettings, reduction: Reduction | None) -> tuple[object, ...]:
        """Equal keys make equal graphs: the settings, and what is built where."""
        outside = tuple([(outside_blocks(self.model, pattern), device) for pattern, device in self.p.overrides])
        ends = (self.p.n_gpu, self.p.layers[self.h.n_layer :], self.full_offload, self.pins)
        return settings, ends, outside, tuple(self.devices), reduction.shape if reduction is not None else self.p

    def sizes(self, full: bool) -> list[int]:
        """Bytes per backend."""
        reduction = None if full else self.reduction()
        flash = self.flash(reduction)
        sizes = None
        if reduction is not None:
            sizes = self.scheduler.sizes(self.traced(reduction, flash), reduction.stands)
        if sizes is None:
            sizes = self.scheduler.sizes(self._made(None, flash) if full else self.traced(None, flash))
        assert sizes is not None
        return sizes

    def traced(self, reduction: Reduction | None, flash: bool) -> Traced:
        """The events of the built blocks; the same for every placement that needs blocks of the same shape.

        Without a reduction those of all blocks in one piece, of this placement alone.
        """
        traces = self.model.traces
        opened = left_open(self.h, self.s)
        if opened is not None:
            key = (flash, *self._key(opened, reduction))
            if key not in traces:
                job = Job(self.model, self.h, opened, self.p, self.devices, self.pins)
                alignments = [rule.alignment for rule in self.scheduler.rules]
                self._keep(key, unknowns(job._made(reduction, flash), alignments))
            graph = traces[key]
            if graph is not None:
                return read_off(graph, self.s.n_ctx_seq, self.s.n_ubatch)
        if reduction is None:
            return self._made(None, flash)
        key = (flash, *self._key(self.s, reduction))
        if key not in traces:
            self._keep(key, Unknowns(self._made(reduction, flash), [], [], []))
        known = traces[key]
        assert known is not None
        return known.found

    def _made(self, reduction: Reduction | None, flash: bool) -> Traced:
        """The same, built for these very settings."""
        ids = reduction.ids if reduction is not None else list(range(self.h.n_layer))
        return self.scheduler.traced(self.build(ids, flash).graph, reduction is not None)

    def _keep(self, key: tuple[object, ...], graph: Unknowns | None) -> None:
        if len(self.model.traces) > KEPT_TRACES:
            self.model.traces.clear()
        self.model.traces[key] = graph
