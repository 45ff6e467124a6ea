"""A model as the file that llama-quantize would write, so that it can be planned as though it were on disk."""

from collections.abc import Sequence

from advisor.errors import ModelError
from advisor.ggml_types import GGML_TYPES, tensor_bytes
from advisor.gguf_header.errors import excerpt
from advisor.model.spec import ModelSpec, WeightTensor
from advisor.quants.choose import Chooser, Impossible, engine_order
from advisor.quants.rules import QuantRules
from advisor.units import round_up

_ALIGNMENT_BYTES = 32  # GGUF_DEFAULT_ALIGNMENT, which llama-quantize writes whatever its source had


def requantized(spec: ModelSpec, name: str, rules: QuantRules, *, imatrix: bool = False) -> ModelSpec:
    """`spec` in the quantization `name` ("Q4_K_M"); KeyError for another name.

    It is made from the F16 or BF16 original of `spec`. `imatrix`: with an importance matrix, which lets some
    quantizations spend fewer bits. Raises ModelError when llama-quantize cannot make it of this model.
    """
    types = Chooser(spec, rules).types(name, imatrix=imatrix)
    if isinstance(types, Impossible):
        raise ModelError(f"{excerpt(spec.name)} cannot be made {name}: {impossible_text(types)}.")
    return with_types(spec, name, types)


def with_types(spec: ModelSpec, name: str, types: Sequence[int]) -> ModelSpec:
    """`spec` with the ggml type `types[i]` in place of its i-th tensor's, in one file, and called `name`."""
    changed: list[WeightTensor] = list(spec.tensors)
    offset = before = after = 0
    for index in engine_order(spec.tensors):
        tensor = spec.tensors[index]
        n_bytes = tensor_bytes(GGML_TYPES[types[index]], tensor.shape)
        changed[index] = tensor._replace(ggml_type=types[index], n_bytes=n_bytes, offset=offset, shard=0)
        offset += round_up(n_bytes, _ALIGNMENT_BYTES)
        before, after = before + tensor.n_bytes, after + n_bytes
    return spec._replace(quantization=name, tensors=tuple(changed), file_bytes=max(spec.file_bytes - before, 0) + after)


def weights_bytes(spec: ModelSpec) -> int:
    """Bytes of all tensors of the file."""
    return sum(tensor.n_bytes for tensor in spec.tensors)


def impossible_text(found: Impossible) -> str:
    """Why not, for people."""
    return f"the rows of {found.tensor} ({found.n_row:,}) do not divide into blocks of {found.block_elements}"
