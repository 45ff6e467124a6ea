"""The engine as values: constants of one build, rules of each backend, defaults. Read from rules/engines/*.toml."""

from collections.abc import Mapping
from typing import Any

from advisor.records import NamedTuple

_BACKEND_SCHEMA: dict[str, object] = {
    "device": "str",
    "measured_rules": "bool",
    "alignment_bytes": "int",
    "quantized_row_multiple": "int",
    "f16_scratch_in_flash_attn": "bool",
    "pipeline_copies": "int",
    "get_rows_types?": ["str"],
    "flash_attn_head_sizes?": ["int"],
    "flash_attn_pairs?": [["int"]],
    "flash_attn_head_multiple?": "int",
    "flash_attn_cache_types": ["str"],
    "largest_allocations?": {"*": "int"},
    "overhead_bytes": "int",
    "overhead_low_bytes": "int",
    "overhead_high_bytes": "int",
    "source": "str",
}
SCHEMA: dict[str, object] = {
    "name": "str",
    "program": "str",
    "source": "str",
    "builds": [
        {
            "build": "int",
            "mixed_inputs": "bool",
            "lookups_first": "bool",
            "equal_cache_types": ["str"],
            "row_split": ["str"],
            "no_tensor_split": ["str"],
            "compute_spread": "number",
            "server_reserves_every_row": "bool",
            "has_load_mode": "bool",
            "measured": "str",
        }
    ],
    "defaults": {
        "n_batch": "int 1..",
        "n_ubatch": "int 1..",
        "server_n_parallel": "int 1..",
        "server_kv_unified": "bool",
        "other_n_parallel": "int 1..",
        "cache_type": "str",
        "flash_attn": "str",
        "swa_full": "bool",
        "context_padding": "int 1..",
        "op_offload_min_batch": "int",
        "source": "str",
    },
    "limits": {"n_seq_max": "int 1..", "source": "str"},
    "spread": {
        "verified": "number",
        "assumed": "number",
        "unmodelled": "number",
        "unmeasured_backend": "number",
        "extrapolated_build": "number",
    },
    "server": {
        "prompt_cache_bytes": "int",
        "context_checkpoints": "int",
        "source": "str",
    },
    "blas": {"prefill_tokens_per_s": "int", "prefill_without_tokens_per_s": "int", "source": "str"},
    "draft": {"n_max": {"*": "int"}, "cache_type": "str", "source": "str"},
    "projector": {
        "out_rows": {"*": "str"},
        "out_columns": {"*": "str"},
        "deepstack_kinds": ["str"],
        "flash_attn_compute_capability": "number",
        "warmup_tokens": {"*": "int"},
        "max_tokens": {"*": "int"},
        "merge": {"*": "int"},
        "fewer_tokens": "int",
        "widths": {"*": "number"},
        "widths_spread": "number",
        "widths_unknown": ["number"],
        "scores_widths": {"*": "number"},
        "scores_widths_unknown": ["number"],
        "audio_compute_bytes": ["int"],
        "source": "str",
    },
    "cpu": {
        "alignment_bytes": "int",
        "repack_types": ["str"],
        "repack_row_multiple": "int",
        "source": "str",
    },
    "backends": {"*": _BACKEND_SCHEMA},
}


# An engine that runs llama.cpp: which build it carries and which defaults it changes.
EXTENSION_SCHEMA: dict[str, object] = {
    "name": "str",
    "program": "str",
    "extends": "str",
    "build": "int",
    "reserves_every_row?": "bool",
    "mixed_inputs?": "bool",
    "defaults?": {
        "n_batch?": "int 1..",
        "n_ubatch?": "int 1..",
        "server_n_parallel?": "int 1..",
        "server_kv_unified?": "bool",
        "flash_attn?": "str",
        "swa_full?": "bool",
        "n_ctx_by_vram?": [["int"]],
        "n_ctx_at_most_trained?": "bool",
    },
    "server?": {"prompt_cache_bytes?": "int", "context_checkpoints?": "int"},
}


class BackendRules(NamedTuple):
    """How one backend places tensors in memory."""

    name: str
    device: str  # the engine's device name without its number
    measured: bool  # its rules were held against measured buffers
    alignment_bytes: int
    quantized_row_multiple: int  # elements; quantised tensors with odd rows get the bytes up to it, 0 = no padding
    f16_scratch_in_flash_attn: bool
    pipeline_copies: int
    get_rows_types: frozenset[str] | None  # None = every type
    head_sizes: frozenset[int]
    head_pairs: tuple[tuple[int, int, int], ...]  # (k, v, queries per key head must be a multiple of)
    head_multiple: int
    cache_types: frozenset[str]
    overhead_low_bytes: int
    overhead_bytes: int
    overhead_high_bytes: int
    largest_allocations: tuple[tuple[str, int], ...]  # (driver, bytes that it gives in one piece); empty = any
    equal_cache_types: bool  # its flash attention takes K and V of one type only

    def runs_flash_attn(self, head_size_k: int, head_size_v: int, n_gqa: int, *, masked: bool = True) -> bool:
        """Whether the flash-attention kernel takes these head sizes with `n_gqa` query heads per key head.

        Pairs of unequal or large sizes also need a mask and a number of cells that is a multiple of 256.
        """
        if self.head_multiple:
            return head_size_k % self.head_multiple == 0 and head_size_v % self.head_multiple == 0
        if head_size_k in self.head_sizes:
            return head_size_k == head_size_v or not self.head_pairs
        return masked and any(
            (head_size_k, head_size_v) == pair[:2] and n_gqa >= 2 and n_gqa % pair[2] == 0 for pair in self.head_pairs
        )


class EngineSpec(NamedTuple):
    """One engine at one build.

    `mixed_inputs`: the graph lays out a third input branch, tokens and embeddings mixed. `lookups_first`: token rows
    are looked up before everything else.
    """

    name: str
    program: str
    build: int
    confidence: str  # "measured" | "extrapolated"
    mixed_inputs: bool
    lookups_first: bool
    server_reserves_every_row: bool
    has_load_mode: bool
    defaults: Mapping[str, Any]
    limits: Mapping[str, Any]
    server: Mapping[str, Any]
    blas: Mapping[str, Any]
    draft: Mapping[str, Any]
    projector: Mapping[str, Any]
    spread: Mapping[str, float]  # half-widths of compute intervals
    compute_spread: float  # the least of them for this build
    cpu_alignment_bytes: int
    repack_types: frozenset[str]
    repack_row_multiple: int
    backends: Mapping[str, BackendRules]
    row_split: frozenset[str]  # backends that split the rows of a matrix over GPUs
    no_tensor_split: frozenset[str]  # architectures that -sm tensor refuses


def parse_engine(document: Mapping[str, Any], build: int | None = None) -> EngineSpec:
    """The engine of a checked document at `build` (None = the newest known).

    A build above the newest known one uses the newest rules and is "extrapolated"; so is one below the oldest.
    """
    known = sorted(document["builds"], key=lambda entry: entry["build"])
    asked = build if build is not None else known[-1]["build"]
    at_or_below = [entry for entry in known if entry["build"] <= asked]
    entry = at_or_below[-1] if at_or_below else known[0]
    return EngineSpec(
        name=document["name"],
        program=document["program"],
        build=asked,
        confidence="measured" if any(item["build"] == asked for item in known) else "extrapolated",
        mixed_inputs=entry["mixed_inputs"],
        lookups_first=entry["lookups_first"],
        server_reserves_every_row=entry["server_reserves_every_row"],
        has_load_mode=entry["has_load_mode"],
        defaults=document["defaults"],
        limits=document["limits"],
        server=document["server"],
        blas=document["blas"],
        draft=document["draft"],
        projector=document["projector"],
        spread=document["spread"],
        compute_spread=entry["compute_spread"],
        cpu_alignment_bytes=document["cpu"]["alignment_bytes"],
        repack_types=frozenset(document["cpu"]["repack_types"]),
        repack_row_multiple=document["cpu"]["repack_row_multiple"],
        backends={
            name: _backend(name, table, name in entry["equal_cache_types"])
            for name, table in document["backends"].items()
        },
        row_split=frozenset(entry["row_split"]),
        no_tensor_split=frozenset(entry["no_tensor_split"]),
    )


def extend_engine(base: Mapping[str, Any], extension: Mapping[str, Any], build: int | None = None) -> EngineSpec:
    """The engine of a checked extension document. `build` is llama.cpp's, None = the one it carries."""
    document = {
        **base,
        "name": extension["name"],
        "program": extension["program"],
        "defaults": {**base["defaults"], **extension.get("defaults", {})},
        "server": {**base["server"], **extension.get("server", {})},
    }
    engine = parse_engine(document, build if build is not None else extension["build"])
    every_row = engine.server_reserves_every_row or extension.get("reserves_every_row", False)
    mixed = extension.get("mixed_inputs", engine.mixed_inputs) if build is None else engine.mixed_inputs
    return engine._replace(server_reserves_every_row=every_row, mixed_inputs=mixed)


def _backend(name: str, table: Mapping[str, Any], equal_cache_types: bool) -> BackendRules:
    get_rows = table.get("get_rows_types")
    return BackendRules(
        name=name,
        device=table["device"],
        measured=table["measured_rules"],
        alignment_bytes=table["alignment_bytes"],
        quantized_row_multiple=table["quantized_row_multiple"],
        f16_scratch_in_flash_attn=table["f16_scratch_in_flash_attn"],
        pipeline_copies=table["pipeline_copies"],
        get_rows_types=frozenset(get_rows) if get_rows is not None else None,
        head_sizes=frozenset(table.get("flash_attn_head_sizes", ())),
        head_pairs=tuple((k, v, g) for k, v, g in table.get("flash_attn_pairs", ())),
        head_multiple=table.get("flash_attn_head_multiple", 0),
        cache_types=frozenset(table["flash_attn_cache_types"]),
        overhead_low_bytes=table["overhead_low_bytes"],
        overhead_bytes=table["overhead_bytes"],
        overhead_high_bytes=table["overhead_high_bytes"],
        largest_allocations=tuple(table.get("largest_allocations", {}).items()),
        equal_cache_types=equal_cache_types,
    )
