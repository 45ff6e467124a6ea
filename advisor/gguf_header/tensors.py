"""The tensor table: shapes, types and offsets, checked as llama.cpp checks them.

Source: gguf_init_from_file of llama.cpp b11434: tensors lie in the order of the table, each at the sum of the padded
sizes before it, and anything else is refused.
"""

from __future__ import annotations

import struct

from advisor.ggml_types import GGML_TYPES
from advisor.gguf_header.errors import (
    BadExtentError,
    BadOffsetError,
    BadTensorNameError,
    DuplicateTensorError,
    RowNotDivisibleError,
    TooManyDimensionsError,
    UnknownTensorTypeError,
)
from advisor.gguf_header.limits import MAX_DIMENSIONS, MAX_TENSOR_NAME_BYTES
from advisor.gguf_header.types import TensorInfo
from advisor.gguf_header.window import ByteWindow

_U64 = struct.Struct("<Q").unpack_from
_U32 = struct.Struct("<I").unpack_from
_AFTER_NAME = tuple(struct.Struct(f"<{n}QIQ") for n in range(MAX_DIMENSIONS + 1))  # extents, type, offset
_LONGEST_ROW = 8 + MAX_TENSOR_NAME_BYTES + 4 + 8 * MAX_DIMENSIONS + 4 + 8
_MAX_INT64 = (1 << 63) - 1
_KEPT_BYTES = 400  # of one TensorInfo with its name and shape


def checked_tensor_bytes(path: str, name: str, shape: tuple[int, ...], type_id: int) -> int:
    """Return the bytes of the tensor's data, without padding; raises if the shape or the type is impossible.

    Extents of zero are allowed, as in llama.cpp. A tensor without dimensions has one element.
    """
    kind = GGML_TYPES.get(type_id)
    if kind is None:
        raise UnknownTensorTypeError(path, tensor=name, type_id=type_id)
    _, type_name, block_elements, block_bytes = kind
    n_elements = 1
    for extent in shape:
        if not 0 <= extent <= _MAX_INT64:
            raise BadExtentError(path, tensor=name, shape=_shown(shape))
        n_elements *= extent
    row = shape[0] if shape else 1
    if row % block_elements:
        raise RowNotDivisibleError(path, tensor=name, row=row, type=type_name, block=block_elements)
    n_bytes = n_elements // block_elements * block_bytes
    if n_bytes > _MAX_INT64 or n_elements >= _MAX_INT64:
        raise BadExtentError(path, tensor=name, shape=_shown(shape))
    return n_bytes


def _shown(shape: tuple[int, ...]) -> str:
    # extents are signed 64-bit numbers in the file
    return " x ".join(str(extent - (1 << 64) if extent > _MAX_INT64 else extent) for extent in shape)


def read_tensors(window: ByteWindow, n_tensors: int, alignment: int) -> tuple[list[TensorInfo], int]:
    """Return the table's rows, and the bytes of the data section up to the last tensor's end (without padding)."""
    path = window.path
    tensors: list[TensorInfo] = []
    names: set[str] = set()
    end = 0
    for index in range(n_tensors):
        if len(window.buffer) - window.pos < _LONGEST_ROW:
            window.refill()
        buffer, pos = window.buffer, window.pos
        try:
            (length,) = _U64(buffer, pos)
            if not 0 < length <= MAX_TENSOR_NAME_BYTES:
                raise BadTensorNameError(path, length=length, index=index)
            pos += 8
            name = buffer[pos : pos + length].decode("utf-8", "backslashreplace")
            pos += length
            (n_dims,) = _U32(buffer, pos)
            if n_dims > MAX_DIMENSIONS:
                raise TooManyDimensionsError(path, tensor=name, count=n_dims)
            layout = _AFTER_NAME[n_dims]
            row = layout.unpack_from(buffer, pos + 4)
        except struct.error:
            raise window.truncated() from None
        window.pos = pos + 4 + layout.size
        shape, type_id, offset = row[:-2], row[-2], row[-1]
        if name in names:
            raise DuplicateTensorError(path, tensor=name)
        names.add(name)
        n_bytes = checked_tensor_bytes(path, name, shape, type_id)
        expected = -(-end // alignment) * alignment
        if offset != expected:
            raise BadOffsetError(path, tensor=name, offset=offset, expected=expected)
        end = offset + n_bytes
        window.keep(_KEPT_BYTES)
        tensors.append(TensorInfo(name, shape, type_id, offset, 0))
    return tensors, end
