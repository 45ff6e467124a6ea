"""The token texts of a GGUF, which a header leaves out: where they lie in the file."""

from __future__ import annotations

import struct

from advisor.gguf_header.errors import BadStringLengthError
from advisor.gguf_header.limits import MAX_STRING_BYTES
from advisor.gguf_header.metadata import MetadataReader
from advisor.gguf_header.window import ByteSource, ByteWindow

TOKENS = "tokenizer.ggml.tokens"
_U64 = struct.Struct("<Q").unpack_from
_N_KV_OFFSET = 16  # magic, version, tensor count


class _Reached(Exception):  # noqa: N818 - no error
    """The token texts begin here."""


class _Finder(MetadataReader):
    def _read_texts(self, key: str, length: int) -> None:
        if key == TOKENS:
            raise _Reached
        super()._read_texts(key, length)


def texts_span(file: ByteSource, path: str, file_bytes: int, first: int, end: int) -> tuple[int, int] | None:
    """(offset, bytes) of token texts `first` to `end` - 1 with their lengths, in a file whose header is good.

    None for a file without token texts. Raises a HeaderError for one that ends before.
    """
    window = ByteWindow(file, path, file_bytes)
    window.need(_N_KV_OFFSET + 8)
    (n_kv,) = _U64(window.buffer, _N_KV_OFFSET)
    window.pos = _N_KV_OFFSET + 8
    try:
        _Finder(window, exact=True).read(n_kv)
    except _Reached:
        start = _step_over(window, first)
        return start, _step_over(window, end - first) - start
    return None


def _step_over(window: ByteWindow, count: int) -> int:
    """The offset behind `count` texts."""
    while count:
        window.need(8)
        buffer, pos, last = window.buffer, window.pos, len(window.buffer) - 8
        length = 0
        while count and pos <= last:
            (length,) = _U64(buffer, pos)
            if length > MAX_STRING_BYTES:
                raise BadStringLengthError(window.path, length_bytes=length, where=f"'{TOKENS}'")
            pos += length + 8
            count -= 1
        window.move(window.base + pos)
        if window.left < 0:
            raise window.truncated()
    return window.offset
