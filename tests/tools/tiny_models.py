"""Complete GGUF files of a few KB: models that can be planned, and what lies beside models.

Unlike the files of `empty_gguf` their data is there, so that they pass for finished downloads.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.tools.gguf_files import F16, F32, Q8_0, assemble, kv, table

N_EMBD, N_VOCAB, N_FF = 64, 96, 128


def filled(entries: Sequence[bytes], tensors: Sequence[tuple[str, Sequence[int], int]]) -> bytes:
    """A whole file whose data is nowhere zero."""
    rows, body_bytes = table(tensors)
    header = assemble(entries, rows)
    return header + b"\0" * (-len(header) % 32) + b"\x11" * body_bytes


def tiny_model(name: str = "Tiny", **said: Any) -> bytes:
    """The whole file of `tiny_parts`."""
    return filled(*tiny_parts(name, **said))


def tiny_parts(
    name: str = "Tiny",
    *,
    n_layer: int = 2,
    n_ctx_train: int = 4096,
    architecture: str = "llama",
    part: tuple[int, int] | None = None,
    kind: int = Q8_0,
    more: Sequence[bytes] = (),
    n_vocab: int = N_VOCAB,
) -> tuple[list[bytes], list[tuple[str, tuple[int, ...], int]]]:
    """(entries, tensors) of a language model of `architecture` (built like Llama).

    `part` (number from 0, count) makes it one of several.
    `more`: entries of metadata besides the usual ones. Part 0 has the metadata and the tensors outside the blocks,
    block N is in part N % count.
    """  # fmt: skip
    tensors: list[tuple[str, tuple[int, ...], int]] = []
    number, count = part or (0, 1)
    if number == 0:
        tensors.append(("token_embd.weight", (N_EMBD, n_vocab), kind))
    for layer in range(n_layer):
        if layer % count == number:
            tensors += [
                (f"blk.{layer}.{name_}.weight", shape, kind_)
                for name_, shape, kind_ in (
                    ("attn_norm", (N_EMBD,), F32),
                    ("attn_q", (N_EMBD, N_EMBD), kind),
                    ("attn_k", (N_EMBD, N_EMBD), kind),
                    ("attn_v", (N_EMBD, N_EMBD), kind),
                    ("attn_output", (N_EMBD, N_EMBD), kind),
                    ("ffn_norm", (N_EMBD,), F32),
                    ("ffn_gate", (N_EMBD, N_FF), kind),
                    ("ffn_up", (N_EMBD, N_FF), kind),
                    ("ffn_down", (N_FF, N_EMBD), kind),
                )
            ]
    if number == 0:
        tensors += [("output_norm.weight", (N_EMBD,), F32), ("output.weight", (N_EMBD, n_vocab), kind)]
    entries = []
    if number == 0:
        entries = [
            kv("general.architecture", "string", architecture),
            kv("general.type", "string", "model"),
            kv("general.name", "string", name),
            kv("general.file_type", "uint32", 7),
            kv(f"{architecture}.block_count", "uint32", n_layer),
            kv(f"{architecture}.context_length", "uint32", n_ctx_train),
            kv(f"{architecture}.embedding_length", "uint32", N_EMBD),
            kv(f"{architecture}.feed_forward_length", "uint32", N_FF),
            kv(f"{architecture}.attention.head_count", "uint32", 2),
            kv(f"{architecture}.attention.head_count_kv", "uint32", 2),
            kv(f"{architecture}.attention.layer_norm_rms_epsilon", "float32", 1e-5),
            kv(f"{architecture}.vocab_size", "uint32", n_vocab),
        ]
    if part is not None:
        entries += [kv("split.no", "uint16", number), kv("split.count", "uint16", count)]
    return [*entries, *more], tensors


def projector() -> bytes:
    """A vision projector (mmproj)."""
    entries = [kv("general.architecture", "string", "clip"), kv("general.type", "string", "mmproj")]
    return filled(entries, [("v.patch_embd.weight", (32, 4), F16)])


def adapter(architecture: str = "llama") -> bytes:
    """A LoRA adapter."""
    entries = [
        kv("general.architecture", "string", architecture),
        kv("general.type", "string", "adapter"),
        kv("adapter.type", "string", "lora"),
    ]
    return filled(entries, [("blk.0.attn_q.weight.lora_a", (N_EMBD, 4), F32)])


def imatrix() -> bytes:
    """An importance matrix as llama-imatrix writes it."""
    return filled([kv("general.type", "string", "imatrix")], [("blk.0.attn_q.weight.in_sum2", (N_EMBD,), F32)])


def write(path: Path, data: bytes) -> Path:
    """Write a file and the folders that it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
