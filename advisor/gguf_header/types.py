"""What a GGUF header says, as values."""

from collections.abc import Mapping
from typing import TypeAlias

from advisor.records import NamedTuple


class ArraySummary(NamedTuple):
    """An array whose entries were not kept (token texts, scores, merges): only its element type and length."""

    element_type: str  # "string", "float32", ...
    length: int


Scalar: TypeAlias = bool | int | float | str
Value: TypeAlias = Scalar | tuple[Scalar, ...] | ArraySummary


class TensorInfo(NamedTuple):
    """One row of the tensor table. `shape` has ne0 (the row length) first; `offset` is within its shard's data."""

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    offset: int
    shard: int


class GgufHeader(NamedTuple):
    """The header of one model: of one file, of all its shards together, or of a header snapshot.

    `metadata` holds scalars, whole per-layer arrays as tuples, and an ArraySummary for arrays whose entries were
    skipped. `value_types` names each value's GGUF type: "uint32", "string", "array[int32]".
    `n_vocab` is the length of `tokenizer.ggml.tokens`, None when there is no such array.
    """

    path: str  # the first shard
    version: int
    alignment: int
    metadata: Mapping[str, Value]
    value_types: Mapping[str, str]
    tensors: tuple[TensorInfo, ...]
    n_vocab: int | None
    file_bytes: int  # of all shards; a snapshot that does not say has the size of the file without token texts
    shard_paths: tuple[str, ...]
    source: str  # "gguf" | "snapshot"
    name: str = ""  # what a snapshot calls the model; files say it in general.name
