"""The shape "advisor.quants/1"."""

from __future__ import annotations

from typing import Any

from advisor.cli.quants_rows import Row, Table
from advisor.cli.shapes import engine_shape, model_shape, speed_shape
from advisor.ggml_types import CACHE_TYPES
from advisor.memory.engine_spec import EngineSpec
from advisor.model.spec import ModelSpec
from advisor.quants.quality import cache_quality
from advisor.quants.rules import QuantRules
from advisor.recommend.by_quantization import cache_sizes


def document(
    table: Table, rules: QuantRules, spec: ModelSpec, engine: EngineSpec, tool: str, rulebook: str
) -> dict[str, Any]:
    """One row a quantization, the largest first; `cache` holds bytes at `n_ctx` tokens by the type of keys and values.

    What cannot be made has null for everything but its name and `problem`.
    """
    cache = cache_sizes(table.search, table.n_ctx, CACHE_TYPES)
    pair = table.search.cache_pairs()[0]
    return {
        "schema": "advisor.quants/1",
        "model": model_shape(spec),
        "engine": engine_shape(engine, tool),
        "n_ctx": table.n_ctx,
        "cache_type_k": pair[0],
        "cache_type_v": pair[1],
        "rows": [_row(row, cache) for row in table.rows],
        "cache_types": [
            {
                "type": name,
                "bytes": n_bytes,
                "quality": [figure._asdict() for figure in cache_quality(rules, name)],
            }
            for name, n_bytes in cache.items()
        ],
        "rulebook": rulebook,
    }


def _row(row: Row, cache: dict[str, int]) -> dict[str, Any]:
    fit = row.fit
    speed = speed_shape(fit.speed) if fit is not None else None
    return {
        "quantization": row.name,
        "weights_bytes": row.weights_bytes,
        "bits_per_weight": round(row.bits_per_weight, 3) if row.bits_per_weight is not None else None,
        "with_imatrix_bytes": row.with_imatrix_bytes,
        "fallback_share": round(row.fallback_share, 4),
        "needs_imatrix": row.needs_imatrix,
        "on_disk": bool(row.files),
        "files": [{"name": file.name, "path": file.path} for file in row.files],
        "own_mix": row.own_mix,
        "cache": cache if fit is not None else None,
        "verdict": fit.verdict if fit is not None else None,
        "n_gpu_layers": fit.judged.plan.settings.n_gpu_layers if fit is not None else None,
        "n_cpu_moe": fit.judged.plan.settings.n_cpu_moe if fit is not None else None,
        "max_n_ctx": fit.max_n_ctx if fit is not None else None,
        "max_n_ctx_full": fit.max_n_ctx_full if fit is not None else None,
        "decode_tokens_per_s": speed["decode_tokens_per_s"] if speed is not None else None,
        "prefill_tokens_per_s": speed["prefill_tokens_per_s"] if speed is not None else None,
        "confidence": speed["confidence"] if speed is not None else None,
        "bound_by": speed["bound_by"] if speed is not None else None,
        "quality": row.quality._asdict() if row.quality is not None else None,
        "note": row.note or None,
        "problem": row.problem or None,
    }
