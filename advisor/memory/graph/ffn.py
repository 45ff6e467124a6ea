"""Feed-forward parts, dense and routed, and the end of the graph.

Facts from llama-graph.cpp of llama.cpp b11434.
"""

from __future__ import annotations

from advisor.memory.graph.attention import Attention
from advisor.memory.graph.sched import Graph
from advisor.memory.graph.tensor import (
    F32,
    I32,
    Tensor,
    cast,
    cont,
    get_rows,
    glu,
    mul_mat,
    mul_mat_id,
    node,
    reshape,
    same,
    set_rows,
    strides,
    sum_parts,
    top_k,
    view_2d,
    view_3d,
)


class Builder(Attention):
    """All parts; a family's class adds `build`."""

    def build(self) -> Graph:
        """The whole graph."""
        raise NotImplementedError

    def ffn(self, x: Tensor, il: int, suffix: str = "") -> Tensor:
        """A dense feed-forward: gated by a second matrix, by the halves of one, or not at all."""
        up = self.linear("ffn_up" + suffix, x, il)
        down = self.need("ffn_down" + suffix, il)
        if self.weight("ffn_gate" + suffix, il) is not None:
            cur = self.gated(self.linear("ffn_gate" + suffix, x, il), up, self.limit("swiglu_clamp_shexp", il))
        elif up.ne[0] == 2 * down.ne[0]:
            cur = glu(up)
        else:
            cur = same("UNARY", up)
            if self.model.arch.startswith(("nemotron", "arcee", "plm")):
                cur = same("SQR", cur)
            if self.weight("ffn.act", il) is not None or self.weight("ffn_act", il) is not None:
                cur = same("DIV", cur, self.weight("ffn.act", il) or self.need("ffn_act", il))
        inner = self.weight("ffn_sub_norm", il)
        if inner is not None:
            cur = self.norm(cur, "ffn_sub_norm", il)
        return self.linear("ffn_down" + suffix, cur, il)

    def limit(self, key: str, il: int) -> bool:
        """Whether a block clamps its gated activation."""
        limits = self.h.get(key)
        if self.model.arch in ("maple", "hy_v4"):
            return False  # one fused node
        if isinstance(limits, (tuple, list)):
            return il < len(limits) and float(limits[il]) > 1e-6
        return isinstance(limits, (int, float)) and limits > 1e-6

    def gated(self, gate: Tensor, up: Tensor, clamped: bool) -> Tensor:
        """Gate times up, both clamped where the header says so."""
        if not clamped:
            return glu(gate, up)
        up = same("CLAMP", up)
        return same("MUL", same("CLAMP", same("UNARY", gate)), up)

    def moe(self, x: Tensor, il: int, logits: Tensor | None = None, kind: str = "exps") -> Tensor:
        """Routed experts; `kind` "chexps" = the adjugate experts that groups of experts share."""
        h, style = self.h, self.style
        n_expert, used = h.n_expert, h.n_used
        d, n = x.ne[0], x.ne[1]
        normed = bool(h.get("expert_weights_norm", False)) if style.moe_norm_key else style.moe_normed
        gating = (h.whole("expert_gating_func") or style.moe_gating) if style.moe_gating_key else style.moe_gating
        if logits is None:
            logits = mul_mat(self.need("ffn_gate_inp", il), x)
        b = self.bias("ffn_gate_inp", il)
        if b is not None:
            logits = same("ADD", logits, b)
        probs = logits if gating == 3 else same("SOFT_MAX" if gating == 1 else "UNARY", logits)
        choice = probs
        bias = self.weight("exp_probs_b.bias", il)
        if bias is None and f"blk.{il}.exp_probs_b" in self.model.tensors:
            bias = self.raw("exp_probs_b", il)
        if bias is not None:
            choice = same("ADD", probs, bias)
        if style.moe_sigmoid_choice:
            choice = same("UNARY", logits)
        if style.moe_weight_first:
            choice = logits
        groups = h.whole("expert_group_count")
        if groups > 1:
            choice = self._group_choice(choice, groups, n)
        if kind == "chexps":
            used = min(used, n_expert // h.whole("experts_per_group", 1))
        chosen = top_k(choice, used)
        if kind == "chexps":
            chosen = cast(same("SCALE", cast(chosen, F32)), I32)
        w = get_rows(reshape(probs, 1, n_expert, n), chosen)
        if gating == 3:
            w = reshape(same("SOFT_MAX", reshape(w, used, n)), 1, used, n)
        if normed:
            w = reshape(w, used, n)
            total = same("CLAMP", node("SUM_ROWS", [w], (1, n, 1, 1)))
            w = reshape(same("DIV", w, total), 1, used, n)
        scale = h.real("expert_weights_scale")
        if scale not in (0.0, 1.0):
            w = same("SCALE", w)
        self.expand(w)
        cur = reshape(x, d, 1, n)
        if style.moe_weight_first:
            cur = same("MUL", node("REPEAT", [cur], (d, used, n, 1)), w)
        fused = self.weight(f"ffn_gate_up_{kind}", il)
        if fused is not None:
            both = mul_mat_id(fused, cur, chosen)
            ff = both.ne[0] // 2
            _, b1, b2, _ = strides(both)
            gate = view_3d(both, ff, both.ne[1], both.ne[2], b1, b2)
            up = view_3d(both, ff, both.ne[1], both.ne[2], b1, b2, ff * 4)
            cur = glu(gate, up)
        else:
            up = self._expert(f"ffn_up_{kind}", cur, chosen, il)
            if self.weight(f"ffn_gate_{kind}", il) is not None:
                cur = self.gated(
                    self._expert(f"ffn_gate_{kind}", cur, chosen, il), up, self.limit("swiglu_clamp_exp", il)
                )
            else:
                cur = same("UNARY", up)
                if self.model.arch.startswith("nemotron"):
                    cur = same("SQR", cur)
        experts = self._expert(f"ffn_down_{kind}", cur, chosen, il)
        if not style.moe_weight_first:
            experts = same("MUL", experts, w)
        self.expand(experts)
        if used > 1:
            return self.expand(sum_parts(experts))
        return cont(self.expand(view_2d(experts, experts.ne[0], n, strides(experts)[2])))

    def _expert(self, name: str, x: Tensor, chosen: Tensor, il: int) -> Tensor:
        cur = mul_mat_id(self.need(name, il), x, chosen)
        b = self.bias(name, il)
        return cur if b is None else same("ADD_ID", cur, b, chosen)

    def _group_choice(self, choice: Tensor, groups: int, n: int) -> Tensor:
        per = self.h.n_expert // groups
        grouped = reshape(choice, per, groups, n)
        best = top_k(grouped, 2)
        score = get_rows(reshape(grouped, 1, per, groups, n), best)
        score = node("SUM_ROWS", [reshape(score, 2, groups, n)], (1, groups, n, 1))
        kept = top_k(reshape(score, groups, n), self.h.whole("expert_group_used_count"))
        picked = get_rows(grouped, kept)
        blank = same("FILL", grouped)
        return reshape(set_rows(blank, picked, kept), self.h.n_expert, n)

    def finish(self, cur: Tensor, name: str = "output_norm", normed: bool = False) -> Graph:
        """Last norm, head and output flags."""
        if normed:
            pass
        elif self.weight(name) is not None or self.weight(name + ".bias") is not None:
            cur = self.norm(cur, name, -1)
        else:
            cur = same("NORM" if self.layer_norm else "RMS_NORM", cur)
        cur.is_output = True
        if self.style.scale_last:
            cur = same("SCALE", cur)
        cur = mul_mat(self.head_weight(), cur)
        b = self.weight("output.bias")
        if b is not None:
            cur = same("ADD", cur, b)
        if self.style.scale_logits and (self.model.arch != "command-r" or self.h.real("logit_scale")):
            cur = same("SCALE", cur)
        if self.style.softcap_logits or (self.style.softcap_key and self.h.real("final_logit_softcapping")):
            cur = same("SCALE", same("UNARY", same("SCALE", cur)))
        cur.is_output = True
        self.expand(cur)
        return self.graph
