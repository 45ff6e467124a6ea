"""Hyper-parameters of a header as the short names that the formulas of tests.truth.shapes.build use."""

from __future__ import annotations

from typing import Any

Meta = dict[str, Any]  # hyper-parameters without the architecture's prefix


def plain(items: dict[str, Any]) -> Meta:
    """The values of snapshot items."""
    return {k: v["value"]["values"] if v["type"] == "array" else v["value"] for k, v in items.items()}


class Facts:
    """Hyper-parameters of a header as the short names of the formulas, block by block."""

    def __init__(self, arch: str, meta: Meta, n_vocab: int) -> None:
        self.arch, self.meta, self.n_vocab = arch, meta, n_vocab

    def _layer(self, key: str, il: int, default: int = 0) -> int:
        value = self.meta.get(key, default)
        return int(value[min(il, len(value) - 1)] if isinstance(value, list) else value)

    def _windowed(self, il: int) -> bool:
        value = self.meta.get("attention.sliding_window_pattern")
        return bool(value[il]) if isinstance(value, list) else False

    def at(self, il: int) -> dict[str, int]:
        meta, get = self.meta, lambda key, default=0: self._layer(key, 0, default)
        d, heads = get("embedding_length"), self._layer("attention.head_count", il)
        head = d // heads if heads else 0
        swa = "_swa" if self._windowed(il) and "attention.key_length_swa" in meta else ""
        ffe = get("expert_feed_forward_length") or self._layer("feed_forward_length", il)
        hk = get("attention.key_length" + swa, head)
        return {
            "d": d, "V": self.n_vocab, "L": get("block_count"), "ctx": get("context_length"), "H": heads,
            "KV": self._layer("attention.head_count_kv", il, heads), "hk": hk, "KH": get("attention.head_count"),
            "hv": get("attention.value_length" + swa, head), "rot": get("rope.dimension_count"),
            "nrot": get("rope.dimension_count", hk), "ff": self._layer("feed_forward_length", il), "ffe": ffe,
            "ffs": get("expert_shared_feed_forward_length") or ffe * (get("expert_shared_count") or 1),
            "ffc": get("expert_chunk_feed_forward_length"), "epg": get("experts_per_group", 1) or 1,
            "E": get("expert_count"), "dl": get("moe_latent_size"), "ql": get("attention.q_lora_rank"),
            "kvl": get("attention.kv_lora_rank"), "hkm": get("attention.key_length_mla"),
            "hvm": get("attention.value_length_mla"), "ih": get("attention.indexer.head_count"),
            "ik": get("attention.indexer.key_length"), "inner": get("ssm.inner_size"), "ns": get("ssm.state_size"),
            "dt": get("ssm.time_step_rank") or 1, "groups": get("ssm.group_count") or 1, "conv": get("ssm.conv_kernel"),
            "kda": get("kda.head_dim"), "lc": get("shortconv.l_cache"),
            "dp": get("embedding_length_per_layer_input"), "wkv": get("wkv.head_size") or 1,
            "tme": get("time_mix_extra_dim"), "tde": get("time_decay_extra_dim"),
            "lw": get("attention.decay_lora_rank"), "la": get("attention.iclr_lora_rank"),
            "lv": get("attention.value_residual_mix_lora_rank"), "lg": get("attention.gate_lora_rank"),
        }  # fmt: skip

    def kind(self, il: int) -> tuple[object, ...]:
        """What decides which tensors a block has."""
        meta, n = self.meta, self.meta["block_count"]
        interval = meta.get("full_attention_interval") or (4 if self.arch == "qwen3next" else 0)
        every, step = meta.get("moe_every_n_layers", 0), meta.get("interleave_moe_layer_step", 0)
        return (
            self._layer("attention.head_count_kv", il, 1) == 0,
            self._layer("attention.head_count", il, 1) == 0,
            self._layer("feed_forward_length", il, 1) == 0,
            il < meta.get("leading_dense_block_count", 0),
            il >= n - meta.get("nextn_predict_layers", 0),
            bool(interval) and (il + 1) % interval == 0,
            bool(every) and il % every == 1,
            step > 1 and (il + 1) % step == 0,
            "attention.key_length_swa" in meta and self._windowed(il),
            "altup.num_inputs" not in meta and il >= n - meta.get("attention.shared_kv_layers", 0),
            il == 0 and "attention.value_residual_mix_lora_rank" in meta,
        )
