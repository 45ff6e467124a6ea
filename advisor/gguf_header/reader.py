"""Reading the header of one GGUF file, version 2 or 3.

Layout (GGUF specification): magic, u32 version, u64 tensor count, u64 metadata count, the metadata entries, the tensor
table, padding to the alignment, the data. Version 2 has the layout of version 3. Nothing is allocated from a number
that the file states before that number was checked.
"""

from __future__ import annotations

import struct

from advisor.errors import HeaderError
from advisor.ggml_types import GGML_TYPES, tensor_bytes
from advisor.gguf_header.errors import (
    BadVersionError,
    BigEndianError,
    CountTooLargeError,
    FutureVersionError,
    TruncatedDataError,
    VersionOneError,
)
from advisor.gguf_header.limits import MAX_KV, MAX_TENSORS, MIN_KV_BYTES, MIN_TENSOR_BYTES
from advisor.gguf_header.metadata import MetadataReader, checked_alignment, vocabulary_size
from advisor.gguf_header.sniff import check_magic
from advisor.gguf_header.tensors import read_tensors
from advisor.gguf_header.types import GgufHeader, TensorInfo
from advisor.gguf_header.window import ByteSource, ByteWindow

_HEAD = struct.Struct("<4sIQQ")
_NEWEST_VERSION = 3


def read_header(file: ByteSource, path: str, file_bytes: int, most_bytes: int | None = None) -> GgufHeader:
    """Read the header of the one file `file` of `file_bytes` bytes; `path` is its name in messages and in the result.

    Raises a HeaderError (see `advisor.gguf_header.errors`) for anything that llama.cpp would refuse, for a file that is
    shorter than its tensors, and for one that would keep more than `most_bytes` in memory. An OSError of `file` passes
    through. Costs at most a few MB of memory beyond the result, under a second of CPU for the worst file, and 2 to 5 ms
    for the usual one.
    """
    window = ByteWindow(file, path, file_bytes, most_bytes)
    version, n_tensors, n_kv = _read_head(window)
    metadata = MetadataReader(window, exact=False)
    try:
        header, end = _read_rest(window, metadata, version, n_tensors, n_kv)
    except HeaderError:
        if not metadata.guessed:
            raise
    else:
        if not metadata.guessed or end <= file_bytes < end + header.alignment:
            return _complete(header, end)
    window = ByteWindow(file, path, file_bytes, most_bytes)
    _read_head(window)
    header, end = _read_rest(window, MetadataReader(window, exact=True), version, n_tensors, n_kv)
    return _complete(header, end)


def _read_head(window: ByteWindow) -> tuple[int, int, int]:
    """Version, number of tensors, number of metadata entries."""
    path = window.path
    window.refill()
    check_magic(bytes(window.buffer[:1024]), path)
    version_bytes = window.buffer[4:8]
    version = int.from_bytes(version_bytes, "little")
    if len(version_bytes) == 4:
        if version == 0:
            raise BadVersionError(path)
        if version & 0xFFFF == 0:  # llama.cpp's test: the small number sits at the other end
            raise BigEndianError(path)
        if version == 1:
            raise VersionOneError(path)
        if version > _NEWEST_VERSION:
            raise FutureVersionError(path, version=version)
    window.need(_HEAD.size)
    _, _, n_tensors, n_kv = _HEAD.unpack_from(window.buffer, 0)
    window.pos = _HEAD.size
    if n_tensors > MAX_TENSORS:
        raise CountTooLargeError(path, what="tensors", count=n_tensors, limit=MAX_TENSORS)
    if n_kv > MAX_KV:
        raise CountTooLargeError(path, what="metadata entries", count=n_kv, limit=MAX_KV)
    if n_kv * MIN_KV_BYTES + n_tensors * MIN_TENSOR_BYTES > window.left:
        raise window.truncated()
    return version, n_tensors, n_kv


def _read_rest(
    window: ByteWindow, metadata: MetadataReader, version: int, n_tensors: int, n_kv: int
) -> tuple[GgufHeader, int]:
    """Return the header, and the position in the file where its last tensor ends (0 without tensors)."""
    metadata.read(n_kv)
    alignment = checked_alignment(window.path, metadata.values, metadata.value_types)
    tensors, data_bytes = read_tensors(window, n_tensors, alignment)
    data_start = -(-window.offset // alignment) * alignment
    header = GgufHeader(
        path=window.path,
        version=version,
        alignment=alignment,
        metadata=metadata.values,
        value_types=metadata.value_types,
        tensors=tuple(tensors),
        n_vocab=vocabulary_size(metadata.values, metadata.value_types),
        file_bytes=window.file_bytes,
        shard_paths=(window.path,),
        source="gguf",
    )
    return header, data_start + data_bytes if tensors else window.offset


def _complete(header: GgufHeader, end: int) -> GgufHeader:
    """`header` if the file reaches to `end`, where its last tensor ends."""
    if end > header.file_bytes:
        tensor = _first_beyond(header.tensors, end - header.file_bytes)
        raise TruncatedDataError(
            header.path, missing_bytes=end - header.file_bytes, needed_bytes=end, tensor=tensor.name
        )
    return header


def _first_beyond(tensors: tuple[TensorInfo, ...], missing_bytes: int) -> TensorInfo:
    """Find the first tensor that is not whole if `missing_bytes` before the last tensor's end are missing."""
    last_end = tensors[-1].offset + _data_bytes(tensors[-1])
    there = last_end - missing_bytes
    return next(tensor for tensor in tensors if tensor.offset + _data_bytes(tensor) > there)


def _data_bytes(tensor: TensorInfo) -> int:
    return tensor_bytes(GGML_TYPES[tensor.ggml_type], tensor.shape)
