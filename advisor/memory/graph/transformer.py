"""The generic transformer: attention and feed-forward blocks whose features are read off the tensors."""

from __future__ import annotations

from advisor.memory.graph.build import CacheInput
from advisor.memory.graph.ffn import Builder
from advisor.memory.graph.sched import Graph
from advisor.memory.graph.tensor import F32, Tensor, get_rows, mul_mat, reshape, same, view_2d


class Transformer(Builder):
    """Blocks of attention and feed-forward around a residual stream."""

    def build(self) -> Graph:
        """The whole graph."""
        h, style = self.h, self.style
        cur = self.embeddings()
        if style.scale_embedding and not h.real("embedding_scale"):
            cur = same("SCALE", cur)
        if self.weight("position_embd") is not None:
            cur = same("ADD", cur, get_rows(self.need("position_embd"), self.positions()))
        if self.weight("token_embd_norm") is not None:
            cur = self.norm(cur, "token_embd_norm", -1)
        self.base, self.windowed = self.attention_inputs([i for i in range(h.n_layer) if h.head_kv[i] > 0])
        self.temperature: Tensor | None = None
        if style.attention_scale and (style.attention_scale != "key" or h.real("attention.temperature_scale")):
            self.temperature = self.input(F32, 1, 1, self.tokens)
        last = self.layer_ids[-1]
        for il in self.layer_ids:
            self.graph.mark()
            cur = self.block(cur, il, il == last)
        if style.late_rows:
            if style.pinned_last:
                cur.is_output = True
            cur = self.rows(cur)[0]
        return self.finish(cur)

    def block(self, x: Tensor, il: int, last: bool) -> Tensor:
        """One block; on the last one only the wanted rows go on."""
        style = self.style
        pick = last and not style.late_rows
        parallel = style.parallel
        logits = mul_mat(self.need("ffn_gate_inp", il), x) if style.moe_early_router else None
        normed = self.norm(x, "attn_norm", il) if self.weight("attn_norm", il) is not None else self.bare_norm(x, il)
        if parallel == "falcon" and self.weight("attn_norm_2", il) is not None:
            cur = self.attend(self.norm(x, "attn_norm_2", il), il)
        else:
            cur = self.attend(normed, il)
        if parallel and not (parallel == "gptneox" and not self.h.get("use_parallel_residual")):
            if pick:
                cur, x, normed = self.rows(cur, x, normed)
            return self.parallel(cur, x, normed, il)
        if pick and not style.rows_after_post_norm:
            cur, x = self.rows(cur, x)
            if logits is not None:
                logits = self.rows(logits)[0]
        has_ffn_norm = self.weight("ffn_norm", il) is not None
        post = "post_attention_norm"
        if self.weight("attn_output_norm", il) is not None:
            cur = self.norm(cur, "attn_output_norm", il)
        elif self.weight(post, il) is not None and (has_ffn_norm or self.weight("post_ffw_norm", il) is not None):
            cur = self.norm(cur, post, il)
        if pick and style.rows_after_post_norm:
            cur, x = self.rows(cur, x)
        if style.scale_residual and (self.h.real("residual_scale") or style.scale_last):
            cur = same("SCALE", cur)
        if self.h.head[il] == 0:
            joined = x
        elif self.h.ff[il] == 0 and self.weight("ffn_down", il) is None and self.weight("ffn_gate_inp", il) is None:
            return x  # deci: a block without a feed-forward part passes its input on
        else:
            joined = same("ADD", x, cur) if style.residual_first_half else same("ADD", cur, x)
        if has_ffn_norm:
            cur = self.norm(joined, "ffn_norm", il)
        elif self.weight(post, il) is not None and self.weight("post_ffw_norm", il) is None:
            cur = self.norm(joined, post, il)
        else:
            cur = joined
        cur = self.feed_forward(cur, il, logits)
        for name in ("post_ffw_norm", "layer_output_norm"):
            if self.weight(name, il) is not None:
                cur = self.norm(cur, name, il, pin=False)
                break
        if style.scale_residual and (self.h.real("residual_scale") or style.scale_last):
            cur = same("SCALE", cur)
        cur = same("ADD", joined, cur) if style.ffn_residual_first else same("ADD", cur, joined)
        if il < self.h.whole("n_deepstack_layers"):
            width = self.embedded.ne[0] * 4
            cur = same("ADD", cur, view_2d(self.embedded, self.h.d, self.tokens, width, (il + 1) * self.h.d * 4))
        return cur

    def bare_norm(self, x: Tensor, il: int) -> Tensor:
        """A block without a norm weight: nothing for post-norm architectures."""
        if self.weight("post_attention_norm", il) is not None:
            return x
        return same("NORM" if self.style.layer_norm else "RMS_NORM", x) if self.model.arch == "olmo" else x

    def parallel(self, cur: Tensor, x: Tensor, normed: Tensor, il: int) -> Tensor:
        """Attention and feed-forward side by side."""
        kind = self.style.parallel
        if kind == "gptneox":
            out = self.ffn(self.norm(x, "ffn_norm", il), il)
            return same("ADD", same("ADD", out, x), cur)
        if kind == "cohere":
            return same("ADD", same("ADD", self.ffn(normed, il), x), cur)
        if kind == "falcon":
            return same("ADD", same("ADD", self.ffn(normed, il), cur), x)
        if kind == "phi2":
            return same("ADD", same("ADD", cur, self.ffn(normed, il)), x)
        joined = same("ADD", cur, x)  # stablelm: a norm of its own, or the attention's
        inner = self.norm(joined, "ffn_norm", il) if self.weight("ffn_norm", il) is not None else normed
        return same("ADD", self.ffn(inner, il), joined)

    def uses_rope(self, il: int) -> bool:
        """Whether the block rotates queries and keys."""
        style = self.style
        step = style.no_rope_step
        if not style.rope:
            return False
        if step == -1:
            return self.h.swa[il]
        if step == -2:
            return self.h.swa[il] or not self.h.window
        if step > 0:
            step = self.h.whole("no_rope_layer_step", step)
            return il % step != 0 if style.no_rope_first else (il + 1) % step != 0
        return True

    def attend(self, x: Tensor, il: int) -> Tensor:
        """The attention of one block, with its output projection."""
        h, style = self.h, self.style
        if h.head[il] == 0:
            return x
        if h.head_kv[il] == 0:
            return mul_mat(self.need("attn_output", il), x)
        hk, hv = h.hk(il), h.hv(il)
        gate = mul_mat(self.need("attn_gate", il), x) if style.gate_attention else None
        q, k, v = self.qkv(x, il, hk, h.head[il], hk, hv, h.head_kv[il])
        q, k, v = self.prepare(q, k, v, il)
        window = h.swa[il]
        inp: CacheInput | None = self.windowed if window else self.base
        assert inp is not None
        sinks = self.weight("attn_sinks", il)
        iswa = self.windowed is not None
        if gate is None:
            return self.attention(inp, q, k, v, il, window=iswa, sinks=sinks)
        cur = self.attention(inp, q, k, v, il, wo="", window=iswa, sinks=sinks)
        return mul_mat(self.need("attn_output", il), same("MUL", cur, same("UNARY", gate)))

    def prepare(self, q: Tensor, k: Tensor, v: Tensor, il: int) -> tuple[Tensor, Tensor, Tensor]:
        """Norms, rotation and scale of queries and keys."""
        style = self.style
        has_norm = self.weight("attn_q_norm", il) is not None
        flat = style.flat_qk_norm or (has_norm and self.need("attn_q_norm", il).ne[0] > q.ne[0])

        def head_norm(t: Tensor, name: str) -> Tensor:
            if self.weight(name, il) is None:
                return t
            if flat:
                size, count, n, _ = t.ne
                inner = t.src[0] if style.flat_qk_norm else reshape(t, size * count, n)
                return reshape(self.norm(inner, name, il), size, count, n)
            return self.norm(t, name, il)

        rope = self.uses_rope(il)
        if not style.norm_after_rope:
            q, k = head_norm(q, "attn_q_norm"), head_norm(k, "attn_k_norm")
        if rope:
            q, k = self.rope(q, il), self.rope(k, il)
        if style.norm_after_rope:
            q, k = head_norm(q, "attn_q_norm"), head_norm(k, "attn_k_norm")
        if style.l2_qk and rope and self.h.get("use_qk_norm", self.h.n_expert != 128):
            q, k = same("RMS_NORM", q), same("RMS_NORM", k)
        if self.temperature is not None and (style.attention_scale != "no_rope" or not rope):
            q = same("MUL", q, self.temperature)
        if style.scale_q:
            q = same("SCALE", q)
        return q, k, v

    def feed_forward(self, x: Tensor, il: int, logits: Tensor | None = None) -> Tensor:
        """Dense or routed, with shared experts."""
        if self.weight("ffn_gate_inp", il) is None:
            return self.ffn(x, il)
        inner = x
        if self.weight("ffn_latent_down", il) is not None:
            inner = mul_mat(self.need("ffn_latent_down", il), x)
        if self.model.arch.startswith("nemotron_h"):
            logits = mul_mat(self.need("ffn_gate_inp", il), x)
        out = self.moe(inner, il, logits=logits)
        if self.weight("ffn_latent_up", il) is not None:
            out = mul_mat(self.need("ffn_latent_up", il), out)
        if self.weight("ffn_up_shexp", il) is not None:
            shared_gate = self.weight("ffn_gate_inp_shexp", il)
            shared = self.ffn(x, il, "_shexp")
            if shared_gate is not None:
                logit = mul_mat(shared_gate, x)
                shared = same("MUL", shared, same("DIV", same("UNARY", logit), logit))
            out = same("ADD", out, shared)
        elif self.weight("ffn_up", il) is not None:
            out = same("SCALE", same("ADD", self.ffn(x, il), out))
        return out
