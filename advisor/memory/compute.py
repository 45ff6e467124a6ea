"""Compute buffers per device and on the host: the engine's own graph in shapes, scheduled and allocated as it does.

The graph model (advisor.memory.graph) is exact for measured architectures under the CUDA backend's rules; everything
else carries an interval from rules/engines/llama_cpp.toml.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import is_
from typing import Any

from advisor.ggml_types import BY_NAME
from advisor.gguf_header.types import ArraySummary
from advisor.memory.anchors import Anchors, Readable, Sizes
from advisor.memory.engine_spec import BackendRules, EngineSpec
from advisor.memory.graph import (
    CPU,
    GraphModel,
    GraphPlacement,
    GraphSettings,
    Hyper,
    UnmodelledGraphError,
    compute_bytes,
    flash_attention,
    flash_resolves,
)
from advisor.memory.graph.unknowns import left_open
from advisor.memory.placement import Overrides
from advisor.memory.types import Interval
from advisor.model.errors import ImpossibleModelError
from advisor.model.spec import ModelSpec
from advisor.model.style import PLAIN
from advisor.settings import RunSettings


class ComputeModel:
    """Compute buffers of one model on one set of devices; remembers what it has worked out."""

    def __init__(
        self, spec: ModelSpec, engine: EngineSpec, backends: Sequence[BackendRules], like: ComputeModel | None = None
    ) -> None:
        """`like`: of the same model in another quantization, whose answers hold where weights do not matter."""
        self._spec, self._engine, self._backends = spec, engine, tuple(backends)
        self._like = like
        meta = {key: value for key, value in spec.metadata.items() if not isinstance(value, ArraySummary)}
        tensors = {tensor.name: (tensor.shape, tensor.ggml_type) for tensor in spec.tensors}
        style = spec.style if engine.mixed_inputs else spec.style._replace(mixed=False)
        window = max((layer.n_window for layer in spec.layers), default=0)
        windowed = frozenset(layer.il for layer in spec.layers if layer.n_window)
        self.graph = GraphModel(
            meta, tensors, spec.n_vocab, style, window, windowed, spec.graph_modelled, engine.lookups_first
        )
        self._plain = self.graph  # for a graph that is not known, what a plain transformer of these tensors would be
        if not spec.graph_modelled:
            self._plain = GraphModel(
                meta, tensors, spec.n_vocab, PLAIN, window, windowed, lookups_first=engine.lookups_first
            )
        with self._possible():
            self.hyper = Hyper(self.graph)
        self._known: dict[tuple[object, ...], Sizes] = {}
        self._anchors = Anchors(Readable(lambda settings: left_open(self.hyper, settings), self._read))
        self._flash: dict[tuple[object, ...], bool] = {}
        self._shares: dict[tuple[float, bool], float] = {}
        self._spans: dict[Sizes, tuple[tuple[Interval, ...], Interval]] = {}
        self._last: tuple[Any, Any, Any, tuple[GraphSettings, GraphPlacement]] | None = None  # asked, and its values

    @contextmanager
    def _possible(self) -> Iterator[None]:
        """Divisions by zero and sizes that are nan come of hyper-parameters that lie, and become the file's error."""
        try:
            yield
        except (ArithmeticError, IndexError, ValueError) as error:
            raise ImpossibleModelError(self._spec.path, why=str(error)) from None

    def share(self, other: ComputeModel) -> None:
        """Share the graph of the same model, and what was found out about its blocks."""
        self.graph, self._plain, self.hyper = other.graph, other._plain, other.hyper

    def flash_attn(
        self, settings: RunSettings, placement: Sequence[int], overrides: Overrides, *, exact: bool = True
    ) -> bool:
        """Whether flash attention ends up in the graph; without `exact` as for another split over the same devices."""
        if self._like is not None:  # it depends on heads and cache types
            return self._like.flash_attn(settings, placement, overrides, exact=exact)
        graph_settings, graph_placement = self.values(settings, placement, overrides)
        if not self.graph.modelled:
            return settings.flash_attn != "off"
        if settings.flash_attn != "auto":
            plain = flash_resolves(self.hyper, graph_settings, graph_placement, self._backends)
            if plain is not None:
                return plain
        key = (graph_settings._replace(n_ctx=0, n_ctx_seq=0), graph_placement)
        # the output alone on a GPU has no attention there
        alike = (key[0], frozenset(graph_placement.layers[:-1]), bool(graph_placement.overrides))
        known = self._flash.get(key)
        if known is None and (not exact or settings.flash_attn == "on"):
            known = self._flash.get(alike)
        if known is None:
            try:
                with self._possible():
                    known = flash_attention(self.graph, graph_settings, graph_placement, self._backends, self.hyper)
            except UnmodelledGraphError:
                known = settings.flash_attn != "off"
            self._flash[key] = self._flash[alike] = known
        return known

    def buffers(
        self, settings: RunSettings, placement: Sequence[int], overrides: Overrides, *, exact: bool = True
    ) -> tuple[tuple[Interval, ...], Interval]:
        """(compute per device, compute on the host), in bytes.

        Between settings that were worked out before the answer may be interpolated: where that is exact, and without
        `exact` also where it is only close, for a search that checks its result.
        """
        if self._like is not None and (
            self._copies_no_weights(placement, overrides) or (not exact and all(place == CPU for place in placement))
        ):
            return self._like.buffers(settings, placement, overrides, exact=exact)
        key = self.values(settings, placement, overrides)
        known = self._known.get(key)
        if known is None:
            known = self._anchors.between(*key) if exact else self._anchors.guess(*key)
        if known is None:
            known = self._work_out(*key, settings, placement)
            self._known[key] = known
            self._anchors.add(*key, known)
        found = self._spans.get(known)
        if found is None:
            *devices, host = known
            spans = [self._interval(value, backend) for value, backend in zip(devices, self._backends, strict=True)]
            found = self._spans[known] = tuple(spans), self._interval(host, None)
        return found

    @property
    def n_known(self) -> int:
        """How many answers were worked out; as long as it is the same, so are interpolated ones."""
        return len(self._known)

    def look_far(self, far_apart: bool) -> None:
        """Whether contexts far apart are sketched, see `Anchors`."""
        self._anchors.far_apart = far_apart

    def can_guess(self, settings: RunSettings, placement: Sequence[int], overrides: Overrides) -> bool:
        """Whether an inexact answer needs no new graph."""
        key = self.values(settings, placement, overrides)
        return key in self._known or self._anchors.guess(*key) is not None

    def _copies_no_weights(self, placement: Sequence[int], overrides: Overrides) -> bool:
        """Whether every block is computed where its weights lie: all on GPUs, or there is none."""
        return not self._backends or (CPU not in placement and not overrides.any)

    def _read(self, settings: GraphSettings, placement: GraphPlacement) -> Sizes:
        """Sizes of a graph that was built for other contexts or micro-batches."""
        key = (settings, placement)
        known = self._known.get(key)
        if known is None:
            sizes = compute_bytes(self.graph, settings, placement, self._backends, self.hyper)
            known = (*(sizes[i] for i in range(len(self._backends))), sizes[CPU])
        return known

    def _work_out(
        self, graph: GraphSettings, graph_placement: GraphPlacement, settings: RunSettings, placement: Sequence[int]
    ) -> Sizes:
        try:
            with self._possible():
                sizes = compute_bytes(self.graph, graph, graph_placement, self._backends, self.hyper)
        except UnmodelledGraphError:
            return self._rough(graph, graph_placement, settings, placement)
        return (*(sizes[i] for i in range(len(self._backends))), sizes[CPU])

    def values(
        self, settings: RunSettings, placement: Sequence[int], overrides: Overrides
    ) -> tuple[GraphSettings, GraphPlacement]:
        """The settings and the placement as the graph model takes them."""
        if self._last is not None and all(map(is_, self._last, (settings, placement, overrides))):
            return self._last[3]
        values = (
            GraphSettings(
                settings.n_ctx,
                settings.n_ctx_seq,
                settings.n_batch,
                settings.n_ubatch,
                settings.n_parallel,
                settings.kv_unified,
                settings.flash_attn,
                BY_NAME[settings.cache_type_k].id,
                BY_NAME[settings.cache_type_v].id,
                settings.swa_full,
                settings.kv_offload,
                settings.op_offload,
                settings.n_outputs,
                settings.n_rollback,
            ),
            GraphPlacement(len(self._backends), tuple(placement), overrides.patterns),
        )
        self._last = (settings, placement, overrides, values)
        return values

    def mtp_buffers(
        self, settings: RunSettings, placement: Sequence[int], overrides: Overrides
    ) -> tuple[tuple[Interval, ...], Interval, bool]:
        """(compute per device, compute on the host, modelled) of the draft context of the model's own NextN block."""
        from advisor.memory.graph.mtp import MEASURED, mtp_compute_bytes

        graph, graph_placement = self.values(settings, placement, overrides)
        try:
            with self._possible():
                sizes = mtp_compute_bytes(self.graph, self.hyper, graph, graph_placement, self._backends)
        except UnmodelledGraphError:
            *rough, host = self._rough(graph, graph_placement, settings, placement)
            spans = [Interval(int(value / 2), value, 2 * value) for value in (*rough, host)]
            return tuple(spans[:-1]), spans[-1], False
        least = 0.0 if self._spec.architecture in MEASURED else self._engine.spread["assumed"]
        devices = [self._interval(sizes[i], rules, least) for i, rules in enumerate(self._backends)]
        return tuple(devices), self._interval(sizes[CPU], None, least), True

    def _interval(self, value: int, backend: BackendRules | None, least: float = 0.0) -> Interval:
        """The bounds that the architecture, the backend and the build leave; `least` = no narrower than that share."""
        key = (least, backend is not None and not backend.measured)
        share = self._shares.get(key)
        if share is None:
            spread, spec = self._engine.spread, self._spec
            known = spread["unmodelled" if not spec.graph_modelled else spec.confidence]
            share = max(known, self._engine.compute_spread, least)
            if key[1]:
                share = max(share, spread["unmeasured_backend"])
            if self._engine.confidence != "measured":
                share = max(share, spread["extrapolated_build"])
            self._shares[key] = share
        return Interval(int(value / (1 + share)), value, int(value * (1 + share)))

    def _rough(
        self, graph: GraphSettings, graph_placement: GraphPlacement, settings: RunSettings, placement: Sequence[int]
    ) -> Sizes:
        """For graphs that are not modelled: a plain transformer's, but no less than the closed form."""
        least = self._closed_form(settings, placement)
        try:
            sizes = compute_bytes(self._plain, graph, graph_placement, self._backends)
        except (UnmodelledGraphError, LookupError, ValueError, AssertionError, ZeroDivisionError):
            return least  # not even its tensors are those of one
        plain = (*(sizes[i] for i in range(len(self._backends))), sizes[CPU])
        return tuple(max(a, b) for a, b in zip(least, plain, strict=True))

    def _closed_form(self, settings: RunSettings, placement: Sequence[int]) -> Sizes:
        """Mask, widest feed-forward, f16 copies of the cache or scores, a few embeddings, copied-in host weights."""
        spec = self._spec
        tokens = min(settings.n_ubatch, settings.n_ctx)
        widest = max(
            (3 * (layer.n_ff_expert * layer.n_expert_used or layer.n_ff) + 2 * layer.n_head * layer.head_size_k
             for layer in spec.layers), default=0,
        )  # fmt: skip
        rows = min(settings.n_outputs or tokens, tokens)
        floats = max(tokens * (widest + 8 * spec.n_embd), rows * spec.n_vocab + 4 * tokens * spec.n_embd)
        mask = 2 * tokens * settings.n_ctx_seq
        cells = settings.n_ctx if settings.kv_unified else settings.n_ctx_seq * settings.n_parallel
        kinds = (settings.cache_type_k, settings.cache_type_v)
        beside = 0
        for layer in spec.layers:
            if settings.flash_attn == "off":
                beside = max(beside, 4 * layer.n_head * tokens * settings.n_ctx_seq)
            else:
                widths = zip((layer.k_width, layer.v_width), kinds, strict=True)
                beside = max(beside, sum(2 * cells * width for width, kind in widths if kind != "f16"))
        host_matrix = max(
            (
                t.n_bytes
                for t in spec.tensors
                if t.place == "block" and placement[min(t.block, spec.n_layer_all)] == CPU
            ),
            default=0,
        )
        devices = tuple(
            4 * floats + mask + beside + (host_matrix if index == 0 else 0) if index in placement else 0
            for index in range(len(self._backends))
        )
        host = mask + 4 * tokens * 6 * spec.n_embd
        return (*devices, host if devices else 4 * floats + mask + (beside if settings.flash_attn == "off" else 0))
