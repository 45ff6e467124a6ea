"""Comparing the token texts of two models on disk."""

from __future__ import annotations

from advisor.gguf_header.texts import texts_span
from advisor.stores.files import open_regular, unreadable

_PIECE_BYTES = 1 << 20


def same_texts(one_path: str, other_path: str, first: int, end: int) -> bool:
    """Whether tokens `first` to `end` - 1 have the same texts in both files; True where one has no texts.

    Both files' headers have been read. Raises a ModelError for a file that cannot be read any more.
    """
    one, one_bytes = open_regular(one_path)
    with one:
        other, other_bytes = open_regular(other_path)
        with other:
            try:
                mine = texts_span(one, one_path, one_bytes, first, end)
                theirs = texts_span(other, other_path, other_bytes, first, end)
                if mine is None or theirs is None:
                    return True
                if mine[1] != theirs[1]:
                    return False
                one.seek(mine[0])
                other.seek(theirs[0])
                left = mine[1]
                while left > 0:
                    size = min(left, _PIECE_BYTES)
                    a, b = one.read(size), other.read(size)
                    if a != b:
                        return False
                    if not a:
                        break  # cut short since
                    left -= len(a)
            except OSError as error:
                raise unreadable(one_path, error) from None
    return True
