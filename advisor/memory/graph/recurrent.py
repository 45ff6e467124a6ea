"""What all blocks with a recurrent state share: the states, their gathering and storing, hybrids with attention.

Facts from build_rs and the hybrid builders of llama.cpp b11434.
"""

from __future__ import annotations

from collections.abc import Callable

from advisor.memory.graph.sched import Graph
from advisor.memory.graph.tensor import (
    F32,
    I32,
    Tensor,
    cpy,
    get_rows,
    into,
    reshape,
    same,
    view_1d,
    view_2d,
    view_3d,
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
        self.kept_states = 1 + self.s.n_rollback
        self.written = min(self.per_seq, self.kept_states)

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
            t = Tensor("NONE", F32, (width, self.n_seq * (1 + self.s.n_rollback), 1, 1), [])
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
            self.graph.mark(cur)
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

    def slot_rows(self, states: Tensor, slot: int) -> Tensor:
        """The batch's states in one rollback slot."""
        row = states.ne[0]
        return view_2d(states, row, self.n_seq, row * 4, slot * self.n_seq * row * 4)

    def store_states(self, source: Tensor, states: Tensor, skip: int) -> None:
        """Copy the new states, which follow `skip` results, into their slots."""
        width, ns, count = states.ne[0], self.n_seq, self.written
        row = width * 4
        new = view_3d(source, width, ns, count, row, row * ns, skip * 4)
        self.expand(cpy(new, view_3d(states, width, ns, count, row, row * ns)))

    def state_part(self, x: Tensor, il: int) -> Tensor:
        """The recurrent part of a block."""
        raise NotImplementedError
