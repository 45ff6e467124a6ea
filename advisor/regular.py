"""Reading a small file of which nobody knows what it is: a pipe is not waited for, a device is not read."""

from __future__ import annotations

import errno
import os
import stat


class NotRegularError(OSError):
    """What stands there is no regular file."""


def read_regular(path: str, most_bytes: int) -> tuple[bytes, os.stat_result]:
    """(at most `most_bytes` + 1 bytes of the regular file at `path`, its status). Raises OSError, NotRegularError."""
    # O_NONBLOCK: opening a FIFO must not wait for a writer
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except ValueError:  # a zero byte inside
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NotRegularError(errno.EINVAL, "not a regular file", path)
        content = bytearray()
        while len(content) <= most_bytes and (piece := os.read(descriptor, most_bytes + 1 - len(content))):
            content += piece
    finally:
        os.close(descriptor)
    return bytes(content), status
