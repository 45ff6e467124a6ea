"""Attention heads of a file that does not count them, from the rows of its query and key matrices."""

from __future__ import annotations

from advisor.errors import ModelError
from advisor.gguf_header.errors import excerpt, printable
from advisor.gguf_header.types import GgufHeader
from advisor.model.metadata import Metadata

HEADS_DERIVED = "the key attention.head_count is missing"  # how such a model's note begins
_ATTENTION = ("attn_q", "attn_k", "attn_qkv")


def complete_heads(header: GgufHeader, n_layer: int) -> tuple[GgufHeader, str]:
    """(`header` with the numbers of heads that it lacks, what was done in words, "" where nothing was).

    Files converted from the formats before GGUF lack attention.head_count; a default would be a guess. The size of a
    head is key_length, else the dimensions that are rotated. Raises ModelError where neither tells it.
    """
    meta = Metadata(header)
    if meta.has("attention.head_count"):
        return header, ""
    shapes = {tensor.name: tensor.shape for tensor in header.tensors}
    rows: dict[str, tuple[int, ...]] = {}
    for part in _ATTENTION:
        found = [shapes.get(f"blk.{block}.{part}.weight", ()) for block in range(n_layer)]
        rows[part] = tuple(shape[1] if len(shape) > 1 else 0 for shape in found)
    if not any(map(any, rows.values())):
        return header, ""
    size = meta.integer("attention.key_length", 0) or meta.integer("rope.dimension_count", 0)
    if not size or not any(rows["attn_q"]) or any(count % size for part in _ATTENTION[:2] for count in rows[part]):
        raise ModelError(
            f"{printable(header.path)} has no '{excerpt(meta.architecture)}.attention.head_count', and its tensors "
            f"do not tell it either; convert it again with a current converter."
        )
    heads, keys = (tuple(count // size for count in rows[part]) for part in _ATTENTION[:2])
    values = {f"{meta.architecture}.attention.head_count": heads, **header.metadata}
    if not meta.has("attention.head_count_kv"):
        values[f"{meta.architecture}.attention.head_count_kv"] = keys
    said = f"{max(heads)} heads and {max(keys)} key heads of {size}"
    return (
        header._replace(metadata=values),
        f"{HEADS_DERIVED}: {said} are read off attn_q and attn_k, and engines may refuse the file",
    )
