"""The graph of a built-in draft head (MTP): one NextN block over the target's hidden states, in a context of its own.

Facts from the graph_mtp builders of src/models/*.cpp (qwen35, qwen35moe, glm4-moe) of llama.cpp b11434.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from advisor.memory.graph import CPU, Job, UnmodelledGraphError, builder_class
from advisor.memory.graph.sched import Graph
from advisor.memory.graph.tensor import F32, I32, concat, get_rows, mul_mat, same

if TYPE_CHECKING:
    from advisor.memory.engine_spec import BackendRules
    from advisor.memory.graph.ffn import Builder
    from advisor.memory.graph.model import GraphModel, GraphPlacement, GraphSettings, Hyper
    from advisor.memory.graph.reduce import Reduction

# Families whose attention and feed-forward parts serve the NextN block as they are.
FAMILIES = frozenset(("transformer", "delta", "mla", "mla_full"))
# Architectures whose draft context was measured; the others' graphs were only read.
MEASURED = frozenset(("qwen35", "qwen35moe", "qwen3next", "glm4moe", "deepseek2"))
EARLY_ROWS = frozenset(("qwen3next", "nemotron_h", "nemotron_h_moe"))  # only the wanted rows reach the feed-forward


def mtp_compute_bytes(
    model: GraphModel, hyper: Hyper, settings: GraphSettings, placement: GraphPlacement, devices: Sequence[BackendRules]
) -> dict[int, int]:
    """Bytes of the draft context's compute buffer on every GPU (0, 1, ...) and on the host (CPU)."""
    if not model.modelled or model.style.family not in FAMILIES:
        raise UnmodelledGraphError(model.arch)
    try:
        sizes = _MtpJob(model, hyper, settings, placement, devices, False).sizes(True)
    except KeyError as error:
        raise UnmodelledGraphError(f"{model.arch}: no tensor {error.args[0]}") from error
    return {**{i: sizes[i] for i in range(placement.n_gpu)}, CPU: sizes[-1]}


class _MtpJob(Job):
    """As for the whole model, with the draft head's builder."""

    def make(self, flash: bool, tokens: int, outputs: int, pins: bool, ids: list[int]) -> Builder:
        """The builder of the NextN block."""
        del ids  # one block
        kind = _builder(self.h.style.family)
        builder = kind(
            self.model, self.h, self.s, self.p, flash, tokens, outputs, self.full_offload, pins, [self.h.n_layer]
        )
        return cast("Builder", builder)

    def reduction(self) -> Reduction | None:
        """Nothing repeats."""
        return None


def _builder(family: str) -> Any:
    """A family's builder with the draft head's graph."""
    base: Any = builder_class(family)
    return type("Mtp", (base,), {"build": _build})


def _build(self: Any) -> Graph:
    """The token's embedding and the target's hidden state, joined; one block; the target's head."""
    h = self.h
    il = h.n_layer
    table = self.weight("nextn.embed_tokens", il)
    tokens = get_rows(self.need("token_embd") if table is None else table, self.input(I32, self.tokens))
    hidden = self.norm(self.input(F32, h.d, self.tokens), "nextn.hnorm", il)
    self.temperature = None
    self.base, self.windowed = self.attention_inputs([il])
    x = mul_mat(self.need("nextn.eh_proj", il), concat(self.norm(tokens, "nextn.enorm", il), hidden, 0))
    cur = self.attend(self.norm(x, "attn_norm", il), il)
    early = self.model.arch in EARLY_ROWS
    if early:
        cur, x = self.rows(cur, x)
    cur = same("ADD", cur, x)
    post = "post_attention_norm" if self.weight("post_attention_norm", il) is not None else "ffn_norm"
    cur = same("ADD", self.feed_forward(self.norm(cur, post, il), il), cur)
    own = self.weight("nextn.shared_head_norm", il) is not None
    cur = self.norm(cur, "nextn.shared_head_norm", il) if own else self.norm(cur, "output_norm", -1)
    cur.is_output = True
    if not early:
        cur = self.rows(cur)[0]
    head = self.weight("nextn.shared_head_head", il)
    cur = mul_mat(self.head_weight() if head is None else head, cur)
    cur.is_output = True
    self.expand(cur)
    return cast("Graph", self.graph)
