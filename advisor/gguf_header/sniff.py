"""Telling by its first bytes what a file is that is not a GGUF."""

from __future__ import annotations

from advisor.gguf_header.errors import (
    BigEndianError,
    EmptyFileError,
    HtmlPageError,
    LfsPointerError,
    NotGgufError,
    OldGgmlError,
    TruncatedHeaderError,
)

MAGIC = b"GGUF"
_REVERSED_MAGIC = b"FUGG"  # written by early converters for big-endian machines
_OLD_MAGICS = {b"lmgg": "GGML", b"fmgg": "GGMF", b"tjgg": "GGJT", b"algg": "GGLA"}
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_PAGE_STARTS = (b"<!doctype html", b"<html", b"<head", b"<body", b"<?xml", b"<!--")
_OTHER_STARTS = (
    (b"PK\x03\x04", "it is a zip archive, as PyTorch writes them"),
    (b"\x80\x02", "it is a Python pickle"),
    (b"\x1f\x8b", "it is compressed with gzip"),
    (b"(\xb5/\xfd", "it is compressed with zstd"),
    (b"7z\xbc\xaf", "it is a 7z archive"),
    (b"\x7fELF", "it is a program"),
    (b"{", "it is JSON, perhaps a server's error message"),
    (b"Entry not found", "it is a server's error message"),
    (b"Invalid username", "it is a server's error message"),
    (b"Access to model", "it is a server's error message"),
)


def check_magic(start: bytes, path: str) -> None:
    """Return if `start`, the first bytes of `path` (up to about 1,000), is a GGUF's; else raise what it is instead."""
    if start[:4] == MAGIC:
        return
    if not start:
        raise EmptyFileError(path)
    if start[:4] == _REVERSED_MAGIC:
        raise BigEndianError(path)
    if start[:4] in _OLD_MAGICS:
        raise OldGgmlError(path, magic=_OLD_MAGICS[start[:4]])
    if start.startswith(_LFS_POINTER):
        raise LfsPointerError(path)
    if start.removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith(_PAGE_STARTS):
        raise HtmlPageError(path)
    if MAGIC.startswith(start):
        raise TruncatedHeaderError(path, file_bytes=len(start))
    for beginning, what in _OTHER_STARTS:
        if start.startswith(beginning):
            raise NotGgufError(path, what=what)
    if not start.strip(b"\0"):
        raise NotGgufError(path, what="it starts with zero bytes, as an unfinished download does")
    if start[8:10] == b'{"':
        raise NotGgufError(path, what="it is a safetensors file")
    raise NotGgufError(path, what=f"it starts with {start[:4].hex(' ')} instead of 'GGUF'")
