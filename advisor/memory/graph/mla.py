"""Latent attention: deepseek2 with and without absorbed weights, minicpm3, and deepseek32's sparse indexer.

Facts from deepseek2.cpp, minicpm3.cpp, deepseek32.cpp and build_attn of llama.cpp b11434.
"""

from __future__ import annotations

from advisor.memory.graph.build import CacheInput
from advisor.memory.graph.tensor import (
    F16,
    F32,
    I32,
    I64,
    Tensor,
    concat,
    cont,
    mul_mat,
    node,
    permute,
    reshape,
    row_size,
    same,
    set_rows,
    strides,
    view,
    view_2d,
    view_3d,
    view_4d,
)
from advisor.memory.graph.transformer import Transformer


class Latent(Transformer):
    """Keys and values through a low-rank latent."""

    def attention_inputs(self, layers: list[int]) -> tuple[CacheInput | None, CacheInput | None]:
        """A cache of latents alone where the header says so."""
        if not self.h.is_mla:
            return super().attention_inputs(layers)
        return self.cache_input(self.s.n_ctx_seq, 0, 0, has_v=False), None

    def query(self, x: Tensor, il: int) -> Tensor:
        """Queries, straight or through their own low rank; flat."""
        if self.weight("attn_q", il) is not None:
            return mul_mat(self.need("attn_q", il), x)
        low = self.norm(mul_mat(self.need("attn_q_a", il), x), "attn_q_a_norm", il)
        return mul_mat(self.need("attn_q_b", il), low)

    def latent(self, x: Tensor, il: int) -> tuple[Tensor, Tensor]:
        """The normed latent and the rotated shared key part."""
        h, n = self.h, self.tokens
        rank, rope = h.whole("attention.kv_lora_rank"), h.n_rot
        joint = mul_mat(self.need("attn_kv_a_mqa", il), x)
        row = (rank + rope) * 4
        low = view_2d(joint, rank, n, row)
        shared = view_3d(joint, rope, 1, n, row, row, rank * 4)
        return self.norm(low, "attn_kv_a_norm", il), self.rope(shared, il, factors=self.style.family == "mla_full")

    def attend(self, x: Tensor, il: int) -> Tensor:
        """The attention of one block, with its output projection."""
        h = self.h
        hk = h.hk_mla if h.is_mla else h.hk_full
        q = reshape(self.query(x, il), hk, h.head[il], self.tokens)
        if h.is_mla:
            low, shared = self.latent(x, il)
            return self.absorbed(q, low, shared, il)
        low, shared = self.latent(x, il)
        return self.expanded(q, low, shared, il)

    def absorbed(self, q: Tensor, low: Tensor, shared: Tensor, il: int, top: Tensor | None = None) -> Tensor:
        """Attention on the latents themselves, one key head for all."""
        h, n = self.h, self.tokens
        rank, rope, heads = h.whole("attention.kv_lora_rank"), h.n_rot, h.head[il]
        nope = h.hk_mla - rope
        b1 = h.hk_mla * 4
        b2 = b1 * heads
        q_nope = permute(view_3d(q, nope, heads, n, b1, b2), 0, 2, 1, 3)
        q_rope = self.rope(view_3d(q, rope, heads, n, b1, b2, nope * 4), il, factors=False)
        inner = permute(mul_mat(self.need("attn_k_b", il), q_nope), 0, 2, 1, 3)
        query = concat(inner, q_rope, 0)
        low = reshape(low, rank, 1, n)
        key = concat(low, shared, 0)
        if self.temperature is not None:
            query = same("MUL", query, self.temperature)
        return self.latent_attention(query, key, low, il, top)

    def latent_attention(self, q: Tensor, k: Tensor, v: Tensor, il: int, top: Tensor | None) -> Tensor:
        """Store the latent, attend, decompress, project."""
        s = self.s
        self.expand(q)
        self.expand(v)
        self.expand(k)
        inp = self.base
        assert inp is not None
        width = self.h.hk_full
        cache = self.cache_tensor("k", il, s.type_k, width, inp.cells)
        self.store(k, inp.k_index, cache, False)
        mask = inp.mask
        if top is not None:
            mask = self.sparse_mask(mask, top)
        row = row_size(s.type_k, width)
        keys = view_4d(cache, (width, 1, inp.cells, self.n_stream), row, row, row * inp.cells)
        values = view_4d(keys, (v.ne[0], *keys.ne[1:]), row, row, row * inp.cells)
        cur = self.mix(q, keys, values, mask, False, v_mla=self.need("attn_v_b", il), il=il)
        return self.linear("attn_output", cur, il)

    def sparse_mask(self, mask: Tensor, top: Tensor) -> Tensor:
        """The mask with everything but the chosen keys closed."""
        blank = same("FILL", mask)
        size, per, _, streams = mask.ne
        element = 2 if mask.type == F16 else 4
        flat = view(blank, (1, size, per, streams), (element, element, size * element, size * per * element))
        count = top.ne[0]
        ids = view_4d(top, (count, per, streams, 1), count * 4, count * per * 4, count * per * streams * 4)
        zeros = Tensor("NONE", F32, (1, count, per, streams), [])
        opened = set_rows(flat, same("FILL", zeros), ids)
        restored = view_4d(opened, mask.ne, size * element, size * per * element, size * per * element)
        return same("ADD", restored, mask)

    def expanded(self, q: Tensor, low: Tensor, shared: Tensor, il: int) -> Tensor:
        """Attention on full keys and values rebuilt from the latent."""
        h, n = self.h, self.tokens
        heads, rope = h.head[il], h.n_rot
        nope, hv = h.hk_full - rope, h.hv_full
        kv = mul_mat(self.need("attn_kv_b", il), low)
        row = (nope + hv) * 4
        k_nope = view_3d(kv, nope, heads, n, row, row * heads)
        v = cont(view_3d(kv, hv, heads, n, row, row * heads, nope * 4))
        q = self.rope(q, il, factors=self.style.family == "mla_full")
        k = concat(k_nope, node("REPEAT", [shared], (rope, heads, n, 1)), 0)
        if self.temperature is not None:
            q = same("MUL", q, self.temperature)
        assert self.base is not None
        return self.attention(self.base, q, k, v, il)


class SparseLatent(Latent):
    """Latent attention over the keys that an indexer chooses (deepseek32)."""

    def attention_inputs(self, layers: list[int]) -> tuple[CacheInput | None, CacheInput | None]:
        """The latent cache and the indexer's own."""
        del layers  # every block has both
        h, n = self.h, self.tokens
        base = self.cache_input(self.s.n_ctx_seq, 0, 0, has_v=False)
        size, rotation = h.whole("attention.indexer.key_length"), 64
        while size % (2 * rotation) == 0:
            rotation *= 2
        index = self.input(I64, n)
        mask = self.input(F16, base.cells, n // self.n_stream, 1, self.n_stream)
        self.indexer = CacheInput(index, None, mask, self.input(F32, rotation, rotation), None, base.cells)
        return base, None

    def attend(self, x: Tensor, il: int) -> Tensor:
        """Indexer first, then latent attention on its choice."""
        h, n, s = self.h, self.tokens, self.s
        low_q = self.norm(mul_mat(self.need("attn_q_a", il), x), "attn_q_a_norm", il)
        heads, size = h.whole("attention.indexer.head_count"), h.whole("attention.indexer.key_length")
        inp = self.indexer
        rotation = inp.k_rotation
        assert rotation is not None
        iq = reshape(mul_mat(self.need("indexer.attn_q_b", il), low_q), size, heads, n)
        iq = mul_mat(rotation, self.rope(iq, il, factors=False))
        ik = self.norm(mul_mat(self.need("indexer.attn_k", il), x), "indexer.k_norm", il)
        ik = mul_mat(rotation, self.rope(reshape(ik, size, 1, n), il, factors=False))
        cache = self.cache_tensor("lid", il, s.type_k, size, inp.cells)
        self.store(ik, inp.k_index, cache, False)
        weights = mul_mat(self.need("indexer.proj", il), x)
        row, ns = row_size(s.type_k, size), self.n_stream
        keys = view_4d(cache, (size, 1, inp.cells, ns), row, row, row * inp.cells)
        _, b1, b2, b3 = strides(iq)
        iq = view_4d(iq, (size, heads, n // ns, ns), b1, b2, b3 // ns)
        _, b1, b2, b3 = strides(weights)
        weights = view_4d(weights, (heads, n // ns, 1, ns), b1, b2 // ns, b3 // ns)
        weights = same("SCALE", weights)
        score = node("LIGHTNING_INDEXER", [iq, keys, weights, inp.mask], (inp.cells, n // ns, 1, ns))
        count = min(inp.cells, h.whole("attention.indexer.top_k"))
        top = cont(node("TOP_K", [score], (count, *score.ne[1:]), I32))
        q = mul_mat(self.need("attn_q_b", il), low_q)
        low, shared = self.latent(x, il)
        return self.absorbed(q, low, shared, il, top)
