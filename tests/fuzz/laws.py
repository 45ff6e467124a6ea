"""What every target holds its code to, and bytes as a row of decisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from advisor.errors import AdvisorError

MAX_INPUT_BYTES = 1 << 16
MAX_SENTENCE = 4000
T = TypeVar("T")


class LawBrokenError(Exception):
    """A result that may not be."""


def judged(call: Callable[[], T]) -> T | None:
    """What `call` returns, None where it refuses with one of advisor's own sentences; everything else gets through."""
    try:
        return call()
    except AdvisorError as error:
        sentence = str(error)
        if not 10 <= len(sentence) <= MAX_SENTENCE or "Traceback" in sentence:
            raise LawBrokenError(f"no sentence: {sentence[:300]!r}") from error
        return None


def plain(call: Callable[[], T]) -> T | None:
    """As `judged`, and the sentence is one line that may go to a terminal as it is."""

    def checked() -> T:
        try:
            return call()
        except AdvisorError as error:
            if not str(error).isprintable():
                raise LawBrokenError(f"not printable: {str(error)[:300]!r}") from error
            raise

    return judged(checked)


def hold(true: bool, law: str, *shown: Any) -> None:
    """Raise LawBrokenError unless `true`."""
    if not true:
        raise LawBrokenError(f"{law}: {', '.join(repr(each)[:300] for each in shown)}")


class Choices:
    """Decisions out of bytes; after the last byte every decision is the first choice."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    @property
    def left(self) -> int:
        """Bytes not used yet."""
        return max(len(self.data) - self.at, 0)

    def byte(self) -> int:
        """The next byte, 0 at the end."""
        self.at += 1
        return self.data[self.at - 1] if self.at <= len(self.data) else 0

    def number(self, below: int) -> int:
        """A number from 0 to below - 1 (below at most 65,536)."""
        value = self.byte() if below <= 256 else self.byte() << 8 | self.byte()
        return value % below

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[self.number(len(options))]

    def some(self, limit: int = 12) -> bytes:
        """Up to `limit` bytes as they are."""
        n_bytes = self.number(limit + 1)
        self.at += n_bytes
        return self.data[self.at - n_bytes : self.at]

    def rest(self) -> bytes:
        """Everything that is left."""
        self.at, start = len(self.data), self.at
        return self.data[start:]
