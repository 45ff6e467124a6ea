"""The JSON shapes that other programs rely on: model, engine, settings, devices, host, speed, notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.host import HostSnapshot
from advisor.memory.engine_spec import EngineSpec
from advisor.memory.types import Extra, MemoryPlan
from advisor.model.spec import ModelSpec
from advisor.recommend.budget import Budget, host_over_bytes, shared_bytes
from advisor.recommend.contexts import ContextTable
from advisor.recommend.evaluate import Judged
from advisor.recommend.recommendation import Note, Recommendation
from advisor.settings import BesideSettings
from advisor.speed import Range, Speed


def model_shape(spec: ModelSpec) -> dict[str, Any]:
    """The model, as every report names it."""
    return {
        "path": spec.path,
        "name": spec.name,
        "architecture": spec.architecture,
        "n_layer": spec.n_layer_all,
        "n_ctx_train": spec.n_ctx_train,
        "file_bytes": spec.file_bytes,
        "parameters": spec.parameters,
        "quantization": spec.quantization,
        "confidence": spec.confidence,
        "rule": spec.arch_rule or None,
        "notes": list(spec.notes),
    }


def engine_shape(engine: EngineSpec, tool: str) -> dict[str, Any]:
    """The engine and build that the figures are for."""
    return {"name": engine.name, "build": engine.build, "tool": tool, "confidence": engine.confidence}


def settings_shape(plan: MemoryPlan, options: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
    """Settings as they run; `options`: the server's own, which limit what it keeps in system memory."""
    s = plan.settings
    told = dict(options)
    limits = {"cache_ram_mib": "cache-ram", "n_ctx_checkpoints": "ctx-checkpoints"}
    return {
        "n_ctx": s.n_ctx,
        "n_ctx_seq": s.n_ctx_seq,
        "n_batch": s.n_batch,
        "n_ubatch": s.n_ubatch,
        "n_parallel": s.n_parallel,
        "kv_unified": s.kv_unified,
        "n_gpu_layers": s.n_gpu_layers,
        "n_cpu_moe": s.n_cpu_moe,
        "tensor_overrides": [f"{o.pattern}={o.buffer}" for o in s.tensor_overrides],
        "cache_type_k": s.cache_type_k,
        "cache_type_v": s.cache_type_v,
        "flash_attn": plan.flash_attn,
        "swa_full": s.swa_full,
        "kv_offload": s.kv_offload,
        "op_offload": s.op_offload,
        "split_mode": s.split_mode,
        "tensor_split": list(s.tensor_split) if s.tensor_split else None,
        "main_gpu": s.main_gpu,
        "mmap": s.mmap,
        "n_rollback": s.n_rollback,
        **_beside_shape(s.beside),
        **{name: int(told[option]) for name, option in limits.items() if option in told},
    }


def _beside_shape(beside: BesideSettings) -> dict[str, Any]:
    """What is loaded beside the model, as asked."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in beside._asdict().items()}


def extras_shape(extras: Sequence[Extra]) -> list[dict[str, Any]]:
    """Adapters, projectors and draft models, one entry each."""
    return [
        {
            "name": extra.name,
            "bytes": extra.n_bytes.value,
            "low_bytes": extra.n_bytes.low,
            "high_bytes": extra.n_bytes.high,
            "source": extra.source,
        }
        for extra in extras
    ]


def devices_shape(plan: MemoryPlan, budget: Budget, host: HostSnapshot) -> list[dict[str, Any]]:
    """One entry per GPU."""
    shapes = []
    for device, limit, real in zip(plan.devices, budget.devices, host.devices, strict=True):
        shapes.append(
            {
                "id": device.id,
                "kind": "gpu",
                "backend": real.backend,
                "name": real.name,
                "total_bytes": limit.total_bytes,
                "free_bytes": limit.free_bytes,
                "weights_bytes": device.weights_bytes,
                "cache_bytes": device.cache_bytes,
                "compute_bytes": device.compute.value,
                "compute_low_bytes": device.compute.low,
                "compute_high_bytes": device.compute.high,
                "overhead_bytes": device.overhead_bytes,
                "overhead_low_bytes": device.overhead.low,
                "overhead_high_bytes": device.overhead.high,
                "overhead_source": device.overhead_source,
                "extras_bytes": device.extras_bytes,
                "extras": extras_shape(device.extras),
                "planned_bytes": device.planned_bytes,
                "margin_bytes": limit.margin_bytes,
                "fits": device.planned_bytes <= limit.usable_bytes or device.planned_bytes == 0,
                "layers": list(device.layers) if device.layers else None,
                "has_output": device.has_output,
                "source": device.source,
            }
        )
    return shapes


def host_shape(plan: MemoryPlan, budget: Budget, kept: Mapping[str, int] | None = None) -> dict[str, Any]:
    """System memory's part; `kept`: what the server comes to keep with the limits that are advised."""
    host = plan.host
    return {
        "weights_bytes": host.weights_bytes,
        "cache_bytes": host.cache_bytes,
        "compute_bytes": host.compute.value,
        "compute_low_bytes": host.compute.low,
        "compute_high_bytes": host.compute.high,
        "output_bytes": host.output_bytes,
        "mapped_bytes": host.mapped_bytes,
        "repack_bytes": host.repack_bytes,
        "extras": {**(kept or host.extras), "beside_bytes": host.beside_bytes, "beside": extras_shape(host.beside)},
        "planned_bytes": host.planned_bytes,
        "shared_with_gpus_bytes": shared_bytes(plan, budget),
        "total_bytes": budget.ram_total_bytes,
        "available_bytes": budget.ram_available_bytes,
        "margin_bytes": budget.ram_margin_bytes,
        "fits": host_over_bytes(plan, budget) <= 0,
    }


def range_shape(value: Range) -> dict[str, float]:
    """A figure with its bounds."""
    return {"value": round(value.value, 3), "low": round(value.low, 3), "high": round(value.high, 3)}


def speed_shape(speed: Speed) -> dict[str, Any]:
    """Speed with ranges."""
    return {
        "turn_seconds": range_shape(speed.turn_seconds),
        "decode_tokens_per_s": {**range_shape(speed.decode_tokens_per_s), "at_depth": speed.at_depth},
        "prefill_tokens_per_s": range_shape(speed.prefill_tokens_per_s),
        "decode_when_full_tokens_per_s": (
            {**range_shape(speed.when_full), "at_depth": speed.full_depth} if speed.when_full is not None else None
        ),
        "confidence": speed.confidence,
        "bound_by": speed.bound_by,
    }


def notes_shape(notes: Sequence[Note]) -> list[dict[str, str]]:
    """Warnings: code and text."""
    return [{"code": note.code, "text": note.text} for note in notes]


def contexts_shape(table: ContextTable) -> dict[str, Any]:
    """Context against cache type."""
    return {
        "basis": table.basis,
        "n_ctx_trained": table.n_ctx_trained,
        "rows": [
            {
                "cache_type": row.cache_type,
                "max_n_ctx": row.max_n_ctx,
                "at_least": row.at_least,
                "points": [point._asdict() for point in row.points],
            }
            for row in table.rows
        ],
    }


def _candidate(judged: Judged, budget: Budget, host: HostSnapshot) -> dict[str, Any]:
    return {"settings": settings_shape(judged.plan), "devices": devices_shape(judged.plan, budget, host)}


def recommendation_shape(answer: Recommendation, host: HostSnapshot) -> dict[str, Any]:
    """What recommend adds to an estimate."""
    return {
        "intent": answer.intent,
        "summary": answer.summary,
        "alternatives": [
            {
                "label": other.label,
                **_candidate(other.judged, answer.budget, host),
                "speed": speed_shape(other.speed),
                "why": other.why,
            }
            for other in answer.alternatives
        ],
        "rejected": [
            {
                "settings": settings_shape(failed.judged.plan),
                "code": "over_budget",
                "step": failed.code,
                "device": failed.device,
                "over_bytes": failed.over_bytes,
                "text": failed.text,
            }
            for failed in answer.rejected
        ],
        "reasons": [{"code": note.code, "text": note.text, "rule": note.rule} for note in answer.reasons],
        "cheapest_fixes": [
            {
                "change": fix.change,
                "saves_bytes": fix.saves_bytes,
                "device": fix.device or None,
                "costs": fix.costs,
                "enough": fix.enough,
            }
            for fix in answer.fixes
        ],
        "contexts": contexts_shape(answer.contexts),
        "candidates_judged": answer.n_judged,
    }
