"""Header snapshots: a header as JSON, without token texts and weights, to report a bug or plan for another machine.

    {"name": ..., "n_vocab": ..., "file_bytes": ...,
     "metadata": {key: {"type": ..., "value": ...}}, "tensors": [[name, [ne0, ...], type]]}

An array's value is `{"array": "int32", "values": [...]}`. Offsets are not stored: tensors lie one after the other.
A snapshot comes from strangers as a model does, and is checked as a model is.
"""

from __future__ import annotations

import struct
from typing import Any

from advisor.gguf_header.errors import (
    BadSnapshotError,
    BadTensorNameError,
    CountTooLargeError,
    DuplicateTensorError,
    EmptyKeyError,
    KeyTooLongError,
    TooManyDimensionsError,
)
from advisor.gguf_header.limits import (
    MAX_DIMENSIONS,
    MAX_KEPT_NUMBERS,
    MAX_KEPT_TEXTS,
    MAX_KEY_BYTES,
    MAX_KV,
    MAX_SNAPSHOT_BYTES,
    MAX_TENSOR_NAME_BYTES,
    MAX_TENSORS,
)
from advisor.gguf_header.metadata import checked_alignment, vocabulary_size
from advisor.gguf_header.tensors import checked_tensor_bytes
from advisor.gguf_header.types import ArraySummary, GgufHeader, Scalar, TensorInfo, Value
from advisor.gguf_header.value_types import BOOL, SCALARS_BY_NAME

SNAPSHOT_VERSION = 3  # of the GGUF that a snapshot stands for
_MAX_DIGITS = 20  # of a 64-bit number
_MAX_BRACKETS = 3 * MAX_TENSORS  # nothing may make the JSON parser allocate more than tens of MB
_MAX_COMMAS = 10 * MAX_TENSORS
_MAX_FILE_BYTES = 1 << 60
_MAX_VOCABULARY = 1 << 31
# one entry per token; left out of a snapshot, since n_vocab says all that a plan needs
_PER_TOKEN_KEYS = ("tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type")


def write_snapshot(header: GgufHeader, name: str) -> bytes:
    """Return `header` as JSON text; entries whose values were not kept, and per-token lists, are left out."""
    import json

    metadata: dict[str, object] = {}
    for key, value in header.metadata.items():
        kind = header.value_types[key]
        if isinstance(value, ArraySummary) or key in _PER_TOKEN_KEYS or key.startswith("split."):
            continue  # split.*: a snapshot is always of the whole model
        if isinstance(value, tuple):
            metadata[key] = {"type": "array", "value": {"array": kind[len("array[") : -1], "values": list(value)}}
        else:
            metadata[key] = {"type": kind, "value": value}
    tensors = [[tensor.name, list(tensor.shape), tensor.ggml_type] for tensor in header.tensors]
    snapshot = {
        "name": name,
        "n_vocab": header.n_vocab,
        "file_bytes": header.file_bytes,
        "metadata": metadata,
        "tensors": tensors,
    }
    return json.dumps(snapshot).encode()


def read_snapshot(data: bytes, path: str) -> GgufHeader:
    """Read the header in the JSON text `data` (not compressed) of the file `path`; unknown extra keys are ignored.

    `file_bytes` is what the snapshot says, or the size that the GGUF would have without token texts.
    Raises BadSnapshotError, or the error that the same fault has in a GGUF.
    """
    snapshot = _parse(data, path)
    entries = snapshot.get("metadata")
    rows = snapshot.get("tensors")
    if not isinstance(entries, dict) or not isinstance(rows, list):
        raise BadSnapshotError(path, why="it has no 'metadata' object or no 'tensors' list")
    if len(entries) > MAX_KV:
        raise CountTooLargeError(path, what="metadata entries", count=len(entries), limit=MAX_KV)
    if len(rows) > MAX_TENSORS:
        raise CountTooLargeError(path, what="tensors", count=len(rows), limit=MAX_TENSORS)
    values: dict[str, Value] = {}
    value_types: dict[str, str] = {}
    header_bytes = 4 + 4 + 8 + 8
    for index, (raw_key, entry) in enumerate(entries.items()):
        key = _text(raw_key)
        values[key], value_types[key], value_bytes = _read_entry(path, key, index, entry)
        header_bytes += 8 + len(key.encode()) + 4 + value_bytes
    alignment = checked_alignment(path, values, value_types)
    tensors, table_bytes, data_bytes = _read_tensors(path, rows, alignment)
    data_start = -(-(header_bytes + table_bytes) // alignment) * alignment
    return GgufHeader(
        path=path,
        version=SNAPSHOT_VERSION,
        alignment=alignment,
        metadata=values,
        value_types=value_types,
        tensors=tensors,
        n_vocab=_vocabulary(path, snapshot, values, value_types),
        file_bytes=_stated_size(snapshot.get("file_bytes"), data_start + data_bytes),
        shard_paths=(path,),
        source="snapshot",
        name=_text(name) if isinstance(name := snapshot.get("name"), str) else "",
    )


def _stated_size(stated: object, least: int) -> int:
    """The original file's size if the snapshot states a possible one, else `least`, that of a file without texts."""
    possible = isinstance(stated, int) and not isinstance(stated, bool) and least <= stated < _MAX_FILE_BYTES
    return stated if isinstance(stated, int) and possible else least


def _parse(data: bytes, path: str) -> dict[str, Any]:
    if len(data) > MAX_SNAPSHOT_BYTES:
        raise BadSnapshotError(path, why=f"it is larger than {MAX_SNAPSHOT_BYTES >> 20} MiB")
    if data.count(b"[") + data.count(b"{") > _MAX_BRACKETS or data.count(b",") > _MAX_COMMAS:
        raise BadSnapshotError(path, why="it has more entries than any model")
    import json

    def integer(digits: str) -> int:
        if len(digits) > _MAX_DIGITS:
            raise ValueError("a number of more than 64 bits")
        return int(digits)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            raise ValueError("one key twice in an object")
        return table

    try:
        snapshot = json.loads(data, parse_int=integer, object_pairs_hook=unique)
    except UnicodeDecodeError:
        raise BadSnapshotError(path, why="it is not JSON text") from None
    except json.JSONDecodeError as error:
        raise BadSnapshotError(path, why=f"it is not JSON: {error.msg} in line {error.lineno}") from None
    except ValueError as error:
        raise BadSnapshotError(path, why=f"it has {error}") from None
    except RecursionError:
        raise BadSnapshotError(path, why="it is nested too deeply") from None
    if not isinstance(snapshot, dict):
        raise BadSnapshotError(path, why="it is not a JSON object")
    return snapshot


def _text(text: str) -> str:
    """Return `text` without lone surrogates, which JSON can spell and no terminal can print."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _read_entry(path: str, key: str, index: int, entry: object) -> tuple[Value, str, int]:
    """Return value, type name and size in a GGUF, in bytes."""
    if not key:
        raise EmptyKeyError(path, index=index)
    if len(key) > MAX_KEY_BYTES:
        raise KeyTooLongError(path, length=len(key), index=index)
    if not isinstance(entry, dict) or not isinstance(entry.get("type"), str) or "value" not in entry:
        raise BadSnapshotError(path, why=f"'{key}' has no type or no value")
    kind, value = entry["type"], entry["value"]
    if kind != "array":
        scalar, n_bytes = _scalar(path, key, kind, value)
        return scalar, kind, n_bytes
    if not isinstance(value, dict) or not isinstance(value.get("array"), str):
        raise BadSnapshotError(path, why=f"the array '{key}' has no element type")
    kind, items = value["array"], value.get("values")
    if not isinstance(items, list):
        raise BadSnapshotError(path, why=f"the array '{key}' has no values")
    _scalar(path, key, kind, "" if kind == "string" else 0 if kind != "bool" else False)  # an empty array has a type
    converted = [_scalar(path, key, kind, item) for item in items]
    n_bytes = 4 + 8 + sum(size for _, size in converted)
    keep = MAX_KEPT_TEXTS if kind == "string" else MAX_KEPT_NUMBERS
    if len(items) > keep or (kind == "string" and key.startswith("tokenizer.")):
        return ArraySummary(kind, len(items)), f"array[{kind}]", n_bytes
    return tuple([item for item, _ in converted]), f"array[{kind}]", n_bytes


def _scalar(path: str, key: str, kind: str, value: object) -> tuple[Scalar, int]:
    """Return `value` as a GGUF would hold it, and its bytes there."""
    if kind == "string":
        if isinstance(value, str):
            text = _text(value)
            return text, 8 + len(text.encode())
    elif kind in SCALARS_BY_NAME:
        layout = SCALARS_BY_NAME[kind]
        if layout.code in "fd":
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                try:
                    rounded: float = struct.unpack(f"<{layout.code}", struct.pack(f"<{layout.code}", value))[0]
                except OverflowError:
                    raise BadSnapshotError(path, why=f"'{key}' is too large for a {kind}") from None
                return rounded, layout.n_bytes
        elif isinstance(value, int) and isinstance(value, bool) == (layout.id == BOOL):
            if layout.low <= value <= layout.high:
                return value, layout.n_bytes
            raise BadSnapshotError(path, why=f"'{key}' is out of the range of a {kind}")
    else:
        raise BadSnapshotError(path, why=f"'{key}' has the unknown type '{kind}'")
    raise BadSnapshotError(path, why=f"'{key}' is not a {kind}")


def _read_tensors(path: str, rows: list[Any], alignment: int) -> tuple[tuple[TensorInfo, ...], int, int]:
    """Return the tensors, the bytes of their table and the bytes of their data with padding."""
    tensors: list[TensorInfo] = []
    names: set[str] = set()
    table_bytes = offset = 0
    for index, row in enumerate(rows):
        if not (isinstance(row, list) and len(row) >= 3 and isinstance(row[0], str) and isinstance(row[1], list)):
            raise BadSnapshotError(path, why=f"tensor number {index} is not [name, [extents], type]")
        name, shape, type_id = _text(row[0]), tuple(row[1]), row[2]
        length = len(name.encode())
        if not 0 < length <= MAX_TENSOR_NAME_BYTES:
            raise BadTensorNameError(path, length=length, index=index)
        if len(shape) > MAX_DIMENSIONS:
            raise TooManyDimensionsError(path, tensor=name, count=len(shape))
        if type(type_id) is not int or any(type(extent) is not int for extent in shape):
            raise BadSnapshotError(path, why=f"tensor '{name}' has an extent or a type that is not a number")
        if name in names:
            raise DuplicateTensorError(path, tensor=name)
        names.add(name)
        n_bytes = checked_tensor_bytes(path, name, shape, type_id)
        tensors.append(TensorInfo(name, shape, type_id, offset, 0))
        offset += -(-n_bytes // alignment) * alignment
        table_bytes += 8 + length + 4 + 8 * len(shape) + 4 + 8
    return tuple(tensors), table_bytes, offset


def _vocabulary(
    path: str, snapshot: dict[str, Any], values: dict[str, Value], value_types: dict[str, str]
) -> int | None:
    n_vocab = snapshot.get("n_vocab")
    if n_vocab is None:
        return vocabulary_size(values, value_types)
    if type(n_vocab) is not int or not 0 <= n_vocab < _MAX_VOCABULARY:
        raise BadSnapshotError(path, why="n_vocab is not a number of tokens")
    return n_vocab
