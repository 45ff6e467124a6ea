"""What `rules/arch/<general.architecture>.toml` can say: where an architecture deviates from plain attention."""

from collections.abc import Mapping
from typing import cast

from advisor.model.style import PLAIN, Style, parse_style
from advisor.model.style import SCHEMA as STYLE_SCHEMA
from advisor.records import NamedTuple

SCHEMA: dict[str, object] = {
    "architecture": "str",
    "family": ("attention", "window", "latent", "recurrent", "hybrid", "encoder", "diffusion-language", "draft"),
    "source": "str",
    "checked": ("measured", "read"),
    "note?": "str",
    "causal?": "bool",
    "cache?": {"kind": ("none",)},
    "window?": {
        "period?": "int",
        "dense_first?": "bool",
        "key": ("required", "optional", "ignored"),
        "default_tokens?": "int",
        "fixed_tokens?": "int",
        "only_with_n_layer?": "int",
        "all_attention?": "bool",
        "chunked?": "bool",
        "symmetric?": "bool",
        "per_sequence?": "bool",
    },
    "recurrent?": {
        "state": ("ssm", "kda", "shortconv", "wkv", "lightning"),
        "layers": ("all", "no_kv_heads", "no_kv_heads_no_ff", "interval", "all_hybrid"),
        "interval?": "int",
        "rollback?": "bool",
    },
    "latent?": {"enabled": "bool"},
    "indexer?": {"layers": ("all", "types", "after_dense"), "keeps_values?": "bool"},
    "shared_kv?": {"first_layers?": "int", "key?": "str"},
    "compressed?": {"ratios": ["int"]},
    "weights?": {
        "tied_output?": "bool",
        "tied_output_on_host_too?": "bool",
        "rope_factors_in_full_blocks?": "bool",
        "output_unused?": "bool",
        "output_tensors?": ["str"],
        "mtp_always_skipped?": "bool",
    },
    "flash_attn?": {"forced_off?": "bool"},
    "graph?": STYLE_SCHEMA,
}


class ArchRule(NamedTuple):
    """One architecture's rule file, parsed. Defaults describe plain full attention."""

    file: str  # "" when there is no rule file and plain attention is assumed
    family: str
    checked: str  # "measured" | "read" | "" (assumed)
    cache_none: bool
    window: Mapping[str, object]
    recurrent: Mapping[str, object]
    latent: bool
    indexer: Mapping[str, object]
    shared_kv: Mapping[str, object]
    compressed: Mapping[str, object]
    weights: Mapping[str, object]
    flash_attn_forced_off: bool
    style: Style
    graph_modelled: bool  # False: its graph has parts that are not modelled
    causal: bool  # what the engine assumes where the header has no attention.causal


def _table(document: Mapping[str, object], key: str) -> Mapping[str, object]:
    return cast("Mapping[str, object]", document.get(key, {}))


def parse_arch_rule(document: Mapping[str, object] | None, file: str) -> ArchRule:
    """The rule of one architecture from its checked document; None gives plain attention, assumed."""
    if document is None:
        document, file = {}, ""
    graph = _table(document, "graph")
    family = str(document.get("family", "attention"))
    return ArchRule(
        file=file,
        family=family,
        checked=str(document.get("checked", "")),
        cache_none=_table(document, "cache").get("kind") == "none",
        window=_table(document, "window"),
        recurrent=_table(document, "recurrent"),
        latent=bool(_table(document, "latent").get("enabled", False)),
        indexer=_table(document, "indexer"),
        shared_kv=_table(document, "shared_kv"),
        compressed=_table(document, "compressed"),
        weights=_table(document, "weights"),
        flash_attn_forced_off=bool(_table(document, "flash_attn").get("forced_off", False)),
        style=parse_style(graph) if graph else PLAIN,
        graph_modelled=bool(graph.get("modelled", True)),
        causal=bool(document.get("causal", family not in ("encoder", "diffusion-language"))),
    )
