"""What `advisor inspect` tells about a file, as the JSON document "advisor.inspect/1"; the view is drawn from it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from advisor.cli.inspect_oddities import find_oddities
from advisor.ggml_types import GGML_TYPES, row_bytes, tensor_bytes
from advisor.gguf_header.types import ArraySummary, GgufHeader
from advisor.memory.cache import cache_tensors, refusal
from advisor.memory.engine_spec import EngineSpec
from advisor.memory.resolve import resolve_settings
from advisor.model.kinds import ENCODER_TEXT, KIND_TEXT, kind_of
from advisor.model.spec import LayerSpec, ModelSpec
from advisor.settings import RequestedSettings

CACHE_TYPES_SHOWN = ("f16", "q8_0")
MAX_DETAILS = 40
_CHAT_TEMPLATE = "tokenizer.chat_template"

K = TypeVar("K", bound=Hashable)


def inspect_document(header: GgufHeader, spec: ModelSpec | None, problem: str, engine: EngineSpec) -> dict[str, Any]:
    """Everything about the file; `spec` is None for what is no language model, or a broken one (`problem` says why).

    What does not apply is null. All sizes in bytes, all lengths in tokens.
    """
    kind = kind_of(header)
    metadata = header.metadata
    mix = _type_mix(header)
    n_elements = sum(math.prod(tensor.shape) for tensor in header.tensors)
    weights_bytes = sum(entry["bytes"] for entry in mix)
    architecture = metadata.get("general.architecture")
    name = metadata.get("general.name")
    document: dict[str, Any] = {
        "schema": "advisor.inspect/1",
        "file": {
            "path": header.path,
            "bytes": header.file_bytes,
            "source": header.source,
            "gguf_version": header.version,
            "alignment": header.alignment,
            "shards": list(header.shard_paths),
        },
        "kind": kind,
        "kind_text": ENCODER_TEXT if spec is not None and spec.family == "encoder" else KIND_TEXT[kind],
        "name": spec.name if spec else name if isinstance(name, str) and name else None,
        "architecture": architecture if isinstance(architecture, str) and architecture else None,
        "family": spec.family if spec else None,
        "rule": spec.arch_rule or None if spec else None,
        "confidence": spec.confidence if spec else None,
        "quantization": spec.quantization if spec else (mix[0]["type"].upper() if mix else None),
        "bits_per_weight": round(8 * weights_bytes / n_elements, 3) if n_elements else None,
        "n_tensors": len(header.tensors),
        "weights_bytes": weights_bytes,
        "tensor_types": mix,
        "parameters": n_elements,
        "active_parameters": _active_parameters(spec) if spec and spec.n_expert else None,
        "imatrix": any(key.startswith("quantize.imatrix.") for key in metadata),
        "n_vocab": spec.n_vocab if spec else header.n_vocab,
        "tokenizer": _text(metadata.get("tokenizer.ggml.model")),
        "pre_tokenizer": _text(metadata.get("tokenizer.ggml.pre")),
        "chat_template": _chat_template(header),
        "blocks": None,
        "heads": None,
        "feed_forward": None,
        "experts": None,
        "cache": None,
        "n_ctx_train": None,
        "n_embd": None,
        "tied_embeddings": None,
        "causal": None,
        "details": {} if spec else _details(header),
        "oddities": [],
    }
    if spec:
        document.update(_model_facts(spec, engine))
    document["oddities"] = find_oddities(header, spec, problem)
    return document


def summary_line(document: Mapping[str, Any]) -> str:
    """The file in one line. Text from the file is as it stands there: clean it before printing."""
    parts = [f"{document['name'] or 'without a name'}: {document['kind_text']}"]
    if document["architecture"]:
        parts.append(f"architecture {document['architecture']}")
    if document["quantization"]:
        parts.append(f"{document['quantization']}, {document['bits_per_weight']:.2f} bits per weight")
    if document["parameters"]:
        parts.append(f"{count_text(document['parameters'])} parameters")
    if document["blocks"]:
        parts.append(f"{document['blocks']['total']} blocks")
    if document["n_ctx_train"]:
        parts.append(f"trained for {document['n_ctx_train']:,} tokens")
    return ", ".join(parts)


def count_text(count: int) -> str:
    """A number of parameters for people: 8.03 B, 270.00 M."""
    for size, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if count >= size:
            return f"{count / size:.2f} {letter}"
    return f"{count:,}"


def ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Ascending numbers as [first, last] pairs."""
    pairs: list[list[int]] = []
    for number in numbers:
        if pairs and number == pairs[-1][1] + 1:
            pairs[-1][1] = number
        else:
            pairs.append([number, number])
    return pairs


def _type_mix(header: GgufHeader) -> list[dict[str, Any]]:
    """Tensor types by the bytes they hold, the largest first."""
    counts: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    for tensor in header.tensors:
        counts[tensor.ggml_type] += 1
        sizes[tensor.ggml_type] += tensor_bytes(GGML_TYPES[tensor.ggml_type], tensor.shape)
    total = sum(sizes.values())
    return [
        {
            "type": GGML_TYPES[type_id].name,
            "tensors": counts[type_id],
            "bytes": n_bytes,
            "share": round(n_bytes / total, 4) if total else 0.0,
        }
        for type_id, n_bytes in sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    ]


def _active_parameters(spec: ModelSpec) -> int:
    """Parameters that one token goes through: of stacked experts the routed ones, of the rest all but MTP blocks."""
    used = {layer.il: layer.n_expert_used for layer in spec.layers}
    total = 0
    for tensor in spec.tensors:
        if tensor.place == "skipped":
            continue
        n_elements = math.prod(tensor.shape)
        if "exps." in tensor.name and tensor.shape and tensor.shape[-1]:
            n_expert = tensor.shape[-1]
            n_elements = n_elements // n_expert * min(used.get(tensor.block, spec.n_expert_used), n_expert)
        total += n_elements
    return total


def _group(layers: Sequence[LayerSpec], key_of: Mapping[int, K]) -> list[tuple[K, list[int]]]:
    """Blocks with the same key, in the order in which the keys first appear; blocks without a key are left out."""
    groups: dict[K, list[int]] = {}
    for layer in layers:
        if layer.il in key_of:
            groups.setdefault(key_of[layer.il], []).append(layer.il)
    return list(groups.items())


def _kind_of_block(layer: LayerSpec) -> tuple[str, int]:
    """("full" | "window" | "latent" | "recurrent" | "... + recurrent" | "feed_forward", tokens of the window)."""
    recurrent = bool(layer.recurrent_conv or layer.recurrent_state)
    if layer.attention == "none":
        return ("recurrent" if recurrent else "feed_forward"), 0
    return layer.attention + (" + recurrent" if recurrent else ""), layer.n_window


def _model_facts(spec: ModelSpec, engine: EngineSpec) -> dict[str, Any]:
    layers = spec.layers
    with_heads = [layer for layer in layers if layer.attention != "none"]
    kinds = _group(layers, {layer.il: _kind_of_block(layer) for layer in layers})
    heads = _group(
        layers, {x.il: (x.n_head, x.n_head_kv, x.head_size_k, x.head_size_v) for x in with_heads}
    )  # fmt: skip
    widths = _group(
        layers,
        {
            x.il: (x.n_ff, x.n_ff_expert, x.n_expert_used, x.n_ff_shared)
            for x in layers
            if x.n_ff or x.n_ff_expert or x.n_ff_shared
        },
    )
    expert_blocks = [layer for layer in layers if layer.n_ff_expert]
    shared_cache = [x.il for x in with_heads if not x.has_cache] if any(x.has_cache for x in layers) else []
    return {
        "blocks": {
            "total": spec.n_layer_all,
            "running": spec.n_layer,
            "mtp_skipped": spec.n_layer_all - spec.n_layer,
            "window_pattern": spec.window_pattern or None,
            "kinds": [
                {"kind": kind, "n_window": n_window or None, "count": len(found), "blocks": ranges(found)}
                for (kind, n_window), found in kinds
            ],
            "use_the_cache_of_others": ranges(shared_cache),
        },
        "heads": [
            {"n_head": q, "n_head_kv": kv, "head_size_k": k, "head_size_v": v, "blocks": ranges(found)}
            for (q, kv, k, v), found in heads
        ],
        "feed_forward": [
            {
                "n_ff": dense,
                "n_ff_expert": expert,
                "n_expert_used": used,
                "n_ff_shared": shared,
                "blocks": ranges(found),
            }
            for (dense, expert, used, shared), found in widths
        ],
        "experts": {
            "n_expert": spec.n_expert,
            "n_expert_used": spec.n_expert_used,
            "shared_expert": any(layer.n_ff_shared for layer in expert_blocks),
            "blocks": ranges(layer.il for layer in expert_blocks),
        }
        if spec.n_expert
        else None,
        "cache": _cache_facts(spec, engine),
        "n_ctx_train": spec.n_ctx_train or None,
        "n_embd": spec.n_embd,
        "tied_embeddings": spec.tied_output,
        "causal": spec.causal,
    }


def _cache_facts(spec: ModelSpec, engine: EngineSpec) -> dict[str, Any]:
    """KV bytes that one token takes, and the recurrent state of one slot, through the plan's own functions."""
    per_token = []
    state_bytes = 0
    for cache_type in CACHE_TYPES_SHOWN:
        asked = RequestedSettings(n_parallel=1, cache_type_k=cache_type, cache_type_v=cache_type, flash_attn="on")
        settings = resolve_settings(asked, spec, engine, tool="server", n_devices=0)
        refused = refusal(spec, settings, True)
        total = beyond = state_bytes = 0
        for layer in spec.layers:
            keys_and_values = layer._replace(recurrent_conv=0, recurrent_state=0)
            n_bytes = sum(row_bytes(kind, width) for kind, width, _ in cache_tensors(keys_and_values, settings, 0))
            total += n_bytes
            beyond += 0 if layer.n_window else n_bytes
            state = layer._replace(has_cache=False)
            state_bytes += sum(row_bytes(kind, width) * rows for kind, width, rows in cache_tensors(state, settings, 0))
        per_token.append(
            {
                "cache_type": cache_type,
                "bytes_per_token": None if refused else total,
                "bytes_per_token_past_window": None if refused else beyond,
                "refused": refused,
            }
        )
    return {"per_token": per_token, "state_bytes_per_slot": state_bytes}


def _chat_template(header: GgufHeader) -> dict[str, Any]:
    template = header.metadata.get(_CHAT_TEMPLATE)
    prefix = f"{_CHAT_TEMPLATE}."
    named = sorted(key.removeprefix(prefix) for key in header.metadata if key.startswith(prefix))
    present = isinstance(template, str) and bool(template.strip())
    return {"present": present, "characters": len(template) if isinstance(template, str) else 0, "named": named}


def _details(header: GgufHeader) -> dict[str, Any]:
    """Single values of the metadata that say what a file is which is no (working) language model."""
    found: dict[str, Any] = {}
    for key, value in header.metadata.items():
        if isinstance(value, (tuple, ArraySummary)) or key.startswith(("tokenizer.", "split.", "general.name")):
            continue
        if len(found) == MAX_DETAILS:
            break
        found[key] = None if isinstance(value, float) and not math.isfinite(value) else value
        if isinstance(value, str) and len(value) > 200:
            found[key] = value[:199] + "…"
    ranks = sorted({x.shape[1] for x in header.tensors if x.name.endswith(".lora_a") and len(x.shape) > 1})
    if ranks:
        found["lora ranks"] = ", ".join(str(rank) for rank in ranks[:8])
    return found


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
