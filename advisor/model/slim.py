"""What is kept of the files beside a model: enough to plan with, without the texts and lists of their headers."""

from advisor.gguf_header.types import ArraySummary, GgufHeader, Value
from advisor.model.spec import ModelSpec

_TEXT_CHARS = 256  # of a key or a value; names of models and architectures are shorter
_LIST_ENTRIES = 2048  # lists for each block have up to 512
_ENTRY_BYTES, _NUMBER_BYTES, _TENSOR_BYTES = 256, 40, 400  # as the header's reader counts them


def slim(header: GgufHeader, spec: ModelSpec) -> tuple[GgufHeader, ModelSpec, int]:
    """(where the header was read, the model with what planning asks of its metadata, about how many bytes that is)."""
    kept = {key: _cut(value) for key, value in spec.metadata.items() if len(key) <= _TEXT_CHARS}
    n_bytes = _TENSOR_BYTES * len(spec.tensors)
    for value in kept.values():
        n_bytes += _ENTRY_BYTES + (_NUMBER_BYTES * len(value) if isinstance(value, tuple) else 0)
    place = header._replace(metadata={}, value_types={}, tensors=())
    return place, spec._replace(metadata=kept, name=spec.name[:_TEXT_CHARS]), n_bytes


def _cut(value: Value) -> Value:
    if isinstance(value, str):
        return value[:_TEXT_CHARS]
    if not isinstance(value, tuple):
        return value
    if len(value) > _LIST_ENTRIES or any(isinstance(entry, str) for entry in value):
        return ArraySummary(type(value[0]).__name__, len(value))
    return value
