"""Mamba blocks of both generations, plamo2's, and lfm2's short convolutions.

Facts from mamba-base.cpp, plamo2.cpp and lfm2.cpp of llama.cpp b11434.
"""

from __future__ import annotations

from advisor.memory.graph.recurrent import Getter, Recurrent
from advisor.memory.graph.tensor import (
    Tensor,
    concat,
    cont,
    cpy,
    glu,
    mul_mat,
    n_elements,
    node,
    permute,
    reshape,
    same,
    strides,
    transpose,
    view_1d,
    view_3d,
    view_4d,
)


class Mamba(Recurrent):
    """Blocks with a selective scan or a short convolution."""

    def state_part(self, x: Tensor, il: int) -> Tensor:
        """The recurrent part of a block."""
        if self.weight("shortconv.conv", il) is not None:
            return self.short_convolution(x, il)
        if self.model.arch == "plamo2":
            return self.mamba_plamo2(x, il)
        if self.weight("ssm_x", il) is not None:
            return self.mamba1(x, il)
        return self.mamba2(x, il)

    def convolve(
        self, x: Tensor, states: Tensor, conv: Tensor, width: int, il: int, bias: bool = True, rollback: bool = False
    ) -> Tensor:
        """Prepend the kept columns, keep the new last ones, convolve. `x` is [width, tokens, sequences]."""
        taps, n = conv.ne[0], self.per_seq
        joined = concat(conv, transpose(x), 0)
        _, b1, b2, _ = strides(joined)
        for slot in range(self.written if rollback else 1):
            tail = view_3d(joined, taps, width, self.n_seq, b1, b2, (n - slot) * 4)
            self.expand(cpy(tail, self.slot_rows(states, slot)))
        kernel = self.need("ssm_conv1d", il)
        out = node("SSM_CONV", [joined, kernel], (width, n, self.n_seq, 1))
        b = self.weight("ssm_conv1d.bias", il) if bias else None
        if b is not None:
            out = same("ADD", out, b)
        return same("UNARY", out)

    def scan(self, x: Tensor, state_ne: tuple[int, int, int], src: list[Tensor], kept: int = 1) -> Getter:
        """The selective scan: outputs, then the new states, in one tensor."""
        size = n_elements(x) + kept * state_ne[0] * state_ne[1] * state_ne[2] * self.n_seq

        def run(states: Tensor, index: Tensor) -> Tensor:
            shaped = reshape(states, *state_ne, states.ne[1])
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
        xbc = self.convolve(xbc, conv_states, conv, width, il, rollback=True)
        _, b1, b2, _ = strides(xbc)
        x = view_4d(xbc, (hd, heads, n, ns), hd * 4, b1, b2)
        b = view_4d(xbc, (ds, groups, n, ns), ds * 4, b1, b2, di * 4)
        c = view_4d(xbc, (ds, groups, n, ns), ds * 4, b1, b2, (di + groups * ds) * 4)
        dt = same("ADD", cont(dt), self.need("ssm_dt.bias", il))
        y = self.gather_state(
            ssm_states, self.scan(x, (ds, hd, heads), [dt, self.raw("ssm_a", il), b, c], self.kept_states)
        )
        self.store_states(y, ssm_states, n_elements(x))
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
        for slot in range(self.written):
            tail = view_3d(bx, taps, bx.ne[1], bx.ne[2], b1, b2, (bx.ne[0] - taps - slot) * 4)
            self.expand(cpy(tail, self.slot_rows(states, slot)))
        out = node("SSM_CONV", [bx, self.need("shortconv.conv", il)], (h.d, n, ns, 1))
        out = mul_mat(self.need("shortconv.out_proj", il), same("MUL", c, out))
        return reshape(out, out.ne[0], self.tokens)
