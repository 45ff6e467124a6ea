"""What cannot be read off a model's tensors: how an architecture's graph wires its blocks.

The plain block has a norm before attention and before the feed-forward, rotary positions, an RMS norm and residual
additions after both. An architecture that differs says so in the [graph] table of its rule file. Source of the fields:
src/models/*.cpp of llama.cpp b11434.
"""

from collections.abc import Mapping
from typing import Any

from advisor.records import NamedTuple


class Style(NamedTuple):
    """The wiring of one architecture's blocks; the defaults are the plain pre-norm block."""

    family: str = "transformer"
    rope: bool = True
    layer_norm: bool = False  # LayerNorm (never in place) instead of RMS norm, when there is no bias to tell
    norm_by_key: bool = False  # RMS norm if the header has its epsilon, else LayerNorm
    rms_norm: bool = False  # RMS norm in spite of a bias
    scale_embedding: bool = False  # multiply the embeddings by a constant
    scale_tokens: bool = False  # multiply token rows by an input vector
    scale_q: bool = False
    l2_qk: bool = False  # weightless norm of queries and keys after the rotation
    norm_after_rope: bool = False
    flat_qk_norm: bool = False  # norms over the whole width, before the split into heads
    parallel: str = ""  # "", "cohere", "falcon", "phi2", "gptneox", "shared"
    late_rows: bool = False  # the output rows are picked after the last block, not inside it
    late_normed: bool = False  # ... and after the last norm, whose full result is an output too
    all_rows: bool = False  # no rows are picked
    bare_norms: bool = False  # norms without a weight are still computed
    shared_half: bool = False  # routed and shared experts are averaged
    value_scale: bool = False  # scale after attention if the header says so
    rope_layers_key: bool = False  # the header says which blocks rotate
    dense_parallel: bool = False  # arctic: dense part on the sum, experts on the block's input
    head_tied: bool = False  # the head is the token table itself, where it lies
    rows_after_post_norm: bool = False
    pinned_last: bool = False  # the last block's result is an output of the graph
    scale_residual: bool = False
    ffn_residual_first: bool = False
    residual_first_half: bool = False
    residual_first: bool = False  # residual + block instead of block + residual (matters for in-place reuse)
    scale_logits: bool = False
    softcap_logits: bool = False
    softcap_key: bool = False  # ... if the header has the key
    scale_last: bool = False  # scale between the last norm and the head
    no_rope_step: int = 0  # every n-th block has no rotation; -1 = window blocks only
    rope_blocks: int = 0  # rotation only in models of exactly this many blocks
    attention_scale: str = ""  # "", "no_rope", "all": multiply queries by a per-token input
    mrope: bool = False
    mrope_key: bool = False  # ... if the header has sections
    dense_beside: bool = False  # grok: a dense part beside the experts
    moe_normed: bool = True  # expert weights are normalised
    moe_norm_key: bool = False  # ... if the header says so
    moe_gating: int = 1  # 1 softmax, 2 sigmoid, 3 softmax over the chosen; the header's value wins where it is read
    moe_gating_key: bool = False
    moe_sigmoid_choice: bool = False  # chosen by sigmoid, weighed by softmax
    moe_weight_first: bool = False
    moe_early_router: bool = False
    mixed: bool = True
    flash_never: bool = False


PLAIN = Style()
SCHEMA: dict[str, object] = {
    "modelled?": "bool",
    **{
        f"{name}?": {bool: "bool", int: "int", str: "str"}[type(default)]
        for name, default in Style._field_defaults.items()
    },
}


def parse_style(table: Mapping[str, Any]) -> Style:
    """The wiring that a checked [graph] table describes."""
    fields = {name: value for name, value in table.items() if name != "modelled"}
    return Style(**fields)
