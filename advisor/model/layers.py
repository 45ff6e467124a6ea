"""The blocks of a model: which attends over what, which keeps what in the cache, how wide everything is.

Formulas and hard-coded values: llama.cpp b11434, src/llama-hparams.cpp and src/models/*.cpp; per-architecture facts
stand in rules/arch/.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from advisor.errors import ModelError
from advisor.gguf_header.errors import excerpt
from advisor.model.arch_rule import ArchRule
from advisor.model.metadata import Metadata
from advisor.model.spec import LayerSpec

Shapes = Mapping[str, tuple[int, ...]]  # tensor name -> extents, ne0 first


def window_tokens(meta: Metadata, rule: ArchRule, n_layer_all: int) -> int:
    """Tokens of the sliding or chunked window, 0 when every block attends to everything."""
    window = rule.window
    if not window or window.get("only_with_n_layer", n_layer_all) != n_layer_all:
        return 0
    given = meta.integer("attention.sliding_window", -1 if not meta.has("attention.sliding_window") else None)
    fixed = cast("int", window.get("fixed_tokens", 0))
    if window["key"] == "ignored":  # llama4: hard-coded unless the file says 0
        return 0 if given == 0 else fixed
    if given == -1:
        if window["key"] == "required":
            raise ModelError(
                f"{meta.path} has no '{excerpt(meta.architecture)}.attention.sliding_window', which this "
                f"architecture needs; convert or download it again."
            )
        return cast("int", window.get("default_tokens", 0))
    return fixed if fixed and given else given


def window_layers(meta: Metadata, rule: ArchRule, n_layer: int, recurrent: list[bool]) -> list[bool]:
    """Which of the first `n_layer` blocks attend through the window: the file's array, else the period."""
    if rule.window.get("all_attention"):
        return [not is_recurrent for is_recurrent in recurrent[:n_layer]]
    listed = meta.flags("attention.sliding_window_pattern")
    if listed is not None:
        return [bool(listed[i]) if i < len(listed) else False for i in range(n_layer)]
    period = meta.integer("attention.sliding_window_pattern", cast("int", rule.window.get("period", 0)))
    if "period" not in rule.window and not meta.has("attention.sliding_window_pattern"):
        raise ModelError(
            f"{meta.path} has no '{excerpt(meta.architecture)}.attention.sliding_window_pattern', which this "
            f"architecture needs; convert or download it again."
        )
    if period == 0:
        return [True] * n_layer
    if rule.window.get("dense_first"):
        return [i % period != 0 for i in range(n_layer)]
    return [i % period < period - 1 for i in range(n_layer)]


def recurrent_layers(
    meta: Metadata, rule: ArchRule, n_layer: int, n_head_kv: tuple[int, ...], n_ff: tuple[int, ...]
) -> list[bool]:
    """Which blocks keep a recurrent state."""
    which = rule.recurrent.get("layers")
    if which is None:
        return [False] * n_layer
    if which in ("all", "all_hybrid"):
        return [True] * n_layer
    if which == "no_kv_heads":
        return [n_head_kv[i] == 0 for i in range(n_layer)]
    if which == "no_kv_heads_no_ff":
        return [n_head_kv[i] == 0 and n_ff[i] == 0 for i in range(n_layer)]
    listed = meta.flags("attention.recurrent_layers")
    if listed is not None:
        return [bool(listed[i]) if i < len(listed) else False for i in range(n_layer)]
    interval = meta.integer("full_attention_interval", cast("int", rule.recurrent.get("interval", 4)))
    return [(i + 1) % max(interval, 1) != 0 for i in range(n_layer)]


def state_sizes(meta: Metadata, rule: ArchRule, n_head: int, n_embd: int) -> tuple[int, int]:
    """(r, s): f32 values of convolution and recurrent state per sequence and block (n_embd_r and n_embd_s)."""
    state = rule.recurrent.get("state")
    conv = meta.integer("ssm.conv_kernel", 0)
    if state == "wkv":
        head = meta.integer("wkv.head_size", 0)
        return meta.integer("token_shift_count", 2) * n_embd, n_embd * head
    if state == "shortconv":
        return n_embd * max(meta.integer("shortconv.l_cache", 1) - 1, 0), 0
    if state == "kda":
        head = meta.integer("kda.head_dim", 0)
        return 3 * (conv - 1 if conv else 3) * n_head * head, head * head * n_head
    inner = meta.integer("ssm.inner_size", 0)
    d_state = meta.integer("ssm.state_size", 0)
    r = (conv - 1 if conv else 0) * (inner + 2 * meta.integer("ssm.group_count", 0) * d_state)
    if state == "lightning":
        head = meta.integer("attention.key_length", n_embd // n_head if n_head else 0)
        return r, head * head * n_head
    return r, d_state * inner


def has_cache_flags(meta: Metadata, rule: ArchRule, n_layer: int, n_layer_all: int) -> list[bool]:
    """Which blocks own a cache; later blocks of shared-cache models attend through earlier ones."""
    if rule.cache_none:
        return [False] * n_layer
    first = n_layer
    if "first_layers" in rule.shared_kv:
        first = cast("int", rule.shared_kv["first_layers"])
    elif "key" in rule.shared_kv:
        first = n_layer_all - meta.integer(str(rule.shared_kv["key"]), 0)
    return [i < first for i in range(n_layer)]


def indexer_head_size(meta: Metadata, rule: ArchRule, index: int) -> int:
    """Width of the sparse-attention indexer's keys in this block's cache, 0 without one."""
    which = rule.indexer.get("layers")
    size = meta.integer("attention.indexer.key_length", 0)
    if which is None or size == 0 or meta.integer("attention.indexer.top_k", 1) == 0:
        return 0
    if which == "types":
        owners = meta.flags("attention.indexer.types")
        return size if owners is None or (index < len(owners) and owners[index]) else 0
    if which == "after_dense":
        return size if index >= meta.integer("leading_dense_block_count", 0) else 0
    return size


def feed_forward(shapes: Shapes, index: int, n_ff: int, n_expert_used: int) -> tuple[int, bool, int, int, int]:
    """(dense width, gated, expert width, experts used, shared width) of block `index`, from its tensors."""
    prefix = f"blk.{index}."
    up_experts = shapes.get(prefix + "ffn_up_exps.weight") or shapes.get(prefix + "ffn_gate_up_exps.weight")
    shared = shapes.get(prefix + "ffn_up_shexp.weight") or shapes.get(prefix + "ffn_gate_up_shexp.weight")
    up = shapes.get(prefix + "ffn_up.weight")
    gate = prefix + "ffn_gate.weight" in shapes
    down = shapes.get(prefix + "ffn_down.weight")
    width = down[0] if down else (n_ff if up else 0)
    gated = gate or bool(up and down and up[1] == 2 * down[0])
    if up_experts is None:
        return width, gated, 0, 0, 0
    down_experts = shapes.get(prefix + "ffn_down_exps.weight")
    expert_width = down_experts[0] if down_experts else up_experts[1]
    gated_experts = prefix + "ffn_gate_exps.weight" in shapes or up_experts[1] == 2 * expert_width
    return width, gated_experts, expert_width, n_expert_used, shared[1] if shared else 0


def describe_layers(meta: Metadata, rule: ArchRule, shapes: Shapes, n_layer: int, n_layer_all: int) -> list[LayerSpec]:
    """One LayerSpec per running block (MTP blocks are left out)."""
    n_embd = meta.integer("embedding_length")
    n_head = meta.per_layer("attention.head_count", n_layer_all, 0)
    n_head_kv = meta.per_layer("attention.head_count_kv", n_layer_all, n_head)
    n_ff = meta.per_layer("feed_forward_length", n_layer_all, 0)
    n_used = meta.per_layer("expert_used_count", n_layer_all, 0)
    default_head = n_embd // n_head[0] if n_head[0] else 0
    size_k = meta.integer("attention.key_length", default_head)
    size_v = meta.integer("attention.value_length", default_head)
    size_k_window = meta.integer("attention.key_length_swa", size_k)
    size_v_window = meta.integer("attention.value_length_swa", size_v)
    latent = (
        rule.latent
        and meta.integer("attention.key_length_mla", 0) > 0
        and meta.integer("attention.value_length_mla", 0) > 0
    )
    recurrent = recurrent_layers(meta, rule, n_layer, n_head_kv, n_ff)
    n_window = window_tokens(meta, rule, n_layer_all)
    windowed = window_layers(meta, rule, n_layer, recurrent) if n_window else [False] * n_layer
    keeps = has_cache_flags(meta, rule, n_layer, n_layer_all)
    conv, state = state_sizes(meta, rule, n_head[0], n_embd) if rule.recurrent else (0, 0)
    both = rule.recurrent.get("layers") == "all_hybrid"
    layers = []
    for i in range(n_layer):
        # nemotron_h has pure feed-forward blocks, which the engine's cache filter leaves out
        filtered = (recurrent[i] and not both) or (rule.recurrent.get("layers") == "no_kv_heads_no_ff" and n_ff[i] > 0)
        no_attention = filtered or n_head_kv[i] == 0 or n_head[i] == 0
        kind = "none" if no_attention else "latent" if latent else "window" if windowed[i] else "full"
        width, gated, expert, used, shared = feed_forward(shapes, i, n_ff[i], n_used[i])
        layers.append(
            LayerSpec(
                il=i,
                n_head=0 if no_attention else n_head[i],
                n_head_kv=0 if no_attention else n_head_kv[i],
                head_size_k=size_k_window if windowed[i] else size_k,
                head_size_v=size_v_window if windowed[i] else size_v,
                attention=kind,
                has_cache=keeps[i] and not filtered,
                n_window=n_window if windowed[i] else 0,
                recurrent_conv=conv if recurrent[i] else 0,
                recurrent_state=state if recurrent[i] else 0,
                indexer_head_size=0 if no_attention else indexer_head_size(meta, rule, i),
                n_ff=width,
                ff_gated=gated,
                n_ff_expert=expert,
                n_expert_used=used,
                n_ff_shared=shared,
            )
        )
    return layers
