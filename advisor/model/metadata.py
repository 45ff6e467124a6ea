"""Hyper-parameters as llama.cpp reads them: `{architecture}.key`, a scalar or one value per block, with defaults."""

from __future__ import annotations

from advisor.errors import ModelError
from advisor.gguf_header.errors import excerpt, printable
from advisor.gguf_header.types import GgufHeader, Value

MAX_LAYERS = 512  # LLAMA_MAX_LAYERS, llama.cpp b11434 src/llama-hparams.h
_MAX_INTEGER = 1 << 40


class Metadata:
    """Typed access to one header's metadata under its architecture's prefix."""

    def __init__(self, header: GgufHeader) -> None:
        self.path = printable(header.path)
        self._values = header.metadata
        self.architecture = self.text("general.architecture", "")
        self._prefix = excerpt(self.architecture)  # in messages

    def text(self, full_key: str, default: str) -> str:
        """A string under its full key."""
        value = self._values.get(full_key, default)
        return value if isinstance(value, str) else default

    def get(self, key: str) -> Value | None:
        """The raw value of `{architecture}.key`."""
        return self._values.get(f"{self.architecture}.{key}")

    def has(self, key: str) -> bool:
        """Whether `{architecture}.key` is in the file."""
        return f"{self.architecture}.{key}" in self._values

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number; of an array the largest entry. Raises ModelError when missing, negative or absurd."""
        value = self.get(key)
        if isinstance(value, tuple) and value:
            return max(self._checked(key, entry) for entry in value)
        if value is None:
            if default is None:
                raise ModelError(
                    f"{self.path} has no '{self._prefix}.{key}', which every model needs; "
                    f"the file is incomplete, convert or download it again."
                )
            return default
        return self._checked(key, value)

    def per_layer(self, key: str, n_layer: int, default: int | tuple[int, ...]) -> tuple[int, ...]:
        """One whole number per block, from a scalar or an array of at least `n_layer` entries."""
        value = self.get(key)
        if value is None:
            return default if isinstance(default, tuple) else (default,) * n_layer
        if isinstance(value, tuple):
            if len(value) < n_layer:
                raise ModelError(
                    f"{self.path}: '{self._prefix}.{key}' lists {len(value)} values for {n_layer} blocks; "
                    f"the file is damaged, convert or download it again."
                )
            return tuple(self._checked(key, entry) for entry in value[:n_layer])
        return (self._checked(key, value),) * n_layer

    def flags(self, key: str) -> tuple[bool, ...] | None:
        """A per-block array of truth values (numbers count, non-zero is true), None when it is no array."""
        value = self.get(key)
        return tuple(bool(entry) for entry in value) if isinstance(value, tuple) else None

    def _checked(self, key: str, value: object) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or not 0 <= value < _MAX_INTEGER:
            raise ModelError(
                f"{self.path}: '{self._prefix}.{key}' is {value!r:.60}, not a usable count; "
                f"the file is damaged, convert or download it again."
            )
        return int(value)
