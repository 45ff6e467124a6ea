"""The shape "advisor.recommend/1"."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from advisor.cli import shapes

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.cli.siblings import Family
    from advisor.host import HostSnapshot
    from advisor.memory.engine_spec import EngineSpec
    from advisor.model.spec import ModelSpec
    from advisor.recommend.recommendation import Recommendation
    from advisor.recommend.siblings import Sibling


def print_json(
    answer: Recommendation, spec: ModelSpec, host: HostSnapshot, engine: EngineSpec, tool: str, line: str | None,
    digest: str, more: dict[str, Any], kept: dict[str, int],
) -> None:  # fmt: skip
    """Print the answer; `line`: the command, `more`: keys that were asked for, `kept` as shapes.host_shape takes it."""
    document = {
        "schema": "advisor.recommend/1",
        "model": shapes.model_shape(spec),
        "engine": shapes.engine_shape(engine, tool),
        "settings": shapes.settings_shape(answer.chosen.plan),
        "devices": shapes.devices_shape(answer.chosen.plan, answer.budget, host),
        "host": shapes.host_shape(answer.chosen.plan, answer.budget, kept),
        "speed": shapes.speed_shape(answer.speed),
        "verdict": answer.verdict,
        "warnings": shapes.notes_shape(answer.warnings),
        "ignored": [],
        **shapes.recommendation_shape(answer, host),
        "command": line,
        "rulebook": digest,
        **more,
    }
    print(json.dumps(document, indent=2))


def siblings_shape(
    family: Family | None, better: Sibling | None, command_of: Callable[[Sibling], str | None]
) -> dict[str, Any]:
    """The keys `siblings`, the others from the cheapest on, and `siblings_skipped` of the JSON answer."""
    if family is None:
        return {"siblings": [], "siblings_skipped": []}
    base = family.chosen.cost
    return {
        "siblings": [
            {
                "file": other.path,
                "name": other.name,
                "quantization": other.spec.quantization,
                "verdict": other.answer.verdict,
                "settings": shapes.settings_shape(other.answer.chosen.plan),
                "speed": shapes.speed_shape(other.answer.speed),
                "cost_ratio": round(other.cost / base, 4) if other.fits and base < float("inf") else None,
                "better": other is better,
                "quality": other.loss._asdict(),
                "summary": other.answer.summary,
                "command": command_of(other),
            }
            for other in sorted(family.others, key=lambda other: other.cost)
        ],
        "siblings_skipped": [{"file": path, "why": why} for path, why in family.files.skipped],
    }
