"""The metadata section: every value type, per-layer arrays whole, token texts skipped.

Skipping 400,000 texts one by one takes 35 ms. The fast way looks for the next `tokenizer.` key behind the array
instead. That is a guess, which the caller must confirm: `read_header` accepts it only if exactly the stated number of
entries parse, the whole tensor table parses and the tensors end where the file ends; else it reads again, exactly.
"""

from __future__ import annotations

import contextlib
import struct

from advisor.gguf_header.errors import (
    BadAlignmentError,
    BadStringLengthError,
    BadValueTypeError,
    CountTooLargeError,
    DuplicateKeyError,
    EmptyKeyError,
    KeyTooLongError,
    NestedArrayError,
)
from advisor.gguf_header.limits import (
    MAX_ARRAY_LENGTH,
    MAX_KEPT_NUMBERS,
    MAX_KEPT_STRING_BYTES,
    MAX_KEPT_TEXTS,
    MAX_KEY_BYTES,
    MAX_STRING_BYTES,
    MAX_TEXTS,
)
from advisor.gguf_header.types import ArraySummary, Value
from advisor.gguf_header.value_types import ARRAY, SCALAR_TYPES, STRING, UNPACK
from advisor.gguf_header.window import ByteWindow

_U64 = struct.Struct("<Q").unpack_from
_U32 = struct.Struct("<I").unpack_from
_ARRAY_HEAD = struct.Struct("<IQ").unpack_from
_ENTRY_KEPT_BYTES = 256  # of one entry in two dicts, besides its text
_NUMBER_KEPT_BYTES = 40

DEFAULT_ALIGNMENT = 32
_NEXT_KEY = b"tokenizer."
_GUESS_FROM_LENGTH = 1024  # shorter arrays are as fast one by one
_GUESS_SPAN_BYTES = 32 * 1024 * 1024  # give up looking for the next key after this much
_LONGEST_GUESSED_KEY = 128


class MetadataReader:
    """Reads the metadata entries at the window's position into `values` and `value_types`, in file order."""

    __slots__ = ("_exact", "_texts_left", "_window", "guessed", "value_types", "values")

    def __init__(self, window: ByteWindow, exact: bool) -> None:
        self._window = window
        self._exact = exact
        self._texts_left = MAX_TEXTS
        self.guessed = False  # whether an array's end was found by looking for the next key
        self.values: dict[str, Value] = {}
        self.value_types: dict[str, str] = {}

    def read(self, n_kv: int) -> None:
        """Read `n_kv` entries; raises a HeaderError for the first that lies."""
        window = self._window
        for index in range(n_kv):
            window.need(8)
            (length,) = _U64(window.buffer, window.pos)
            if length == 0:
                raise EmptyKeyError(window.path, index=index)
            if length > MAX_KEY_BYTES:
                raise KeyTooLongError(window.path, length=length, index=index)
            window.need(8 + length + 4)
            start = window.pos + 8
            # broken UTF-8 stays distinguishable, so that two broken keys are not taken for one
            key = window.buffer[start : start + length].decode("utf-8", "backslashreplace")
            if key in self.values:
                raise DuplicateKeyError(window.path, key=key)
            (type_id,) = _U32(window.buffer, start + length)
            window.pos = start + length + 4
            window.keep(_ENTRY_KEPT_BYTES + 4 * length)
            self._read_value(key, type_id)

    def _read_value(self, key: str, type_id: int) -> None:
        window = self._window
        kind = SCALAR_TYPES.get(type_id)
        if kind is not None:
            window.need(kind.n_bytes)
            (self.values[key],) = UNPACK[type_id](window.buffer, window.pos)
            window.pos += kind.n_bytes
            self.value_types[key] = kind.name
        elif type_id == STRING:
            self.values[key] = self._read_string(key)
            self.value_types[key] = "string"
        elif type_id == ARRAY:
            self._read_array(key)
        else:
            raise BadValueTypeError(window.path, key=key, type_id=type_id)

    def _read_string(self, key: str) -> str:
        window = self._window
        window.need(8)
        (length,) = _U64(window.buffer, window.pos)
        if length > MAX_STRING_BYTES:
            raise BadStringLengthError(window.path, length_bytes=length, where=f"'{key}'")
        window.pos += 8
        if length > window.left:
            raise window.truncated()
        end = window.offset + length
        n_kept = min(length, MAX_KEPT_STRING_BYTES)
        window.keep(4 * n_kept)
        window.need(n_kept)
        text = window.buffer[window.pos : window.pos + n_kept].decode("utf-8", "replace")
        window.move(end)
        return text

    def _read_array(self, key: str) -> None:
        window = self._window
        window.need(12)
        type_id, length = _ARRAY_HEAD(window.buffer, window.pos)
        window.pos += 12
        kind = SCALAR_TYPES.get(type_id)
        if type_id == ARRAY:
            raise NestedArrayError(window.path, key=key)
        if kind is None and type_id != STRING:
            raise BadValueTypeError(window.path, key=key, type_id=type_id)
        if length > MAX_ARRAY_LENGTH:
            raise CountTooLargeError(window.path, what=f"entries in '{key}'", count=length, limit=MAX_ARRAY_LENGTH)
        if length * (8 if kind is None else kind.n_bytes) > window.left:
            raise window.truncated()
        self.value_types[key] = f"array[{'string' if kind is None else kind.name}]"
        if kind is None:
            self._read_texts(key, length)
        elif length > MAX_KEPT_NUMBERS:
            self.values[key] = ArraySummary(kind.name, length)
            window.move(window.offset + length * kind.n_bytes)
        else:
            n_bytes = length * kind.n_bytes
            window.keep(_NUMBER_KEPT_BYTES * length)
            window.need(n_bytes)
            self.values[key] = struct.unpack_from(f"<{length}{kind.code}", window.buffer, window.pos)
            window.pos += n_bytes

    def _read_texts(self, key: str, length: int) -> None:
        self._texts_left -= length
        if self._texts_left < 0:
            raise CountTooLargeError(self._window.path, what="texts in its lists", count=length, limit=MAX_TEXTS)
        if length <= MAX_KEPT_TEXTS and not key.startswith("tokenizer."):
            self._window.keep(_NUMBER_KEPT_BYTES * length)
            self.values[key] = tuple([self._read_string(key) for _ in range(length)])
            return
        self.values[key] = ArraySummary("string", length)
        start = self._window.offset
        if length >= _GUESS_FROM_LENGTH and not self._exact:
            if self._find_next_key(length):
                self.guessed = True
                return
            self._exact = True  # one fruitless search is enough
            self._window.move(start)
        self._skip_texts(key, length)

    def _find_next_key(self, n_texts: int) -> bool:
        """Move to the first thing behind `n_texts` texts that looks like a `tokenizer.` entry; False if none does."""
        window = self._window
        window.move(window.offset + 8 * n_texts)  # each text takes at least its length
        stop = window.offset + _GUESS_SPAN_BYTES
        while window.offset < stop:
            if window.left <= len(_NEXT_KEY) + 8:
                return False
            window.refill()
            buffer = window.buffer
            hit = buffer.find(_NEXT_KEY, window.pos + 8)
            while 0 <= hit < len(buffer) - _LONGEST_GUESSED_KEY - 4:
                (length,) = _U64(buffer, hit - 8)
                if len(_NEXT_KEY) < length <= _LONGEST_GUESSED_KEY and _U32(buffer, hit + length)[0] <= max(UNPACK):
                    window.pos = hit - 8
                    return True
                hit = buffer.find(_NEXT_KEY, hit + 1)
            if window.left <= len(buffer) - window.pos:
                return False  # searched to the end of the file
            # what follows, or a hit too close to the end of the window, is looked at in the next one
            window.pos = hit - 8 if hit >= 0 else len(buffer) - len(_NEXT_KEY) - 8
        return False

    def _skip_texts(self, key: str, length: int) -> None:
        """Step over `length` texts, one by one."""
        window = self._window
        left = length
        while left:
            window.need(8)
            before = left
            pos, left, text_bytes = texts_behind(window.buffer, window.pos, left)
            if text_bytes > MAX_STRING_BYTES:
                raise BadStringLengthError(window.path, length_bytes=text_bytes, where=f"'{key}'")
            window.move(window.base + pos)
            if window.left < 0 or before == left:
                raise window.truncated()


def texts_behind(buffer: bytearray, pos: int, count: int) -> tuple[int, int, int]:
    """Step over `count` texts of `buffer` from `pos` on: (position behind, texts left, bytes of the last one).

    It stops at the first text whose length is not in `buffer`. 0.09 s for a million.
    """
    length = done = 0
    with contextlib.suppress(struct.error, OverflowError):  # the end, found with half the work of looking for it
        for done in range(count):  # noqa: B007 - wanted when the end is met
            (length,) = _U64(buffer, pos)
            pos += length + 8
        done = count
    return pos, count - done, length


def checked_alignment(path: str, values: dict[str, Value], value_types: dict[str, str]) -> int:
    """Return `general.alignment` in bytes, 32 if not given; BadAlignmentError unless it is a uint32 power of two."""
    value = values.get("general.alignment")
    if value is None:
        return DEFAULT_ALIGNMENT
    kind = value_types["general.alignment"]
    if kind != "uint32" or not isinstance(value, int) or value <= 0 or value & (value - 1):
        raise BadAlignmentError(path, value=str(value), type=kind)
    return value


def vocabulary_size(values: dict[str, Value], value_types: dict[str, str]) -> int | None:
    """Return the number of tokens, None without a token list."""
    tokens = values.get("tokenizer.ggml.tokens")
    if value_types.get("tokenizer.ggml.tokens") != "array[string]":
        return None
    return tokens.length if isinstance(tokens, ArraySummary) else None
