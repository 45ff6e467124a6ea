"""How fast a file comes from its disk: read past the page cache, for about a second, 512 MiB at most; nothing written.

Weights that do not fit in memory are read like that for every token. Direct input and output skips the cache; where a
file system refuses it, the file's pages are dropped first, and what is still in memory afterwards is not measured.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import threading
import time

from advisor.calibration import LEAST_PACE
from advisor.records import NamedTuple
from advisor.units import MIB

TIME_LIMIT_S = 1.0
MAX_BYTES = 512 * MIB
LEAST_BYTES = 16 * MIB  # of less a figure says nothing
_PIECE = 4 * MIB
_PATIENCE_S = 5.0  # for a disk that sleeps, or a network that hangs
_F_NOCACHE = 48  # fcntl's command on macOS


class DiskSpeed(NamedTuple):
    """What came out: a rate, or why there is none."""

    bytes_per_s: int | None
    reason: str  # "" with a rate; otherwise half a sentence


def measure_file(path: str, *, seconds: float = TIME_LIMIT_S) -> DiskSpeed:
    """The rate at which `path` is read from its disk. Never raises, and takes a few seconds at the very most."""
    results: list[DiskSpeed] = []

    def work() -> None:
        try:
            results.append(_measure(path, seconds))
        except OSError as error:
            results.append(DiskSpeed(None, f"{path} cannot be read ({error.strerror})"))
        except (ValueError, OverflowError, MemoryError) as error:
            results.append(DiskSpeed(None, f"{path} cannot be read ({error})"))

    thread = threading.Thread(target=work, daemon=True)  # a read from a network that hangs never returns
    thread.start()
    thread.join(seconds + _PATIENCE_S)
    return results[0] if results else DiskSpeed(None, f"{path} did not come within {seconds + _PATIENCE_S:.0f} s")


def _measure(path: str, seconds: float) -> DiskSpeed:
    facts = os.stat(path)
    if facts.st_size < LEAST_BYTES:
        return DiskSpeed(None, f"{path} is too small to measure with")
    if getattr(facts, "st_blocks", facts.st_size) * 512 < facts.st_size // 2:
        return DiskSpeed(None, f"{path} is not all on the disk")
    direct = getattr(os, "O_DIRECT", 0)
    if direct:
        with contextlib.suppress(OSError):  # tmpfs, some network file systems
            descriptor = os.open(path, os.O_RDONLY | direct)
            try:
                return _read(descriptor, seconds)
            finally:
                os.close(descriptor)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if sys.platform == "darwin":
            import fcntl

            fcntl.fcntl(descriptor, _F_NOCACHE, 1)
        elif not _evicted(descriptor):
            return DiskSpeed(None, f"{path} stays in memory, so its disk cannot be measured")
        return _read(descriptor, seconds)
    finally:
        os.close(descriptor)


def _evicted(descriptor: int) -> bool:
    """Whether the file's pages could be dropped from memory."""
    if not hasattr(os, "posix_fadvise"):
        return False
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    no_wait = getattr(os, "RWF_NOWAIT", None)
    if no_wait is None:
        return False
    for share in range(8):
        try:
            os.preadv(descriptor, [bytearray(1)], os.fstat(descriptor).st_size * share // 8, no_wait)
        except BlockingIOError:  # would have to come from the disk
            continue
        except OSError:  # a file system that cannot say
            return False
        return False
    return True


def _read(descriptor: int, seconds: float) -> DiskSpeed:
    size, done = os.fstat(descriptor).st_size // _PIECE * _PIECE, 0
    with mmap.mmap(-1, _PIECE) as buffer:  # direct reads need memory that is aligned to pages
        started = time.perf_counter()
        while done < min(size, MAX_BYTES):
            got = os.preadv(descriptor, [buffer], done) if hasattr(os, "preadv") else os.readv(descriptor, [buffer])
            if got <= 0:
                break
            done += got
            if time.perf_counter() - started > seconds:
                break
        took = time.perf_counter() - started
    if done < LEAST_BYTES and took < seconds:
        return DiskSpeed(None, "the file ended early")
    rate = int(done / max(took, 1e-9))
    return DiskSpeed(rate, "") if rate >= LEAST_PACE else DiskSpeed(None, "next to nothing came from it")
