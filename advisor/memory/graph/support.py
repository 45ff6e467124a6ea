"""What a CUDA device can run: the few operations that fall back to the CPU, and what "-fa auto" becomes."""

from __future__ import annotations

from advisor.memory.graph.model import CPU, GraphPlacement, GraphSettings, Hyper
from advisor.memory.graph.tensor import BLOCK, Tensor

ROWS_READABLE = frozenset((0, 1, 2, 3, 6, 7, 8, 26, 30))  # table types get_rows reads: f32 f16 q4 q5 q8_0 i32 bf16
SQUARE_HEADS = frozenset((40, 64, 72, 80, 96, 112, 128, 256))


def head_runs(hk: int, hv: int, group: int, masked: bool, cells: int) -> bool:
    """Whether the flash-attention kernel exists for these head sizes."""
    if hk in SQUARE_HEADS:
        return hv == hk
    grouped = group >= 2 and masked and cells % 256 == 0
    if hk == 192:
        return hv == 128 and grouped and group % 8 == 0
    if hk == 320:
        return hv == 256 and grouped and group % 32 == 0
    if hk == 512:
        return hv == hk and grouped
    return hk == 576 and hv == 512 and grouped


def cuda_supports(backend: int, t: Tensor) -> bool:
    """Whether a CUDA device runs the node."""
    del backend
    if t.op == "FLASH_ATTN_EXT":
        q, k, v = t.src[0], t.src[1], t.src[2]
        return head_runs(k.ne[0], v.ne[0], q.ne[2] // k.ne[2], len(t.src) > 3, k.ne[1])
    if t.op == "GET_ROWS":
        return t.src[0].type in ROWS_READABLE
    return True


def flash_resolves(h: Hyper, settings: GraphSettings, placement: GraphPlacement) -> bool | None:
    """Whether flash attention ends up on; None = the engine tries a small graph and looks where the nodes land."""
    if settings.flash == "off" or h.style.flash_never:
        return False
    if settings.flash == "on" or BLOCK[settings.type_v] > 1:  # a quantised V needs it
        return True
    if placement.n_gpu == 0:
        return True
    plain = settings.kv_offload and all(d != CPU for d in placement.layers) and not placement.overrides
    if plain and all(h.hk(i) == h.hv(i) and h.hk(i) in SQUARE_HEADS for i in range(h.n_layer) if h.head_kv[i] > 0):
        return True
    return None
