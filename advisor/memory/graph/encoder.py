"""Encoders without a cache or head: bert and its kin, gemma-embedding.

Facts from bert.cpp, gemma-embedding.cpp and build_attn_inp_no_cache of llama.cpp b11434.
"""

from __future__ import annotations

from advisor.memory.graph.build import CacheInput
from advisor.memory.graph.sched import Graph
from advisor.memory.graph.tensor import F16, F32, Tensor, get_rows, reshape, same, view_1d
from advisor.memory.graph.transformer import Transformer


class NoCache(Transformer):
    """Attention over the batch itself."""

    def attention_inputs(self, layers: list[int]) -> tuple[CacheInput | None, CacheInput | None]:
        """One mask, and one for windows."""
        del layers  # nothing is kept
        kind, n = F16 if self.flash else F32, self.tokens
        mask = self.input(kind, n, n)
        base = CacheInput(mask, None, mask, None, None, n)
        if not self.h.window:
            return base, None
        other = self.input(kind, n, n)
        return base, CacheInput(other, None, other, None, None, n)

    def attention(
        self, inp: CacheInput, q: Tensor, k: Tensor | None, v: Tensor | None, il: int, wo: str = "attn_output",
        window: bool = False, cache_layer: int | None = None, sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Attention on the batch's own keys and values."""
        del window, cache_layer, sinks  # nothing is kept
        assert k is not None
        assert v is not None
        for t in (q, k, v):
            self.expand(t)
        cur = self.mix(q, k, v, inp.mask, False, il=il)
        return self.linear(wo, cur, il) if wo else cur


class Encoder(NoCache):
    """An encoder: its result is the last block's stream."""

    def finish(self, cur: Tensor, name: str = "output_norm", normed: bool = False) -> Graph:
        """A last norm at most; no head."""
        for candidate in (name, "enc.output_norm"):
            if not normed and self.weight(candidate) is not None:
                cur = self.norm(cur, candidate, -1)
                break
        cur.is_output = True
        self.expand(cur)
        return self.graph


class Bert(Encoder):
    """Post-norm encoder blocks."""

    def build(self) -> Graph:
        """The whole graph."""
        h, arch = self.h, self.model.arch
        if arch != "jina-bert-v2":
            self.positions()
        cur = self.embeddings()
        types = self.weight("token_types")
        if types is not None:
            cur = same("ADD", cur, view_1d(types, h.d))
        if arch == "bert":
            cur = same("ADD", get_rows(self.need("position_embd"), self.positions()), cur)
        cur = self.norm(cur, "token_embd_norm", -1, home=0)
        self.base, self.windowed = self.attention_inputs([])
        self.temperature = None
        for il in self.layer_ids:
            self.graph.mark(cur)
            cur = self.bert_block(cur, il, il == self.layer_ids[-1])
        cur.is_output = True
        self.expand(cur)
        return self.graph

    def bert_block(self, x: Tensor, il: int, last: bool) -> Tensor:
        """One block."""
        h, n = self.h, self.tokens
        hk, heads, kv = h.hk(il), h.head[il], h.head_kv[il]
        q, k, v = self.qkv(x, il, hk, heads, hk, hk, kv)
        if self.weight("attn_q_norm", il) is not None:
            q = reshape(self.norm(reshape(q, hk * heads, n), "attn_q_norm", il), hk, heads, n)
        if self.weight("attn_k_norm", il) is not None:
            k = reshape(self.norm(reshape(k, hk * kv, n), "attn_k_norm", il), hk, kv, n)
        if self.model.arch in ("nomic-bert", "nomic-bert-moe", "jina-bert-v3"):
            q, k = self.rope(q, il), self.rope(k, il)
        assert self.base is not None
        cur = self.attention(self.base, q, k, v, il)
        if last:
            cur, x = self.rows(cur, x)
        cur = self.norm(same("ADD", cur, x), "attn_output_norm", il)
        if self.weight("attn_norm_2", il) is not None:
            cur = self.norm(same("ADD", cur, x), "attn_norm_2", il)
        out = self.moe(cur, il) if self.weight("ffn_gate_inp", il) is not None else self.ffn(cur, il)
        return self.norm(same("ADD", out, cur), "layer_output_norm", il)
