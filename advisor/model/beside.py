"""Files that are loaded beside a model: LoRA adapters and multimodal projectors, read from their headers.

Source: llama.cpp b11434 src/llama-adapter.cpp (llama_adapter_lora_init_impl) and tools/mtmd/clip.cpp.
"""

from collections.abc import Mapping
from typing import Any

from advisor.errors import ModelError, WrongFileError
from advisor.ggml_types import GGML_TYPES, tensor_bytes
from advisor.gguf_header.errors import excerpt, printable
from advisor.gguf_header.types import GgufHeader, TensorInfo
from advisor.model.kinds import KIND_TEXT, kind_of
from advisor.model.spec import ModelSpec
from advisor.records import NamedTuple


class BesideTensor(NamedTuple):
    """One tensor of such a file. `base`: the model's tensor whose home it shares, "" for a projector's own."""

    base: str
    n_bytes: int
    ggml_type: int
    ne0: int


class Adapter(NamedTuple):
    """A LoRA adapter. `outputs`: (base tensor, its output width) of every adapted matrix."""

    name: str
    tensors: tuple[BesideTensor, ...]
    outputs: tuple[tuple[str, int], ...]


class Encoder(NamedTuple):
    """A vision encoder's shape; 0 where the file does not say."""

    kind: str  # clip.projector_type
    image_size: int  # pixels per side
    patch_size: int
    n_embd: int
    n_ff: int
    n_head: int
    n_merge: int  # patches per side that become one token
    max_pixels: int


class Projector(NamedTuple):
    """A multimodal projector file. `vision` None: it has an audio encoder only."""

    name: str
    tensors: tuple[BesideTensor, ...]
    vision: Encoder | None
    audio: bool


def read_adapter(header: GgufHeader, spec: ModelSpec) -> Adapter:
    """A LoRA for `spec`. Raises WrongFileError for another kind of file and for an adapter of another model."""
    found = kind_of(header)
    if found != "adapter":
        raise WrongFileError(f"{printable(header.path)} is {KIND_TEXT[found]}; --lora takes a LoRA adapter (.gguf).")
    kind, architecture = (header.metadata.get(key) for key in ("adapter.type", "general.architecture"))
    if kind != "lora":
        raise WrongFileError(
            f"{printable(header.path)} is an adapter of type '{excerpt(str(kind))}'; --lora takes LoRA adapters only."
        )
    if architecture != spec.architecture:
        raise WrongFileError(
            f"{printable(header.path)} adapts a model of architecture '{excerpt(str(architecture))}', "
            f"{excerpt(spec.name)} is '{excerpt(spec.architecture)}'; give the adapter that was made for this model."
        )
    known = {tensor.name: tensor.shape for tensor in spec.tensors}
    tensors, outputs = [], []
    for tensor in header.tensors:
        name = tensor.name
        if name.endswith("_norm.weight"):  # the engine passes over them
            continue
        base, dot, side = name.rpartition(".")
        if not dot or side not in ("lora_a", "lora_b"):
            raise ModelError(
                f"{printable(header.path)}: '{printable(name)}' is no half of a LoRA pair; "
                f"the engine refuses such a file."
            )
        if base not in known:
            raise WrongFileError(
                f"{printable(header.path)} adapts '{printable(base)}', which {excerpt(spec.name)} does not have; "
                f"give the adapter that was made for this model."
            )
        tensors.append(_tensor(header, tensor, base))
        if side == "lora_b":
            outputs.append((base, known[base][1] if len(known[base]) > 1 else 0))
    return Adapter(_stem(header.path), tuple(tensors), tuple(outputs))


def read_projector(header: GgufHeader) -> Projector:
    """A projector for --mmproj. Raises WrongFileError for another kind of file."""
    found = kind_of(header)
    if found != "mmproj":
        raise WrongFileError(
            f"{printable(header.path)} is {KIND_TEXT[found]}; --mmproj takes a multimodal projector (.gguf)."
        )

    def whole(key: str) -> int:
        value = header.metadata.get(f"clip.{key}")
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else 0

    tensors = tuple(_tensor(header, tensor, "") for tensor in header.tensors)
    vision = None
    if header.metadata.get("clip.has_vision_encoder", True) and whole("vision.patch_size"):
        kind = header.metadata.get("clip.vision.projector_type") or header.metadata.get("clip.projector_type")
        vision = Encoder(
            kind=str(kind or "mlp"),
            image_size=whole("vision.image_size"),
            patch_size=whole("vision.patch_size"),
            n_embd=whole("vision.embedding_length"),
            n_ff=whole("vision.feed_forward_length"),
            n_head=whole("vision.attention.head_count"),
            n_merge=whole("vision.spatial_merge_size") or whole("vision.projector.scale_factor"),
            max_pixels=whole("vision.image_max_pixels"),
        )
    audio = bool(header.metadata.get("clip.has_audio_encoder", False))
    return Projector(_stem(header.path), tensors, vision, audio)


def check_projector(header: GgufHeader, spec: ModelSpec, rules: Mapping[str, Any]) -> None:
    """Raise WrongFileError for a projector that is another model's: the engine refuses one of another width.

    `rules`: the table [projector] of the engine's rules. Source: llama.cpp b11549 tools/mtmd/mtmd.cpp (mtmd_context).
    """
    mine = input_width(spec)
    for width in _widths(header, rules):
        if width != mine:
            deep = f" ({mine // spec.n_embd} x {spec.n_embd:,})" if mine != spec.n_embd else ""
            raise WrongFileError(
                f"{printable(header.path)} hands over {width:,} values a token, {excerpt(spec.name)} takes "
                f"{mine:,}{deep}, and the engine refuses such a pair; give the projector that was made for this model."
            )


def input_width(spec: ModelSpec) -> int:
    """Values of one row of embeddings that the engine feeds a model: n_embd, and once more for each deepstack input.

    Source: llama.cpp b11549 src/llama-hparams.cpp (n_embd_inp), models/qwen3vl.cpp and models/granite.cpp.
    """
    count = spec.metadata.get(f"{spec.architecture}.n_deepstack_layers")
    mapping = spec.metadata.get(f"{spec.architecture}.deepstack_mapping")
    if isinstance(mapping, tuple):
        count = len({value for value in mapping if isinstance(value, int) and value >= 0})
    return spec.n_embd * (1 + count) if isinstance(count, int) and 0 < count <= spec.n_layer_all else spec.n_embd


def _widths(header: GgufHeader, rules: Mapping[str, Any]) -> list[int]:
    """The width of what each encoder of a projector file hands over, as far as it is known where to look."""
    shapes = {tensor.name: tensor.shape for tensor in header.tensors}
    common = header.metadata.get("clip.projector_type")
    found = []
    for side, part in (("vision", "qwen2.5vl_merger"), ("audio", "qwen2a")):
        if not header.metadata.get(f"clip.has_{side}_encoder", False):
            continue
        kind = str(common or header.metadata.get(f"clip.{side}.projector_type", ""))
        kind = part if kind == "qwen2.5o" else kind
        if kind == "mlp" and "mm.3.weight" in shapes:
            kind = "mlp_norm"
        rows, columns = shapes.get(rules["out_rows"].get(kind, "")), shapes.get(rules["out_columns"].get(kind, ""))
        width = rows[1] if rows is not None and len(rows) > 1 else columns[0] if columns else 0
        if kind in rules["deepstack_kinds"]:
            width *= 1 + sum(name.startswith("v.deepstack.") and name.endswith(".fc1.weight") for name in shapes)
        found += [width] if width else []
    return found


def _tensor(header: GgufHeader, tensor: TensorInfo, base: str) -> BesideTensor:
    kind = GGML_TYPES.get(tensor.ggml_type)
    if kind is None:
        raise ModelError(
            f"{printable(header.path)}: tensor '{printable(tensor.name)}' has the unknown type {tensor.ggml_type}."
        )
    ne0 = tensor.shape[0] if tensor.shape else 1
    return BesideTensor(base, tensor_bytes(kind, tensor.shape), tensor.ggml_type, ne0)


def _stem(path: str) -> str:
    return path.replace("\\", "/").rsplit("/", 1)[-1]
