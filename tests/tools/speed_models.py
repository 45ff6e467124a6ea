"""The file that a published measurement ran: a known shape stored as the row's quantization, of the row's size."""

from __future__ import annotations

import functools
import json
import re

from advisor.ggml_types import BY_NAME, GGML_TYPES, tensor_bytes
from advisor.gguf_header import read_snapshot
from advisor.model.spec import ModelSpec, WeightTensor
from tests.tools.cells import describe_header, snapshot, spec
from tests.truth.shapes import fresh, fresh_snapshot
from tests.truth.shapes.build import build, row
from tests.truth.shapes.quants import stored_as

GIB = 1 << 30
# how rows name a model -> the shape of tests/data/zoo or tests/truth/shapes; the first match wins
_SHAPES = {
    r"glm-4\.7-flash": "glm-4.7-flash",
    r"glm-4\.5-air|glm-4\.6v": "glm46v-106b",
    r"minimax-m2": "minimax-m2",
    r"ministral-3-14b": "ministral3-14b",
    r"ministral-3-8b": "ministral3-8b",
    r"nemotron-3-super": "nemotron3-super-120b",
    r"nemotron-3-nano": "nemotron-h-moe-30b",
    r"qwen3\.[56]-122b": "qwen35moe-122b",
    r"qwen3\.?[56]-35b": "qwen35moe-35b",
    r"qwen3\.?[56]-27b": "qwen35-27b",
    r"qwen3-(coder-)?next": "qwen3next",
    r"qwen3-235b": "qwen3-235b-a22b",
    r"qwen3-(coder-)?30b": "qwen3moe-30b",
    r"qwen3-32b": "qwen3-32b",
    r"qwen3-14b": "qwen3-14b",
    r"qwen3-8b": "qwen3-8b",
    r"qwen3-4b": "qwen3-4b",
    r"qwen2\.5(-coder)?[- ]72b": "qwen25-72b",
    r"qwen2\.5(-coder)?[- ]32b": "qwen25-32b",
    r"qwen2\.5(-coder)?[- ]14b": "qwen25-14b",
    r"qwen2\.5(-coder)?[- ]7b": "qwen2-7b",
    r"gemma-4-26b": "gemma4-26b-a4b",
    r"gemma-4-31b": "gemma4-31b",
    r"gemma-4-12b": "gemma4-12b",
    r"gemma-3-27b": "gemma3-27b",
    r"gemma-3-12b": "gemma3-12b",
    r"gemma-3-4b": "gemma3-4b",
    r"gemma-2-9b": "gemma2-9b",
    r"gpt-oss-120b": "gpt-oss-120b",
    r"gpt-oss-20b": "gpt-oss-20b",
    r"llama[- ]?2[- ]7b": "llama2-7b",
    r"llama[- ]?3(\.\d)?[- ]70b": "llama31-70b",
    r"llama[- ]?3(\.\d)?[- ]8b": "llama3-8b",
    r"llama[- ]?3\.2[- ]1b": "llama3-1b",
    r"llama[- ]?3\.2[- ]3b": "llama32-3b",
    r"mistral-7b": "mistral-7b",
    r"mistral-small": "mistral-small-24b",
    r"mixtral": "mixtral",
    r"granite-3\.[123]-8b": "granite33-8b",
    r"deepseek-coder-v2-lite": "ds2-lite",
    r"deepseek r1|deepseek-r1-0528|deepseek-v3": "ds3",
    r"phi-4\b": "phi-4",
}
# shapes that only rows need, from the models' published config.json
_OTHERS = {"mistral-7b": row("mistral-7b", "llama2-7b", 32768, "F16", L=32, d=4096, ff=14336, H=32, KV=8, ctx=32768)}
_MIXES = {"q4_k_medium": "Q4_K_M", "q4_k_small": "Q4_K_S", "q5_k_medium": "Q5_K_M", "q5_k_small": "Q5_K_S",
          "q3_k_small": "Q3_K_S", "q3_k_medium": "Q3_K_M", "q2_k_medium": "Q2_K", "mxfp4_moe": "MXFP4"}  # fmt: skip
_PLAIN = ("Q4_K_M", "Q4_K_S", "Q5_K_M", "Q6_K", "Q8_0", "Q3_K_M", "Q2_K", "IQ4_XS", "IQ4_NL", "Q4_0", "Q5_0", "F16",
          "BF16", "MXFP4", "IQ3_XXS", "IQ2_XXS")  # fmt: skip


class UnclearModelError(Exception):
    """The row does not say which model, or in which quantization."""


def file_of(model: str, quant: str, size_gib: float | None) -> tuple[ModelSpec, int]:
    """The model as stored, and the bytes of its file."""
    shape = next((name for pattern, name in _SHAPES.items() if re.search(pattern, model.lower())), None)
    if shape is None:
        raise UnclearModelError(f"no shape is known for '{model}'")
    mix = _mix_of(quant)
    if mix is None:
        raise UnclearModelError("its quantization is not told" if not quant else f"'{quant}' is no single mix")
    dynamic = "UD-" in model or "UD-" in quant
    size = int(size_gib * GIB) if size_gib else None
    return _stored(shape, mix, size, dynamic, "q8_k_xl" in f"{model} {quant}".lower())


def _mix_of(quant: str) -> str | None:
    plain = re.sub(r"[^a-z0-9]+", "_", quant.lower()).strip("_")
    for word, mix in _MIXES.items():
        if plain.startswith(word):
            return mix
    return next((mix for mix in _PLAIN if re.match(rf"{mix.lower()}(_qat|$)", plain)), None)


def _shape(name: str) -> ModelSpec:
    if name in _OTHERS:
        made = build(_OTHERS[name], snapshot(_OTHERS[name].template))
    elif name in fresh():
        made = fresh_snapshot(name)
    else:
        return spec(name)
    return describe_header(read_snapshot(json.dumps(made).encode(), name))


@functools.cache
def _stored(shape: str, mix: str, size: int | None, dynamic: bool, finest: bool) -> tuple[ModelSpec, int]:
    base = _shape(shape)
    first = base.layers[0]
    n_gqa = first.n_head // max(first.n_head_kv, 1)
    tensors = [
        _typed(t, stored_as(mix, t.name, list(t.shape), base.n_layer_all, base.n_expert, n_gqa, base.tied_output))
        for t in base.tensors
    ]
    if dynamic and base.n_expert:
        # Such files keep the tensors that every token needs at 8 bits or more, and their experts make the size. In
        # Q8_K_XL the experts have 8 bits, and the others make the size as far as 16 bits go.
        rest = [t for t in tensors if "exps." not in t.name and _matrix(t)]
        kept = "bf16" if finest and size is not None and _bytes(tensors) + _bytes(rest) * 15 // 17 < size else "q8_0"
        tensors = [_typed(t, BY_NAME[kept].id) if "exps." not in t.name and _matrix(t) else t for t in tensors]
        free = {t.name for t in tensors if ("exps." in t.name) != (finest and kept == "q8_0") and _matrix(t)}
    else:
        free = {t.name for t in tensors}
    if size is not None:
        fixed = _bytes([t for t in tensors if t.name not in free])
        factor = (size - fixed) / _bytes([t for t in tensors if t.name in free])
        if not 0.7 < factor < (1.9 if finest else 1.4):
            raise UnclearModelError(f"a file of {size / GIB:.1f} GiB is no {mix} of {shape}")
        tensors = [t._replace(n_bytes=int(t.n_bytes * factor)) if t.name in free else t for t in tensors]
    return base._replace(tensors=tuple(tensors)), _bytes([t for t in tensors if t.place != "skipped"])


def _bytes(tensors: list[WeightTensor]) -> int:
    return sum(tensor.n_bytes for tensor in tensors)


def _matrix(tensor: WeightTensor) -> bool:
    return len(tensor.shape) > 1 and GGML_TYPES[tensor.ggml_type].name != "f32"


def _typed(tensor: WeightTensor, ggml_type: int) -> WeightTensor:
    return tensor._replace(ggml_type=ggml_type, n_bytes=tensor_bytes(GGML_TYPES[ggml_type], tensor.shape))
