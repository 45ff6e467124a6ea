"""Gated delta nets with full attention every few blocks: qwen3next, qwen35, qwen35moe.

Facts from delta-net-base.cpp, qwen3next.cpp and qwen35.cpp of llama.cpp b11434.
"""

from __future__ import annotations

from advisor.memory.graph.recurrent import Recurrent
from advisor.memory.graph.tensor import (
    Tensor,
    concat,
    cont,
    cpy,
    mul_mat,
    node,
    reshape,
    same,
    strides,
    transpose,
    view_3d,
    view_4d,
)


class DeltaNet(Recurrent):
    """Linear-attention blocks with a matrix state, and gated attention blocks."""

    def attend(self, x: Tensor, il: int) -> Tensor:
        """Attention whose query projection also yields an output gate."""
        h, n = self.h, self.tokens
        hk, heads, kv = h.hk(il), h.head[il], h.head_kv[il]
        q_full = self.linear("attn_q", x, il)
        k, v = (reshape(self.linear(name, x, il), hk, kv, n) for name in ("attn_k", "attn_v"))
        row = hk * 8
        if self.model.arch == "qwen3next":
            q_full = reshape(q_full, hk * 2, heads, n)
            q = view_4d(q_full, (hk, heads, n, 1), row, row * heads, row * heads * n)
            gate = view_4d(q_full, (hk, heads, n, 1), row, row * heads, row * heads * n, hk * 4)
        else:
            q = view_3d(q_full, hk, heads, n, row, row * heads)
            gate = view_3d(q_full, hk, heads, n, row, row * heads, hk * 4)
        q = self.rope(self.norm(q, "attn_q_norm", il), il, factors=False)
        k = self.rope(self.norm(k, "attn_k_norm", il), il, factors=False)
        assert self.base is not None
        cur = self.attention(self.base, q, k, v, il, wo="")
        gate = cont(gate, hk * heads, n)
        return mul_mat(self.need("attn_output", il), same("MUL", cur, same("UNARY", gate)))

    def projections(self, x: Tensor, il: int) -> tuple[Tensor, Tensor]:
        """The joint query-key-value projection and the gate."""
        h, n, ns = self.h, self.per_seq, self.n_seq
        joint = self.weight("attn_qkv", il)
        if joint is not None:
            qkv = mul_mat(joint, x)
            return reshape(qkv, qkv.ne[0], n, ns), mul_mat(self.need("attn_gate", il), x)
        hk, groups, heads = h.whole("ssm.state_size"), h.whole("ssm.group_count"), h.whole("ssm.time_step_rank")
        hv = h.whole("ssm.inner_size") // heads
        per = hv * heads // groups
        mixed = reshape(mul_mat(self.need("ssm_in", il), x), 2 * hk + 2 * per, groups, n, ns)
        _, b1, b2, b3 = strides(mixed)
        query = view_4d(mixed, (hk, groups, n, ns), b1, b2, b3)
        key = view_4d(mixed, (hk, groups, n, ns), b1, b2, b3, hk * 4)
        value = view_4d(mixed, (per, groups, n, ns), b1, b2, b3, 2 * hk * 4)
        z = cont(view_4d(mixed, (per, groups, n, ns), b1, b2, b3, (2 * hk + per) * 4))
        qkv = concat(cont(query, hk * groups, n, ns), cont(key, hk * groups, n, ns), 0)
        return concat(qkv, cont(value, hv * heads, n, ns), 0), z

    def rates(self, x: Tensor, il: int) -> tuple[Tensor, Tensor]:
        """Write strength and decay per head."""
        h, n, ns = self.h, self.per_seq, self.n_seq
        heads, groups = h.whole("ssm.time_step_rank"), h.whole("ssm.group_count")
        if self.weight("ssm_ba", il) is not None:
            per = heads // groups
            ba = reshape(mul_mat(self.need("ssm_ba", il), x), 2 * per, groups, n, ns)
            _, b1, b2, b3 = strides(ba)
            beta = same("UNARY", cont(view_4d(ba, (per, groups, n, ns), b1, b2, b3)))
            alpha = cont(view_4d(ba, (per, groups, n, ns), b1, b2, b3, per * 4), heads, n, ns)
            decay = self.decay(alpha, il)
            return reshape(beta, 1, heads, n, ns), reshape(decay, 1, heads, n, ns)
        beta = same("UNARY", reshape(mul_mat(self.need("ssm_beta", il), x), 1, heads, n, ns))
        alpha = reshape(mul_mat(self.need("ssm_alpha", il), x), heads, n, ns)
        return beta, reshape(self.decay(alpha, il), 1, heads, n, ns)

    def decay(self, alpha: Tensor, il: int) -> Tensor:
        """Decay from its projection."""
        bias = self.weight("ssm_dt.bias", il)
        alpha = same("ADD", alpha, bias if bias is not None else self.raw("ssm_dt", il))
        return same("MUL", same("UNARY", alpha), self.raw("ssm_a", il))

    def state_part(self, x: Tensor, il: int) -> Tensor:
        """One linear-attention block."""
        h, n, ns = self.h, self.per_seq, self.n_seq
        hk, groups, heads = h.whole("ssm.state_size"), h.whole("ssm.group_count"), h.whole("ssm.time_step_rank")
        di, taps = h.whole("ssm.inner_size"), h.whole("ssm.conv_kernel")
        hv, width = di // heads, di + 2 * groups * hk
        qkv, z = self.projections(x, il)
        beta, decay = self.rates(x, il)
        conv_states = self.state("r", il, (taps - 1) * width)
        ssm_states = self.state("s", il, hk * di)
        kept = reshape(self.gather_state(conv_states), taps - 1, width, ns)
        joined = concat(kept, transpose(qkv), 0)
        _, b1, b2, _ = strides(joined)
        columns = joined.ne[0] - taps + 1
        for slot in range(self.kept_states - 1, -1, -1):
            tail = view_3d(joined, taps - 1, width, ns, b1, b2, max(0, columns - slot) * 4)
            self.expand(cpy(tail, self.slot_rows(conv_states, slot)))
        state = reshape(self.gather_state(ssm_states), hv, hv, heads, ns)
        mix = same("UNARY", node("SSM_CONV", [joined, self.need("ssm_conv1d", il)], (width, n, ns, 1)))
        row = width * 4
        q = self.unit(view_4d(mix, (hk, groups, n, ns), hk * 4, row, row * n))
        k = self.unit(view_4d(mix, (hk, groups, n, ns), hk * 4, row, row * n, hk * groups * 4))
        v = view_4d(mix, (hv, heads, n, ns), hv * 4, row, row * n, 2 * hk * groups * 4)
        if self.model.arch == "qwen3next" and groups != heads:
            q, k = self.repeat(q, heads // groups), self.repeat(k, heads // groups)
        out = node(
            "GATED_DELTA_NET", [q, k, v, decay, beta, state], (hv * heads, n * ns + self.kept_states * hv * ns, 1, 1)
        )
        size = hv * heads
        result = view_4d(out, (hv, heads, n, ns), hv * 4, size * 4, size * n * 4)
        if self.s.n_rollback:
            self.store_states(out, ssm_states, size * n * ns)
        else:
            new = view_4d(out, (hv, hv, heads, ns), hv * 4, hv * hv * 4, hv * hv * heads * 4, size * n * ns * 4)
            self.expand(cpy(new, self.slot_rows(ssm_states, 0)))
        gate = reshape(z, hv, heads, n, ns)
        normed = same("MUL", self.norm(result, "ssm_norm", il), same("UNARY", gate))
        cur = mul_mat(self.need("ssm_out", il), reshape(normed, hv * heads, n, ns))
        return reshape(cur, h.d, self.tokens)

    def unit(self, x: Tensor) -> Tensor:
        """Scale to unit length."""
        return same("SCALE", same("RMS_NORM", x))

    def repeat(self, x: Tensor, factor: int) -> Tensor:
        """One copy of every key head per value head."""
        size, heads, n, ns = x.ne
        flat = reshape(x, size, 1, heads, n * ns)
        return reshape(node("REPEAT", [flat], (size, factor, heads, n * ns)), size, heads * factor, n, ns)

    def feed_forward(self, x: Tensor, il: int, logits: Tensor | None = None) -> Tensor:
        """Dense, or routed with a sigmoid-gated shared expert."""
        if self.weight("ffn_gate_inp", il) is None:
            return self.ffn(x, il)
        out = self.moe(x, il, logits=logits)
        if self.weight("ffn_up_shexp", il) is None:
            return out
        shared = self.ffn(x, il, "_shexp")
        gate = same("UNARY", mul_mat(self.need("ffn_gate_inp_shexp", il), x))
        return same("ADD", out, same("MUL", shared, gate))
