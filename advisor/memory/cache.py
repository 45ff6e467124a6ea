"""Context memory: KV cells, window cells, latent keys, indexer keys and recurrent state, block by block.

Source: llama.cpp b11434 src/llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-memory-recurrent.cpp. Bytes are exact.
"""

from __future__ import annotations

from collections.abc import Sequence

from advisor.ggml_types import BY_NAME, GgmlType, row_bytes
from advisor.gguf_header.errors import excerpt
from advisor.memory.engine_spec import BackendRules
from advisor.memory.placement import HOST
from advisor.model.alike import Alike
from advisor.model.spec import LayerSpec, ModelSpec
from advisor.settings import RunSettings
from advisor.units import round_up

# llama-context.cpp, sched_reserve: architectures whose prompt graph is laid out for one sequence, whatever -np is.
RESERVED_AS_ONE = frozenset(("kimi-linear", "minimax-01"))


def n_streams(settings: RunSettings) -> int:
    """Separate caches: one when unified, else one per sequence."""
    return 1 if settings.kv_unified else settings.n_parallel


def window_cells(n_window: int, settings: RunSettings, padding: int = 256) -> int:
    """Cells per stream that a windowed block keeps: the window (of every sequence, when unified) and a micro-batch."""
    if settings.swa_full:
        return settings.n_ctx_seq
    window = n_window * (settings.n_parallel if settings.kv_unified else 1)
    return round_up(min(settings.n_ctx_seq, window + settings.n_ubatch), padding)


def layer_cells(layer: LayerSpec, settings: RunSettings) -> int:
    """Cells per stream of this block's cache."""
    if layer.attention == "window" or layer.n_window:
        return window_cells(layer.n_window, settings)
    return settings.n_ctx_seq


def padded_v_width(spec: ModelSpec, settings: RunSettings) -> int:
    """Width to which every block's V rows are padded with `-fa off`: the widest block's; 0 = no padding."""
    if settings.flash_attn != "off" and not spec.flash_attn_forced_off:
        return 0
    return max((layer.v_width for layer in spec.layers), default=0)


def cache_tensors(
    layer: LayerSpec, settings: RunSettings, padded_v: int, n_state_copies: int = 1
) -> list[tuple[GgmlType, int, int]]:
    """(type, row elements, rows) of each cache tensor that this block owns."""
    tensors: list[tuple[GgmlType, int, int]] = []
    rows = layer_cells(layer, settings) * n_streams(settings)
    type_k, type_v = BY_NAME[settings.cache_type_k.lower()], BY_NAME[settings.cache_type_v.lower()]
    if layer.has_cache:
        tensors.append((type_k, layer.k_width, rows))
        if layer.attention != "latent":  # -fa off pads the rows of blocks without attention heads too
            tensors.append((type_v, padded_v or layer.v_width, rows))
        if layer.indexer_head_size:
            tensors.append((type_k, layer.indexer_head_size, rows))
    f32 = BY_NAME["f32"]
    slots = settings.n_parallel * n_state_copies
    tensors += [(f32, width, slots) for width in (layer.recurrent_conv, layer.recurrent_state) if width]
    return tensors


def layer_cache_bytes(
    layer: LayerSpec, settings: RunSettings, padded_v: int, backend: BackendRules | None, n_state_copies: int = 1
) -> int:
    """Bytes of this block's cache and state on a device of `backend`, None = plain host memory."""
    total = 0
    for kind, width, rows in cache_tensors(layer, settings, padded_v, n_state_copies):
        n_bytes = row_bytes(kind, width) * rows
        if not n_bytes:
            continue
        if backend is None:
            total += round_up(n_bytes, 32)
            continue
        multiple = backend.quantized_row_multiple
        if multiple and kind.is_quantized and width % multiple:
            n_bytes += row_bytes(kind, multiple - width % multiple)
        total += round_up(n_bytes, backend.alignment_bytes)
    return total


class CacheTable:
    """A model's cache block by block; what one set of settings takes on one kind of device is worked out once."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self.alike = Alike(spec.layers)
        self._known: dict[tuple[object, ...], dict[int, tuple[int, ...]]] = {}  # by settings, then by backend
        self._layers: dict[tuple[int, ...], tuple[int, ...]] = {}

    def by_layer(self, settings: RunSettings, backend: BackendRules | None) -> tuple[int, ...]:
        """Bytes of each block's cache and state on a device of `backend`, None = plain host memory."""
        sizes = self._by_kind(self._of(settings), settings, backend)
        known = self._layers.get(sizes)
        if known is None:
            known = self._layers[sizes] = tuple(map(sizes.__getitem__, self.alike.of_layer))
        return known

    def _of(self, s: RunSettings) -> dict[int, tuple[int, ...]]:
        key = (s.n_ctx_seq, s.n_ubatch, s.n_parallel, s.kv_unified, s.swa_full, s.cache_type_k, s.cache_type_v,
               s.flash_attn, s.n_rollback)  # fmt: skip
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = {}
        return known

    def _by_kind(
        self, sizes: dict[int, tuple[int, ...]], settings: RunSettings, backend: BackendRules | None
    ) -> tuple[int, ...]:
        known = sizes.get(id(backend))
        if known is None:
            padded_v, copies = padded_v_width(self._spec, settings), 1 + settings.n_rollback
            known = sizes[id(backend)] = tuple(
                [layer_cache_bytes(layer, settings, padded_v, backend, copies) for layer in self.alike.kinds]
            )
        return known

    def place(
        self, settings: RunSettings, placement: tuple[int, ...], backends: Sequence[BackendRules]
    ) -> tuple[tuple[int, ...], int]:
        """(bytes per device, bytes on the host): each block's cache sits with its weights, or all on the host."""
        devices, host = [0] * len(backends), 0
        sizes = self._of(settings)
        for place, kind, count in self.alike.counts(placement):
            if place == HOST or not settings.kv_offload:
                host += count * self._by_kind(sizes, settings, None)[kind]
            else:
                devices[place] += count * self._by_kind(sizes, settings, backends[place])[kind]
        return tuple(devices), host


def refusal(spec: ModelSpec, settings: RunSettings, flash_attn_possible: bool) -> str | None:
    """Why the engine would refuse this cache, or None. Source: llama-context.cpp's checks at b11434."""
    streams = n_streams(settings)
    tokens = min(settings.n_ctx, settings.n_ubatch)
    if spec.architecture == "t5" and streams > 1:
        return "the engine stops on a T5 with a cache per sequence; give -np 1 or -kvu"
    if spec.architecture in RESERVED_AS_ONE and tokens % streams:
        name = excerpt(spec.architecture)
        return f"the engine stops on {name} when -np {streams} does not divide -ub {tokens}; give -kvu"
    type_k, type_v = BY_NAME[settings.cache_type_k.lower()], BY_NAME[settings.cache_type_v.lower()]
    if type_k is not type_v and any(layer.attention == "latent" for layer in spec.layers):
        return "a latent (MLA) cache keeps keys only, so -ctk and -ctv must be equal; give both the same type"
    off = settings.flash_attn == "off" or spec.flash_attn_forced_off
    if type_v.is_quantized and off:
        if spec.flash_attn_forced_off:
            name = excerpt(spec.architecture)
            return f"a quantized V cache needs flash attention, which {name} never runs; give -ctv f16"
        return "a quantized V cache needs flash attention, which is off; give -fa on, or -ctv f16"
    if off or not flash_attn_possible or not (type_k.is_quantized or type_v.is_quantized):
        return None
    heads = dict.fromkeys([(layer.head_size_k, layer.head_size_v, layer.attention) for layer in spec.layers])
    for size_k, size_v, attention in heads:
        if attention == "none":
            continue
        for kind, size, side in ((type_k, size_k, "k"), (type_v, size_v, "v")):
            if kind.is_quantized and size % kind.block_elements:
                block = kind.block_elements
                return f"head size {size} is no multiple of {kind.name}'s block of {block}; give -ct{side} f16"
    return None
