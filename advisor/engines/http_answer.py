"""An answer over HTTP of which not everything is taken: so many lines before its body, and a body in so many pieces."""

from __future__ import annotations

import http.client
from typing import Any

_HEAD_LINES = 400  # interim answers and all; http.client itself stops at 100 headers of one answer
_HEAD_BYTES = 1 << 16
_BODY_PIECES = 20_000  # of 4 MiB; also lines between them


class FloodError(http.client.HTTPException):
    """More than any engine sends."""


class Stream:
    """What the connection gives, counted."""

    def __init__(self, stream: Any) -> None:
        """`stream` as socket.makefile makes it."""
        self.stream = stream
        self.n_lines, self.n_bytes = _HEAD_LINES, _HEAD_BYTES

    def body(self) -> None:
        """From now on it is the body."""
        self.n_lines, self.n_bytes = _BODY_PIECES, 4 * _HEAD_BYTES

    def readline(self, limit: int = -1) -> bytes:
        """One line of the head, or between two pieces of the body."""
        line: bytes = self.stream.readline(limit)
        self.n_bytes -= len(line)
        self._count()
        return line

    def read1(self, limit: int = -1) -> bytes:
        """What has come."""
        self._count()
        piece: bytes = self.stream.read1(limit)
        return piece

    def __getattr__(self, name: str) -> Any:
        """Everything else, as it is."""
        return getattr(self.stream, name)

    def _count(self) -> None:
        self.n_lines -= 1
        if self.n_lines < 0 or self.n_bytes < 0:
            raise FloodError("too many lines")


class Answer(http.client.HTTPResponse):
    """The same with a counted stream."""

    def __init__(self, *args: Any, **words: Any) -> None:
        """As http.client makes it."""
        super().__init__(*args, **words)
        self.fp: Any = Stream(self.fp)

    def begin(self) -> None:
        """Read the head."""
        super().begin()
        if self.fp is not None:
            self.fp.body()
