"""A view of one megabyte that moves over a file: what makes headers of any size cost the same memory.

No mmap: a file cut short under a mapping kills the process, and a header is read once from front to back.
"""

from __future__ import annotations

from typing import Protocol

from advisor.gguf_header.errors import HeaderTooLargeError, TruncatedHeaderError
from advisor.gguf_header.limits import FIRST_READ_BYTES, MAX_KEPT_BYTES, MAX_READ_BYTES, WINDOW_BYTES


class ByteSource(Protocol):
    """What is asked of a binary file object: `open(path, "rb")`, `io.FileIO` and `io.BytesIO` fit."""

    def seek(self, offset: int, /) -> int:
        """Move to `offset` bytes from the start."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill `buffer`, or a part of it; the number of bytes read, 0 at the end."""


class ByteWindow:
    """Bytes `buffer[pos:]` are the file's from `base + pos` on; `buffer` never holds a byte that is not the file's."""

    __slots__ = ("_file", "_kept_bytes", "_most_bytes", "_read_bytes", "base", "buffer", "file_bytes", "path", "pos")

    def __init__(self, file: ByteSource, path: str, file_bytes: int, most_bytes: int | None = None) -> None:
        self._file = file
        self.path = path
        self.file_bytes = file_bytes
        self.buffer = bytearray()
        self.base = 0
        self.pos = 0
        self._read_bytes = 0
        self._kept_bytes = 0
        self._most_bytes = MAX_KEPT_BYTES if most_bytes is None else most_bytes

    @property
    def offset(self) -> int:
        """Position in the file, in bytes from its start."""
        return self.base + self.pos

    @property
    def left(self) -> int:
        """Bytes from here to the end of the file."""
        return self.file_bytes - self.base - self.pos

    def need(self, n_bytes: int) -> None:
        """Make `buffer[pos : pos + n_bytes]` valid; TruncatedHeaderError if the file ends before."""
        if self.pos + n_bytes > len(self.buffer):
            if n_bytes > self.left:
                raise self.truncated()
            self._load(n_bytes)

    def refill(self) -> None:
        """Hold as much as fits from here on, or up to the end of the file."""
        if self.base + len(self.buffer) < self.file_bytes and self.left > 0:
            self._load(0)

    def move(self, offset: int) -> None:
        """Go to `offset`, an absolute position in the file; nothing is read until it is needed."""
        self.pos = offset - self.base
        if self.pos < 0:
            self.base, self.pos = offset, 0
            del self.buffer[:]

    def keep(self, n_bytes: int) -> None:
        """Account for about `n_bytes` that stay in memory; HeaderTooLargeError beyond the cap."""
        self._kept_bytes += n_bytes
        if self._kept_bytes > self._most_bytes:
            raise HeaderTooLargeError(self.path, what=f"more than {self._most_bytes >> 20} MiB of metadata")

    def truncated(self) -> TruncatedHeaderError:
        """Make the error for a file that ends too early."""
        return TruncatedHeaderError(self.path, file_bytes=self.file_bytes)

    def _load(self, n_bytes: int) -> None:
        offset = self.base + self.pos
        size = min(max(n_bytes, WINDOW_BYTES if self._read_bytes else FIRST_READ_BYTES), self.file_bytes - offset)
        self._read_bytes += size
        if self._read_bytes > MAX_READ_BYTES:
            raise HeaderTooLargeError(self.path, what=f"more than {MAX_READ_BYTES >> 20} MiB")
        if len(self.buffer) != size:
            self.buffer = bytearray(size)
        self.base, self.pos = offset, 0
        self._file.seek(offset)
        filled = 0
        with memoryview(self.buffer) as view:
            while filled < size:
                n_read = self._file.readinto(view[filled:])
                if not n_read:  # the file shrank since its size was taken
                    raise self.truncated()
                filled += n_read
