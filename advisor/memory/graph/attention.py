"""Attention: projections, the cache's store and views, and the mix of queries, keys and values.

Facts from llama-graph.cpp and llama-kv-cache.cpp of llama.cpp b11434.
"""

from __future__ import annotations

from advisor.memory.graph.build import CacheInput, Parts
from advisor.memory.graph.tensor import (
    F16,
    F32,
    Tensor,
    cast,
    cont,
    mul_mat,
    n_elements,
    node,
    permute,
    reshape,
    row_size,
    same,
    set_rows,
    strides,
    transpose,
    view_2d,
    view_3d,
    view_4d,
)


class Attention(Parts):
    """Attention of one block."""

    def qkv(self, x: Tensor, il: int, hq: int, n_head: int, hk: int, hv: int, n_kv: int) -> list[Tensor]:
        """Queries, keys and values as [head size, heads, tokens]."""
        n = x.ne[1]
        fused = self.weight("attn_qkv", il)
        if fused is not None:
            qkv = mul_mat(fused, x)
            b = self.bias("attn_qkv", il)
            if b is not None:
                qkv = same("ADD", qkv, b)
            if self.h.real("attention.clamp_kqv"):
                qkv = same("CLAMP", qkv)
            row = strides(qkv)[1]
            q_width, k_width = hq * n_head, hk * n_kv
            return [
                view_3d(qkv, hq, n_head, n, hq * 4, row),
                view_3d(qkv, hk, n_kv, n, hk * 4, row, q_width * 4),
                view_3d(qkv, hv, n_kv, n, hv * 4, row, (q_width + k_width) * 4),
            ]
        result = []
        for name, size, count in (("attn_q", hq, n_head), ("attn_k", hk, n_kv), ("attn_v", hv, n_kv)):
            cur = self.linear(name, x, il)
            if self.h.real("attention.clamp_kqv"):
                cur = same("CLAMP", cur)
            result.append(reshape(cur, size, count, n))
        return result

    def store(self, cur: Tensor, index: Tensor, cache: Tensor, transposed: bool) -> None:
        """Scatter new keys or values into a cache."""
        head, count, n, _ = cur.ne
        width = head * count
        row = strides(cur)[2]
        if not transposed:
            flat = view_2d(cur, width, n, row)
            target = cache
            if self.n_stream > 1:
                target = reshape(cache, cache.ne[0], cache.ne[1] * self.n_stream)
            self.expand(set_rows(target, flat, index))
            return
        flat = reshape(cur, width, n) if row == width * 4 else cont(cur, width, n)
        if width < cache.ne[0]:
            flat = node("PAD", [flat], (cache.ne[0], n, 1, 1))
        self.expand(set_rows(reshape(cache, 1, n_elements(cache)), reshape(flat, 1, n_elements(flat)), index))

    def attention(
        self, inp: CacheInput, q: Tensor, k: Tensor | None, v: Tensor | None, il: int, wo: str = "attn_output",
        window: bool = False, cache_layer: int | None = None, sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Attention through a cache, and the output projection unless `wo` is empty."""
        h, s = self.h, self.s
        home = il if cache_layer is None else cache_layer
        if inp.k_rotation is not None:
            q = self.rotate(q, inp.k_rotation)
            k = self.rotate(k, inp.k_rotation) if k is not None else None
        if inp.v_rotation is not None and v is not None:
            v = self.rotate(v, inp.v_rotation)
        self.expand(q)
        for t in (k, v) if window else (v, k):
            if t is not None:
                self.expand(t)
        hk, hv, n_kv = h.hk(home), h.hv(home), h.head_kv[home]
        k_width = hk * n_kv
        v_width = h.v_width_max if self.v_trans else hv * n_kv
        k_cache = self.cache_tensor("k", home, s.type_k, k_width, inp.cells)
        v_cache = self.cache_tensor("v", home, s.type_v, v_width, inp.cells)
        if k is not None:
            self.store(k, inp.k_index, k_cache, False)
        if v is not None and inp.v_index is not None:
            self.store(v, inp.v_index, v_cache, self.v_trans)
        cells, ns = inp.cells, self.n_stream
        row = row_size(s.type_k, k_width)
        keys = view_4d(k_cache, (hk, n_kv, cells, ns), row_size(s.type_k, hk), row, row * cells)
        if not self.v_trans:
            row = row_size(s.type_v, v_width)
            values = view_4d(v_cache, (hv, n_kv, cells, ns), row_size(s.type_v, hv), row, row * cells)
        else:
            row = row_size(s.type_v, cells)
            values = view_4d(v_cache, (cells, n_kv, hv, ns), row * hv, row, row * v_width)
        cur = self.mix(q, keys, values, inp.mask, self.v_trans, sinks=sinks, il=il)
        if inp.v_rotation is not None:
            cur = self.rotate(cur, inp.v_rotation)
        return self.linear(wo, cur, il) if wo else cur

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, v_trans: bool, v_mla: Tensor | None = None,
        sinks: Tensor | None = None, il: int = -1,
    ) -> Tensor:  # fmt: skip
        """Scores, softmax and weighted sum: one fused node, or the separate ones."""
        ns = k.ne[3]
        b = strides(q)
        per = q.ne[2] // ns
        q = view_4d(q, (q.ne[0], q.ne[1], per, ns), b[1], b[2], b[2] * per)
        q, k, v = (permute(t, 0, 2, 1, 3) for t in (q, k, v))
        extra = [t for t in (mask, sinks) if t is not None]
        if self.flash and self.score_bias is None:
            if v_trans:
                v = transpose(v)
            if k.type == F32:
                k = cast(k, F16)
            if v.type == F32:
                v = cast(v, F16)
            cur = Tensor("FLASH_ATTN_EXT", F32, (v.ne[0], q.ne[2], q.ne[1], q.ne[3]), [q, k, v, *extra])
            self.fused.append((cur, il))
            if v_mla is not None:
                cur = permute(cur, 0, 2, 1, 3)
                cur = mul_mat(v_mla, cur)
                cur = cont(permute(cur, 0, 2, 1, 3))
            cur = reshape(cur, cur.ne[0] * cur.ne[1], cur.ne[2] * cur.ne[3])
        else:
            kq = mul_mat(k, q)
            if self.style.flash_never:
                kq = same("SCALE", same("UNARY", same("SCALE", kq)))
            if self.h.real("attn_logit_softcapping") and not self.style.flash_never:
                kq = same("SCALE", same("UNARY", same("SCALE", kq)))
            if self.score_bias is not None:
                kq = same("ADD", kq, self.score_bias)
            kq = Tensor("SOFT_MAX", F32, kq.ne, [kq, *extra])
            if not v_trans:
                v = cont(transpose(v))
            cur = mul_mat(v, kq)
            if v_mla is not None:
                cur = mul_mat(v_mla, cur)
            cur = permute(cur, 0, 2, 1, 3)
            cur = cont(cur, cur.ne[0] * cur.ne[1], cur.ne[2] * cur.ne[3])
            if self.pins and not self.s.kv_offload:
                cur.backend = self.cpu
        return self.expand(cur)
