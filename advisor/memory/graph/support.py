"""What the devices can run: the few operations that fall back to the CPU, and what "-fa auto" becomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from advisor.memory.engine_spec import BackendRules
from advisor.memory.graph.model import CPU, GraphPlacement, GraphSettings, Hyper
from advisor.memory.graph.tensor import BLOCK, NAMES, Tensor

CHOOSY = frozenset(("FLASH_ATTN_EXT", "GET_ROWS"))  # all operations that a GPU may refuse, see `supports`


def supports(devices: Sequence[BackendRules]) -> Callable[[int, Tensor], bool]:
    """The question whether device number `backend` runs a node."""

    def runs(backend: int, t: Tensor) -> bool:
        rules = devices[backend]
        if t.op == "FLASH_ATTN_EXT":
            q, k, v = t.src[0], t.src[1], t.src[2]
            if NAMES[k.type] not in rules.cache_types or NAMES[v.type] not in rules.cache_types:
                return False
            if rules.equal_cache_types and k.type != v.type:
                return False
            masked = len(t.src) > 3 and k.ne[1] % 256 == 0
            return rules.runs_flash_attn(k.ne[0], v.ne[0], q.ne[2] // k.ne[2], masked=masked)
        if t.op == "GET_ROWS" and rules.get_rows_types is not None:
            return NAMES[t.src[0].type] in rules.get_rows_types
        return True

    return runs


def flash_resolves(
    h: Hyper, settings: GraphSettings, placement: GraphPlacement, devices: Sequence[BackendRules]
) -> bool | None:
    """Whether flash attention ends up on; None = the engine tries a small graph and looks where the nodes land."""
    if settings.flash == "off" or h.style.flash_never:
        return False
    if settings.flash == "on" or BLOCK[settings.type_v] > 1:  # a quantised V needs it
        return True
    if placement.n_gpu == 0:
        return True
    plain = settings.kv_offload and all(d != CPU for d in placement.layers) and not placement.overrides
    return True if plain and runs_flash_everywhere(h, settings, devices) else None


def runs_flash_everywhere(h: Hyper, settings: GraphSettings, devices: Sequence[BackendRules]) -> bool:
    """Whether every device surely runs flash attention of every block with these cache types."""
    types = {NAMES[settings.type_k], NAMES[settings.type_v]}
    return all(
        types <= rules.cache_types
        and (len(types) == 1 or not rules.equal_cache_types)
        and h.hk(i) == h.hv(i)
        and rules.runs_flash_attn(h.hk(i), h.hv(i), 1, masked=False)
        for rules in devices
        for i in range(h.n_layer)
        if h.head_kv[i] > 0
    )
