"""inotify(7) as it is: one descriptor, a watch per folder, the raw events.

Not through the package watchdog, whose interface hides what a service must know: a queue that overflowed is passed over
in silence (4.0 to 7.0) or told to nobody but its log (7.1), and so is a folder below the root that could not be watched
(ENOSPC). It also takes two threads and an unbounded queue per root, and wakes for every opening of a file, which an
engine that maps its model does all the time. Its lower classes were rewritten in 7.0, so nothing can rest on them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from advisor.records import NamedTuple

# linux/inotify.h
ATTRIB, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x4, 0x8, 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF, UNMOUNT, Q_OVERFLOW, IGNORED = 0x400, 0x800, 0x2000, 0x4000, 0x8000
ISDIR = 0x40000000
_ONLYDIR, _EXCL_UNLINK = 0x01000000, 0x04000000
# Not MODIFY: a download would wake us for every chunk. A finished file gives CLOSE_WRITE or MOVED_TO, a link CREATE
# only; ATTRIB is a chmod that opens or closes a file to us.
_MASK = (
    ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF | _ONLYDIR | _EXCL_UNLINK
)
_HEAD = struct.Struct("iIII")  # struct inotify_event: wd, mask, cookie, length of the name
_BUFFER_BYTES = 256 * 1024


class RawEvent(NamedTuple):
    """One event; `name` is that of the entry in the watched folder, "" for the folder itself. wd -1: Q_OVERFLOW."""

    wd: int
    mask: int
    name: str


class Inotify:
    """One inotify instance. Raises OSError: EMFILE when the user has too many, ENOSYS where there is no inotify."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "inotify_init1"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._add, self._remove = libc.inotify_add_watch, libc.inotify_rm_watch
        self._add.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
        self.fileno = _checked(libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))

    def add(self, folder: str) -> int:
        """Watch a folder, links followed; the same number for the same folder. Raises OSError, ENOSPC at the limit."""
        return _checked(self._add(self.fileno, os.fsencode(folder), _MASK))

    def remove(self, wd: int) -> None:
        """Watch it no more; nothing happens when the kernel has dropped it already."""
        self._remove(self.fileno, wd)

    def read(self) -> list[RawEvent]:
        """What has come since; empty when nothing has."""
        try:
            data = os.read(self.fileno, _BUFFER_BYTES)
        except BlockingIOError:
            return []
        return parse_events(data)

    def close(self) -> None:
        """Give the descriptor back; the kernel drops its watches."""
        os.close(self.fileno)


def parse_events(data: bytes) -> list[RawEvent]:
    """The events in what one read gave: whole ones only, as the kernel delivers them."""
    events, at = [], 0
    while at + _HEAD.size <= len(data):
        wd, mask, _, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        events.append(RawEvent(wd, mask, os.fsdecode(data[at : at + length].rstrip(b"\0"))))
        at += length
    return events


def _checked(result: int) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
