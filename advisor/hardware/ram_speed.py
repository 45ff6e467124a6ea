"""How fast this machine's memory is read: every core goes through its part of a buffer.

memcmp of the C library reads two streams as fast as its vector code can, memchr one; both run without Python's lock.
The buffer is far larger than the caches. The best of the passes counts: other programs only ever slow one down.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
import threading
import time
from collections.abc import Callable

from advisor.hardware._read import read_text
from advisor.units import KIB, MIB

TIME_LIMIT_S = 0.6  # of the passes; making the buffer takes a tenth of a second more
_LEAST_PASSES = 3
_MAX_BUFFER_BYTES = 1024 * MIB
_USUAL_CACHE_BYTES = 32 * MIB
_MAX_THREADS = 256


def last_cache_bytes() -> int:
    """Size of the processor's last cache, a usual one where the system does not tell."""
    found = 0
    for index in range(2, 5):
        text = (read_text(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size", 64) or "").strip()
        digits, unit = text.rstrip("KM"), text[-1:]
        if digits.isdecimal() and len(digits) < 9:
            found = max(found, int(digits) * {"K": KIB, "M": MIB}.get(unit, 1))
    return found or _USUAL_CACHE_BYTES


def measure_ram(threads: int, available_bytes: int, *, seconds: float = TIME_LIMIT_S) -> int | None:
    """Bytes per second that `threads` threads read together; None where it cannot be measured. Never raises.

    `available_bytes` of memory are free; an eighth of it is taken at most.
    """
    size = min(max(8 * last_cache_bytes(), 256 * MIB), _MAX_BUFFER_BYTES, available_bytes // 8)
    threads = max(1, min(threads, _MAX_THREADS))
    part = size // threads // 8192 * 8192
    if part < MIB:
        return None
    try:
        return _measure(part, threads, seconds)
    except (OSError, ValueError, AttributeError, MemoryError, RuntimeError):  # no such function, no such thread
        return None


def _measure(part: int, threads: int, seconds: float) -> int:
    library = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)
    fill, find, compare = library.memset, library.memchr, library.memcmp
    fill.argtypes = find.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    fill.restype = find.restype = ctypes.c_void_p
    compare.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    with mmap.mmap(-1, part * threads) as buffer:
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without them
                buffer.madvise(mmap.MADV_HUGEPAGE)
        view = ctypes.c_char.from_buffer(buffer)
        try:
            starts = [ctypes.addressof(view) + index * part for index in range(threads)]
            _together(lambda start: fill(start, 1, part), starts)  # pages that nobody wrote are all the same one
            best = 0.0
            ways: list[Callable[[int], object]] = [
                lambda start: compare(start, start + part // 2, part // 2),
                lambda start: find(start, 2, part),
            ]
            deadline = time.perf_counter() + seconds
            for number in range(1000):
                if number >= _LEAST_PASSES * len(ways) and time.perf_counter() > deadline:
                    break
                best = max(best, part * threads / _together(ways[number % len(ways)], starts))
        finally:
            del view
    return int(best)


def _together(work: Callable[[int], object], starts: list[int]) -> float:
    """Seconds until all threads are done."""
    begin = threading.Barrier(len(starts) + 1)

    def run(start: int) -> None:
        begin.wait()
        work(start)

    workers = [threading.Thread(target=run, args=(start,), daemon=True) for start in starts]
    for worker in workers:
        worker.start()
    started = time.perf_counter()  # before they are let go: this thread may be the last to go on
    begin.wait()
    for worker in workers:
        worker.join()
    return max(time.perf_counter() - started, 1e-9)
