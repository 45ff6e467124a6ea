"""T5: the decoder with its cross-attention, which is what the engine reserves, and the encoder alone.

Facts from t5.cpp, t5encoder.cpp and build_pos_bias of llama.cpp b11434. A bias by distance is added to the scores of
self-attention, which therefore never runs as flash attention; cross-attention does.
"""

from __future__ import annotations

from advisor.memory.graph.build import CacheInput
from advisor.memory.graph.encoder import Encoder
from advisor.memory.graph.sched import Graph
from advisor.memory.graph.tensor import F16, F32, I32, Tensor, cont, get_rows, mul_mat, permute, reshape, same
from advisor.memory.graph.transformer import Transformer


class Distances(Transformer):
    """What both sides share: tensors under the side's name, and the bias by distance."""

    side = "dec"
    width = 0  # keys that a query sees

    def weight(self, name: str, il: int = -1) -> Tensor | None:
        """Blocks are called enc.blk.N and dec.blk.N."""
        return super().weight(name if il < 0 else f"{self.side}.blk.{il}.{name}")

    def place(self, name: str) -> int:
        """Both halves of block N lie with block N."""
        if name.startswith(("enc.blk.", "dec.blk.")):
            return self.place_in(name, int(name.split(".", 3)[2]))
        return super().place(name)

    def distance_bias(self, buckets: Tensor, il: int) -> Tensor:
        """The bias of every pair of query and key, per head."""
        table = self.weight("attn_rel_b", il) or self.need("attn_rel_b", 0)
        rows = get_rows(table, reshape(buckets, self.width * self.tokens))
        return cont(permute(reshape(rows, rows.ne[0], self.width, self.tokens), 2, 0, 1, 3))

    def self_attention(self, inp: CacheInput, buckets: Tensor, x: Tensor, il: int) -> Tensor:
        """Self-attention with the bias, and its output projection."""
        h = self.h
        q, k, v = self.qkv(x, il, h.hk(il), h.head[il], h.hk(il), h.hv(il), h.head_kv[il])
        self.score_bias = self.distance_bias(buckets, il)
        cur = self.attention(inp, q, k, v, il, wo="")
        self.score_bias = None
        return mul_mat(self.need("attn_o", il), cur)

    def tail(self, cur: Tensor, il: int) -> Tensor:
        """The feed-forward part."""
        return same("ADD", self.ffn(self.norm(cur, "ffn_norm", il), il), cur)


class Decoder(Distances):
    """The decoder, on the encoder's output for a whole trained context."""

    def build(self) -> Graph:
        """The whole graph."""
        h = self.h
        cur = self.embeddings()
        encoded = self.input(F32, h.d, h.whole("context_length"))
        self.width = self.s.n_ctx_seq
        buckets = self.input(I32, self.width, self.tokens)
        base, _ = self.attention_inputs(list(range(h.n_layer)))
        assert base is not None
        mask = self.input(F16 if self.flash else F32, h.whole("context_length"), self.tokens)
        last = h.whole("decoder_block_count", h.n_layer) - 1
        for il in range(last + 1):
            cur = same("ADD", self.self_attention(base, buckets, self.norm(cur, "attn_norm", il), il), cur)
            crossed = self.cross(self.norm(cur, "cross_attn_norm", il), encoded, mask, il)
            if il == last:
                crossed, cur = self.rows(crossed, cur)
            cur = self.tail(same("ADD", crossed, cur), il)
        return self.finish(cur, "dec.output_norm")

    def cross(self, x: Tensor, encoded: Tensor, mask: Tensor, il: int) -> Tensor:
        """Attention on the encoder's output."""
        h, n = self.h, encoded.ne[1]
        q, k, v = (
            mul_mat(self.need(f"cross_attn_{part}", il), y) for part, y in (("q", x), ("k", encoded), ("v", encoded))
        )
        q = reshape(q, h.hk(il), h.head[il], self.tokens)
        k, v = reshape(k, h.hk(il), h.head_kv[il], n), reshape(v, h.hv(il), h.head_kv[il], n)
        for t in (q, k, v):
            self.expand(t)
        return mul_mat(self.need("cross_attn_o", il), self.mix(q, k, v, mask, False, il=il))


class EncoderAlone(Distances, Encoder):
    """The encoder of a file that has nothing else."""

    side = "enc"

    def build(self) -> Graph:
        """The whole graph."""
        cur = self.embeddings()
        self.width = self.tokens
        buckets = self.input(I32, self.tokens, self.tokens)
        base, _ = self.attention_inputs([])
        assert base is not None
        for il in range(self.h.n_layer):
            out = self.self_attention(base, buckets, self.norm(cur, "attn_norm", il), il)
            if il == self.h.n_layer - 1:
                out, cur = self.rows(out, cur)
            cur = self.tail(same("ADD", out, cur), il)
        return self.finish(cur, "enc.output_norm")
