"""The three standard streams as a program may find them: closed, full, cut off, or in an encoding of few letters."""

from __future__ import annotations

import codecs
import os
import sys

HANDLER = "advisor.plain"
_PLAIN = {
    "…": "...", "·": "-", "–": "-", "—": "-", "−": "-", "×": "x", "✓": "fits", "✗": "no", "░": ".", "█": "#",
    "‘": "'", "’": "'", "“": '"', "”": '"', "→": "->", "\u00a0": " ",
}  # fmt: skip


def prepare() -> None:
    """Make the streams safe to use: a closed one leads nowhere, and every letter can be written to the others.

    Letters that the encoding lacks are written as plain ones where there are such, else as escapes.
    """
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _open_closed()
    for stream in (sys.stdout, sys.stderr):
        # whoever chose another handler (PYTHONIOENCODING=ascii:replace) keeps it
        if getattr(stream, "errors", "") in ("strict", "surrogateescape", "backslashreplace"):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                codecs.register_error(HANDLER, _plain)
                reconfigure(errors=HANDLER)


def silence(*descriptors: int) -> None:
    """Lead descriptors that refuse output nowhere, so that the interpreter does not complain when it flushes."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
    if nowhere > 2:
        os.close(nowhere)


def _open_closed() -> None:
    """Occupy the closed descriptors first: a file that is opened later must not become somebody's stdout."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    letters = [_PLAIN.get(letter) or letter.encode("ascii", "backslashreplace").decode("ascii") for letter in text]
    return "".join(letters), error.end
