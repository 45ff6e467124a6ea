"""What a person should know about a plan's GPUs: copies, rows, cards filled to the edge, limits of drivers."""

from __future__ import annotations

from advisor.memory.engine_spec import EngineSpec
from advisor.memory.types import MemoryPlan
from advisor.model.spec import ModelSpec
from advisor.recommend.budget import Budget
from advisor.recommend.recommendation import Note
from advisor.units import format_bytes

_LARGE_COPIES_BYTES = 256 << 20  # below that nobody looks for them


def device_warnings(spec: ModelSpec, engine: EngineSpec, plan: MemoryPlan, budget: Budget) -> list[Note]:
    """Warnings about the GPUs of one plan."""
    return [
        *_pipeline_warning(spec, engine, plan, budget),
        *_row_warning(plan, budget),
        *_edge_warning(plan, budget),
        *_single_allocation_warning(spec, engine, plan, budget),
    ]


def pipeline_copies(spec: ModelSpec, engine: EngineSpec, plan: MemoryPlan, budget: Budget) -> int:
    """How often each GPU keeps the inputs of a batch so that several can work in turns; 1 = they do not.

    Source: llama.cpp b11434 src/llama-context.cpp, pipeline_parallel.
    """
    settings = plan.settings
    whole = settings.n_gpu_layers > spec.n_layer_all and settings.kv_offload and settings.split_mode == "layer"
    if len(plan.devices) < 2 or not whole or settings.tensor_overrides or settings.n_cpu_moe:
        return 1
    return min(engine.backends[limit.backend].pipeline_copies for limit in budget.devices)


def _pipeline_warning(spec: ModelSpec, engine: EngineSpec, plan: MemoryPlan, budget: Budget) -> list[Note]:
    copies, settings = pipeline_copies(spec, engine, plan, budget), plan.settings
    if copies == 1 or not any(layer.has_cache and not layer.n_window for layer in spec.layers):
        return []
    mask = settings.n_ctx_seq * settings.n_ubatch * (2 if plan.flash_attn else 4)
    if (copies - 1) * mask < _LARGE_COPIES_BYTES:
        return []
    at_work = sum(bool(device.planned_bytes) for device in plan.devices)
    why = f"so that {at_work} can work in turns" if at_work > 1 else "although one does all the work"
    text = (
        f"Every GPU keeps {copies} copies of a batch's inputs, {why}: the "
        f"attention mask of {settings.n_ctx_seq:,} x {settings.n_ubatch:,} tokens takes {format_bytes(copies * mask)} "
        f"of compute on each instead of {format_bytes(mask)}; -ub {settings.n_ubatch // 2} halves it."
    )
    return [Note("pipeline_copies", text, "llama_cpp.toml: backends.cuda.pipeline_copies")]


def _row_warning(plan: MemoryPlan, budget: Budget) -> list[Note]:
    """Split by rows is hard on the main GPU, where it is left; split by tensors is counted as by layers."""
    settings, limits = plan.settings, budget.devices
    if settings.split_mode == "tensor" and limits:
        text = "-sm tensor is counted as -sm layer: every GPU gets a part of every tensor instead, and about as much."
        return [Note("tensor_split_as_layers", text)]
    if settings.split_mode != "row" or not limits:
        return []
    cache = [device.cache_bytes for device in plan.devices]
    parts = " + ".join(format_bytes(n_bytes) for n_bytes in cache)
    main = min(settings.main_gpu, len(limits) - 1)
    need = plan.devices[main].planned_bytes - cache[main] + sum(cache)
    over = need - limits[main].usable_bytes
    fits = f", {format_bytes(over)} too much" if over > 0 else ""
    text = (
        f"With -sm row intermediate results lie on {limits[main].id}, and relatives such as ik_llama.cpp keep the "
        f"whole cache there, {format_bytes(sum(cache))}: it then needs {format_bytes(need)}{fits}. -ts can give it "
        f"fewer weights; -sm layer splits the cache ({parts})."
    )
    return [Note("row_split_main_gpu", text, "llama_cpp.toml: builds.row_split")]


def _edge_warning(plan: MemoryPlan, budget: Budget) -> list[Note]:
    """A card that the plan fits, but not with what must stay free."""
    tight = [
        (limit, limit.free_bytes - device.planned_bytes)
        for device, limit in zip(plan.devices, budget.devices, strict=True)
        if not limit.unified and limit.usable_bytes < device.planned_bytes <= limit.free_bytes
    ]
    if not tight:
        return []
    limit, left = tight[0]
    text = (
        f"It would load with {format_bytes(left)} left on {limit.id}, but a card that full spills into system memory "
        f"without a word once it works, and answers get slower: {format_bytes(limit.margin_bytes)} should stay free."
    )
    return [Note("filled_to_the_edge", text, "policy.toml: margins")]


def _single_allocation_warning(
    spec: ModelSpec, engine: EngineSpec, plan: MemoryPlan, budget: Budget
) -> list[Note]:  # fmt: skip
    """A compute buffer larger than some drivers give in one piece, however much memory is free."""
    settings = plan.settings
    for device, limit in zip(plan.devices, budget.devices, strict=True):
        limits = engine.backends[limit.backend].largest_allocations
        if device.compute.high <= min((n_bytes for _, n_bytes in limits), default=device.compute.high):
            continue
        drivers = ", ".join(f"{driver} {format_bytes(n_bytes)}" for driver, n_bytes in limits)
        scores = max((layer.n_head for layer in spec.layers if layer.n_head_kv), default=0)
        scores *= 4 * settings.n_ctx_seq * settings.n_ubatch
        text = f"{limit.id} needs a compute buffer of {format_bytes(device.compute.high)}"
        cure = f"-ub {settings.n_ubatch // 2} halves it"
        if not plan.flash_attn and scores:
            text += f", in it attention's scores as one tensor of {format_bytes(scores)}"
            cure += ", and -fa on does without the scores"
        text += f"; a driver may refuse that in one piece although memory is free (at most: {drivers}): {cure}."
        return [Note("single_allocation", text, f"llama_cpp.toml: backends.{limit.backend}.largest_allocations")]
    return []
