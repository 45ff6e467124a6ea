"""Reading a header from bytes, and the same facts as the gguf package reads them."""

from __future__ import annotations

import io
from pathlib import Path

from gguf import GGUFReader, GGUFValueType

from advisor.gguf_header import ArraySummary, GgufHeader, read_header


def read(data: bytes, path: str = "model.gguf") -> GgufHeader:
    """Our reader on `data`."""
    return read_header(io.BytesIO(data), path, len(data))


def assert_same_as_package(header: GgufHeader, path: Path) -> None:
    """Compare everything in `header` with GGUFReader's reading of `path`."""
    reader = GGUFReader(path)
    fields = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert header.version == int(reader.fields["GGUF.version"].contents())
    assert list(header.metadata) == list(fields)
    assert header.alignment == reader.alignment
    for key, field in fields.items():
        value, kind = header.metadata[key], header.value_types[key]
        if field.types[0] is GGUFValueType.ARRAY:
            n_values = len(field.data)
            element = field.types[1].name.lower() if len(field.types) > 1 else kind[len("array[") : -1]
            assert kind == f"array[{element}]"
            if isinstance(value, ArraySummary):
                assert value == ArraySummary(element, n_values)
            else:
                assert list(value) == list(field.contents() or [])  # type: ignore[arg-type]
        else:
            assert kind == field.types[0].name.lower()
            assert value == field.contents()
            assert isinstance(value, type(field.contents()))
    tokens = fields.get("tokenizer.ggml.tokens")
    assert header.n_vocab == (len(tokens.data) if tokens else None)
    assert [
        (tensor.name, tensor.shape, tensor.ggml_type, tensor.offset, tensor.shard) for tensor in header.tensors
    ] == [
        (tensor.name, tuple(tensor.shape.tolist()), int(tensor.tensor_type), tensor.data_offset - reader.data_offset, 0)
        for tensor in reader.tensors
    ]
