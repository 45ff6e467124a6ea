"""What a person should know before trusting a model file: types that do not match its name, rows, vocabulary."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from advisor.ggml_types import BY_NAME, GGML_TYPES, GgmlType
from advisor.gguf_header.types import GgufHeader
from advisor.model.spec import ModelSpec

# Types that llama-quantize gives most matrices, where they are not named like the file type.
# Source: llama.cpp src/llama-quant.cpp, the default type of each file type; IQ3_XS gives many matrices iq3_xxs.
_MAIN_TYPES = {
    "IQ2_S": ("iq2_xs",), "IQ2_M": ("iq2_s",), "IQ3_XS": ("iq3_s", "iq3_xxs"), "IQ3_M": ("iq3_s",),
    "MXFP4_MOE": ("mxfp4",),
}  # fmt: skip


def find_oddities(header: GgufHeader, spec: ModelSpec | None, problem: str) -> list[str]:
    """What a person should know before trusting the file."""
    found = [problem] if problem else []
    if spec is None:
        return found
    found += spec.notes
    promised = _main_types(spec.quantization)
    if promised and promised[0].block_elements == 256:
        found += _uneven_rows(spec)
    found += _mix_disagrees(header, spec)
    rows_of = {tensor.name: tensor.shape[1] for tensor in spec.tensors if len(tensor.shape) > 1}
    embedded = rows_of.get("token_embd.weight")
    if header.n_vocab is not None and embedded is not None and embedded != header.n_vocab:
        found.append(
            f"token_embd.weight has {embedded:,} rows for a vocabulary of {header.n_vocab:,}, which llama.cpp refuses"
        )
    return found


def _mix_disagrees(header: GgufHeader, spec: ModelSpec) -> list[str]:
    """Whether most matrices of the blocks have another type than general.file_type promises."""
    if not isinstance(header.metadata.get("general.file_type"), int):
        return []
    promised = _main_types(spec.quantization)
    if not promised:
        return []
    elements: Counter[GgmlType] = Counter()
    for tensor in spec.tensors:
        if tensor.block >= 0 and len(tensor.shape) > 1 and tensor.shape[0] % promised[0].block_elements == 0:
            elements[GGML_TYPES[tensor.ggml_type]] += math.prod(tensor.shape)
    if not elements:
        return []
    main, count = elements.most_common(1)[0]
    if main in promised:
        return []
    share = 100 * count / sum(elements.values())
    return [
        f"general.file_type says {spec.quantization}, but most weights of the blocks are {main.name} ({share:.0f} %)"
    ]


def _main_types(quantization: str) -> list[GgmlType]:
    """The types that most matrices of a file so called have; empty for an unknown name."""
    stem = quantization
    if quantization.endswith(("_S", "_M", "_L")) and quantization.count("_") > 1:
        stem = quantization.rpartition("_")[0]
    return [BY_NAME[name] for name in _MAIN_TYPES.get(quantization, (stem.lower(),)) if name in BY_NAME]


def _uneven_rows(spec: ModelSpec) -> list[str]:
    """Matrices that K-quant blocks of 256 do not divide, which llama-quantize stores in blocks of 32 instead."""
    uneven = [x for x in spec.tensors if len(x.shape) > 1 and x.shape[0] % 256 and GGML_TYPES[x.ggml_type].is_quantized]
    if not uneven:
        return []
    types = sorted({GGML_TYPES[tensor.ggml_type].name for tensor in uneven})
    rows = sorted({tensor.shape[0] for tensor in uneven})
    return [
        f"{len(uneven)} matrices have rows of {_list(rows)}, which blocks of 256 do not divide; "
        f"they are stored as {_list(types)}, so the file is larger than {spec.quantization} says"
    ]


def _list(items: Sequence[object], limit: int = 5) -> str:
    shown = ", ".join(f"{item:,}" if isinstance(item, int) else str(item) for item in items[:limit])
    return shown + (", …" if len(items) > limit else "")
