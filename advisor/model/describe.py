"""From a header and an architecture's rule to a ModelSpec."""

from __future__ import annotations

from collections import Counter

from advisor.errors import ModelError
from advisor.ggml_types import GGML_TYPES, tensor_bytes
from advisor.gguf_header.errors import excerpt, printable
from advisor.gguf_header.types import GgufHeader
from advisor.model.arch_rule import ArchRule
from advisor.model.heads import complete_heads
from advisor.model.kinds import KIND_TEXT, kind_of
from advisor.model.layers import describe_layers, window_tokens
from advisor.model.metadata import MAX_LAYERS, Metadata
from advisor.model.sanity import check_matrices, check_model
from advisor.model.spec import LayerSpec, ModelSpec, WeightTensor
from advisor.model.weights import place_tensors

# llama_ftype of llama.h (llama.cpp b11434): what general.file_type says about the mix of types.
_FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S",
    12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS",
    20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M",
    28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE",
    39: "NVFP4", 40: "Q1_0", 41: "Q2_0",
}  # fmt: skip

NO_HEAD = ("encoder", "draft")  # families without a language-model head of their own


def architecture_of(header: GgufHeader) -> str:
    """general.architecture, or a ModelError that says what the file is instead of a model."""
    architecture = header.metadata.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise ModelError(
            f"{printable(header.path)} names no architecture (general.architecture); "
            f"it is no model for llama.cpp, or an incomplete file."
        )
    return architecture


def describe(header: GgufHeader, rule: ArchRule, *, load_mtp: bool = False, draft: bool = False) -> ModelSpec:
    """The model in `header`, read with its architecture's `rule`. `draft`: a draft head will do.

    Raises ModelError when the file is no language model, lacks what every model has, or contradicts itself.
    """
    kind = kind_of(header)
    if kind != "model" and not (draft and kind == "draft head"):
        raise ModelError(
            f"{printable(header.path)} is {KIND_TEXT[kind]}; name the language model's own .gguf file instead."
        )
    architecture = architecture_of(header)
    meta = Metadata(header)
    n_layer_all = meta.integer("block_count")
    if not 0 < n_layer_all <= MAX_LAYERS:
        raise ModelError(
            f"{meta.path}: '{excerpt(architecture)}.block_count' is {n_layer_all}; llama.cpp runs 1 to "
            f"{MAX_LAYERS} blocks. The file is damaged, download it again."
        )
    header, derived = complete_heads(header, n_layer_all)
    meta = Metadata(header)
    n_nextn = meta.integer("nextn_predict_layers", 0)
    if n_nextn >= n_layer_all:
        raise ModelError(
            f"{meta.path}: nextn_predict_layers is {n_nextn} of {n_layer_all} blocks; the file is damaged."
        )
    n_layer = n_layer_all - n_nextn
    n_embd = meta.integer("embedding_length")
    if n_embd == 0:
        raise ModelError(
            f"{meta.path}: '{excerpt(architecture)}.embedding_length' is 0; the file is damaged, download it again."
        )
    shapes = {tensor.name: tensor.shape for tensor in header.tensors}
    check_matrices(header.path, shapes)
    output_tensors = frozenset(str(name) for name in _strings(rule.weights.get("output_tensors", ())))
    mtp = load_mtp and not rule.weights.get("mtp_always_skipped", False)
    tensors = place_tensors(header.path, header.tensors, n_layer, output_tensors, mtp)
    only_mtp = draft and mtp and not any(name.startswith("blk.0.") for name in shapes)  # a file of NextN blocks alone
    if kind == "model" and not only_mtp:  # a draft head borrows what it lacks
        check_model(meta, rule, tensors, shapes, n_layer, n_layer_all)
    has_head = "output.weight" in shapes
    tied = not has_head and bool(rule.weights.get("tied_output", True)) and "token_embd.weight" in shapes
    notes = [derived] if derived else []
    if not rule.file:
        notes.append("without a rule file, plain full attention in every block is assumed")
    elif rule.checked != "measured":
        notes.append(f"{rule.file} was only read from the engine's source")
    n_vocab = header.n_vocab or meta.integer("vocab_size", 0) or _rows(shapes, "token_embd.weight")
    return ModelSpec(
        path=header.path,
        name=meta.text("general.name", "") or header.name or _file_stem(header.path),
        architecture=architecture,
        family=rule.family,
        confidence="verified" if rule.checked == "measured" else "assumed",
        quantization=quantization_of(header),
        n_layer_all=n_layer_all,
        n_layer=n_layer,
        n_embd=n_embd,
        n_vocab=n_vocab,
        n_ctx_train=meta.integer("context_length", 0),
        n_expert=meta.integer("expert_count", 0),
        n_expert_used=meta.integer("expert_used_count", 0),
        layers=tuple(describe_layers(meta, rule, shapes, n_layer, n_layer_all)),
        tensors=tuple(tensors),
        tied_output=tied,
        tied_output_on_host=bool(rule.weights.get("tied_output_on_host_too", False)),
        rope_factors_in_full_blocks=bool(rule.weights.get("rope_factors_in_full_blocks", False)),
        has_logits=has_head or (tied and not rule.weights.get("output_unused")) or rule.family not in NO_HEAD,
        causal=bool(meta.get("attention.causal")) if meta.has("attention.causal") else rule.causal,
        flash_attn_forced_off=rule.flash_attn_forced_off,
        rollback_state=bool(rule.recurrent.get("rollback", False)),
        window_pattern=_window_pattern(meta, rule, n_layer_all),
        style=rule.style._replace(flash_never=rule.flash_attn_forced_off),
        graph_modelled=rule.graph_modelled,
        file_bytes=header.file_bytes,
        parameters=sum(_elements(tensor) for tensor in tensors),
        arch_rule=rule.file,
        notes=tuple(notes),
        metadata=header.metadata,
        mtp_layers=_mtp_layers(meta, rule, shapes, n_layer, n_layer_all) if mtp else (),
    )


def _mtp_layers(
    meta: Metadata, rule: ArchRule, shapes: dict[str, tuple[int, ...]], n_layer: int, n_layer_all: int
) -> tuple[LayerSpec, ...]:
    """The NextN blocks: plain attention over the whole context, whatever the blocks before them are."""
    plain = rule._replace(recurrent={}, window={}, shared_kv={})
    return tuple(describe_layers(meta, plain, shapes, n_layer_all, n_layer_all)[n_layer:])


def _window_pattern(meta: Metadata, rule: ArchRule, n_layer_all: int) -> str:
    if not rule.window or not window_tokens(meta, rule, n_layer_all):
        return ""
    return "chunked" if rule.window.get("chunked") else "symmetric" if rule.window.get("symmetric") else "sliding"


def quantization_of(header: GgufHeader) -> str:
    """What general.file_type says; without it the type that holds most of the weights."""
    file_type = header.metadata.get("general.file_type")
    if isinstance(file_type, int) and file_type % 1024 in _FILE_TYPES:
        return _FILE_TYPES[file_type % 1024]
    shares: Counter[int] = Counter()
    for tensor in header.tensors:
        shares[tensor.ggml_type] += tensor_bytes(GGML_TYPES[tensor.ggml_type], tensor.shape)
    return GGML_TYPES[shares.most_common(1)[0][0]].name.upper() if shares else "unknown"


def _strings(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else ()


def _rows(shapes: dict[str, tuple[int, ...]], name: str) -> int:
    shape = shapes.get(name, ())
    return shape[1] if len(shape) > 1 else 0


def _elements(tensor: WeightTensor) -> int:
    count = 1
    for extent in tensor.shape:
        count *= extent
    return count


def _file_stem(path: str) -> str:
    name = path.replace("\\", "/").rsplit("/", 1)[-1]
    for ending in (".gz", ".json", ".gguf"):
        name = name.removesuffix(ending)
    return name
