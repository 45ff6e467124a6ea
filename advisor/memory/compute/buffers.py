"""Compute buffer per device and on the host from the blocks' terms: value and the bounds that planning uses.

Source: closed forms of llama.cpp b11434's graph allocator, checked against measured cells; what the form cannot say
exactly (weights, experts or cache on the host, several GPUs) carries a wider interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from advisor.memory.compute.terms import (
    Reserve,
    attention_bytes,
    ffn_floats,
    gpu_copies,
    mask_bytes,
    rotation_bytes,
    scratch_bytes,
    state_bytes,
    value_index_bytes,
)
from advisor.memory.types import Interval
from advisor.model.spec import LayerSpec, WeightTensor


def widest_block_bytes(r: Reserve, layers: Sequence[LayerSpec], *, attention: bool = True) -> int:
    """The widest moment over `layers`, without mask and inputs."""
    widest = 0
    last = r.spec.n_layer - 1
    seen: set[LayerSpec] = set()
    for layer in layers:
        bare = layer if layer.il == last else _without_index(layer)
        if bare in seen:
            continue
        seen.add(bare)
        if layer.il != last or r.full_ffn_in_last_block:
            widest = max(widest, int(4 * r.n_tokens * ffn_floats(r, layer)) - _deepstack_constant(r))
        if attention:
            widest = max(widest, attention_bytes(r, layer))
        widest = max(widest, state_bytes(r, layer))
    return widest


def _without_index(layer: LayerSpec) -> LayerSpec:
    return layer._replace(il=-1)


def _deepstack_constant(r: Reserve) -> int:
    deep = r.spec.shapes.n_deepstack
    return 4 * (1 + deep) * deep * r.spec.n_embd if deep and not r.on_cpu else 0


def single_device_bytes(r: Reserve, layers: Sequence[LayerSpec], *, with_output: bool) -> int:
    """A device that runs `layers` with everything it needs on itself."""
    widest = widest_block_bytes(r, layers)
    if with_output and r.spec.has_logits and r.spec.family != "encoder":
        logits = 4 * r.n_outputs * r.spec.n_vocab + 4 * r.n_tokens * gpu_copies(r) * r.spec.n_embd
        widest = max(widest, logits)
    fixed = mask_bytes(r) + rotation_bytes(r, r.spec.layers) + value_index_bytes(r)
    return fixed + widest + 40 * r.n_tokens


def host_inputs_bytes(r: Reserve) -> int:
    """The pinned host buffer beside GPUs: mask, k copies of the embedding, indices."""
    k = r.copies + (1 if r.spec.shapes.learned_positions else 0)
    if r.spec.shapes.compute.get("ffn") == "bert":
        k = 5
    floats = float(k * r.spec.n_embd + 9)
    deep = r.spec.shapes.n_deepstack
    if deep:
        floats = 3 * (1 + deep) * r.spec.n_embd + r.spec.n_embd + 9
    per_layer = r.spec.shapes.n_embd_per_layer
    if per_layer:
        floats += r.spec.n_embd + per_layer * r.spec.n_layer
    if r.spec.shapes.compute.get("block") == "lightning":
        head = r.spec.layers[0].head_size_k
        floats += r.spec.layers[0].recurrent_state // max(head * head, 1) * (r.n_tokens // r.settings.n_parallel) + 137
    return int(mask_bytes(r) + value_index_bytes(r) + rotation_bytes(r, r.spec.layers) + 4 * r.n_tokens * floats)


def largest_matrices(tensors: Sequence[WeightTensor], *, experts_only: bool = False) -> tuple[int, int]:
    """(largest ffn_down, largest other matrix) among host tensors: what the GPU copies in to compute a host block."""
    down = other = 0
    for tensor in tensors:
        if tensor.place != "block" or len(tensor.shape) < 2 or (experts_only and "exps" not in tensor.name):
            continue
        if "ffn_down" in tensor.name:
            down = max(down, tensor.n_bytes)
        else:
            other = max(other, tensor.n_bytes)
    return down, other


def with_host_experts(r: Reserve, full_bytes: int, tensors: Sequence[WeightTensor]) -> Interval:
    """One GPU that computes experts kept on the host: whole expert tensors are copied in."""
    down, up = largest_matrices(tensors, experts_only=True)
    d, fixed = r.spec.n_embd, mask_bytes(r) + rotation_bytes(r, r.spec.layers)
    routed = max((layer.n_expert_used * layer.n_ff_expert for layer in r.spec.layers), default=0)
    out = r.spec.n_expert_used * d
    value = max(
        full_bytes,
        down + fixed + 4 * r.n_tokens * (routed + out + 4 * d),
        up + fixed + 4 * r.n_tokens * (2 * routed + 4 * d),
    )
    adds = cast("int", r.spec.shapes.compute.get("expert_copy_adds", 0))
    value += adds * up
    return Interval(max(full_bytes, value - up), value, value + up)


def with_host_blocks(r: Reserve, full_bytes: int, tensors: Sequence[WeightTensor], host_layers: Sequence[LayerSpec],
                     host_cache_bytes: Sequence[int]) -> Interval:  # fmt: skip
    """One GPU that also computes host blocks: one matrix at a time and the block's K and V are copied in."""
    down, up = largest_matrices(tensors)
    d, t, fixed = r.spec.n_embd, r.n_tokens, mask_bytes(r)
    k = gpu_copies(r)
    widths = [
        (layer.n_expert_used * layer.n_ff_expert or layer.n_ff, layer.n_expert_used * d if layer.n_ff_expert else d)
        for layer in host_layers
    ] or [(0, d)]
    g, o = max(w[0] for w in widths), max(w[1] for w in widths)
    cache = max(
        (
            n_bytes + scratch_bytes(r, layer) + 4 * t * (k * d + 2 * layer.n_head * layer.head_size_k)
            for layer, n_bytes in zip(host_layers, host_cache_bytes, strict=True)
            if layer.attention != "none"
        ),
        default=0,
    )
    value = max(
        full_bytes,
        up + fixed + 4 * t * (2 * g + (k + 1) * d) if up else 0,
        down + fixed + 4 * t * ((g if o <= 2 * g else 3 * g) + o + (k + 1) * d) if down else 0,
        cache + fixed if cache else 0,
    )
    high = max(
        value,
        full_bytes + up + 8 * t * d,
        cache + fixed + max(down, up) + 4 * t * 6 * d,
        up + down + fixed + 4 * t * (g + o + 4 * d),
    )
    return Interval(full_bytes, value, high)
