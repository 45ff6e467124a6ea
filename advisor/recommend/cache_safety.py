"""What is known of quantised caches with a model on a machine: the rows of policy.toml that apply, and their factors.

Which types and head sizes have a flash-attention kernel at all is the engine's (BackendRules), see `runs_cache`; the
rest is kernels that are there but slow, and architectures whose keys suffer.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from advisor.ggml_types import BY_NAME
from advisor.memory.engine_spec import BackendRules, EngineSpec
from advisor.memory.types import MemoryPlan
from advisor.model.spec import ModelSpec
from advisor.recommend.policy import Policy
from advisor.records import NamedTuple

ON_CPU = "on_cpu"  # the effect of a row: no kernel, so attention runs on the CPU


class CacheRow(NamedTuple):
    """One row that applies. `factor` multiplies what the type makes of the cost; `keys_only`: values do not matter.

    `mixed`: it speaks of keys and values that differ in type, one of them among `types`. `heads`: of flash attention
    without a kernel for the model's heads, whatever the types.
    """

    name: str
    types: tuple[str, ...]
    keys_only: bool
    effect: str
    factor: float
    text: str
    mixed: bool = False
    heads: bool = False


def rows_for(
    rows: Iterable[Mapping[str, Any]], spec: ModelSpec, engine: EngineSpec, backends: Iterable[str]
) -> tuple[CacheRow, ...]:
    """Those that apply to a model with an engine's build on GPUs of these backends; none of a CPU alone is known."""
    used = set(backends)
    unable = any(not _has_kernel(spec, engine.backends[backend]) for backend in sorted(used))
    widest = max((max(layer.head_size_k, layer.head_size_v) for layer in spec.layers if layer.has_cache), default=0)
    return tuple(
        CacheRow(
            row["name"],
            tuple(row["types"]),
            row.get("keys_only", False),
            row["effect"],
            row["factor"],
            row["text"],
            row.get("mixed", False),
            row.get("without_kernel", False),
        )
        for row in rows
        if ("backends" not in row or not used.isdisjoint(row["backends"]))
        and ("architectures" not in row or spec.architecture in row["architectures"])
        and widest >= row.get("head_size_from", 0)
        and (unable or not row.get("without_kernel", False))
        and row.get("build_from", 0) <= engine.build
        and engine.build < row.get("build_below", engine.build + 1)
    )


def with_safety(policy: Policy, rows: Iterable[CacheRow]) -> Policy:
    """`policy` with the factors of types of keys and of values as they are where the rows apply.

    Those of attention on the CPU are not among them: the speeds carry them, see `on_cpu_factor`.
    """
    keys, values = dict(policy.cache_factor), dict(policy.cache_factor)
    mixed = 1.0
    for row in rows:
        if row.mixed:
            mixed *= row.factor if row.effect != ON_CPU else 1.0
            continue
        for kind in row.types if row.effect != ON_CPU else ():
            keys[kind] = keys.get(kind, 2.0) * row.factor
            if not row.keys_only:
                values[kind] = values.get(kind, 2.0) * row.factor
    return policy._replace(key_factor=keys, value_factor=values, mixed_factor=mixed)


def on_cpu_factor(rows: Iterable[CacheRow], plan: MemoryPlan) -> float:
    """How many times slower a plan is because attention over its cache on a GPU runs on the CPU; 1 = it does not."""
    pair = (plan.settings.cache_type_k.lower(), plan.settings.cache_type_v.lower())
    if not plan.flash_attn or not any(device.cache_bytes for device in plan.devices):
        return 1.0
    forced = plan.settings.flash_attn == "on" or BY_NAME[pair[1]].is_quantized  # else it is off
    if not forced and pair == ("f16", "f16"):
        return 1.0
    mine = [
        row for row in rows if not {*(pair[:1] if row.keys_only else pair)}.isdisjoint(row.types)
        and (not row.mixed or pair[0] != pair[1]) and (forced or not row.heads)
    ]  # fmt: skip
    mixed = any(row.mixed for row in mine)  # what is known of the pair goes before what is of one type
    return max((row.factor for row in mine if row.effect == ON_CPU and row.mixed == mixed), default=1.0)


def slow_row(rows: Iterable[CacheRow], kind: str) -> CacheRow | None:
    """The row by which keys and values in this type take attention to the CPU, the slowest of several."""
    mine = [row for row in rows if row.effect == ON_CPU and not row.mixed and kind in row.types]
    return max(mine, key=lambda row: row.factor, default=None)


def runs_cache(name: str, spec: ModelSpec, engine: EngineSpec, backends: Iterable[str]) -> bool:
    """Whether an engine takes this cache type for a model on GPUs of these backends, with flash attention."""
    kind = BY_NAME[name]
    if not kind.is_quantized:
        return True
    if spec.flash_attn_forced_off:
        return False
    for layer in spec.layers:
        if layer.attention == "none":
            continue
        if layer.head_size_k % kind.block_elements or layer.head_size_v % kind.block_elements:
            return False
    rules = [engine.backends[backend] for backend in backends]
    return all(name in backend.cache_types and _has_kernel(spec, backend) for backend in rules)


def _has_kernel(spec: ModelSpec, backend: BackendRules) -> bool:
    """Whether flash attention has a kernel on a backend for the heads of every block."""
    return all(
        backend.runs_flash_attn(layer.head_size_k, layer.head_size_v, layer.n_head // max(layer.n_head_kv, 1))
        for layer in spec.layers
        if layer.attention != "none"
    )
