"""The parts every architecture's graph is made of: inputs, norms, projections, attention through a cache, experts.

Facts from llama-graph.cpp and llama-kv-cache.cpp of llama.cpp b11434.
"""

from __future__ import annotations

from typing import NamedTuple

from advisor.memory.graph.model import BLOCK_NAME, CPU, HOST_NAMES, GraphModel, GraphPlacement, GraphSettings, Hyper
from advisor.memory.graph.sched import Graph
from advisor.memory.graph.tensor import (
    BLOCK,
    F16,
    F32,
    I32,
    I64,
    NO_PLACE,
    Tensor,
    cast,
    cont,
    cpy,
    get_rows,
    glu,
    into,
    is_contiguous,
    mul_mat,
    mul_mat_id,
    n_elements,
    node,
    permute,
    reshape,
    row_size,
    same,
    set_rows,
    strides,
    top_k,
    transpose,
    view,
    view_1d,
    view_2d,
    view_3d,
    view_4d,
)


class CacheInput(NamedTuple):
    """The inputs of one cache object: scatter indices, mask, rotations; cells per stream."""

    k_index: Tensor
    v_index: Tensor | None
    mask: Tensor
    k_rotation: Tensor | None
    v_rotation: Tensor | None
    cells: int


class Builder:
    """Builds one reserve graph. Subclasses add `layers()` for their family."""

    def __init__(
        self, model: GraphModel, hyper: Hyper, settings: GraphSettings, placement: GraphPlacement, flash: bool,
        tokens: int, outputs: int, full_offload: bool, pins: bool,
        layer_ids: list[int],
    ) -> None:  # fmt: skip
        self.model, self.h, self.s, self.p = model, hyper, settings, placement
        self.style = hyper.style
        self.graph = Graph()
        self.expand = self.graph.expand
        self.flash = flash
        self.v_trans = settings.flash == "off" or self.style.flash_never
        self.n_seq = settings.n_seq
        self.tokens = tokens
        self.outputs = outputs
        self.n_stream = 1 if settings.unified else settings.n_seq
        self.cpu = placement.n_gpu
        self.pins = pins
        self.pin_norms = pins and (full_offload or tokens < 32)
        self.weights: dict[str, Tensor] = {}
        self.fused: list[tuple[Tensor, int]] = []
        self.cache: dict[str, Tensor] = {}
        self.host = [model.expression(p) for p in placement.host_patterns]
        self.layer_ids = layer_ids
        self.out_ids: Tensor | None = None
        self.pos: Tensor | None = None

    # places and leaves

    def backend(self, il: int) -> int:
        """Backend index of block `il` (the output is block n_layer_all)."""
        device = self.p.layers[il]
        return self.cpu if device == CPU else device

    def weight(self, name: str, il: int = -1) -> Tensor | None:
        """The weight called `name` (".weight" added unless it ends in one of the known endings), None if absent."""
        full = name if name.endswith((".weight", ".bias", ".scale")) else name + ".weight"
        key = full if il < 0 else f"blk.{il}.{full}"
        t = self.weights.get(key)
        if t is None:
            info = self.model.tensors.get(key)
            if info is None:
                return None
            t = self._leaf(key, info[0], info[1])
        return t

    def need(self, name: str, il: int = -1) -> Tensor:
        """As `weight`, for a tensor the architecture cannot do without."""
        t = self.weight(name, il)
        if t is None:
            raise KeyError(name if il < 0 else f"blk.{il}.{name}")
        return t

    def _leaf(self, name: str, shape: tuple[int, ...], kind: int, place: int | None = None) -> Tensor:
        ne = (*shape, 1, 1, 1, 1)
        t = Tensor("NONE", kind, (ne[0], ne[1], ne[2], ne[3]), [])
        t.name = name
        t.is_weight = True
        t.place = self.place(name) if place is None else place
        self.weights[name] = t
        return t

    def place(self, name: str) -> int:
        """Backend whose memory holds the weight."""
        for pattern in self.host:
            if pattern.search(name):
                return self.cpu
        match = BLOCK_NAME.match(name)
        if match:
            return self.backend(int(match.group(1)))
        if name in HOST_NAMES:
            return self.cpu
        if name.startswith(("token_embd_norm", "per_layer_")) and not self.model.arch.startswith("lfm2"):
            return self.backend(0)
        return self.backend(self.h.n_layer_all)

    def head_weight(self) -> Tensor:
        """The output matrix, or the copy of the token table that stands in for it."""
        t = self.weight("output")
        if t is None:
            shape, kind = self.model.tensors["token_embd.weight"]
            t = self._leaf("output.weight", shape, kind, self.place("output.weight"))
        return t

    def input(self, kind: int, *ne: int) -> Tensor:
        """A graph input."""
        shape = (*ne, 1, 1, 1, 1)
        t = Tensor("NONE", kind, (shape[0], shape[1], shape[2], shape[3]), [])
        t.is_input = True
        return t

    # inputs

    def embeddings(self) -> Tensor:
        """Token embeddings: three alternative branches are laid out, the first one is used."""
        table, d = self.need("token_embd"), self.h.d
        width = d * (1 + self.h.int("n_deepstack_layers"))
        tokens = self.input(I32, self.tokens)
        plain = self.input(F32, width, self.tokens)

        def pick(index: Tensor) -> Tensor:
            rows = get_rows(table, index)
            return rows if width == d else node("PAD", [rows], (width, self.tokens, 1, 1))

        chosen = pick(tokens)
        branches = [chosen, plain]
        if self.style.mixed:
            mixed = self.input(F32, width, self.tokens)
            slots = self.input(I64, self.tokens)
            branches.append(set_rows(same("DUP", mixed), pick(self.input(I32, self.tokens)), slots))
        for branch in branches:
            self.expand(branch)
        self.embedded = chosen
        cur = chosen
        if width != d:
            cur = view_2d(chosen, d, self.tokens, width * 4)
        if self.h.float("embedding_scale") and self.model.arch != "minicpm":
            cur = same("SCALE", cur if is_contiguous(cur) else cont(cur))
        if self.style.scale_tokens:
            cur = same("MUL", cur if is_contiguous(cur) else cont(cur), self.input(F32, 1, self.tokens))
        return self.expand(cur)

    def positions(self) -> Tensor:
        """Token positions; four rows for multi-axis rotation."""
        if self.pos is None:
            self.pos = self.input(I32, self.tokens * (4 if self.style.mrope else 1))
        return self.pos

    def output_rows(self) -> Tensor:
        """Indices of the tokens whose logits are wanted."""
        if self.out_ids is None:
            self.out_ids = self.input(I32, self.outputs)
        return self.out_ids

    def rows(self, *tensors: Tensor) -> list[Tensor]:
        """Keep only the rows of the wanted tokens."""
        ids = self.output_rows()
        return [get_rows(t, ids) for t in tensors]

    def cache_input(self, cells: int, head_k: int, head_v: int, has_v: bool = True, swa: bool = False) -> CacheInput:
        """The inputs of one cache object. Head sizes 0 = they vary, so nothing is rotated."""
        h, s, n = self.h, self.s, self.tokens
        k_index = self.input(I64, n)
        v_index = None
        if has_v:
            v_index = self.input(I64, n * h.v_width_max if self.v_trans else n)
        mask = self.input(F16 if self.flash else F32, cells, n // self.n_stream, 1, self.n_stream)
        k_rotation = v_rotation = None
        if has_v and BLOCK[s.type_k] > 1 and head_k > 0 and h.hk(0) % 64 == 0:
            size = 64
            while head_k % (2 * size) == 0:
                size *= 2
            k_rotation = self.input(F32, size, size)
        if has_v and BLOCK[s.type_v] > 1 and head_v > 0 and h.hv(0) % 64 == 0:
            v_rotation = self.input(F32, 64, 64)
        return CacheInput(k_index, v_index, mask, k_rotation, v_rotation, cells)

    def attention_inputs(self, layers: list[int]) -> tuple[CacheInput | None, CacheInput | None]:
        """Inputs of the full-context cache and, for a model with windows, of the window cache."""
        h, s = self.h, self.s

        def common(values: set[int]) -> int:
            return values.pop() if len(values) == 1 else 0

        full = [i for i in layers if not h.swa[i]]
        windowed = [i for i in layers if h.swa[i]]
        base = self.cache_input(s.n_ctx_seq, common({h.hk(i) for i in full}), common({h.hv(i) for i in full}))
        if not h.window:
            return base, None
        cells = s.n_ctx_seq
        if not s.swa_full:
            wanted = h.window * (s.n_seq if s.unified else 1) + s.n_ubatch
            cells = -(-min(cells, wanted) // 256) * 256
        window = self.cache_input(
            cells, common({h.hk(i) for i in windowed}), common({h.hv(i) for i in windowed}), swa=True
        )
        return base, window

    def cache_tensor(self, name: str, il: int, kind: int, width: int, cells: int) -> Tensor:
        """A block's cache tensor."""
        key = f"{name}{il}"
        t = self.cache.get(key)
        if t is None:
            t = Tensor("NONE", kind, (width, cells, self.n_stream, 1), [])
            t.place = self.backend(il) if self.s.kv_offload else self.cpu
            t.name = key
            self.cache[key] = t
        return t

    # small parts

    def norm(self, x: Tensor, name: str, il: int, layer_norm: bool | None = None, pin: bool = True) -> Tensor:
        """Normalise and apply weight and bias where they exist."""
        w, b = self.weight(name, il), self.weight(name + ".bias", il)
        if layer_norm is None:
            layer_norm = self.style.layer_norm or (b is not None and not self.style.rms_norm)
        cur = Tensor("NORM" if layer_norm else "RMS_NORM", F32, x.ne, [x])
        if (w is not None or b is not None) and il >= 0 and pin and self.pin_norms:
            cur.backend = self.backend(il)
        if w is not None:
            cur = same("MUL", cur, w)
        if b is not None:
            cur = same("ADD", cur, b)
        return cur

    def linear(self, name: str, x: Tensor, il: int = -1) -> Tensor:
        """A projection with its bias, if any."""
        cur = mul_mat(self.need(name, il), x)
        b = self.weight(name + ".bias", il)
        return cur if b is None else same("ADD", cur, b)

    def rope(self, x: Tensor, il: int, factors: bool = True) -> Tensor:
        """Rotate."""
        src = [x, self.positions()]
        if factors:
            f = self.rope_factors(il)
            if f is not None:
                src.append(f)
        return Tensor("ROPE", F32, x.ne, src)

    def rope_factors(self, il: int) -> Tensor | None:
        """The frequency factors that lie with block `il`."""
        for name in ("rope_factors_long.weight", "rope_factors_short.weight", "rope_freqs.weight"):
            info = self.model.tensors.get(name)
            if info is not None:
                key = f"{name}@{self.backend(il)}"
                return self.weights.get(key) or self._leaf(key, info[0], info[1], self.backend(il))
        return None

    def rotate(self, x: Tensor, rotation: Tensor) -> Tensor:
        """Multiply by a Hadamard matrix per head."""
        n = rotation.ne[0]
        count = n_elements(x) // n
        flat = reshape(x, n, count) if is_contiguous(x) else cont(x, n, count)
        return reshape(mul_mat(rotation, flat), *x.ne)

    # attention

    def qkv(self, x: Tensor, il: int, hq: int, n_head: int, hk: int, hv: int, n_kv: int) -> list[Tensor]:
        """Queries, keys and values as [head size, heads, tokens]."""
        n = x.ne[1]
        fused = self.weight("attn_qkv", il)
        if fused is not None:
            qkv = mul_mat(fused, x)
            b = self.weight("attn_qkv.bias", il)
            if b is not None:
                qkv = same("ADD", qkv, b)
            if self.h.float("attention.clamp_kqv"):
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
            if self.h.float("attention.clamp_kqv"):
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
        if self.flash:
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
            if self.h.float("attn_logit_softcapping") and not self.style.flash_never:
                kq = same("SCALE", same("UNARY", same("SCALE", kq)))
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

    # feed-forward

    def ffn(self, x: Tensor, il: int, suffix: str = "") -> Tensor:
        """A dense feed-forward: gated by a second matrix, by the halves of one, or not at all."""
        up = self.linear("ffn_up" + suffix, x, il)
        down = self.need("ffn_down" + suffix, il)
        if self.weight("ffn_gate" + suffix, il) is not None:
            cur = glu(self.linear("ffn_gate" + suffix, x, il), up)
        elif up.ne[0] == 2 * down.ne[0]:
            cur = glu(up)
        else:
            cur = same("UNARY", up)
            if self.model.arch.startswith(("nemotron", "arcee")):
                cur = same("SQR", cur)
            if self.weight("ffn.act", il) is not None or self.weight("ffn_act", il) is not None:
                cur = same("DIV", cur, self.weight("ffn.act", il) or self.need("ffn_act", il))
        return self.linear("ffn_down" + suffix, cur, il)

    def moe(self, x: Tensor, il: int, logits: Tensor | None = None, normed: bool | None = None,
            gating: int | None = None) -> Tensor:  # fmt: skip
        """Routed experts."""
        h, style = self.h, self.style
        n_expert, used = h.n_expert, h.n_used
        d, n = x.ne[0], x.ne[1]
        if normed is None:
            normed = bool(h.get("expert_weights_norm", False)) if style.moe_norm_key else style.moe_normed
        if gating is None:
            gating = (h.int("expert_gating_func") or style.moe_gating) if style.moe_gating_key else style.moe_gating
        if logits is None:
            logits = mul_mat(self.need("ffn_gate_inp", il), x)
        b = self.weight("ffn_gate_inp.bias", il)
        if b is not None:
            logits = same("ADD", logits, b)
        probs = logits if gating == 3 else same("SOFT_MAX" if gating == 1 else "UNARY", logits)
        choice = probs
        bias = self.weight("exp_probs_b.bias", il) or self.weight("exp_probs_b", il)
        if bias is not None:
            choice = same("ADD", probs, bias)
        if style.moe_weight_first:
            choice = logits
        groups = h.int("expert_group_count")
        if groups > 1:
            choice = self._group_choice(choice, groups, n)
        chosen = top_k(choice, used)
        w = get_rows(reshape(probs, 1, n_expert, n), chosen)
        if gating == 3:
            w = reshape(same("SOFT_MAX", reshape(w, used, n)), 1, used, n)
        if normed:
            w = reshape(w, used, n)
            total = same("CLAMP", node("SUM_ROWS", [w], (1, n, 1, 1)))
            w = reshape(same("DIV", w, total), 1, used, n)
        scale = h.float("expert_weights_scale")
        if scale not in (0.0, 1.0):
            w = same("SCALE", w)
        self.expand(w)
        cur = reshape(x, d, 1, n)
        if style.moe_weight_first:
            cur = same("MUL", node("REPEAT", [cur], (d, used, n, 1)), w)
        fused = self.weight("ffn_gate_up_exps", il)
        if fused is not None:
            both = mul_mat_id(fused, cur, chosen)
            ff = both.ne[0] // 2
            _, b1, b2, _ = strides(both)
            gate = view_3d(both, ff, both.ne[1], both.ne[2], b1, b2)
            up = view_3d(both, ff, both.ne[1], both.ne[2], b1, b2, ff * 4)
            cur = glu(gate, up)
        else:
            up = self._expert("ffn_up_exps", cur, chosen, il)
            if self.weight("ffn_gate_exps", il) is not None:
                cur = glu(self._expert("ffn_gate_exps", cur, chosen, il), up)
            else:
                cur = same("UNARY", up)
                if self.model.arch.startswith("nemotron"):
                    cur = same("SQR", cur)
        experts = self._expert("ffn_down_exps", cur, chosen, il)
        if not style.moe_weight_first:
            experts = same("MUL", experts, w)
        self.expand(experts)
        d = experts.ne[0]
        _, b1, b2, _ = strides(experts)
        parts = [self.expand(view_2d(experts, d, n, b2, i * b1)) for i in range(used)]
        out = parts[0]
        for part in parts[1:]:
            out = self.expand(same("ADD", out, part))
        if out.nb is not None and used > 1:
            out.nb = None
        return cont(out) if used == 1 else out

    def _expert(self, name: str, x: Tensor, chosen: Tensor, il: int) -> Tensor:
        cur = mul_mat_id(self.need(name, il), x, chosen)
        b = self.weight(name + ".bias", il)
        return cur if b is None else same("ADD_ID", cur, b, chosen)

    def _group_choice(self, choice: Tensor, groups: int, n: int) -> Tensor:
        per = self.h.n_expert // groups
        grouped = reshape(choice, per, groups, n)
        best = top_k(grouped, 2)
        score = get_rows(reshape(grouped, 1, per, groups, n), best)
        score = node("SUM_ROWS", [reshape(score, 2, groups, n)], (1, groups, n, 1))
        kept = top_k(reshape(score, groups, n), self.h.int("expert_group_used_count"))
        picked = get_rows(grouped, kept)
        blank = same("FILL", grouped)
        return reshape(set_rows(blank, picked, kept), self.h.n_expert, n)

    def finish(self, cur: Tensor, name: str = "output_norm", normed: bool = False) -> Graph:
        """Last norm, head and output flags."""
        if normed:
            pass
        elif self.weight(name) is not None or self.weight(name + ".bias") is not None:
            cur = self.norm(cur, name, -1)
        elif self.style.head_norm:
            cur = same("NORM" if self.style.layer_norm else "RMS_NORM", cur)
        cur.is_output = True
        if self.style.scale_last:
            cur = same("SCALE", cur)
        cur = mul_mat(self.head_weight(), cur)
        b = self.weight("output.bias")
        if b is not None:
            cur = same("ADD", cur, b)
        if self.style.scale_logits and (self.model.arch != "command-r" or self.h.float("logit_scale")):
            cur = same("SCALE", cur)
        if self.style.softcap_logits or (self.style.softcap_key and self.h.float("final_logit_softcapping")):
            cur = same("SCALE", same("UNARY", same("SCALE", cur)))
        cur.is_output = True
        self.expand(cur)
        return self.graph


__all__ = ["NO_PLACE", "Builder", "CacheInput", "cpy", "into", "view", "view_1d"]
