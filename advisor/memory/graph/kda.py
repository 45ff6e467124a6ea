"""kimi-linear: delta attention with one decay per channel, and latent attention without rotation.

Facts from kimi-linear.cpp of llama.cpp b11434.
"""

from __future__ import annotations

from advisor.memory.graph.build import CacheInput
from advisor.memory.graph.mla import Latent
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
    view_1d,
    view_2d,
    view_3d,
    view_4d,
)


class Kimi(Recurrent, Latent):
    """Delta blocks with a latent-attention block now and then."""

    def attention_inputs(self, layers: list[int]) -> tuple[CacheInput | None, CacheInput | None]:
        """The latent cache."""
        return Latent.attention_inputs(self, layers)

    def attend(self, x: Tensor, il: int) -> Tensor:
        """Latent attention."""
        return Latent.attend(self, x, il)

    def rope(self, x: Tensor, il: int, factors: bool = True) -> Tensor:
        """Nothing is rotated."""
        del il, factors
        return x

    def mixed_block(self, x: Tensor, il: int, last: bool) -> Tensor:
        """One block."""
        cur = self.expand(self.norm(x, "attn_norm", il))
        cur = self.state_part(cur, il) if self.is_recurrent(il) else self.attend(cur, il)
        if last:
            cur, x = self.rows(cur, x)
        joined = same("ADD", cur, x)
        return same("ADD", self.feed_forward(self.norm(joined, "ffn_norm", il), il), joined)

    def state_part(self, x: Tensor, il: int) -> Tensor:
        """One delta block."""
        h, n, ns, t = self.h, self.per_seq, self.n_seq, self.tokens
        heads, size, taps = h.head[0], h.whole("kda.head_dim"), h.whole("ssm.conv_kernel")
        inner = heads * size
        conv_states = self.state("r", il, 3 * (taps - 1) * inner)
        kept = self.gather_state(conv_states)
        joint = self.weight("attn_qkv", il)
        if joint is not None:
            qkv = mul_mat(joint, x)
            row = strides(qkv)[1]
            parts = [cont(view_2d(qkv, inner, t, row, i * inner * 4)) for i in range(3)]
        else:
            parts = []
        mixed = []
        for i, name in enumerate("qkv"):
            source = parts[i] if parts else mul_mat(self.need(f"attn_{name}", il), x)
            mixed.append(self.convolved(source, conv_states, kept, i, name, il))
        q, k, v = mixed
        rate = mul_mat(self.need("ssm_f_b", il), mul_mat(self.need("ssm_f_a", il), x))
        rate = same("UNARY", same("ADD", rate, self.raw("ssm_dt.bias", il)))
        rate = same("MUL", reshape(rate, size, heads, t), reshape(self.raw("ssm_a", il), 1, heads, 1))
        rate = reshape(rate, size, heads, n, ns)
        beta = same("UNARY", reshape(mul_mat(self.need("ssm_beta", il), x), 1, heads, n, ns))
        states = self.state("s", il, size * inner)
        state = reshape(self.gather_state(states), size, size, heads, ns)
        q, k = (same("SCALE", same("RMS_NORM", part)) for part in (q, k))
        out = node("GATED_DELTA_NET", [q, k, v, rate, beta, state], (inner, n * ns + size * ns, 1, 1))
        new = view_4d(out, (size, size, heads, ns), size * 4, size * size * 4, size * inner * 4, inner * n * ns * 4)
        result = cont(view_4d(out, (size, heads, n, ns), size * 4, inner * 4, inner * n * 4))
        self.expand(cpy(new, view_1d(states, size * inner * ns)))
        flat = reshape(reshape(x, x.ne[0], n, ns), x.ne[0], t)
        gate = mul_mat(self.need("ssm_g_b", il), mul_mat(self.need("ssm_g_a", il), flat))
        gate = same("UNARY", reshape(gate, size, heads, t))
        normed = self.norm(reshape(result, size, heads, t), "ssm_norm", il)
        return mul_mat(self.need("attn_output", il), cont(same("MUL", normed, gate), inner, t))

    def convolved(self, x: Tensor, states: Tensor, kept: Tensor, part: int, name: str, il: int) -> Tensor:
        """One of the three short convolutions, each with its third of the kept columns."""
        h, n, ns = self.h, self.per_seq, self.n_seq
        heads, size, taps = h.head[0], h.whole("kda.head_dim"), h.whole("ssm.conv_kernel")
        inner = heads * size
        row, offset = 3 * (taps - 1) * inner * 4, part * (taps - 1) * inner * 4
        columns = (taps - 1) * 4
        before = view_3d(kept, taps - 1, inner, ns, columns, row, offset)
        joined = concat(before, transpose(reshape(x, inner, n, ns)), 0)
        _, b1, b2, _ = strides(joined)
        tail = view_3d(joined, taps - 1, inner, ns, b1, b2, n * 4)
        self.expand(cpy(tail, view_3d(states, taps - 1, inner, ns, columns, row, offset)))
        kernel = reshape(self.need(f"ssm_conv1d_{name}", il), taps, inner)
        out = node("SSM_CONV", [joined, kernel], (inner, n, ns, 1))
        out = reshape(out, inner, self.tokens)
        return reshape(same("UNARY", out), size, heads, n, ns)
