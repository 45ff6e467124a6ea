"""What a pass leaves behind goes back to the system: the next one may be days away."""

from __future__ import annotations

import contextlib
import ctypes
import gc


def give_back() -> None:
    """Collect rings of objects, and where the C library can (glibc, malloc_trim(3)) hand free pages back."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
