"""Whether metadata and tensors tell of one model: what llama.cpp refuses when it loads the tensors.

Source: llama.cpp b11434 src/llama-model-loader.cpp: "missing tensor", "wrong shape" and "wrong number of tensors".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from advisor.model.arch_rule import ArchRule
from advisor.model.errors import (
    ContradictionError,
    ExtraBlockError,
    MissingBlockError,
    MissingTensorError,
    NoMatrixError,
)
from advisor.model.metadata import Metadata
from advisor.model.spec import WeightTensor

_QUERIES = ("attn_q", "attn_qkv")
_MATRICES = tuple(
    f"{name}.weight"
    for name in (
        "token_embd", "output", "attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "ffn_up", "ffn_down",
        "ffn_gate", "ffn_gate_up", "_up_exps", "_down_exps", "_up_shexp", "_down_shexp",
    )
)  # fmt: skip


def check_matrices(path: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise NoMatrixError for a weight that is read as a matrix and has fewer than two dimensions."""
    for name, shape in shapes.items():
        if len(shape) < 2 and name.endswith(_MATRICES):
            raise NoMatrixError(path, tensor=name, shape=", ".join(map(str, shape)))


def check_model(
    meta: Metadata,
    rule: ArchRule,
    tensors: Sequence[WeightTensor],
    shapes: Mapping[str, tuple[int, ...]],
    n_layer: int,
    n_layer_all: int,
) -> None:
    """Raise a HeaderError when `tensors` cannot be those of the model that the metadata describe.

    `n_layer` blocks must be there; those after them, up to `n_layer_all`, draft and may be left out. A file of an
    architecture that was not measured may name its embeddings otherwise.
    """
    _check_blocks(meta, rule, tensors, n_layer, n_layer_all)
    measured = rule.checked == "measured"
    rows = shapes.get("token_embd.weight")
    if rows is None:
        if measured:
            raise MissingTensorError(meta.path, tensor="token_embd.weight")
    elif measured and rows[0] != meta.integer("embedding_length"):
        raise ContradictionError(
            meta.path,
            key=f"{meta.architecture}.embedding_length",
            value=meta.integer("embedding_length"),
            tensor="token_embd.weight",
            why=f"has rows of {rows[0]}",
        )
    _check_heads(meta, shapes, n_layer)
    # experts of a block each on their own, as in files of 2023, have names such as ffn_up.0
    if measured and meta.integer("expert_count", 0) and not any("_exps." in t or ".0.weight" in t for t in shapes):
        dense = meta.integer("leading_dense_block_count", 0)
        raise MissingTensorError(meta.path, tensor=f"blk.{min(dense, n_layer - 1)}.ffn_up_exps.weight")


def _check_blocks(
    meta: Metadata, rule: ArchRule, tensors: Sequence[WeightTensor], n_layer: int, n_layer_all: int
) -> None:
    key = f"{meta.architecture}.block_count"
    found = {tensor.block for tensor in tensors}
    if max(found, default=-1) >= n_layer_all:
        name = next(tensor.name for tensor in tensors if tensor.block >= n_layer_all)
        raise ExtraBlockError(meta.path, key=key, count=n_layer_all, tensor=name)
    missing = [block for block in range(n_layer) if block not in found]
    if not missing or (rule.checked != "measured" and not found - {-1}):
        return
    widths = meta.get("feed_forward_length")  # of a pruned model: a block without heads and without width is empty
    for block in missing:
        if not (isinstance(widths, tuple) and block < len(widths) and widths[block] == 0):
            raise MissingBlockError(meta.path, key=key, count=n_layer_all, block=block)


def _check_heads(meta: Metadata, shapes: Mapping[str, tuple[int, ...]], n_layer: int) -> None:
    heads = meta.get("attention.head_count")
    if heads is None or (heads != 0 and not (isinstance(heads, tuple) and 0 in heads)):
        return
    for block, count in enumerate(meta.per_layer("attention.head_count", n_layer, 0)):
        for part in _QUERIES if count == 0 else ():
            name = f"blk.{block}.{part}.weight"
            if name in shapes:
                raise ContradictionError(
                    meta.path,
                    key=f"{meta.architecture}.attention.head_count",
                    value=0,
                    tensor=name,
                    why="is there for the heads to read",
                )
