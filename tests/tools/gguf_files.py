"""Writes GGUF files with nothing but struct: honest ones, and every lie a header can tell.

Independent of the reader under test: the layout is written down here a second time, from the GGUF specification.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

CODES = {
    "uint8": "B", "int8": "b", "uint16": "H", "int16": "h", "uint32": "I", "int32": "i", "float32": "f",
    "bool": "?", "uint64": "Q", "int64": "q", "float64": "d",
}  # fmt: skip
IDS = {
    "uint8": 0, "int8": 1, "uint16": 2, "int16": 3, "uint32": 4, "int32": 5, "float32": 6,
    "bool": 7, "string": 8, "array": 9, "uint64": 10, "int64": 11, "float64": 12,
}  # fmt: skip
F32, F16, Q4_0, Q8_0, Q4_K, Q6_K = 0, 1, 2, 8, 12, 14
BLOCKS = {F32: (1, 4), F16: (1, 2), Q4_0: (32, 18), Q8_0: (32, 34), Q4_K: (256, 144), Q6_K: (256, 210)}


def text(value: str | bytes, length: int | None = None, order: str = "<") -> bytes:
    """A string with its length, which may lie."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(order + "Q", len(raw) if length is None else length) + raw


def kv(key: str | bytes, kind: str, value: object, order: str = "<") -> bytes:
    """One metadata entry of a scalar or string type."""
    head = text(key, order=order) + struct.pack(order + "I", IDS[kind])
    if kind == "string":
        return head + text(value, order=order)  # type: ignore[arg-type]
    return head + struct.pack(order + CODES[kind], value)


def array(
    key: str | bytes, kind: str, values: Sequence[object], length: int | None = None, type_id: int | None = None
) -> bytes:
    """One metadata entry that is an array; its length and element type may lie."""
    stated_type = IDS[kind] if type_id is None else type_id
    stated_length = len(values) if length is None else length
    head = text(key) + struct.pack("<IIQ", IDS["array"], stated_type, stated_length)
    if kind == "string":
        return head + b"".join(text(value) for value in values)  # type: ignore[arg-type]
    return head + struct.pack(f"<{len(values)}{CODES[kind]}", *values)


def raw_kv(key: str | bytes, type_id: int, body: bytes = b"") -> bytes:
    """One metadata entry of any type id with any bytes as its value."""
    return text(key) + struct.pack("<I", type_id) + body


def tensor(
    name: str | bytes, shape: Sequence[int], kind: int, offset: int, n_dims: int | None = None, order: str = "<"
) -> bytes:
    """One row of the tensor table."""
    dims = len(shape) if n_dims is None else n_dims
    extents = b"".join(struct.pack(order + "Q", extent % (1 << 64)) for extent in shape)
    return text(name, order=order) + struct.pack(order + "I", dims) + extents + struct.pack(order + "IQ", kind, offset)


def data_bytes(shape: Sequence[int], kind: int) -> int:
    """Bytes of a tensor's data without padding."""
    block, size = BLOCKS[kind]
    n = 1
    for extent in shape:
        n *= extent
    return n // block * size


def table(tensors: Sequence[tuple[str, Sequence[int], int]], alignment: int = 32) -> tuple[list[bytes], int]:
    """Rows with honest offsets for (name, shape, type), and the bytes of the data with padding."""
    rows, offset = [], 0
    for name, shape, kind in tensors:
        rows.append(tensor(name, shape, kind, offset))
        offset += -(-data_bytes(shape, kind) // alignment) * alignment
    return rows, offset


def assemble(
    entries: Sequence[bytes] = (),
    rows: Sequence[bytes] = (),
    body_bytes: int = 0,
    *,
    version: int = 3,
    alignment: int = 32,
    n_kv: int | None = None,
    n_tensors: int | None = None,
    magic: bytes = b"GGUF",
    order: str = "<",
) -> bytes:
    """A whole file from finished parts; every count may lie."""
    counts = struct.pack(
        order + "IQQ",
        version,
        len(rows) if n_tensors is None else n_tensors,
        len(entries) if n_kv is None else n_kv,
    )
    header = magic + counts + b"".join(entries) + b"".join(rows)
    if not rows:
        return header
    return header + b"\0" * (-len(header) % alignment + body_bytes)


def honest(
    entries: Sequence[bytes] = (),
    tensors: Sequence[tuple[str, Sequence[int], int]] = (("token_embd.weight", (32, 4), F32),),
    *,
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    """A file that every reader accepts; `alignment` other than 32 needs its entry among `entries`."""
    rows, body_bytes = table(tensors, alignment)
    return assemble(entries, rows, body_bytes, version=version, alignment=alignment)


def llama3_entries(n_tokens: int = 128_256, n_merges: int = 280_147) -> list[bytes]:
    """Metadata as large as Llama 3's (7.8 MB): the lengths of tokens and merges are what costs a reader its time."""
    tokens = [("t%x" % (i * 2654435761 % (1 << 32)))[: 3 + i % 9] for i in range(n_tokens)]
    merges = [f"{tokens[i % n_tokens]} {tokens[(i * 7 + 3) % n_tokens]}" for i in range(n_merges)]
    return [
        kv("general.architecture", "string", "llama"),
        kv("general.type", "string", "model"),
        kv("general.name", "string", "Meta Llama 3 8B Instruct"),
        array("general.tags", "string", ["facebook", "meta", "llama-3", "text-generation"]),
        kv("llama.block_count", "uint32", 32),
        kv("llama.context_length", "uint32", 8192),
        kv("llama.embedding_length", "uint32", 4096),
        kv("llama.feed_forward_length", "uint32", 14336),
        kv("llama.attention.head_count", "uint32", 32),
        kv("llama.attention.head_count_kv", "uint32", 8),
        kv("llama.rope.freq_base", "float32", 500000.0),
        kv("llama.attention.layer_norm_rms_epsilon", "float32", 1e-5),
        kv("general.file_type", "uint32", 15),
        kv("llama.vocab_size", "uint32", n_tokens),
        kv("llama.rope.dimension_count", "uint32", 128),
        kv("tokenizer.ggml.model", "string", "gpt2"),
        kv("tokenizer.ggml.pre", "string", "llama-bpe"),
        array("tokenizer.ggml.tokens", "string", tokens),
        array("tokenizer.ggml.token_type", "int32", [1] * n_tokens),
        array("tokenizer.ggml.merges", "string", merges),
        kv("tokenizer.ggml.bos_token_id", "uint32", 128000),
        kv("tokenizer.ggml.eos_token_id", "uint32", 128009),
        kv("tokenizer.chat_template", "string", "{% set loop_messages = messages %}" * 12),
        kv("general.quantization_version", "uint32", 2),
    ]


def llama3_tensors(n_layers: int = 32) -> list[tuple[str, tuple[int, ...], int]]:
    """The tensor table of an 8B Llama 3 as Q4_K_M makes it, in rough strokes."""
    tensors: list[tuple[str, tuple[int, ...], int]] = [("token_embd.weight", (4096, 128256), Q4_K)]
    for layer in range(n_layers):
        for part, shape, kind in (
            ("attn_norm", (4096,), F32),
            ("ffn_down", (14336, 4096), Q6_K),
            ("ffn_gate", (4096, 14336), Q4_K),
            ("ffn_up", (4096, 14336), Q4_K),
            ("ffn_norm", (4096,), F32),
            ("attn_k", (4096, 1024), Q4_K),
            ("attn_output", (4096, 4096), Q4_K),
            ("attn_q", (4096, 4096), Q4_K),
            ("attn_v", (4096, 1024), Q6_K),
        ):
            tensors.append((f"blk.{layer}.{part}.weight", shape, kind))
    return [*tensors, ("output_norm.weight", (4096,), F32), ("output.weight", (4096, 128256), Q6_K)]


def write_sparse(path: str, entries: Sequence[bytes], tensors: Sequence[tuple[str, Sequence[int], int]]) -> int:
    """Write a file of full apparent size whose body takes no disk; returns its size in bytes."""
    rows, body_bytes = table(tensors)
    header = assemble(entries, rows)
    total = len(header) + body_bytes
    with open(path, "wb") as out:
        out.write(header)
        out.truncate(total)
    return total
