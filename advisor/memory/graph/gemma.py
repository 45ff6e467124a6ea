"""gemma4 (two head sizes, shared caches, per-layer embeddings, parallel dense and routed parts) and gemma3n (altup).

Facts from gemma4.cpp and gemma3n.cpp of llama.cpp b11434.
"""

from __future__ import annotations

from advisor.memory.graph.sched import Graph
from advisor.memory.graph.tensor import (
    F32,
    I32,
    Tensor,
    concat,
    cont,
    get_rows,
    mul_mat,
    node,
    permute,
    reshape,
    same,
    strides,
    transpose,
    view_2d,
    view_3d,
)
from advisor.memory.graph.transformer import Transformer


def slice_2d(t: Tensor, index: int) -> Tensor:
    """One [ne0, ne1] slice."""
    n0, n1 = t.ne[0], t.ne[1]
    return view_2d(t, n0, n1, n0 * 4, index * n0 * n1 * 4)


class PerLayer(Transformer):
    """Embeddings of their own for every block, and caches that later blocks share."""

    shared_from: int

    def per_layer_inputs(self, x: Tensor, early: Tensor | None = None) -> Tensor:
        """[width, tokens, blocks]: from a table, plus a projection of the embeddings.

        `early`: the rows of the table, looked up before everything else.
        """
        h, n = self.h, self.tokens
        table = self.need("per_layer_token_embd")
        width = table.ne[0] // h.n_layer
        if early is None:
            rows = get_rows(table, self.input(I32, n))
            selected = self.expand(same("SCALE", reshape(rows, width, h.n_layer, n)))
        else:
            selected = reshape(same("SCALE", early), width, h.n_layer, n)
        projected = same("SCALE", mul_mat(self.need("per_layer_model_proj"), x))
        projected = self.norm(reshape(projected, width, h.n_layer, n), "per_layer_proj_norm", -1)
        joined = same("SCALE", same("ADD", projected, selected))
        return cont(permute(joined, 0, 2, 1, 3), width, n, h.n_layer)

    def shared_attention(self, x: Tensor, il: int) -> Tensor:
        """Attention with normed values; later blocks bring only queries."""
        h, n = self.h, self.tokens
        window = h.swa[il]
        inp = self.windowed if window else self.base
        assert inp is not None
        hk, heads, kv = h.hk(il), h.head[il], h.head_kv[il]
        factors = not window
        fused = self.weight("attn_qkv", il)
        if fused is not None:
            both = mul_mat(fused, x)
            row = strides(both)[1]
            q = cont(view_2d(both, hk * heads, n, row))
        else:
            both, row = x, 0
            q = self.projected("attn_q", x, il)
        q = self.norm(reshape(q, hk, heads, n), "attn_q_norm", il)
        q = self.rope(q, il, factors)
        if il >= self.shared_from:
            home = self.shared_from - (2 if window else 1)
            return self.attention(inp, q, None, None, il, window=True, cache_layer=home)
        if fused is not None:
            k = cont(view_2d(both, hk * kv, n, row, hk * heads * 4))
            v = cont(view_2d(both, hk * kv, n, row, hk * (heads + kv) * 4))
        else:
            k = self.projected("attn_k", x, il)
            v = self.projected("attn_v", x, il) if self.weight("attn_v", il) is not None else k
        k = self.norm(reshape(k, hk, kv, n), "attn_k_norm", il)
        v = same("RMS_NORM", reshape(v, hk, kv, n))
        return self.attention(inp, q, self.rope(k, il, factors), v, il, window=True)

    def projected(self, name: str, x: Tensor, il: int) -> Tensor:
        """A projection; only gemma3n's own-cache blocks know biases."""
        if self.style.family == "gemma3n" and il < self.shared_from:
            return self.linear(name, x, il)
        return mul_mat(self.need(name, il), x)


class Gemma4(PerLayer):
    """gemma4."""

    def build(self) -> Graph:
        """The whole graph."""
        h = self.h
        table = self.weight("per_layer_token_embd")
        early = None
        if table is not None and self.model.lookups_first:
            early = self.expand(get_rows(table, self.input(I32, self.tokens)))
        cur = self.embeddings()
        self.shared_from = h.n_layer_all - h.whole("attention.shared_kv_layers")
        self.base, self.windowed = self.attention_inputs([i for i in range(h.n_layer) if i < self.shared_from])
        extra = None
        if table is not None:
            extra = self.per_layer_inputs(cur, early)
        for il in self.layer_ids:
            self.graph.mark(cur)
            cur = self.gemma_block(cur, il, extra)
        cur = self.norm(cur, "output_norm", -1)
        cur.is_output = True
        return self.finish(self.rows(cur)[0], normed=True)

    def rope_factors(self, il: int) -> Tensor | None:
        """Full-attention blocks have frequency factors."""
        return super().rope_factors(il)

    def gemma_block(self, x: Tensor, il: int, extra: Tensor | None) -> Tensor:
        """One block."""
        cur = self.shared_attention(self.norm(x, "attn_norm", il), il)
        joined = same("ADD", self.norm(cur, "post_attention_norm", il), x)
        if self.weight("ffn_gate_inp", il) is not None:
            dense = self.ffn(self.norm(joined, "ffn_norm", il), il)
            dense = self.norm(dense, "post_ffw_norm_1", il)
            routed = self.norm(joined, "pre_ffw_norm_2", il)
            logit = same("SCALE", same("RMS_NORM", joined))
            logit = same("MUL", logit, self.need("ffn_gate_inp.scale", il))
            routed = self.moe(routed, il, logits=mul_mat(self.need("ffn_gate_inp", il), logit))
            cur = same("ADD", dense, self.norm(routed, "post_ffw_norm_2", il))
        else:
            cur = self.ffn(self.norm(joined, "ffn_norm", il), il)
        cur = same("ADD", self.norm(cur, "post_ffw_norm", il, pin=False), joined)
        if extra is not None:
            stream = cur
            cur = same("UNARY", mul_mat(self.need("inp_gate", il), cur))
            cur = mul_mat(self.need("proj", il), same("MUL", cur, slice_2d(extra, il)))
            cur = same("ADD", stream, self.norm(cur, "post_norm", il))
        scale = self.weight("layer_output_scale", il)
        return cur if scale is None else same("MUL", cur, scale)


class Gemma3n(PerLayer):
    """gemma3n: four parallel streams that each block predicts and corrects."""

    SPARSE_BLOCKS = 10
    ACTIVE = 0

    def build(self) -> Graph:
        """The whole graph."""
        h, n = self.h, self.tokens
        d = h.d
        cur = self.embeddings()
        self.shared_from = 20  # hard-coded in the engine
        self.base, self.windowed = self.attention_inputs([i for i in range(h.n_layer) if i < self.shared_from])
        extra = self.per_layer_inputs(cur)
        unembed = self.need("altup_unembd_proj")
        streams = unembed.ne[2] + 1
        target = self.magnitude(cur)
        added = mul_mat(self.need("altup_proj"), node("REPEAT", [cur], (d, n, streams - 1, 1)))
        added = same("DIV", same("MUL", added, target), self.magnitude(added))
        cur = concat(cur, added, 2)
        for il in self.layer_ids:
            self.graph.mark(cur)
            cur = self.altup_block(cur, il, extra, streams)
        target = self.magnitude(slice_2d(cur, self.ACTIVE))
        rest = view_3d(cur, d, n, streams - 1, d * 4, d * n * 4, d * n * 4)
        merged = mul_mat(unembed, rest)
        merged = same("DIV", same("MUL", merged, target), self.magnitude(merged))
        cur = slice_2d(cur, 0)
        for i in range(streams - 1):
            cur = same("ADD", cur, slice_2d(merged, i))
        cur = self.rows(same("SCALE", cur))[0]
        return self.finish(cur)

    def magnitude(self, x: Tensor) -> Tensor:
        """Root of the sum of squares per row."""
        total = node("SUM_ROWS", [same("SQR", x)], (1, *x.ne[1:]))
        return same("SQRT", total)

    def router(self, x: Tensor, il: int) -> Tensor:
        """Weights of the streams."""
        cur = same("SCALE", self.norm(x, "altup_router_norm", il))
        return same("UNARY", mul_mat(self.need("altup_router", il), cur))

    def altup_block(self, x: Tensor, il: int, extra: Tensor, streams: int) -> Tensor:
        """One block."""
        d, n = self.h.d, self.tokens
        coefs = mul_mat(self.need("altup_predict_coef", il), self.router(slice_2d(x, self.ACTIVE), il))
        coefs = reshape(coefs, streams, streams, n)
        turned = cont(permute(x, 1, 2, 0, 3))
        predictions = cont(permute(mul_mat(turned, coefs), 0, 2, 1, 3))
        predictions = same("ADD", predictions, x)
        active = slice_2d(predictions, self.ACTIVE)
        cur = self.norm(active, "attn_norm", il)
        laurel = mul_mat(self.need("laurel_r", il), mul_mat(self.need("laurel_l", il), cur))
        laurel = same("ADD", self.norm(laurel, "laurel_post_norm", il), cur)
        cur = self.shared_attention(cur, il)
        cur = same("ADD", self.norm(cur, "post_attention_norm", il), active)
        mixed = same("SCALE", same("ADD", cur, laurel))
        cur = self.norm(mixed, "ffn_norm", il)
        up, gate = mul_mat(self.need("ffn_up", il), cur), mul_mat(self.need("ffn_gate", il), cur)
        if il < self.SPARSE_BLOCKS:
            gate = self.sparsify(gate)
        cur = mul_mat(self.need("ffn_down", il), same("MUL", up, same("UNARY", gate)))
        cur = same("ADD", self.norm(cur, "post_ffw_norm", il, pin=False), mixed)
        corrected = self.correct(predictions, cur, il, streams)
        first = same("MUL", slice_2d(corrected, self.ACTIVE), self.need("altup_correct_scale", il))
        first = same("UNARY", mul_mat(self.need("inp_gate", il), first))
        first = mul_mat(self.need("proj", il), same("MUL", first, slice_2d(extra, il)))
        first = self.norm(first, "post_norm", il)
        head = slice_2d(corrected, 0)
        rest = view_3d(corrected, d, n, streams - 1, d * 4, d * n * 4, d * n * 4)
        return concat(head, same("ADD", rest, first), 2)

    def correct(self, predictions: Tensor, active: Tensor, il: int, streams: int) -> Tensor:
        """Spread the block's innovation over all streams."""
        d, n = self.h.d, self.tokens
        modalities = self.router(active, il)
        innovation = same("SUB", active, slice_2d(predictions, self.ACTIVE))
        coefs = same("SCALE", mul_mat(self.need("altup_correct_coef", il), modalities))
        coefs = cont(transpose(coefs), 1, n, streams)
        spread = node("REPEAT", [innovation], (d, n, streams, 1))
        return same("ADD", same("MUL", spread, coefs), predictions)

    def sparsify(self, x: Tensor) -> Tensor:
        """Keep what lies above a Gaussian cut-off."""
        per_row = (1, *x.ne[1:])
        mean = Tensor("MEAN", F32, (per_row[0], per_row[1], per_row[2], per_row[3]), [x])
        spread = node("SUM_ROWS", [same("SQR", same("SUB", x, mean))], mean.ne)
        spread = same("SQRT", same("SCALE", spread))
        cut = same("ADD", mean, same("SCALE", spread))
        return same("UNARY", same("SUB", x, cut))
