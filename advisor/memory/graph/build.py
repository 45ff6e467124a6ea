"""The parts every architecture's graph is made of: inputs, norms, projections, attention through a cache, experts.

Facts from llama-graph.cpp and llama-kv-cache.cpp of llama.cpp b11434.
"""

from advisor.memory.graph.model import CPU, HOST_NAMES, GraphModel, GraphPlacement, GraphSettings, Hyper, four
from advisor.memory.graph.reduce import matched_blocks, outside_blocks
from advisor.memory.graph.sched import Graph
from advisor.memory.graph.tensor import (
    BLOCK,
    F16,
    F32,
    I32,
    I64,
    Extents,
    Tensor,
    cont,
    get_rows,
    is_contiguous,
    mul_mat,
    n_elements,
    node,
    reshape,
    same,
    set_rows,
    view_2d,
)
from advisor.records import NamedTuple


class CacheInput(NamedTuple):
    """The inputs of one cache object: scatter indices, mask, rotations; cells per stream."""

    k_index: Tensor
    v_index: Tensor | None
    mask: Tensor
    k_rotation: Tensor | None
    v_rotation: Tensor | None
    cells: int


class Parts:
    """Leaves, inputs and small parts of one reserve graph."""

    def __init__(
        self, model: GraphModel, hyper: Hyper, settings: GraphSettings, placement: GraphPlacement, flash: bool,
        tokens: int, outputs: int, full_offload: bool, pins: bool,
        layer_ids: list[int],
    ) -> None:  # fmt: skip
        self.model, self.h, self.s, self.p = model, hyper, settings, placement
        self.style = hyper.style
        self.layer_norm = self.style.layer_norm
        if self.style.norm_by_key:
            self.layer_norm = not hyper.real("attention.layer_norm_rms_epsilon")
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
        self._homes = [self.cpu if device == CPU else device for device in placement.layers]
        self.layer_ids = layer_ids
        self.moved: dict[str, int] = {}  # tensors that lie elsewhere; the first pattern that finds one decides
        for pattern, device in placement.overrides:
            home = self.cpu if device == CPU else device
            for il, names in matched_blocks(model, pattern).items():
                for name in names:
                    self.moved.setdefault(f"blk.{il}.{name}", home)
            for name in outside_blocks(model, pattern):
                self.moved.setdefault(name, home)
        self.out_ids: Tensor | None = None
        self.score_bias: Tensor | None = None  # added to the scores of the attention being built
        self.pos: Tensor | None = None

    # places and leaves

    def backend(self, il: int) -> int:
        """Backend index of block `il` (the output is block n_layer_all)."""
        return self._homes[il]

    def weight(self, name: str, il: int = -1) -> Tensor | None:
        """The weight called `name` (".weight" added unless it ends in one of the known endings), None if absent."""
        key = (name, il)
        keys = self.model.keys
        found = keys[key] if key in keys else keys.setdefault(key, self.model.named(name, il))
        if found is None:
            return None
        full, ne, kind = found
        t = self.weights.get(full)
        return t or self._leaf(full, ne, kind, self.place_in(full, il) if il >= 0 else self.place(full))

    def bias(self, name: str, il: int = -1) -> Tensor | None:
        """The bias that goes with a weight."""
        return self.weight(name + ".bias", il) if name in self.model.biased else None

    def need(self, name: str, il: int = -1) -> Tensor:
        """As `weight`, for a tensor the architecture cannot do without."""
        t = self.weight(name, il)
        if t is None:
            raise KeyError(name if il < 0 else f"blk.{il}.{name}")
        return t

    def raw(self, name: str, il: int) -> Tensor:
        """A weight that some files store without the ".weight" ending."""
        key = f"blk.{il}.{name}"
        info = self.model.tensors.get(key)
        if info is None:
            return self.need(name, il)
        t = self.weights.get(key)
        return self._leaf(key, four(info[0]), info[1], self.place_in(key, il)) if t is None else t

    def _leaf(self, name: str, ne: Extents, kind: int, place: int) -> Tensor:
        t = Tensor("NONE", kind, ne, [])
        t.is_weight = True
        t.place = t.backend = place
        self.weights[name] = t
        return t

    def place_in(self, name: str, il: int) -> int:
        """Backend whose memory holds a weight of block `il`."""
        home = self.moved.get(name)
        if home is not None:
            return home
        return self.cpu if name.endswith("nextn.embed_tokens.weight") else self._homes[il]

    def place(self, name: str) -> int:
        """Backend whose memory holds a weight of no block."""
        home = self.moved.get(name)
        if home is not None:
            return home
        if name in HOST_NAMES:
            return self.cpu
        if name.startswith(("token_embd_norm", "per_layer_")) and not self.model.arch.startswith("lfm2"):
            return self.backend(0)
        return self.backend(self.h.n_layer_all)

    def head_weight(self) -> Tensor:
        """The output matrix, or the copy of the token table that stands in for it."""
        if self.style.head_tied:
            return self.need("token_embd")
        t = self.weight("output")
        if t is None:
            shape, kind = self.model.tensors["token_embd.weight"]
            home = self.moved.get("token_embd.weight")  # the copy goes by the table's name
            t = self._leaf(
                "output.weight", four(shape), kind, self.backend(self.h.n_layer_all) if home is None else home
            )
        return t

    def input(self, kind: int, *ne: int) -> Tensor:
        """A graph input."""
        t = Tensor("NONE", kind, four(ne), [])
        t.is_input = True
        return t

    # inputs

    def embeddings(self) -> Tensor:
        """Token embeddings: three alternative branches are laid out, the first one is used."""
        table, d = self.need("token_embd"), self.h.d
        width = d * (1 + self.h.whole("n_deepstack_layers"))
        tokens = self.input(I32, self.tokens)
        plain = self.input(F32, width, self.tokens)

        early: dict[int, Tensor] = {}
        others = self.input(I32, self.tokens)
        if self.model.lookups_first:  # the look-ups stay in the host's memory, before everything else
            for index in (tokens, others) if self.style.mixed else (tokens,):
                early[id(index)] = self.expand(get_rows(table, index))

        def pick(index: Tensor) -> Tensor:
            rows = early.get(id(index))
            if rows is None:
                rows = get_rows(table, index)
            return rows if width == d else node("PAD", [rows], (width, self.tokens, 1, 1))

        chosen = pick(tokens)
        branches = [chosen, plain]
        if self.style.mixed:
            mixed = self.input(F32, width, self.tokens)
            slots = self.input(I64, self.tokens)
            branches.append(set_rows(same("DUP", mixed), pick(others), slots))
        for branch in branches:
            self.expand(branch)
        self.embedded = chosen
        cur = chosen
        if width != d:
            cur = view_2d(chosen, d, self.tokens, width * 4)
        if self.h.real("embedding_scale"):
            cur = same("SCALE", cur if is_contiguous(cur) else cont(cur))
        if self.style.scale_tokens:
            cur = same("MUL", cur if is_contiguous(cur) else cont(cur), self.input(F32, 1, self.tokens))
        return self.expand(cur)

    def positions(self) -> Tensor:
        """Token positions; four rows for multi-axis rotation."""
        if self.pos is None:
            axes = self.h.get("rope.dimension_sections")
            sections = isinstance(axes, (tuple, list)) and len(axes) > 1 and axes[0] > 0 and axes[1] > 0
            many = self.style.mrope or (self.style.mrope_key and sections)
            self.pos = self.input(I32, self.tokens * (4 if many else 1))
        return self.pos

    def output_rows(self) -> Tensor:
        """Indices of the tokens whose logits are wanted."""
        if self.out_ids is None:
            self.out_ids = self.input(I32, self.outputs)
        return self.out_ids

    def rows(self, *tensors: Tensor) -> list[Tensor]:
        """Keep only the rows of the wanted tokens."""
        if self.style.all_rows:
            return list(tensors)
        ids = self.output_rows()
        return [get_rows(t, ids) for t in tensors]

    def cache_input(self, cells: int, head_k: int, head_v: int, has_v: bool = True) -> CacheInput:
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
        window = self.cache_input(cells, common({h.hk(i) for i in windowed}), common({h.hv(i) for i in windowed}))
        return base, window

    def cache_tensor(self, name: str, il: int, kind: int, width: int, cells: int) -> Tensor:
        """A block's cache tensor."""
        key = f"{name}{il}"
        t = self.cache.get(key)
        if t is None:
            t = Tensor("NONE", kind, (width, cells, self.n_stream, 1), [])
            t.place = t.backend = self.backend(il) if self.s.kv_offload else self.cpu
            self.cache[key] = t
        return t

    def norm(
        self, x: Tensor, name: str, il: int, layer_norm: bool | None = None, pin: bool = True, home: int = -1
    ) -> Tensor:
        """Normalise and apply weight and bias where they exist; `home`: the block it is tied to, if not `il`."""
        w, b = self.weight(name, il), self.bias(name, il)
        if layer_norm is None:
            layer_norm = self.layer_norm or (b is not None and not self.style.rms_norm)
        cur = Tensor("NORM" if layer_norm else "RMS_NORM", F32, x.ne, [x])
        tied = max(il, home)
        if (w is not None or b is not None) and tied >= 0 and pin and self.pin_norms:
            cur.backend = self.backend(tied)
        if w is not None:
            cur = same("MUL", cur, w)
        if b is not None:
            cur = same("ADD", cur, b)
        return cur

    def linear(self, name: str, x: Tensor, il: int = -1) -> Tensor:
        """A projection with its bias, if any."""
        cur = mul_mat(self.need(name, il), x)
        b = self.bias(name, il)
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
                home = self.moved.get(name)
                home = self.backend(il) if home is None else home
                key = f"{name}@{home}"
                return self.weights.get(key) or self._leaf(key, four(info[0]), info[1], home)
        return None

    def rotate(self, x: Tensor, rotation: Tensor) -> Tensor:
        """Multiply by a Hadamard matrix per head."""
        n = rotation.ne[0]
        count = n_elements(x) // n
        flat = reshape(x, n, count) if is_contiguous(x) else cont(x, n, count)
        return reshape(mul_mat(rotation, flat), *x.ne)
