"""rwkv6 and rwkv7: token shift, a matrix state per head, a channel mix.

Facts from rwkv6-base.cpp and rwkv7-base.cpp of llama.cpp b11434.
"""

from __future__ import annotations

from advisor.memory.graph.recurrent import Recurrent
from advisor.memory.graph.sched import Graph
from advisor.memory.graph.tensor import (
    Tensor,
    concat,
    cont,
    cpy,
    mul_mat,
    node,
    permute,
    reshape,
    same,
    view_1d,
    view_2d,
    view_3d,
)


class Rwkv(Recurrent):
    """Pure recurrent blocks."""

    def build(self) -> Graph:
        """The whole graph."""
        cur = self.norm(self.embeddings(), "token_embd_norm", -1)
        self.recurrent_inputs()
        self.first_value: Tensor | None = None
        last = self.layer_ids[-1]
        rescale = self.h.whole("rescale_every_n_layers")
        for il in self.layer_ids:
            self.graph.mark(cur)
            cur = self.rwkv_block(cur, il, il == last)
            if rescale and (il + 1) % rescale == 0:
                cur = same("SCALE", cur)
        return self.finish(cur)

    def shifted(self, x: Tensor, state: Tensor) -> Tensor:
        """The stream one token earlier."""
        d, n, ns = self.h.d, self.per_seq, self.n_seq
        return concat(state, view_3d(x, d, n - 1, ns, d * 4, d * n * 4), 1)

    def rwkv_block(self, x: Tensor, il: int, last: bool) -> Tensor:
        """One block: time mix and channel mix."""
        d, n, ns = self.h.d, self.per_seq, self.n_seq
        seven = self.model.arch.endswith("7")
        count = self.h.whole("token_shift_count", 2)
        x = reshape(x, d, n, ns)
        states = self.state("r", il, count * d)
        shift = reshape(self.gather_state(states), d, count, ns)
        row = count * d * 4
        att_state = view_3d(shift, d, 1, ns, d * 4, row)
        ffn_state = view_3d(shift, d, 1, ns, d * 4, row, d * 4)
        att = self.norm(x, "attn_norm", il)
        previous = self.shifted(att, att_state)
        cur = self.time_mix7(att, previous, il) if seven else self.time_mix6(att, previous, il)
        joined = same("ADD", cur, x)
        inner = self.norm(joined, "attn_norm_2", il)
        previous = self.shifted(inner, ffn_state)
        end = (n - 1) * d * 4
        kept = concat(view_3d(att, d, 1, ns, d * 4, d * n * 4, end), view_3d(inner, d, 1, ns, d * 4, d * n * 4, end), 1)
        self.expand(cpy(view_1d(kept, d * ns * count), view_1d(states, count * d * ns)))
        t = self.tokens
        joined, inner, previous = (reshape(v, d, t) for v in (joined, inner, previous))
        if last:
            joined, inner, previous = self.rows(joined, inner, previous)
        mixed = self.channel_mix(inner, previous, il, seven)
        return same("ADD", mixed, joined)

    def channel_mix(self, x: Tensor, previous: Tensor, il: int, seven: bool) -> Tensor:
        """The feed-forward part."""
        delta = same("SUB", previous, x)
        key = same("ADD", same("MUL", delta, self.need("channel_mix_lerp_k", il)), x)
        if seven:
            hidden = same("SQR", same("UNARY", mul_mat(self.need("channel_mix_key", il), key)))
            return mul_mat(self.need("channel_mix_value", il), hidden)
        gate = same("ADD", same("MUL", delta, self.need("channel_mix_lerp_r", il)), x)
        gate = same("UNARY", mul_mat(self.need("channel_mix_receptance", il), gate))
        hidden = same("SQR", same("UNARY", mul_mat(self.need("channel_mix_key", il), key)))
        return same("MUL", gate, mul_mat(self.need("channel_mix_value", il), hidden))

    def wkv(self, op: str, inputs: list[Tensor], il: int, size: int) -> Tensor:
        """Run the state, store it, return the flat output."""
        d, ns, t = self.h.d, self.n_seq, self.tokens
        states = self.state("s", il, d * size)
        state = self.gather_state(states)
        out = node(op, [*inputs, state], (d, t + size * ns, 1, 1))
        new = view_1d(out, d * size * ns, d * t * 4)
        self.expand(cpy(new, view_1d(states, d * size * ns)))
        return view_1d(out, d * t)

    def time_mix6(self, x: Tensor, previous: Tensor, il: int) -> Tensor:
        """The sixth generation's time mix."""
        d, t = self.h.d, self.tokens
        size = self.h.whole("wkv.head_size")
        heads = d // size
        delta = reshape(same("SUB", previous, x), d, t)
        x = reshape(x, d, t)
        w1 = self.need("time_mix_w1", il)
        mix = same("ADD", same("MUL", delta, self.need("time_mix_lerp_x", il)), x)
        mix = reshape(same("UNARY", mul_mat(w1, mix)), w1.ne[1] // 5, 1, 5, t)
        mix = cont(permute(mix, 0, 1, 3, 2))
        w2 = self.need("time_mix_w2", il)
        mix = mul_mat(reshape(w2, w2.ne[0], w2.ne[1], 1, 5), mix)
        fused = self.weight("time_mix_lerp_fused", il)
        if fused is not None:
            delta, x = reshape(delta, d, 1, t), reshape(x, d, 1, t)
            mix = same("ADD", same("MUL", same("ADD", mix, fused), delta), x)
            xs = [view_2d(mix, d, t, d * 4, i * d * t * 4) for i in range(5)]
        else:
            xs = [view_2d(mix, d, t, d * 4, i * d * t * 4) for i in range(5)]
            xs = [
                same("ADD", same("MUL", same("ADD", v, self.need(f"time_mix_lerp_{name}", il)), delta), x)
                for v, name in zip(xs, "wkvrg", strict=True)
            ]
        xw, xk, xv, xr, xg = xs
        r, k, v = (
            self.linear(name, t_in, il)
            for name, t_in in (("time_mix_receptance", xr), ("time_mix_key", xk), ("time_mix_value", xv))
        )
        gate = same("UNARY", mul_mat(self.need("time_mix_gate", il), xg))
        k, v, r = (reshape(q, size, heads, t) for q in (k, v, r))
        low = same("UNARY", mul_mat(self.need("time_mix_decay_w1", il), xw))
        w = same("ADD", mul_mat(self.need("time_mix_decay_w2", il), low), self.need("time_mix_decay", il))
        w = reshape(same("UNARY", same("UNARY", same("UNARY", w))), size, heads, t)
        cur = self.wkv("RWKV_WKV6", [k, v, r, self.need("time_mix_first", il), w], il, size)
        cur = self.head_norm(cur, size, heads, il)
        cur = mul_mat(self.need("time_mix_output", il), same("MUL", cur, gate))
        return reshape(cur, d, self.per_seq, self.n_seq)

    def head_norm(self, cur: Tensor, size: int, heads: int, il: int) -> Tensor:
        """Norm per head, then weight and bias."""
        d, t = self.h.d, self.tokens
        if self.weight("time_mix_ln", il) is None:
            return reshape(cur, d, t)
        cur = reshape(same("NORM", reshape(cur, size, heads, t)), d, t)
        return same("ADD", same("MUL", cur, self.need("time_mix_ln", il)), self.need("time_mix_ln.bias", il))

    def time_mix7(self, x: Tensor, previous: Tensor, il: int) -> Tensor:
        """The seventh generation's time mix."""
        d, t, n, ns = self.h.d, self.tokens, self.per_seq, self.n_seq
        size = self.h.whole("wkv.head_size")
        heads = d // size
        gated = self.weight("time_mix_g1", il) is not None and self.weight("time_mix_g2", il) is not None
        delta = node("REPEAT", [same("SUB", previous, x)], (d, n, ns, 6 if gated else 5))
        mix = same("ADD", same("MUL", delta, self.need("time_mix_lerp_fused", il)), x)
        xr, xw, xk, xv, xa = (view_2d(mix, d, t, d * 4, i * d * t * 4) for i in range(5))
        xg = view_2d(mix, d, t, d * 4, 5 * d * t * 4) if gated else None

        def low_rank(name: str, source: Tensor, act: bool = False) -> Tensor:
            inner = mul_mat(self.need(f"time_mix_{name}1", il), source)
            return mul_mat(self.need(f"time_mix_{name}2", il), same("UNARY", inner) if act else inner)

        r = mul_mat(self.need("time_mix_receptance", il), xr)
        w = same("ADD", low_rank("w", xw, True), self.need("time_mix_w0", il))
        w = same("UNARY", same("SCALE", same("UNARY", w)))
        k, v = mul_mat(self.need("time_mix_key", il), xk), mul_mat(self.need("time_mix_value", il), xv)
        if self.first_value is None:
            self.first_value = v
        else:
            share = same("UNARY", same("ADD", low_rank("v", xv), self.need("time_mix_v0", il)))
            v = same("ADD", v, same("MUL", same("SUB", self.first_value, v), share))
        gate = low_rank("g", xg, True) if xg is not None else None
        a = same("UNARY", same("ADD", low_rank("a", xa), self.need("time_mix_a0", il)))
        kk = same("L2_NORM", reshape(same("MUL", k, self.need("time_mix_k_k", il)), size, heads, t))
        ka = same("MUL", k, self.need("time_mix_k_a", il))
        k = same("ADD", k, same("SUB", same("MUL", a, ka), ka))
        r, w, k, v, a = (reshape(q, size, heads, t) for q in (r, w, k, v, a))
        states = self.state("s", il, d * size)
        state = self.gather_state(states)
        out = node("RWKV_WKV7", [r, w, k, v, same("UNARY", kk), same("MUL", kk, a), state], (d, t + size * ns, 1, 1))
        self.expand(cpy(view_1d(out, d * size * ns, d * t * 4), view_1d(states, d * size * ns)))
        cur = self.head_norm(view_1d(out, d * t), size, heads, il)
        bonus = same("MUL", same("MUL", k, r), reshape(self.need("time_mix_r_k", il), size, heads))
        rk = node("SUM_ROWS", [bonus], (1, *bonus.ne[1:]))
        cur = same("ADD", cur, reshape(same("MUL", v, rk), d, t))
        if gate is not None:
            cur = same("MUL", cur, gate)
        cur = mul_mat(self.need("time_mix_output", il), cur)
        return reshape(cur, d, n, ns)
