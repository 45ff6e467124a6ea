"""What a listing says of a GGUF without planning it: read from its headers."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.errors import ModelError
from advisor.ggml_types import GGML_TYPES, tensor_bytes
from advisor.gguf_header import GgufHeader
from advisor.gguf_header.errors import HeaderFaultError
from advisor.model.describe import quantization_of
from advisor.model.kinds import kind_of
from advisor.stores.completeness import read_complete
from advisor.stores.types import Facts

_MAX_TEXT = 200


def read_facts(paths: Sequence[str]) -> tuple[Facts | None, str | None, bool]:
    """(facts, problem, whether this depends on nothing but the files' content) of the model in `paths`."""
    try:
        header, problem = read_complete(paths)
    except HeaderFaultError as error:
        return None, str(error), True
    except ModelError as error:  # permissions, the disk: gone when they are repaired, which mtime does not show
        return None, str(error), False
    except RecursionError:
        return None, f"{paths[0]} is nested too deeply to be a real file; download it again.", True
    return (None, problem, True) if problem else (facts_of(header), None, True)


def facts_of(header: GgufHeader) -> Facts:
    """The facts in a header (of all parts of a split model together)."""
    metadata = header.metadata
    architecture = _text(metadata.get("general.architecture"))
    kind = kind_of(header)
    if kind == "model" and _is_bare_mtp(header, architecture):
        kind = "draft head"
    n_ctx_train = metadata.get(f"{architecture}.context_length")
    return Facts(
        kind=kind,
        architecture=architecture,
        title=_text(metadata.get("general.name")),
        quantization=quantization_of(header),
        n_ctx_train=n_ctx_train if isinstance(n_ctx_train, int) and 0 <= n_ctx_train < 1 << 40 else 0,
        weights_bytes=sum(tensor_bytes(GGML_TYPES[t.ggml_type], t.shape) for t in header.tensors),
    )


def _is_bare_mtp(header: GgufHeader, architecture: str) -> bool:
    """The NextN blocks of a model in a file of their own, which has the model's metadata (mtp-*.gguf)."""
    n_nextn = header.metadata.get(f"{architecture}.nextn_predict_layers")
    if not isinstance(n_nextn, int) or n_nextn <= 0:
        return False
    return not any(tensor.name.startswith("blk.0.") for tensor in header.tensors)


def _text(value: object) -> str:
    return value[:_MAX_TEXT] if isinstance(value, str) else ""
