"""Writes a GGUF with a real model's header and an empty body from a header snapshot.

The file has its full apparent size and takes a few MB of disk (the body is a hole), so that llama.cpp and every reader
see the shapes, types and metadata of, say, a 70B model. Dummy tokens, scores and token types stand in for the texts.
"""

from __future__ import annotations

import gzip
import json
import os
from typing import Any

from advisor.ggml_types import GGML_TYPES, tensor_bytes
from tests.tools.gguf_files import array, assemble, kv, tensor

_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6  # token types of llama.cpp
N_DUMMY_SPECIALS = 259  # <unk>, <s>, </s> and one token per byte


def write_empty_gguf(snapshot: str | os.PathLike[str] | dict[str, Any], out_path: str | os.PathLike[str]) -> int:
    """Write `out_path` from the snapshot (its text's values, or .json, or .json.gz); the apparent size in bytes."""
    if not isinstance(snapshot, dict):
        opener = gzip.open if str(snapshot).endswith(".gz") else open
        with opener(snapshot, "rb") as file:
            snapshot = json.loads(file.read())
    entries = [_entry(key, item["type"], item["value"]) for key, item in snapshot["metadata"].items()]
    n_vocab = snapshot.get("n_vocab")
    if n_vocab:
        entries += _dummy_tokens(n_vocab)
    alignment = snapshot["metadata"].get("general.alignment", {}).get("value", 32)
    rows, offset = [], 0
    for name, shape, kind in snapshot["tensors"]:
        rows.append(tensor(name, shape, kind, offset))
        offset += -(-tensor_bytes(GGML_TYPES[kind], tuple(shape)) // alignment) * alignment
    header = assemble(entries, rows, alignment=alignment)
    with open(out_path, "wb") as out:
        out.write(header)
        out.truncate(len(header) + offset)
    return len(header) + offset


def _entry(key: str, kind: str, value: object) -> bytes:
    if kind != "array":
        return kv(key, kind, value)
    assert isinstance(value, dict)
    return array(key, value["array"], value["values"])


def _dummy_tokens(n_vocab: int) -> list[bytes]:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))][:n_vocab]
    tokens += [f"t{i}" for i in range(n_vocab - len(tokens))]
    types = [_UNKNOWN, _CONTROL, _CONTROL, *[_BYTE] * 256][:n_vocab]
    types += [_NORMAL] * (n_vocab - len(types))
    scores = array("tokenizer.ggml.scores", "float32", [0.0] * n_vocab)
    return [
        array("tokenizer.ggml.tokens", "string", tokens),
        scores,
        array("tokenizer.ggml.token_type", "int32", types),
    ]
