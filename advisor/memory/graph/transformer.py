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
            self.graph.mark(cur)
            cur = self.block(cur, il, il == last)
        return self.end(cur)

    def end(self, cur: Tensor) -> Graph:
        """The end of the graph; with late rows more than the wanted rows is kept for draft heads."""
        style = self.style
        if not style.late_rows:
            return self.finish(cur)
        if style.late_normed:
            cur = self.norm(cur, "output_norm", -1)
        if style.pinned_last or style.late_normed:
            cur.is_output = True
        return self.finish(self.rows(cur)[0], normed=style.late_normed)

    def block(self, x: Tensor, il: int, last: bool) -> Tensor:
        """One block; on the last one only the wanted rows go on."""
        style = self.style
        pick = last and not style.late_rows and not style.all_rows
        parallel = style.parallel
        logits = mul_mat(self.need("ffn_gate_inp", il), x) if style.moe_early_router else None
        normed = self.norm(x, "attn_norm", il) if self.weight("attn_norm", il) is not None else self.bare_norm(x)
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
        if style.dense_parallel:
            return self.dense_and_routed(same("ADD", cur, x), x, il)
        has_ffn_norm = self.weight("ffn_norm", il) is not None
        post = "post_attention_norm"
        if self.weight("attn_output_norm", il) is not None and has_ffn_norm:
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
        elif self.weight("attn_output_norm", il) is not None:
            cur = self.norm(joined, "attn_output_norm", il)
        elif style.bare_norms:
            cur = same("NORM" if self.layer_norm else "RMS_NORM", joined)
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

    def bare_norm(self, x: Tensor) -> Tensor:
        """A block without a norm weight: nothing for post-norm architectures."""
        return same("NORM" if self.layer_norm else "RMS_NORM", x) if self.style.bare_norms else x

    def dense_and_routed(self, joined: Tensor, x: Tensor, il: int) -> Tensor:
        """arctic: the dense part on the sum, the experts on the block's input."""
        dense = same("ADD", self.ffn(self.norm(joined, "ffn_norm", il), il), joined)
        return same("ADD", self.moe(self.norm(x, "ffn_norm_exps", il), il), dense)

    def parallel(self, cur: Tensor, x: Tensor, normed: Tensor, il: int) -> Tensor:
        """Attention and feed-forward side by side."""
        kind = self.style.parallel
        if kind == "gptneox":
            out = self.ffn(self.norm(x, "ffn_norm", il), il)
            return same("ADD", same("ADD", out, x), cur)
        if kind == "cohere":
            return same("ADD", same("ADD", self.feed_forward(normed, il), x), cur)
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
        if not style.rope or (style.rope_blocks and style.rope_blocks != self.h.n_layer):
            return False
        if style.rope_layers_key:
            flags = self.h.get("attention.rope_pattern")
            return bool(flags[il]) if isinstance(flags, (tuple, list)) else True
        if step == -3:
            return self.h.swa[il] or il < self.h.whole("leading_dense_block_count")
        if step == -1:
            return self.h.swa[il]
        if step == -2:
            return self.h.swa[il] or not self.h.window
        if step > 0:
            step = self.h.whole("no_rope_layer_step", step)
            return (il + 1) % step != 0
        return True

    def attend(self, x: Tensor, il: int) -> Tensor:
        """The attention of one block, with its output projection."""
        h, style = self.h, self.style
        if h.head[il] == 0:
            return x
        if h.head_kv[il] == 0:
            return mul_mat(self.need("attn_output", il), x)
        hk, hv = h.hk(il), h.hv(il)
        gate = self.weight("attn_gate", il)
        sub_norm = self.weight("attn_sub_norm", il) is not None
        q, k, v = self.qkv(x, il, hk, h.head[il], hk, hv, h.head_kv[il])
        q, k, v = self.prepare(q, k, v, il)
        window = h.swa[il]
        inp: CacheInput | None = self.windowed if window else self.base
        assert inp is not None
        sinks = self.weight("attn_sinks", il)
        iswa = self.windowed is not None
        if gate is None and not sub_norm:
            cur = self.attention(inp, q, k, v, il, window=iswa, sinks=sinks)
            scale = self.h.real("attention.value_scale") if style.value_scale else 0.0
            return same("SCALE", cur) if scale not in (0.0, 1.0) else cur
        cur = self.attention(inp, q, k, v, il, wo="", window=iswa, sinks=sinks)
        if sub_norm:
            cur = self.norm(cur, "attn_sub_norm", il)
        if gate is not None:
            cur = self.gate(cur, same("UNARY", mul_mat(gate, x)), h.head[il])
        return self.linear("attn_output", cur, il)

    def gate(self, cur: Tensor, gate: Tensor, heads: int) -> Tensor:
        """Weigh the attention result, by element or by head."""
        if gate.ne[0] != heads:
            return same("MUL", cur, gate)
        width, n = cur.ne[0], cur.ne[1]
        cur = same("MUL", reshape(cur, width // heads, heads, n), reshape(gate, 1, heads, n))
        return reshape(cur, width, n)

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
        if self.model.arch.startswith("nemotron_h") or self.style.moe_sigmoid_choice:
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
            if self.style.shared_half:
                out = same("SCALE", out)
        elif self.weight("ffn_up_chexps", il) is not None:
            out = same("ADD", out, same("SCALE", self.moe(out, il, logits=logits, kind="chexps")))
        elif self.style.dense_beside and self.weight("ffn_up", il) is not None:
            out = same("SCALE", same("ADD", self.ffn(x, il), out))
        return out
