"""Rules of judgement from rules/policy.toml as values."""

from collections.abc import Mapping
from typing import Any

from advisor.errors import UsageError
from advisor.excerpts import excerpt
from advisor.ggml_types import CACHE_TYPES
from advisor.records import NamedTuple
from advisor.speed import Turn

_COUNT, _BYTES = "int 1..1000000000", "int 0.."
_CACHES: list[object] = [CACHE_TYPES, 1]
_CACHE_ROW_SCHEMA: dict[str, object] = {
    "name": "str 1..",
    "types": _CACHES,
    "backends?": ["str 1.."],
    "architectures?": ["str 1.."],
    "keys_only?": "bool",
    "mixed?": "bool",
    "head_size_from?": "int 1..",
    "without_kernel?": "bool",
    "build_from?": "int 0..",
    "build_below?": "int 0..",
    "effect": ("fine", "slow_prefill", "slow_decode", "on_cpu", "lossy_keys", "unknown"),
    "factor": "number 1..1000",
    "text": "str 1..",
}
_INTENT_SCHEMA: dict[str, object] = {
    "maximises?": "str 1..",
    "reasons?": {"*": "str 1.."},
    "floor_n_ctx": _COUNT,
    "comfortable_n_ctx": _COUNT,
    "context_exponent": "number 0..10",
    "cache_types": _CACHES,
    "prompt_tokens": "int 0..1000000000",
    "depth_tokens": "int 0..1000000000",
    "answer_tokens": _COUNT,
    "least_tokens_per_s": "number 0..1000000",
    "weights_exponent": "number 0..10",
}
SCHEMA: dict[str, object] = {
    "margins": dict.fromkeys(("cuda", "rocm", "vulkan", "metal", "sycl", "windows_or_wsl_at_least"), _BYTES),
    "host": {"margin_bytes": _BYTES, "unified_margin_bytes": _BYTES},
    "cache_factor": {"*": "number 0.001..1000"},
    "weights_factor": {"per_kld": "number 0..1000000"},
    "cache_safety?": [_CACHE_ROW_SCHEMA],
    "intents": {"*": _INTENT_SCHEMA},
    "search": {
        "n_ctx_step": _COUNT,
        "trades": "int 0..10000",
        "beyond_comfortable_exponent": "number 0..10",
        "n_ubatch_with_host_weights": [_COUNT],
        "table_n_ctx": [_COUNT, 1],
        "table_cache_types": _CACHES,
        "plot_cache_types": _CACHES,
        "table_looks_to_n_ctx": _COUNT,
        "table_shows_to_n_ctx": _COUNT,
        "alternative_gain": "number 0..1000",
        "alternative_cost?": "number 1..1000",
        "unusual_n_ubatch_factor": "number 0.001..1000",
        "typical_bits_per_weight": "number 1..32",
        "typical_weights_share": "number 0.1..1",
        "smaller_quantizations": ["str 1.."],
    },
    "together": {"most_models": "int 2.."},
    "beside": {"pictures_per_turn": "number 0..1000", "draft_acceptance": "number 0..0.99"},
    "warnings": dict.fromkeys(("dense_cliff_share", "slow_tokens_per_s", "much_loss_below_bits"), "number 0.."),
}


class Intent(NamedTuple):
    """What a choice maximises: seconds of a typical turn, with floors and weights. Contexts are per slot."""

    name: str
    n_parallel: int | None
    floor_n_ctx: int
    comfortable_n_ctx: int
    context_exponent: float
    cache_types: tuple[str, ...]
    turn: Turn
    least_tokens_per_s: float
    weights_exponent: float  # what the loss of the file's own quantization counts


class Policy(NamedTuple):
    """The parsed policy; the raw tables stay available for the figures that only one place needs."""

    margins: Mapping[str, int]
    host: Mapping[str, int]
    cache_factor: Mapping[str, float]
    search: Mapping[str, Any]
    warnings: Mapping[str, float]
    together: Mapping[str, int]
    beside: Mapping[str, float]
    intents: Mapping[str, Mapping[str, Any]]
    weights_factor: Mapping[str, float] = {}
    cache_safety: tuple[Mapping[str, Any], ...] = ()
    # `cache_factor` with what is known of a model on a machine, see cache_safety; empty = nothing is
    key_factor: Mapping[str, float] = {}
    value_factor: Mapping[str, float] = {}
    mixed_factor: float = 1.0  # what keys and values of two types make of the cost on top

    def intent(self, text: str, n_parallel: int | None = None) -> Intent:
        """The intent of `--for TEXT`: balanced, context, speed, quality or parallel[:N]; `n_parallel`: slots asked for.

        Raises UsageError for one that is unknown, or whose slots are not those asked for.
        """
        name, _, count = text.partition(":")
        table = self.intents.get(name)
        possible = count.isdecimal() and len(count) < 10 and 0 < int(count) <= 256
        if table is None or (count and (name != "parallel" or not possible)):
            known = ", ".join(sorted(self.intents))
            raise UsageError(
                f"--for '{excerpt(text)}' is unknown; choose one of {known} (parallel takes a count: parallel:4)."
            )
        if count and n_parallel not in (None, int(count)):
            raise UsageError(
                f"--for {text} asks for {int(count)} slots, -np {n_parallel} for {n_parallel}; give one of them."
            )
        return Intent(
            name=name,
            n_parallel=(int(count) if count else 4) if name == "parallel" else None,
            floor_n_ctx=table["floor_n_ctx"],
            comfortable_n_ctx=table["comfortable_n_ctx"],
            context_exponent=table["context_exponent"],
            cache_types=tuple(table["cache_types"]),
            turn=Turn(table["prompt_tokens"], table["depth_tokens"], table["answer_tokens"]),
            least_tokens_per_s=table["least_tokens_per_s"],
            weights_exponent=table["weights_exponent"],
        )


def parse_policy(document: Mapping[str, Any]) -> Policy:
    """The policy of a checked document."""
    return Policy(
        margins=document["margins"],
        host=document["host"],
        cache_factor=document["cache_factor"],
        search=document["search"],
        warnings=document["warnings"],
        together=document["together"],
        beside=document["beside"],
        intents=document["intents"],
        weights_factor=document["weights_factor"],
        cache_safety=tuple(document.get("cache_safety", ())),
    )


def lack(n_ctx: int, intent: Intent, policy: Policy, n_ctx_train: int) -> float:
    """What a context shorter than comfortable makes of the cost, and a little what a longer one does; of one slot."""
    comfortable = min(intent.comfortable_n_ctx, n_ctx_train or intent.comfortable_n_ctx)
    share = comfortable / max(n_ctx, 1)
    return float(share ** (intent.context_exponent if share > 1 else policy.search["beyond_comfortable_exponent"]))


def lossiness(policy: Policy, cache_type_k: str, cache_type_v: str) -> float:
    """What the cache's types make of the cost."""
    keys, values = policy.key_factor or policy.cache_factor, policy.value_factor or policy.cache_factor
    worst: float = max(keys.get(cache_type_k, 2.0), values.get(cache_type_v, 2.0))
    return worst if cache_type_k == cache_type_v else worst * policy.mixed_factor
