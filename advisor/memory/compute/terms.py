"""What one block asks of the compute buffer, in bytes, for a reserve batch of T tokens.

The engine's graph allocator reuses memory, so the buffer is as large as its widest moment: the widest feed-forward or
attention block plus what lives across blocks (k copies of the embedding). Widths are floats per token.
Source: llama.cpp b11434 graphs and allocator, closed forms checked against measured cells (tests/unit/memory).
"""

from __future__ import annotations

from typing import NamedTuple, cast

from advisor.ggml_types import BY_NAME
from advisor.memory.cache import layer_cells, n_streams
from advisor.model.spec import LayerSpec, ModelSpec
from advisor.settings import RunSettings


class Reserve(NamedTuple):
    """What the engine reserves the graph for."""

    spec: ModelSpec
    settings: RunSettings
    n_tokens: int  # T: micro-batch, rounded up to a multiple of the sequences
    n_outputs: int  # rows of logits
    copies: int  # k
    on_cpu: bool  # no GPU takes part
    flash: bool  # flash attention in the graph
    off_by_auto: bool  # `-fa auto` that turned itself off: the cache is laid out as if it were on
    f16_scratch: bool  # the backend's flash attention keeps f16 copies of a cache of another type

    @property
    def full_ffn_in_last_block(self) -> bool:
        """The last block's feed-forward runs on the rows that become logits only."""
        return self.n_outputs >= self.n_tokens


def reserve(
    spec: ModelSpec, settings: RunSettings, copies: int, *, on_cpu: bool, flash: bool, off_by_auto: bool, scratch: bool
) -> Reserve:
    """The reserve batch of these settings: np * ceil(min(ub, n_ctx) / np) tokens."""
    n_ubatch = min(settings.n_ubatch, settings.n_ctx)
    n_tokens = settings.n_parallel * -(-n_ubatch // settings.n_parallel)
    n_outputs = min(n_tokens, settings.n_outputs) if settings.n_outputs else n_tokens
    inputs = cast("int", spec.shapes.compute.get("inputs", 0))
    k = min(copies, inputs) if inputs else copies
    return Reserve(spec, settings, n_tokens, n_outputs, k, on_cpu, flash, off_by_auto, scratch)


def _rule(r: Reserve, key: str) -> int:
    return cast("int", r.spec.shapes.compute.get(key, 0))


def gpu_copies(r: Reserve) -> int:
    """K on the device that runs the blocks; learned positions are added before the first block."""
    return r.copies - 1 if r.spec.shapes.learned_positions and not r.on_cpu else r.copies


def _extra(r: Reserve, layer: LayerSpec) -> int:
    """Embedding-wide tensors that stay alive beside the feed-forward in some graphs."""
    if r.on_cpu and not r.spec.shapes.compute.get("extra_embd_cpu", False):
        return 0
    extra = _rule(r, "extra_embd")
    if layer.n_ff_expert:
        extra += _rule(r, "extra_embd_moe")
    if _rule(r, "parallel_branches") and r.spec.shapes.parallel_residual and r.spec.architecture == "falcon":
        extra += 1
    return extra


def ffn_floats(r: Reserve, layer: LayerSpec) -> float:
    """Floats per token while this block's feed-forward runs, 0 without one."""
    spec, d, k = r.spec, r.spec.n_embd, gpu_copies(r)
    kind = spec.shapes.compute.get("ffn", "plain")
    deep = spec.shapes.n_deepstack
    if layer.n_ff_expert:
        routed = layer.n_expert_used * layer.n_ff_expert
        latent = spec.shapes.n_embd_latent_moe
        out = layer.n_expert_used * (latent or d)
        if deep:
            return 3 * routed + out + (18 if r.on_cpu else 7 + (1 + deep) ** 2) * d
        if not layer.ff_gated:
            extra = 0 if (latent or r.on_cpu) else 1
            return routed + out + (k + extra) * d
        return 3 * routed + (k + _extra(r, layer)) * d + (out if out > 2 * routed else 0)
    if not layer.n_ff:
        return 0
    if kind == "bert":
        return layer.n_ff + (5 if r.on_cpu else 2) * d
    if spec.family == "encoder":
        return 3 * layer.n_ff + (5 if r.on_cpu else 4) * d
    if deep:
        return 3 * layer.n_ff + (15 if r.on_cpu else 4 + (1 + deep) ** 2) * d
    per_layer = spec.shapes.n_embd_per_layer
    if kind == "gemma3n":
        return 3 * layer.n_ff + 9 * d + per_layer * spec.n_layer
    if kind == "per_layer_embeddings" and per_layer:
        return 3 * layer.n_ff + k * d + per_layer * spec.n_layer
    width = 3 * layer.n_ff if layer.ff_gated else layer.n_ff
    return width + (k + _extra(r, layer)) * d


def attention_bytes(r: Reserve, layer: LayerSpec) -> int:
    """Bytes while this block's attention runs, without the mask; 0 without attention."""
    if layer.attention == "none":
        return 0
    spec, d, t = r.spec, r.spec.n_embd, r.n_tokens
    k = gpu_copies(r)
    q = layer.n_head * layer.head_size_k
    cells = layer_cells(layer, r.settings) if layer.has_cache or spec.family != "encoder" else t
    if layer.attention == "latent":
        if r.flash:
            floats = 2 * q + layer.n_head * spec.shapes.head_size_k_mla + k * d
            return 4 * t * floats + scratch_bytes(r, layer)
        return 4 * t * (layer.n_head * cells + k * d + 2 * q)
    queries = q if q == d else 2 * q
    if r.flash:
        scratch = scratch_bytes(r, layer)
        if scratch:
            wide = _rule(r, "query_copies")
            if wide:
                queries = (wide - 1 if q == d and wide > 3 else wide) * q
            elif _rule(r, "parallel_branches") and spec.shapes.parallel_residual:
                queries = (11 - k) * d
            elif _rule(r, "parallel_branches"):
                queries = (9 - k) * d
            elif _rule(r, "extra_embd"):
                queries += d
        return 4 * t * (k * d + queries) + scratch
    if spec.family == "encoder":
        return 4 * t * (layer.n_head * t + 5 * d)
    kv_rows = 0 if r.off_by_auto else 2 * layer.k_width
    wide = _rule(r, "query_copies")
    copies = max(wide - 1, 2) * q - q if wide > 3 else (queries - q)
    v_copy = 2 * n_streams(r.settings) * cells * layer.v_width if r.off_by_auto else 0
    return 4 * t * (layer.n_head * cells + k * d + q + kv_rows + copies) + v_copy


def scratch_bytes(r: Reserve, layer: LayerSpec) -> int:
    """f16 copies of one block's K and V that the flash-attention operation keeps for a cache of another type."""
    if not r.f16_scratch or (not layer.has_cache and layer.attention == "none"):
        return 0
    cells = 2 * n_streams(r.settings) * layer_cells(layer, r.settings)
    total = 0
    if r.settings.cache_type_k.lower() != "f16":
        total += cells * layer.k_width
    if r.settings.cache_type_v.lower() != "f16" and layer.attention != "latent":
        total += cells * layer.v_width
    return total


def state_bytes(r: Reserve, layer: LayerSpec) -> int:
    """Bytes while this block's recurrence runs; 0 without one."""
    if not layer.recurrent_state and not layer.recurrent_conv:
        return 0
    spec, t, np = r.spec, r.n_tokens, r.settings.n_parallel
    shapes, d, k = spec.shapes, spec.n_embd, gpu_copies(r)
    inner, ds, ng = shapes.ssm_d_inner, shapes.ssm_d_state, shapes.ssm_n_group
    conv, s = max(shapes.ssm_d_conv - 1, 0), layer.recurrent_state
    wide = inner + 2 * ng * ds
    if layer.attention != "none":
        k += 1  # the attention branch of the same block waits for this one
    per_token = np * s / t
    kind = shapes.compute.get("block")
    if kind == "delta_net":
        first = 2 * wide + 1.5 * inner + per_token
        second = 2 * wide + inner + 2 * per_token + conv * np * wide / t
        if 64 < t // np <= 128:
            second += inner / 2
        return int(4 * t * (k * d + max(first, second)))
    if kind == "mamba2":
        floats = k * d + 2 * inner + 2 * ng * ds + shapes.ssm_dt_rank + 2 * wide + inner + np * (conv * wide + s) / t
        return int(4 * t * floats)
    if kind == "mamba1":
        if r.on_cpu:
            return int(4 * t * (5 * d + 5 * inner + np * (s + conv * inner) / t))
        return int(4 * t * (4 * d + 4 * inner + 2 * shapes.ssm_dt_rank + 2 * ds + per_token))
    if kind == "rwkv7":
        return int(4 * t * ((20 if r.on_cpu else 19) * d + per_token))
    if kind == "rwkv6":
        return int(4 * t * ((15 if r.on_cpu else 14) * d + per_token))
    if kind == "lightning":
        n_tokens_seq = t // np
        head = spec.layers[0].head_size_k
        n_head = s // (head * head) if head else 0
        floats = 6 * d + 3 * n_head * n_tokens_seq + 5 * n_head * head + 128 + (per_token if n_tokens_seq <= 128 else 0)
        return int(4 * t * floats)
    return int(4 * t * (k * d + 3 * d + per_token))


def rotation_bytes(r: Reserve, layers: tuple[LayerSpec, ...]) -> int:
    """Hadamard rotation matrices of a quantised cache: one pair per cache object (llama-kv-cache.cpp)."""
    total = 0
    seen: set[bool] = set()
    k_quantized = BY_NAME[r.settings.cache_type_k.lower()].is_quantized
    v_quantized = BY_NAME[r.settings.cache_type_v.lower()].is_quantized
    for layer in layers:
        if layer.attention == "none" or not layer.has_cache or bool(layer.n_window) in seen:
            continue
        seen.add(bool(layer.n_window))
        size = layer.head_size_k
        if k_quantized and size % 64 == 0:
            power = size & -size
            total += 4 * power * power
        if v_quantized and layer.attention != "latent" and layer.head_size_v % 64 == 0:
            total += 4 * 64 * 64
    return total


def mask_bytes(r: Reserve, *, f32: bool | None = None) -> int:
    """The attention mask (one per cache object): f16 with flash attention, f32 without."""
    element = 4 if (not r.flash if f32 is None else f32) else 2
    cells = 0
    attending = [layer for layer in r.spec.layers if layer.attention != "none"]
    if r.spec.family in ("encoder", "diffusion-language"):
        objects = len({bool(layer.n_window) for layer in attending})
        return element * r.n_tokens * r.n_tokens * objects
    if any(not layer.n_window for layer in attending):
        cells += r.settings.n_ctx_seq
    windowed = next((layer for layer in attending if layer.n_window), None)
    if windowed is not None:
        cells += layer_cells(windowed, r.settings)
    return element * r.n_tokens * cells


def value_index_bytes(r: Reserve) -> int:
    """The 64-bit indices with which `-fa off` scatters transposed V rows, one set per cache object; none for MLA."""
    if r.flash or r.off_by_auto:
        return 0
    attending = [layer for layer in r.spec.layers if layer.attention not in ("none", "latent") and layer.has_cache]
    if not attending:
        return 0
    objects = len({bool(layer.n_window) for layer in attending})
    return 8 * r.n_tokens * max(layer.v_width for layer in attending) * objects
