"""Every tensor of the file with the place the engine gives it.

Source: llama.cpp b11434 src/llama-model.cpp (LLM_TENSOR_INFOS: input, repeating and output tensors) and the
create_tensor calls of src/models/*.cpp.
"""

from __future__ import annotations

from collections.abc import Iterable

from advisor.errors import ModelError
from advisor.ggml_types import GGML_TYPES, tensor_bytes
from advisor.gguf_header.types import TensorInfo
from advisor.model.spec import WeightTensor

INPUT_TENSORS = frozenset(
    (
        "token_embd.weight",
        "token_embd.bias",
        "position_embd.weight",
        "token_types.weight",
        "per_layer_token_embd.weight",
    )
)
_FIRST_BLOCK = ("token_embd_norm.", "per_layer_model_proj.", "per_layer_proj_norm.")
_ROPE = ("rope_freqs.", "rope_factors_long.", "rope_factors_short.")


def block_index(name: str) -> int:
    """The block that a tensor named `blk.N.…` (or enc./dec.blk.N.…) belongs to, -1 for the others."""
    head = name.find("blk.")
    if head not in (0, 4):
        return -1
    number = name[head + 4 :].split(".", 1)[0]
    return int(number) if number.isdecimal() else -1


def place_tensors(
    path: str, tensors: Iterable[TensorInfo], n_layer: int, output_tensors: frozenset[str], load_mtp: bool
) -> list[WeightTensor]:
    """WeightTensor per tensor. Blocks from `n_layer` on are MTP blocks, skipped unless `load_mtp`.

    Raises ModelError for a tensor type that no known engine reads.
    """
    placed = []
    for tensor in tensors:
        name = tensor.name
        kind = GGML_TYPES.get(tensor.ggml_type)
        if kind is None:
            raise ModelError(
                f"{path}: tensor '{name}' has type {tensor.ggml_type}, which is unknown; "
                f"update advisor, or convert the model with a current llama.cpp."
            )
        block = block_index(name)
        if block >= 0:
            place = "skipped" if block >= n_layer and not load_mtp else "block"
            if ".rope_f" in name:
                place = "rope"
            elif name.endswith("nextn.embed_tokens.weight") and place == "block":
                place = "input"
        elif name in output_tensors:
            place = "output"
        elif name in INPUT_TENSORS:
            place = "input"
        elif name.startswith(_FIRST_BLOCK):
            place = "first"
        elif name.startswith(_ROPE):
            place = "rope"
        else:
            place = "output"
        n_bytes = tensor_bytes(kind, tensor.shape)
        placed.append(
            WeightTensor(name, tensor.shape, tensor.ggml_type, n_bytes, place, block, tensor.offset, tensor.shard)
        )
    return placed
