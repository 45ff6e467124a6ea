"""The file of a trial: a model of the architecture llama, as llama.cpp loads it, with random weights.

Zeros would be quicker: processors draw less power on them, and tokens that are all alike are soon chosen between. Bytes
are random but for the scales of blocks, which must be ordinary numbers.
"""

from __future__ import annotations

import os
import struct

from advisor.ggml_types import BY_NAME, GgmlType, tensor_bytes
from advisor.speed.trials import Trial
from advisor.units import MIB, round_up

_ALIGNMENT = 32
_STRING, _ARRAY, _U32, _F32, _I32 = 8, 9, 4, 6, 5
_UNKNOWN, _CONTROL, _BYTE, _NORMAL = 2, 3, 6, 1  # kinds of tokens
# where the half-precision scales of a block begin, in ggml-common.h of b11434; the others have one at its start
_SCALES = {
    "q4_1": (0, 2), "q5_1": (0, 2), "q2_K": (80, 82), "q3_K": (108,), "q4_K": (0, 2), "q5_K": (0, 2), "q6_K": (208,),
}  # fmt: skip


def write_trial(trial: Trial, path: str, n_ctx: int) -> None:
    """Write the model's file. Raises OSError."""
    header, offsets = _header(trial, n_ctx)
    with open(path, "wb") as file:
        file.write(header)
        patterns: dict[str, memoryview] = {}
        for (_, shape, kind), offset in zip(trial.tensors, offsets, strict=True):
            file.seek(len(header) + offset)
            storage = BY_NAME[kind.lower()]
            left = tensor_bytes(storage, shape)
            if len(shape) == 1:
                file.write(struct.pack("<f", 1.0) * shape[0])
                continue
            if kind not in patterns:
                patterns[kind] = _pattern(storage)
            pattern = patterns[kind]
            while left > 0:
                left -= file.write(pattern[:left])


def _pattern(storage: GgmlType) -> memoryview:
    """About 2 MiB of whole blocks."""
    size = storage.block_bytes
    data = bytearray(os.urandom(2 * MIB // size * size))
    count = len(data) // size
    if storage.name in ("f32", "bf16"):  # 2**-7 to 2**-5
        data[size - 1 :: size] = b"\x3c" * count
    elif storage.name == "mxfp4":  # an exponent of two alone
        data[0::size] = b"\x78" * count
    elif storage.name == "f16":  # 2**-7 to 2**-6
        data[1::size] = b"\x20" * count
    else:  # 2**-14
        for at in _SCALES.get(storage.name, (0,)):
            data[at::size], data[at + 1 :: size] = bytes(count), b"\x04" * count
    return memoryview(data)


def _header(trial: Trial, n_ctx: int) -> tuple[bytes, list[int]]:
    """(everything before the tensors, where each begins behind it)."""
    ints = {
        "block_count": trial.n_layer, "context_length": n_ctx, "embedding_length": trial.n_embd,
        "feed_forward_length": trial.n_ff, "attention.head_count": trial.n_head,
        "attention.head_count_kv": trial.n_head_kv, "attention.key_length": trial.head_size,
        "attention.value_length": trial.head_size, "rope.dimension_count": trial.head_size,
    }  # fmt: skip
    entries = [_entry("general.architecture", _STRING, _text("llama"))]
    entries += [_entry(f"llama.{name}", _U32, struct.pack("<I", value)) for name, value in ints.items()]
    entries.append(_entry("llama.attention.layer_norm_rms_epsilon", _F32, struct.pack("<f", 1e-5)))
    n_vocab = trial.n_vocab
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [_UNKNOWN, _CONTROL, _CONTROL, *[_BYTE] * 256, *[_NORMAL] * (n_vocab - len(tokens))]
    tokens += [f"t{number}" for number in range(n_vocab - len(tokens))]
    entries += [
        _entry("tokenizer.ggml.model", _STRING, _text("llama")),
        _entry("tokenizer.ggml.tokens", _ARRAY, struct.pack("<IQ", _STRING, n_vocab) + b"".join(map(_text, tokens))),
        _entry("tokenizer.ggml.scores", _ARRAY, struct.pack("<IQ", _F32, n_vocab) + bytes(4 * n_vocab)),
        _entry("tokenizer.ggml.token_type", _ARRAY, struct.pack(f"<IQ{n_vocab}i", _I32, n_vocab, *kinds)),
        _entry("tokenizer.ggml.bos_token_id", _U32, struct.pack("<I", 1)),
        _entry("tokenizer.ggml.eos_token_id", _U32, struct.pack("<I", 2)),
    ]
    rows, offsets, end = [], [], 0
    for name, shape, kind in trial.tensors:
        storage = BY_NAME[kind.lower()]
        rows.append(_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, storage.id, end))
        offsets.append(end)
        end += round_up(tensor_bytes(storage, shape), _ALIGNMENT)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(rows), len(entries)) + b"".join(entries) + b"".join(rows)
    return header + bytes(-len(header) % _ALIGNMENT), offsets


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _entry(key: str, kind: int, body: bytes) -> bytes:
    return _text(key) + struct.pack("<I", kind) + body
