"""The token texts of a GGUF, which a header leaves out: where they lie in the file."""

from __future__ import annotations

import struct

from advisor.gguf_header.errors import BadStringLengthError
from advisor.gguf_header.limits import MAX_COMPARED_BYTES, MAX_COMPARED_TEXTS, MAX_STRING_BYTES
from advisor.gguf_header.metadata import MetadataReader, texts_behind
from advisor.gguf_header.window import ByteSource, ByteWindow

TOKENS = "tokenizer.ggml.tokens"
_U64 = struct.Struct("<Q").unpack_from
_N_KV_OFFSET = 16  # magic, version, tensor count


class TooMuchError(Exception):
    """More texts, or longer ones, than any vocabulary has."""


class _Reached(Exception):  # noqa: N818 - no error
    """The token texts begin here."""


class _Finder(MetadataReader):
    n_before = 0

    def _read_texts(self, key: str, length: int) -> None:
        if key == TOKENS:
            raise _Reached
        self.n_before += length
        if self.n_before > MAX_COMPARED_TEXTS:
            raise TooMuchError
        super()._read_texts(key, length)


class TokenTexts:
    """The token texts of a file whose header is good, each with its length before it; it stands at the first."""

    def __init__(self, window: ByteWindow) -> None:
        self._window = window

    def step(self, count: int) -> int:
        """Move over `count` texts, no more than there are; the offset behind them.

        Raises TooMuchError beyond MAX_COMPARED_BYTES, and a HeaderError for a file that ends before.
        """
        window = self._window
        stop = window.offset + MAX_COMPARED_BYTES
        while count > 0:
            window.need(8)
            pos, count, length = texts_behind(window.buffer, window.pos, count)
            if length > MAX_STRING_BYTES:
                raise BadStringLengthError(window.path, length_bytes=length, where=f"'{TOKENS}'")
            window.move(window.base + pos)
            if window.left < 0:
                raise window.truncated()
            if window.offset > stop:
                raise TooMuchError
        return window.offset


def token_texts(file: ByteSource, path: str, file_bytes: int) -> TokenTexts | None:
    """The token texts of a file, None where it has none.

    Raises TooMuchError where too many texts lie before, and a HeaderError for a file that ends before them.
    """
    window = ByteWindow(file, path, file_bytes)
    window.need(_N_KV_OFFSET + 8)
    (n_kv,) = _U64(window.buffer, _N_KV_OFFSET)
    window.pos = _N_KV_OFFSET + 8
    try:
        _Finder(window, exact=True).read(n_kv)
    except _Reached:
        return TokenTexts(window)
    return None
