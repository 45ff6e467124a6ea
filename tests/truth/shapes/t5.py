"""T5, which has no template: tensors as llama.cpp's converter names them (gguf-py, MODEL_ARCH.T5 and T5ENCODER)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.truth.shapes.build import typed
from tests.truth.shapes.quants import stored_as

HEAD = 64
BUCKETS = 32
N_VOCAB = 32128


class T5(NamedTuple):
    """A published size; `encoder` = a file of the encoder alone."""

    n_layer: int
    d: int
    ff: int
    n_head: int
    stored: str
    encoder: bool = False


SIZES = {
    "flan-t5-base": T5(12, 768, 2048, 12, "Q8_0"),
    "flan-t5-large": T5(24, 1024, 2816, 16, "Q8_0"),
    "flan-t5-xl": T5(24, 2048, 5120, 32, "Q4_K_M"),
    "t5-v1.1-xxl-encoder": T5(24, 4096, 10240, 64, "Q8_0", encoder=True),
}


def t5_snapshot(name: str) -> dict[str, Any]:
    """The header snapshot of one size."""
    size = SIZES[name]
    arch = "t5encoder" if size.encoder else "t5"
    keys: dict[str, Any] = {
        "block_count": size.n_layer,
        "context_length": 512,
        "embedding_length": size.d,
        "feed_forward_length": size.ff,
        "attention.head_count": size.n_head,
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "attention.layer_norm_epsilon": 1e-6,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.relative_buckets_count": BUCKETS,
        "decoder_start_token_id": 0,
    }
    metadata = {"general.architecture": typed(arch), "tokenizer.ggml.model": typed("t5")}
    metadata.update((f"{arch}.{key}", typed(value)) for key, value in keys.items())
    tensors = [
        [tensor, shape, stored_as(size.stored, tensor, shape, size.n_layer, 0, 1, False)]
        for tensor, shape in _shapes(size)
    ]
    return {"name": name, "n_vocab": N_VOCAB, "metadata": metadata, "tensors": tensors}


def _shapes(size: T5) -> Iterator[tuple[str, list[int]]]:
    d, ff, width = size.d, size.ff, size.n_head * HEAD
    yield "token_embd.weight", [d, N_VOCAB]
    for side in ("enc",) if size.encoder else ("enc", "dec"):
        for il in range(size.n_layer):
            prefix = f"{side}.blk.{il}."
            for kind in ("attn", "cross_attn") if side == "dec" else ("attn",):
                yield f"{prefix}{kind}_norm.weight", [d]
                for part in "qkv":
                    yield f"{prefix}{kind}_{part}.weight", [d, width]
                yield f"{prefix}{kind}_o.weight", [width, d]
            if il == 0:
                yield prefix + "attn_rel_b.weight", [size.n_head, BUCKETS]
            yield prefix + "ffn_norm.weight", [d]
            yield prefix + "ffn_gate.weight", [d, ff]
            yield prefix + "ffn_up.weight", [d, ff]
            yield prefix + "ffn_down.weight", [ff, d]
        yield side + ".output_norm.weight", [d]
    if not size.encoder:
        yield "output.weight", [d, N_VOCAB]
