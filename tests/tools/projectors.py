"""Projector (mmproj) and LoRA files of published shapes, with empty bodies."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

from tests.tools.gguf_files import F16, F32, array, assemble, kv, table

Row = tuple[str, Sequence[int], int]


def _write(path: Path, entries: list[bytes], tensors: list[Row]) -> Path:
    rows, n_bytes = table(tensors)
    header = assemble(entries, rows)
    with path.open("wb") as out:
        out.write(header)
        out.truncate(len(header) + n_bytes)
    return path


def write_projector(
    path: Path, kind: str, *, n_layer: int = 27, d: int = 1152, ff: int = 4304, heads: int = 16, image: int = 896,
    patch: int = 14, out: int = 2560, merge: int = 0,
) -> Path:  # fmt: skip
    """A vision projector as llama.cpp's converter writes it: gemma3, qwen3vl_merger or mlp."""
    vision = {
        "image_size": image, "patch_size": patch, "embedding_length": d, "feed_forward_length": ff,
        "block_count": n_layer, "attention.head_count": heads, "projection_dim": out,
    }  # fmt: skip
    if merge:
        vision["spatial_merge_size"] = merge
    entries = [
        kv("general.architecture", "string", "clip"), kv("general.type", "string", "mmproj"),
        kv("clip.has_vision_encoder", "bool", True), kv("clip.projector_type", "string", kind),
        kv("clip.use_gelu", "bool", True), kv("clip.vision.attention.layer_norm_epsilon", "float32", 1e-6),
        *(kv(f"clip.vision.{key}", "uint32", value) for key, value in vision.items()),
        array("clip.vision.image_mean", "float32", [0.5] * 3), array("clip.vision.image_std", "float32", [0.5] * 3),
    ]  # fmt: skip
    n_pos = (image // patch) ** 2 + (kind == "mlp")
    tensors: list[Row] = [
        ("v.patch_embd.weight", (patch, patch, 3, d), F16), ("v.patch_embd.bias", (d,), F32),
        ("v.position_embd.weight", (d, n_pos), F32),
        ("v.post_ln.weight", (d,), F32), ("v.post_ln.bias", (d,), F32),
    ]  # fmt: skip
    for il in range(n_layer):
        p = f"v.blk.{il}."
        if kind == "qwen3vl_merger":
            tensors += [(p + "attn_qkv.weight", (d, 3 * d), F16), (p + "attn_qkv.bias", (3 * d,), F32)]
        else:
            for name in ("attn_q", "attn_k", "attn_v"):
                tensors += [(f"{p}{name}.weight", (d, d), F16), (f"{p}{name}.bias", (d,), F32)]
        tensors += [
            (p + "attn_out.weight", (d, d), F16), (p + "attn_out.bias", (d,), F32),
            (p + "ffn_up.weight", (d, ff), F16), (p + "ffn_up.bias", (ff,), F32),
            (p + "ffn_down.weight", (ff, d), F16), (p + "ffn_down.bias", (d,), F32),
        ]  # fmt: skip
        tensors += [(f"{p}{ln}.{end}", (d,), F32) for ln in ("ln1", "ln2") for end in ("weight", "bias")]
    if kind == "gemma3":
        tensors += [("mm.input_projection.weight", (out, d), F16), ("mm.soft_emb_norm.weight", (d,), F32)]
    elif kind == "qwen3vl_merger":
        tensors.append(("v.patch_embd.weight.1", (patch, patch, 3, d), F16))
        wide = d * merge * merge
        tensors += [("mm.0.weight", (wide, wide), F16), ("mm.0.bias", (wide,), F32)]
        tensors += [("mm.2.weight", (wide, out), F16), ("mm.2.bias", (out,), F32)]
        for il in (n_layer // 4, n_layer // 2, n_layer * 3 // 4):
            p = f"v.deepstack.{il}."
            tensors += [(p + "norm.weight", (wide,), F32), (p + "norm.bias", (wide,), F32)]
            tensors += [(p + "fc1.weight", (wide, wide), F16), (p + "fc1.bias", (wide,), F32)]
            tensors += [(p + "fc2.weight", (wide, out), F16), (p + "fc2.bias", (out,), F32)]
    else:
        tensors += [("v.class_embd", (d,), F32), ("v.pre_ln.weight", (d,), F32), ("v.pre_ln.bias", (d,), F32)]
        tensors += [("mm.0.weight", (d, out), F16), ("mm.0.bias", (out,), F32)]
        tensors += [("mm.2.weight", (out, out), F16), ("mm.2.bias", (out,), F32)]
    return _write(path, entries, tensors)


def width_of(snapshot: Path) -> int:
    """What a model takes of a projector: its embedding width, and once more for each deepstack input."""
    metadata = json.loads(gzip.decompress(snapshot.read_bytes()))["metadata"]
    name = metadata["general.architecture"]["value"]
    deep = metadata.get(f"{name}.n_deepstack_layers", {"value": 0})["value"]
    return int(metadata[f"{name}.embedding_length"]["value"] * (1 + deep))


def write_lora(
    path: Path, architecture: str, pairs: Sequence[tuple[str, int, int]], rank: int, kind: int = F32
) -> Path:
    """A LoRA for the matrices `pairs` of (name, columns, rows)."""
    entries = [
        kv("general.architecture", "string", architecture), kv("general.type", "string", "adapter"),
        kv("adapter.type", "string", "lora"), kv("adapter.lora.alpha", "float32", 16.0),
    ]  # fmt: skip
    tensors: list[Row] = []
    for name, columns, rows in pairs:
        tensors += [(name + ".lora_a", (columns, rank), kind), (name + ".lora_b", (rank, rows), kind)]
    return _write(path, entries, tensors)
