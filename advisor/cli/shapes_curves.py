"""The JSON shape of the figures behind a plot."""

from __future__ import annotations

from typing import Any

from advisor.cli.shapes import range_shape
from advisor.recommend.curves import MemoryCurves, MemoryPoint, SpeedCurves, SpeedPoint


def curves_shape(memory: MemoryCurves, speed: SpeedCurves | None) -> dict[str, Any]:
    """Memory against context and tokens/s against layers; `speed` is null without a GPU."""
    return {
        "memory": {
            "basis": memory.basis,
            "places": [place._asdict() for place in memory.places],
            "curves": [
                {
                    "cache_type": curve.cache_type,
                    "max_n_ctx": curve.max_n_ctx,
                    "at_least": curve.at_least,
                    "points": [_memory_point(memory, point) for point in curve.points],
                }
                for curve in memory.curves
            ],
        },
        "speed": None if speed is None else _speed(speed),
    }


def _memory_point(memory: MemoryCurves, point: MemoryPoint) -> dict[str, Any]:
    needs = {
        place.id: {**need._asdict(), "planned_bytes": need.total_bytes}
        for place, need in zip(memory.places, point.needs, strict=True)
    }
    return {"n_ctx": point.n_ctx, "exact": point.exact, "fits": point.fits, "needs": needs}


def _speed(speed: SpeedCurves) -> dict[str, Any]:
    chosen = speed.chosen
    return {
        "n_ctx": speed.n_ctx,
        "cache_type": speed.cache_type,
        "at_depth": speed.at_depth,
        "measure": "prefill" if speed.reads else "decode",
        "curves": [
            {
                "moves": curve.moves,
                "most_that_fits": curve.most_that_fits,
                "points": [_speed_point(point) for point in curve.points],
            }
            for curve in speed.curves
        ],
        "chosen": None if chosen is None else {"moves": chosen[0], **_speed_point(chosen[1])},
    }


def _speed_point(point: SpeedPoint) -> dict[str, Any]:
    return {"n_on_gpu": point.n_on_gpu, "tokens_per_s": range_shape(point.tokens_per_s), "fits": point.fits}
