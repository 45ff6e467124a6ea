"""Full-size empty GGUFs of a zoo model in several quantizations, as a person has them on disk."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from advisor.quants.choose import Chooser, Impossible
from tests.tools.cells import spec
from tests.tools.empty_gguf import write_empty_gguf
from tests.tools.machines import quant_rules
from tests.tools.quantized import header_of


def write_quantizations(
    folder: Path, model: str, names: Sequence[str], *, title: str = "", stem: str = "", **metadata: Any
) -> dict[str, Path]:
    """Files `STEM-QUANT.gguf` of a zoo model in `folder`, by quantization; `metadata` holds more strings to write."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for name in names:
        path = paths[name] = folder / f"{stem or model}-{name}.gguf"
        write_empty_gguf(quantized_header(model, name, title, **metadata), path)
    return paths


def quantized_header(model: str, name: str, title: str = "", **metadata: Any) -> dict[str, Any]:
    """The header of a zoo model as llama-quantize would make it without an importance matrix where it can."""
    header = header_of(f"zoo/{model}")
    types = _chooser(model).types(name)
    assert not isinstance(types, Impossible)
    header["tensors"] = [[row[0], row[1], kind] for row, kind in zip(header["tensors"], types, strict=True)]
    header["metadata"]["general.file_type"] = {"type": "uint32", "value": quant_rules().quantizations[name].file_type}
    strings = {"general.name": title} if title else {}
    for key, value in {**strings, **metadata}.items():
        header["metadata"][key.replace("__", ".")] = {"type": "string", "value": value}
    return header


@functools.cache
def _chooser(model: str) -> Chooser:
    return Chooser(spec(model), quant_rules())
