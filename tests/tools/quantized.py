"""What llama-quantize itself made of headers, and small whole files of one model in several quantizations."""

from __future__ import annotations

import copy
import functools
import gzip
import json
from collections.abc import Mapping
from typing import Any

import tomli

from advisor.gguf_header import read_snapshot
from advisor.model.spec import ModelSpec
from advisor.quants.rules import QuantRules, parse_quants
from tests.tools.cells import DATA, RULES, describe_header, snapshot
from tests.tools.gguf_files import F32, kv
from tests.tools.tiny_models import filled
from tests.truth.shapes import fresh_snapshot

WIDTH, N_FF, N_VOCAB = 256, 512, 320


@functools.cache
def rules() -> QuantRules:
    """The shipped rules."""
    return parse_quants(tomli.loads((RULES / "quants.toml").read_text()))


def lines(name: str) -> list[dict[str, Any]]:
    """The lines of a file of measured cases."""
    text = gzip.decompress((DATA / "cases" / f"{name}.jsonl.gz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


@functools.cache
def _invented() -> dict[str, Any]:
    return json.loads(gzip.decompress((DATA / "invented.json.gz").read_bytes()))


def header_of(reference: str) -> dict[str, Any]:
    """The snapshot of `zoo/NAME`, `small/NAME`, `mtp/NAME`, `fresh/NAME` or `invented/NAME`, one's own to change."""
    group, name = reference.split("/", 1)
    if group == "fresh":  # some share their name with a small one
        return fresh_snapshot(name)
    if group == "mtp":
        return json.loads(gzip.decompress((DATA / "mtp" / f"{name}.json.gz").read_bytes()))
    return copy.deepcopy(_invented()[name] if group == "invented" else snapshot(name))


def spec_of(reference: str) -> ModelSpec:
    """The model of a reference."""
    return describe_header(
        read_snapshot(json.dumps(header_of(reference)).encode(), reference.split("/", 1)[1] + ".json")
    )


def model_file(
    kind: int, file_type: int | None, *, name: str = "Small", mixed: Mapping[str, int] | None = None, n_layer: int = 2
) -> bytes:
    """A whole file whose matrices are of `kind`, those in `mixed` of another type."""
    tensors: list[tuple[str, tuple[int, ...], int]] = [("token_embd.weight", (WIDTH, N_VOCAB), kind)]
    for layer in range(n_layer):
        for tensor, shape in (
            ("attn_q", (WIDTH, WIDTH)), ("attn_k", (WIDTH, WIDTH)), ("attn_v", (WIDTH, WIDTH)),
            ("attn_output", (WIDTH, WIDTH)), ("ffn_gate", (WIDTH, N_FF)), ("ffn_up", (WIDTH, N_FF)),
            ("ffn_down", (N_FF, WIDTH)),
        ):  # fmt: skip
            tensors.append((f"blk.{layer}.{tensor}.weight", shape, kind))
        tensors += [(f"blk.{layer}.{norm}.weight", (WIDTH,), F32) for norm in ("attn_norm", "ffn_norm")]
    tensors += [("output_norm.weight", (WIDTH,), F32), ("output.weight", (WIDTH, N_VOCAB), kind)]
    tensors = [(tensor, shape, (mixed or {}).get(tensor, own)) for tensor, shape, own in tensors]
    entries = [
        kv("general.architecture", "string", "llama"), kv("general.type", "string", "model"),
        kv("general.name", "string", name), kv("llama.block_count", "uint32", n_layer),
        kv("llama.context_length", "uint32", 4096), kv("llama.embedding_length", "uint32", WIDTH),
        kv("llama.feed_forward_length", "uint32", N_FF), kv("llama.attention.head_count", "uint32", 4),
        kv("llama.attention.head_count_kv", "uint32", 4), kv("llama.vocab_size", "uint32", N_VOCAB),
        kv("llama.attention.layer_norm_rms_epsilon", "float32", 1e-5),
    ]  # fmt: skip
    if file_type is not None:
        entries.append(kv("general.file_type", "uint32", file_type))
    return filled(entries, tensors)
