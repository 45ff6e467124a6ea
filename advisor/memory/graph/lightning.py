"""minimax-01: lightning attention with decay masks, every eighth block softmax attention.

Facts from minimax-01.cpp of llama.cpp b11434.
"""

from __future__ import annotations

from advisor.memory.graph.recurrent import Recurrent
from advisor.memory.graph.tensor import (
    F32,
    Tensor,
    cont,
    cpy,
    mul_mat,
    permute,
    reshape,
    same,
    strides,
    view_1d,
    view_4d,
)


class Lightning(Recurrent):
    """Blocks whose residual is the normed stream."""

    def recurrent_inputs(self) -> None:
        """State index and the decay inputs."""
        super().recurrent_inputs()
        heads, n, ns = self.h.head[0], self.per_seq, self.n_seq
        self.slopes = self.input(F32, heads)
        self.q_decay = self.input(F32, 1, heads, n, ns)
        self.k_decay = self.input(F32, 1, heads, n, ns)
        self.diagonal = self.input(F32, n, n, heads, ns)

    def mixed_block(self, x: Tensor, il: int, last: bool) -> Tensor:
        """One block."""
        residual = self.norm(x, "attn_norm", il)
        cur = self.lightning(residual, il) if self.is_recurrent(il) else self.attend(residual, il)
        if last:
            cur, residual = self.rows(cur, residual)
        joined = same("ADD", cur, same("SCALE", residual))
        inner = self.norm(joined, "ffn_norm", il)
        return same("ADD", self.moe(inner, il), same("SCALE", inner))

    def decayed(self, t: Tensor) -> Tensor:
        """Exponential of a scaled decay input."""
        return same("UNARY", same("SCALE", t))

    def lightning(self, x: Tensor, il: int) -> Tensor:
        """Linear attention with a decaying state."""
        h, n, ns = self.h, self.per_seq, self.n_seq
        hk, heads = h.hk_full, h.head[il]
        taps = h.whole("ssm.conv_kernel")
        width = (taps - 1) * (h.whole("ssm.inner_size") + 2 * h.whole("ssm.group_count") * h.whole("ssm.state_size"))
        self.expand(self.gather_state(self.state("r", il, width if taps else 0)))
        x = reshape(x, x.ne[0], n, 1, ns)
        qkv = same("UNARY", mul_mat(self.need("attn_qkv", il), x))
        qkv = reshape(qkv, hk * 3, heads, n, ns)
        _, b1, b2, b3 = strides(qkv)
        q, k, v = (view_4d(qkv, (hk, heads, n, ns), b1, b2, b3, i * hk * 4) for i in range(3))
        states = self.state("s", il, hk * hk * heads)
        old = reshape(self.gather_state(states), hk, hk, heads, ns)
        slope = same("SCALE", self.slopes)
        q_decay, k_decay, diagonal = (self.decayed(t) for t in (self.q_decay, self.k_decay, self.diagonal))
        past = mul_mat(old, permute(same("MUL", q, q_decay), 0, 2, 1, 3))
        scores = mul_mat(permute(k, 0, 2, 1, 3), permute(q, 0, 2, 1, 3))
        scores = same("MUL", scores, diagonal)
        v_turned = cont(permute(v, 1, 2, 0, 3))
        out = self.expand(same("ADD", past, mul_mat(v_turned, scores)))
        block = same("UNARY", same("SCALE", slope))
        kept = same("MUL", old, reshape(block, 1, 1, heads))
        k_turned = cont(permute(same("MUL", k, k_decay), 1, 2, 0, 3))
        new = same("ADD", kept, mul_mat(k_turned, v_turned))
        self.expand(cpy(new, view_1d(states, hk * hk * heads * ns)))
        out = cont(permute(out, 0, 2, 1, 3))
        out = reshape(out, out.ne[0] * out.ne[1], out.ne[2], 1, out.ne[3])
        normed = self.norm(out, "attn_norm_2", il)
        gate = same("UNARY", mul_mat(self.need("attn_gate", il), x))
        cur = mul_mat(self.need("attn_output", il), same("MUL", gate, normed))
        return reshape(cur, cur.ne[0], self.tokens)
