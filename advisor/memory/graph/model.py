"""The values a graph is built from: a header's facts, the engine's settings, and where layers live."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from advisor.memory.graph.tensor import Extents
from advisor.model.style import PLAIN, Style
from advisor.records import NamedTuple

if TYPE_CHECKING:
    from advisor.memory.graph.reduce import Reduction
    from advisor.memory.graph.unknowns import Unknowns

CPU = -1
_AROUND = re.compile(r"^(enc\.|dec\.)?blk\.\d+\.|\.bias$")


def four(shape: Sequence[int]) -> Extents:
    """A shape with all four extents."""
    n0, n1, n2, n3 = (*shape, 1, 1, 1, 1)[:4]
    return n0, n1, n2, n3


class GraphModel:
    """A header, reduced to what shapes a graph: metadata under its own names, tensors as (shape, ggml type).

    `style`: the wiring of its blocks; `window`: tokens of the sliding window (0 = none) and `windowed` the blocks that
    look through it; `modelled` False: some parts of its graph are not known; `lookups_first`: the engine's build puts
    the look-ups of token rows before everything else.
    """

    __slots__ = (
        "arch", "biased", "expressions", "flash", "in_blocks", "keys", "kinds", "lookups_first", "matches", "meta",
        "modelled", "n_vocab", "outer_names", "outside", "reductions", "style", "tensors", "traces", "window",
        "windowed",
    )  # fmt: skip

    def __init__(
        self,
        meta: Mapping[str, object],
        tensors: Mapping[str, tuple[tuple[int, ...], int]],
        n_vocab: int,
        style: Style = PLAIN,
        window: int = 0,
        windowed: frozenset[int] = frozenset(),
        modelled: bool = True,
        lookups_first: bool = False,
    ) -> None:
        self.meta = meta
        self.tensors = tensors
        self.n_vocab = n_vocab
        self.style = style
        self.window = window
        self.windowed = windowed
        self.modelled = modelled
        self.lookups_first = lookups_first
        self.arch = str(meta["general.architecture"])
        # what estimates of the same model share; filled when first asked for
        self.keys: dict[tuple[str, int], tuple[str, Extents, int] | None] = {}
        # within a block or outside: names that have a bias somewhere
        self.biased = frozenset([_AROUND.sub("", name) for name in tensors if name.endswith(".bias")])
        self.kinds: dict[str, list[int]] = {}
        self.matches: dict[str, dict[int, tuple[str, ...]]] = {}
        self.in_blocks: list[tuple[int, str, tuple[int, ...], int]] = []
        self.outer_names: list[str] = []
        self.outside: dict[str, tuple[str, ...]] = {}
        self.expressions: dict[str, re.Pattern[str]] = {}
        self.flash: dict[tuple[object, ...], bool] = {}
        self.reductions: dict[tuple[GraphPlacement, bool], Reduction] = {}
        self.traces: dict[tuple[object, ...], Unknowns | None] = {}

    def named(self, name: str, il: int) -> tuple[str, Extents, int] | None:
        """(full name, extents, type) of a tensor, None if there is none; without an ending ".weight" is added."""
        prefix = "" if il < 0 else f"blk.{il}."
        full = prefix + (name if name.endswith((".weight", ".bias", ".scale")) else name + ".weight")
        if full not in self.tensors:
            full = prefix + name
        info = self.tensors.get(full)
        return (full, four(info[0]), info[1]) if info is not None else None

    def outer(self) -> list[str]:
        """The names of tensors of no block."""
        if not self.outer_names:
            self.outer_names = [name for name in self.tensors if not BLOCK_NAME.match(name)]
        return self.outer_names

    def expression(self, pattern: str) -> re.Pattern[str]:
        """A pattern, compiled."""
        compiled = self.expressions.get(pattern)
        if compiled is None:
            compiled = self.expressions[pattern] = re.compile(pattern)
        return compiled


class GraphSettings(NamedTuple):
    """Engine settings as rounded by the engine. `n_outputs` 0 = a row of logits for every token."""

    n_ctx: int
    n_ctx_seq: int
    n_batch: int
    n_ubatch: int
    n_seq: int
    unified: bool
    flash: str  # "on" | "off" | "auto"
    type_k: int
    type_v: int
    swa_full: bool = False
    kv_offload: bool = True
    op_offload: bool = True
    n_outputs: int = 0
    n_rollback: int = 0  # recurrent states kept per sequence for speculative decoding, besides the current one


class GraphPlacement(NamedTuple):
    """`layers[i]` = GPU of block i, CPU (-1) for the host; the last entry is the output.

    `overrides`: (pattern, device) pairs; the first pattern that finds a tensor's name decides where it lies.
    """

    n_gpu: int
    layers: tuple[int, ...]
    overrides: tuple[tuple[str, int], ...] = ()


class Hyper:
    """Hyper-parameters under llama.cpp's rules and defaults."""

    def __init__(self, model: GraphModel) -> None:
        self.arch = model.arch
        self.meta = model.meta
        self.style = model.style
        self.n_layer_all = self.whole("block_count")
        self.n_nextn = self.whole("nextn_predict_layers")
        self.n_layer = self.n_layer_all - self.n_nextn
        self.d = self.whole("embedding_length")
        self.head = self._per_layer("attention.head_count", 0)
        self.head_kv = self._per_layer("attention.head_count_kv", None, self.head)
        self.ff = self._per_layer("feed_forward_length", 0)
        first_head = self.head[0] or max(self.head, default=1) or 1
        default = self.d // first_head
        self.hk_full = self.whole("attention.key_length", default)
        self.hv_full = self.whole("attention.value_length", default)
        self.hk_swa = self.whole("attention.key_length_swa", self.hk_full)
        self.hv_swa = self.whole("attention.value_length_swa", self.hv_full)
        self.n_rot = self.whole("rope.dimension_count", self.hk_full)
        self.n_expert = self.whole("expert_count")
        used = self.get("expert_used_count", 0)
        self.n_used = max(used) if isinstance(used, (tuple, list)) else self.whole("expert_used_count")
        self.hk_mla = self.whole("attention.key_length_mla")
        self.hv_mla = self.whole("attention.value_length_mla")
        self.is_mla = self.hk_mla > 0 and self.hv_mla > 0
        self.window = model.window
        self.swa = [i in model.windowed for i in range(self.n_layer_all)]
        # (key, value) head sizes of blocks that have keys
        self.head_sizes = frozenset([(self.hk(i), self.hv(i)) for i in range(self.n_layer) if self.head_kv[i] > 0])

    def get(self, key: str, default: object = None) -> object:
        """The value of `{arch}.key`."""
        return self.meta.get(f"{self.arch}.{key}", default)

    def whole(self, key: str, default: int = 0) -> int:
        """A whole number; the first entry of an array."""
        value = self.get(key)
        if isinstance(value, (tuple, list)):
            value = value[0] if value else None
        return int(value) if isinstance(value, (bool, int, float)) else default

    def real(self, key: str, default: float = 0.0) -> float:
        """A number."""
        value = self.get(key)
        return float(value) if isinstance(value, (int, float)) else default

    def _per_layer(self, key: str, default: int | None, fallback: list[int] | None = None) -> list[int]:
        value = self.get(key)
        n = self.n_layer_all
        if isinstance(value, (tuple, list)):
            values = [int(v) for v in value]
            return values + [values[-1] if values else 0] * (n - len(values))
        if isinstance(value, (int, float)):
            return [int(value)] * n
        return list(fallback) if fallback is not None else [default or 0] * n

    def hk(self, il: int) -> int:
        """Key head size of a block."""
        return self.hk_swa if self.swa[il] else self.hk_full

    def hv(self, il: int) -> int:
        """Value head size of a block."""
        return self.hv_swa if self.swa[il] else self.hv_full

    @property
    def v_width_max(self) -> int:
        """Widest value row over all blocks."""
        return max((self.hv(i) * self.head_kv[i] for i in range(self.n_layer_all)), default=0)


BLOCK_NAME = re.compile(r"blk\.(\d+)\.")
HOST_NAMES = ("token_embd.weight", "position_embd.weight", "token_types.weight", "per_layer_token_embd.weight")
