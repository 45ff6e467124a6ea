"""Comparing the token texts of two models on disk."""

from __future__ import annotations

from advisor.gguf_header.limits import MAX_COMPARED_TEXTS
from advisor.gguf_header.texts import TooMuchError, token_texts
from advisor.stores.files import open_regular, unreadable

_PIECE_BYTES = 1 << 20


def same_texts(one_path: str, other_path: str, first: int, end: int) -> bool | None:
    """Whether tokens `first` to `end` - 1 have the same texts in both files; True where one has no texts.

    None: they are more than any vocabulary has, and were not compared. Both files' headers have been read, and each has
    at least `end` texts or none. Raises a ModelError for a file that cannot be read any more.
    """
    if end <= first:
        return True
    if end > MAX_COMPARED_TEXTS:
        return None
    one, one_bytes = open_regular(one_path)
    with one:
        other, other_bytes = open_regular(other_path)
        with other:
            try:
                mine, theirs = token_texts(one, one_path, one_bytes), token_texts(other, other_path, other_bytes)
                if mine is None or theirs is None:
                    return True
                start, their_start = mine.step(first), theirs.step(first)
                left = mine.step(end - first) - start  # the same bytes are the same lengths and texts: one walk will do
                one.seek(start)
                other.seek(their_start)
                while left > 0:
                    size = min(left, _PIECE_BYTES)
                    a, b = one.read(size), other.read(size)
                    if a != b:
                        return False
                    if not a:
                        break  # cut short since
                    left -= len(a)
            except TooMuchError:
                return None
            except OSError as error:
                raise unreadable(one_path, error) from None
    return True
