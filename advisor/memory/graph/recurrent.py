"""Blocks with a recurrent state: mamba 1 and 2, plamo2's mamba, short convolutions, gated delta nets, hybrids of them.

Facts from mamba-base.cpp, delta-net-base.cpp, lfm2.cpp, plamo2.cpp and build_rs of llama.cpp b11434.
"""

from __future__ import annotations

from collections.abc import Callable

from advisor.memory.graph.sched import Graph
from advisor.memory.graph.tensor import (
    F32,
    I32,
    Tensor,
    concat,
    cont,
    cpy,
    get_rows,
    glu,
    into,
    mul_mat,
    n_elements,
    node,
    permute,
    reshape,
    same,
    strides,
    transpose,
    view_1d,
    view_2d,
    view_3d,
    view_4d,
)
from advisor.memory.graph.transformer import Transformer

Getter = Callable[[Tensor, Tensor], Tensor]


class Recurrent(Transformer):
    """A transformer some or all of whose blocks keep a state per sequence."""

    def recurrent_inputs(self) -> None:
        """The input that says which state belongs to which sequence."""
        self.state_index = self.input(I32, self.n_seq)
        self.state_main = view_1d(self.state_index, self.n_seq)
        self.state_tail = view_1d(self.state_index, self.n_seq - 1, 4)
        self.per_seq = self.tokens // self.n_seq

    def is_recurrent(self, il: int) -> bool:
        """Whether block `il` keeps a state."""
        h, arch = self.h, self.model.arch
        if arch in ("mamba", "mamba2", "falcon-h1"):
            return True
        if arch.startswith("nemotron_h"):
            return h.head_kv[il] == 0 and h.ff[il] == 0
        flags = h.get("attention.recurrent_layers")
        if isinstance(flags, (tuple, list)):
            return bool(flags[il])
        if self.style.family in ("delta", "lightning"):
            interval = h.whole("full_attention_interval", 8 if self.style.family == "lightning" else 4)
            return (il + 1) % interval != 0
        return h.head_kv[il] == 0

    def state(self, name: str, il: int, width: int) -> Tensor:
        """A block's state tensor of one kind ("r" or "s")."""
        key = f"{name}{il}"
        t = self.cache.get(key)
        if t is None:
            t = Tensor("NONE", F32, (width, self.n_seq, 1, 1), [])
            t.place = self.backend(il) if self.s.kv_offload else self.cpu
            self.cache[key] = t
        return t

    def gather_state(self, s: Tensor, getter: Getter | None = None) -> Tensor:
        """Clear one state, gather the batch's states, and write back those that do not change."""
        width, n = s.ne[0], self.n_seq
        states = reshape(s, width, s.ne[1])
        zero = view_1d(states, width)
        self.expand(into("SCALE", zero, [zero]))
        index = self.state_tail if getter is not None else self.state_index
        gathered = get_rows(states, index)
        row = width * 4
        result = getter(states, self.state_main) if getter is not None else view_2d(gathered, width, n, row)
        self.expand(result)
        skip = n - index.ne[0]
        extra = view_2d(gathered, width, 0, row, (n - skip) * row)
        self.expand(cpy(extra, view_2d(s, width, 0, row, n * row)))
        return result

    def build(self) -> Graph:
        """The whole graph."""
        h, style = self.h, self.style
        cur = self.embeddings()
        if style.scale_embedding and not h.real("embedding_scale"):
            cur = same("SCALE", cur)
        self.recurrent_inputs()
        self.temperature = None
        attention = [i for i in range(h.n_layer) if h.head_kv[i] > 0 and (self.hybrid or not self.is_recurrent(i))]
        self.base, self.windowed = self.attention_inputs(attention)
        last = self.layer_ids[-1]
        for il in self.layer_ids:
            self.graph.mark()
            cur = self.mixed_block(cur, il, il == last)
        return self.end(cur)

    @property
    def hybrid(self) -> bool:
        """Attention and state in the same block."""
        return self.model.arch == "falcon-h1"

    def mixed_block(self, x: Tensor, il: int, last: bool) -> Tensor:
        """One block: a state or attention part, then what follows."""
        style, arch = self.style, self.model.arch
        pick = last and not style.late_rows
        cur = self.norm(x, "attn_norm", il)
        if self.hybrid:
            attended = self.attend(cur, il)
            cur = same("ADD", attended, self.state_part(self.norm(x, "attn_norm", il), il))
            joined = same("ADD", cur, x)
            if pick:
                joined = self.rows(joined)[0]
            return same("ADD", self.ffn(self.norm(joined, "ffn_norm", il), il), joined)
        if style.family == "delta":
            self.expand(cur)
        if self.is_recurrent(il):
            cur = self.state_part(cur, il)
        elif arch.startswith("nemotron_h") and self.h.ff[il] > 0:
            cur = self.feed_forward(cur, il)
        else:
            cur = self.attend(cur, il)
        if pick:
            cur, x = self.rows(cur, x)
        return self.after(cur, x, il)

    def after(self, cur: Tensor, x: Tensor, il: int) -> Tensor:
        """Residual addition and feed-forward."""
        style, arch = self.style, self.model.arch
        if arch in ("mamba", "mamba2") or arch.startswith("nemotron_h"):
            return same("ADD", cur, x)
        if arch == "plamo2":
            cur = self.norm(cur, "post_attention_norm", il)
        scaled = style.scale_residual and bool(self.h.real("residual_scale"))
        if scaled:
            cur = same("SCALE", cur)
        first = style.residual_first
        joined = same("ADD", x, cur) if first or style.residual_first_half else same("ADD", cur, x)
        name = "post_attention_norm" if style.family == "delta" else "ffn_norm"
        cur = self.feed_forward(self.norm(joined, name, il), il)
        if arch == "plamo2":
            cur = self.norm(cur, "post_ffw_norm", il)
        if scaled:
            cur = same("SCALE", cur)
        return same("ADD", joined, cur) if first or arch.startswith("lfm2") else same("ADD", cur, joined)

    def state_part(self, x: Tensor, il: int) -> Tensor:
        """The recurrent part of a block."""
        if self.weight("shortconv.conv", il) is not None:
            return self.short_convolution(x, il)
        if self.model.arch == "plamo2":
            return self.mamba_plamo2(x, il)
        if self.weight("ssm_x", il) is not None:
            return self.mamba1(x, il)
        return self.mamba2(x, il)

    def convolve(self, x: Tensor, states: Tensor, conv: Tensor, width: int, il: int, bias: bool = True) -> Tensor:
        """Prepend the kept columns, keep the new last ones, convolve. `x` is [width, tokens, sequences]."""
        taps, n = conv.ne[0], self.per_seq
        joined = concat(conv, transpose(x), 0)
        _, b1, b2, _ = strides(joined)
        tail = view_3d(joined, taps, width, self.n_seq, b1, b2, n * 4)
        row = states.ne[0]
        self.expand(cpy(tail, view_2d(states, row, self.n_seq, row * 4)))
        kernel = self.need("ssm_conv1d", il)
        out = node("SSM_CONV", [joined, kernel], (width, n, self.n_seq, 1))
        b = self.weight("ssm_conv1d.bias", il) if bias else None
        if b is not None:
            out = same("ADD", out, b)
        return same("UNARY", out)

    def scan(self, x: Tensor, state_ne: tuple[int, int, int], src: list[Tensor]) -> Getter:
        """The selective scan: outputs, then the new states, in one tensor."""
        size = n_elements(x) + state_ne[0] * state_ne[1] * state_ne[2] * self.n_seq

        def run(states: Tensor, index: Tensor) -> Tensor:
            shaped = reshape(states, *state_ne, self.n_seq)
            return node("SSM_SCAN", [shaped, x, *src, index], (size, 1, 1, 1))

        return run

    def mamba1(self, x: Tensor, il: int) -> Tensor:
        """A first-generation mamba block."""
        h, n, ns = self.h, self.per_seq, self.n_seq
        taps, di, ds = h.whole("ssm.conv_kernel"), h.whole("ssm.inner_size"), h.whole("ssm.state_size")
        rank = h.whole("ssm.time_step_rank")
        conv_states, ssm_states = self.state("r", il, (taps - 1) * di), self.state("s", il, ds * di)
        conv = reshape(self.gather_state(conv_states), taps - 1, di, ns)
        xz = mul_mat(self.need("ssm_in", il), reshape(x, x.ne[0], n, ns))
        _, b1, b2, _ = strides(xz)
        z = view_3d(xz, di, n, ns, b1, b2, di * 4)
        x = self.convolve(view_3d(xz, di, n, ns, b1, b2), conv_states, conv, di, il)
        db = mul_mat(self.need("ssm_x", il), x)
        _, b1, b2, _ = strides(db)
        dt = view_3d(db, rank, n, ns, b1, b2)
        b = view_4d(db, (ds, 1, n, ns), ds * 4, b1, b2, rank * 4)
        c = view_4d(db, (ds, 1, n, ns), ds * 4, b1, b2, (rank + ds) * 4)
        if h.get("ssm.dt_b_c_rms") or self.weight("ssm_dt_norm", il) is not None:
            dt, b, c = (
                self.norm(dt, "ssm_dt_norm", il), self.norm(b, "ssm_b_norm", il), self.norm(c, "ssm_c_norm", il)
            )  # fmt: skip
        else:
            dt = cont(dt)
        dt = self.linear("ssm_dt", dt, il)
        flat = x
        x = reshape(x, 1, di, n, ns)
        a = self.raw("ssm_a", il)
        y = self.gather_state(ssm_states, self.scan(x, (ds, 1, di), [dt, a, b, c]))
        size = ds * di * ns
        self.expand(cpy(view_1d(y, size, n_elements(x) * 4), view_1d(ssm_states, size)))
        out = view_3d(y, di, n, ns, di * 4, di * n * 4)
        out = same("ADD", out, same("MUL", flat, self.raw("ssm_d", il)))
        out = glu(cont(z), out)
        out = mul_mat(self.need("ssm_out", il), out)
        return reshape(out, out.ne[0], self.tokens)

    def mamba2(self, x: Tensor, il: int) -> Tensor:
        """A second-generation mamba block."""
        h, n, ns = self.h, self.per_seq, self.n_seq
        taps, di, ds = h.whole("ssm.conv_kernel"), h.whole("ssm.inner_size"), h.whole("ssm.state_size")
        heads, groups = h.whole("ssm.time_step_rank"), h.whole("ssm.group_count")
        hd, width = di // heads, di + 2 * groups * ds
        conv_states, ssm_states = self.state("r", il, (taps - 1) * width), self.state("s", il, ds * di)
        conv = reshape(self.gather_state(conv_states), taps - 1, width, ns)
        zx = mul_mat(self.need("ssm_in", il), x)
        zx = reshape(zx, zx.ne[0], n, ns)
        _, b1, b2, _ = strides(zx)
        z = view_4d(zx, (hd, heads, n, ns), hd * 4, b1, b2)
        xbc = view_3d(zx, width, n, ns, b1, b2, di * 4)
        dt = view_3d(zx, heads, n, ns, b1, b2, (di + width) * 4)
        xbc = self.convolve(xbc, conv_states, conv, width, il)
        _, b1, b2, _ = strides(xbc)
        x = view_4d(xbc, (hd, heads, n, ns), hd * 4, b1, b2)
        b = view_4d(xbc, (ds, groups, n, ns), ds * 4, b1, b2, di * 4)
        c = view_4d(xbc, (ds, groups, n, ns), ds * 4, b1, b2, (di + groups * ds) * 4)
        dt = same("ADD", cont(dt), self.need("ssm_dt.bias", il))
        y = self.gather_state(ssm_states, self.scan(x, (ds, hd, heads), [dt, self.raw("ssm_a", il), b, c]))
        row = ds * di * 4
        source = view_3d(y, ds * di, ns, 1, row, row * ns, n_elements(x) * 4)
        self.expand(cpy(source, view_3d(ssm_states, ds * di, ns, 1, row, row * ns)))
        out = view_4d(y, (hd, heads, n, ns), hd * 4, hd * heads * 4, hd * heads * n * 4)
        out = same("ADD", out, same("MUL", x, self.raw("ssm_d", il)))
        out = glu(cont(z), out)
        if self.weight("ssm_norm", il) is not None:
            out = self.norm(reshape(out, di // groups, groups, n, ns), "ssm_norm", il)
        return mul_mat(self.need("ssm_out", il), reshape(out, di, self.tokens))

    def mamba_plamo2(self, x: Tensor, il: int) -> Tensor:
        """plamo2's mamba: heads as in the second generation, projections as in the first."""
        h, n, ns = self.h, self.per_seq, self.n_seq
        taps, di, ds = h.whole("ssm.conv_kernel"), h.whole("ssm.inner_size"), h.whole("ssm.state_size")
        heads = h.whole("ssm.time_step_rank")
        hd = di // heads
        conv_states, ssm_states = self.state("r", il, (taps - 1) * di), self.state("s", il, ds * di)
        conv = reshape(self.gather_state(conv_states), taps - 1, di, ns)
        zx = permute(mul_mat(self.need("ssm_in", il), reshape(x, x.ne[0], n, ns)), 0, 2, 1, 3)
        zx = cont(zx, hd * 2, heads, n, ns)
        _, b1, b2, b3 = strides(zx)
        inner = cont(view_4d(zx, (hd, heads, n, ns), b1, b2, b3, hd * 4), di, n, ns)
        z = view_4d(zx, (hd, heads, n, ns), b1, b2, b3)
        inner = self.convolve(inner, conv_states, conv, di, il, bias=False)
        bcdt = mul_mat(self.need("ssm_x", il), inner)
        _, b1, b2, _ = strides(bcdt)
        b = self.norm(view_3d(bcdt, ds, n, ns, b1, b2), "ssm_b_norm", il)
        c = self.norm(view_3d(bcdt, ds, n, ns, b1, b2, ds * 4), "ssm_c_norm", il)
        dt = self.norm(view_3d(bcdt, max(64, h.d // 16), n, ns, b1, b2, 2 * ds * 4), "ssm_dt_norm", il)
        dt = self.linear("ssm_dt", dt, il)
        a = reshape(self.raw("ssm_a", il), 1, heads)
        x4 = view_4d(inner, (hd, heads, n, ns), hd * 4, di * 4, di * n * 4)
        b = view_4d(b, (ds, 1, n, ns), ds * 4, ds * 4, ds * n * 4)
        c = view_4d(c, (ds, 1, n, ns), ds * 4, ds * 4, ds * n * 4)
        y = self.gather_state(ssm_states, self.scan(x4, (ds, hd, heads), [dt, a, b, c]))
        size = di * ds * ns
        self.expand(cpy(view_1d(y, size, n_elements(x4) * 4), view_1d(ssm_states, size)))
        out = view_4d(y, (hd, heads, n, ns), hd * 4, di * 4, di * n * 4)
        out = same("ADD", out, same("MUL", x4, reshape(self.raw("ssm_d", il), 1, heads)))
        out = glu(cont(z), out)
        _, _, b2, b3 = strides(out)
        out = mul_mat(self.need("ssm_out", il), view_3d(out, di, n, ns, b2, b3))
        return reshape(out, out.ne[0], self.tokens)

    def short_convolution(self, x: Tensor, il: int) -> Tensor:
        """lfm2's gated short convolution."""
        h, n, ns = self.h, self.per_seq, self.n_seq
        taps = h.whole("shortconv.l_cache") - 1
        bcx = mul_mat(self.need("shortconv.in_proj", il), reshape(x, x.ne[0], n, ns))
        d = bcx.ne[0] // 3
        _, b1, b2, _ = strides(bcx)
        b, c, inner = (view_3d(bcx, d, n, ns, b1, b2, i * d * 4) for i in range(3))
        bx = transpose(same("MUL", b, inner))
        states = self.state("r", il, taps * h.d)
        conv = reshape(self.gather_state(states), taps, h.d, ns)
        bx = concat(conv, bx, 0)
        _, b1, b2, _ = strides(bx)
        tail = view_3d(bx, taps, bx.ne[1], bx.ne[2], b1, b2, (bx.ne[0] - taps) * 4)
        row = taps * h.d
        self.expand(cpy(tail, view_2d(states, row, ns, row * 4)))
        out = node("SSM_CONV", [bx, self.need("shortconv.conv", il)], (h.d, n, ns, 1))
        out = mul_mat(self.need("shortconv.out_proj", il), same("MUL", c, out))
        return reshape(out, out.ne[0], self.tokens)
