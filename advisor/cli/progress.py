"""A line on a terminal's stderr that says how far long work is; nothing anywhere else."""

from __future__ import annotations

import os
import sys
import time

_EVERY_S = 0.1
_AFTER_S = 0.3  # what is done sooner needs no bar
_BAR = 24


class Progress:
    """Draws `doing [####    ] 12 of 40`; use it as a context manager, it leaves nothing behind."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._next = time.monotonic() + _AFTER_S
        self._drawn = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def show(self, doing: str, n_done: int, n_all: int) -> None:
        """Say that `n_done` of `n_all` are done; cheap to call often."""
        if not self._on or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _EVERY_S
        self._drawn = True
        filled = _BAR * n_done // max(n_all, 1)
        sys.stderr.write(f"\r{doing} [{'#' * filled}{' ' * (_BAR - filled)}] {n_done:,} of {n_all:,}\x1b[K")
        sys.stderr.flush()
