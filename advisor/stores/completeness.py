"""Whether a GGUF is wholly there: what the size alone does not tell of a file that got its full size at the start.

Rule. The header must parse and its last tensor end within the file (the reader holds that). Then:

* Holes. Preallocated and sparse files have no data where nothing was written yet; SEEK_DATA and SEEK_HOLE say where.
  st_blocks is no evidence: a file system that compresses (btrfs, zfs) shows few blocks for real data, and fallocate
  gives all blocks before a byte is written, which SEEK_HOLE still reports as a hole. A copying tool may turn zeros of
  a whole file into holes too (cp --sparse=always, rsync -S), and real models have runs of zeros: rows that pad the
  vocabulary. So a hole counts only if it covers a whole tensor of 1 MiB or more, the whole last tensor, or 8 MiB.
* Zeros. Where a file system keeps no holes (exFAT, FUSE, NFS before 4.2), missing data reads as zeros: the last tensor
  of 64 KiB or more is looked at in three places, and no real weights are zero in all of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from io import FileIO

from advisor.ggml_types import GGML_TYPES, tensor_bytes
from advisor.gguf_header import GgufHeader, TensorInfo, merge, read_header
from advisor.gguf_header.errors import printable
from advisor.stores.files import open_regular, unreadable
from advisor.units import MIB, format_bytes

_LARGE_HOLE_BYTES = 8 * MIB
_LARGE_TENSOR_BYTES = MIB
_BLOCK_BYTES = 64 * 1024  # the largest usual block: what was written of a neighbour fills it
_LOOKED_AT_BYTES = 64 * 1024  # smaller tensors may well be zeros: biases
_SAMPLE_BYTES = 4096
_MAX_HOLES = 4096  # of one file; a download has one per connection, a sparse copy may have any number

SPARSE = "sparse"
HOLE = "hole"
ZEROS = "zeros"
_TEXT = {
    SPARSE: "{path} has its full size, but none of its data is there yet; finish the download or start it again.",
    HOLE: "{path} has its full size, but {size} of its data are missing; finish the download or start it again.",
    ZEROS: "{path} has its full size, but its last tensor is all zeros; finish the download or start it again.",
}


def read_complete(paths: Sequence[str]) -> tuple[GgufHeader, str | None]:
    """The header of a model of these files (all its parts), and a sentence when data is missing inside one of them.

    Raises a ModelError for a file that cannot be read, has a broken header or ends too early.
    """
    headers, problem = [], None
    for path in paths:
        file, file_bytes = open_regular(path)
        with file:
            try:
                header = read_header(file, path, file_bytes)
            except OSError as error:
                raise unreadable(path, error) from None
            headers.append(header)
            if problem is None and (gap := find_gap(file, header)) is not None:
                reason, n_bytes = gap
                problem = _TEXT[reason].format(path=printable(path), size=format_bytes(n_bytes))
    # merge also refuses a single file that says it is one of several parts
    return merge(headers), problem


def find_gap(file: FileIO, header: GgufHeader) -> tuple[str, int] | None:
    """(reason, missing bytes as far as is known) for missing data in the one file of `header`, None if there is none.

    `reason` is SPARSE (nothing of the data section is there), HOLE or ZEROS.
    """
    if not header.tensors:
        return None
    last = header.tensors[-1]
    data_bytes = last.offset + _bytes_of(last)
    # data starts at a multiple of the alignment, and the file ends within one alignment of its last tensor
    start = (header.file_bytes - data_bytes) // header.alignment * header.alignment
    holes = _holes(file.fileno(), start, start + data_bytes)
    if holes is not None:
        missing = sum(end - begin for begin, end in holes)
        if missing > max(data_bytes - _BLOCK_BYTES, 0):
            return SPARSE, missing
        if any(_counts(begin - start, end - start, header) for begin, end in holes):
            return HOLE, missing
    large = next((tensor for tensor in reversed(header.tensors) if _bytes_of(tensor) >= _LOOKED_AT_BYTES), None)
    if large is not None and _is_zero(file, start + large.offset, _bytes_of(large)):
        return ZEROS, _bytes_of(large)
    return None


def _holes(descriptor: int, start: int, end: int) -> list[tuple[int, int]] | None:
    """The holes within [start, end), None where the system cannot tell."""
    seek_data, seek_hole = getattr(os, "SEEK_DATA", None), getattr(os, "SEEK_HOLE", None)
    if seek_data is None or seek_hole is None:
        return None
    holes: list[tuple[int, int]] = []
    position = start
    while position < end and len(holes) < _MAX_HOLES:
        try:
            hole = os.lseek(descriptor, position, seek_hole)
        except OSError:  # not supported here
            return None
        if hole >= end:
            break
        try:
            position = min(os.lseek(descriptor, hole, seek_data), end)
        except OSError:  # no data after it (ENXIO)
            position = end
        holes.append((hole, position))
    return holes


def _counts(begin: int, end: int, header: GgufHeader) -> bool:
    """Whether a hole, in bytes from the start of the data, is more than zeros of a sparse copy."""
    if end - begin >= _LARGE_HOLE_BYTES:
        return True
    last = header.tensors[-1]
    if begin <= last.offset and end >= last.offset + _bytes_of(last) > last.offset:
        return True
    return any(
        begin - _BLOCK_BYTES < tensor.offset and tensor.offset + _bytes_of(tensor) < end + _BLOCK_BYTES
        for tensor in header.tensors
        if _bytes_of(tensor) >= _LARGE_TENSOR_BYTES
    )


def _is_zero(file: FileIO, offset: int, n_bytes: int) -> bool:
    for position in (offset, offset + n_bytes // 2, offset + n_bytes - _SAMPLE_BYTES):
        try:
            file.seek(position)
            sample = file.read(_SAMPLE_BYTES)
        except OSError:
            return False
        if sample.strip(b"\0"):
            return False
    return True


def _bytes_of(tensor: TensorInfo) -> int:
    return tensor_bytes(GGML_TYPES[tensor.ggml_type], tensor.shape)
