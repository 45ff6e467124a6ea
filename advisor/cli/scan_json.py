"""The shape "advisor.scan/1"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from advisor.cli.scan_plan import Answer, Question
from advisor.cli.shapes import engine_shape
from advisor.stores.types import StoredModel, StoreReport


def document(
    reports: Sequence[StoreReport], planned: Sequence[Sequence[Answer | None]], question: Question, rulebook: str
) -> dict[str, Any]:
    """Stores, models with their plans, and in `not_planned` what has a problem or is no language model."""
    models, others = [], []
    for report, answers in zip(reports, planned, strict=True):
        for model, answer in zip(report.models, answers, strict=True):
            if answer is not None and answer.problem is None:
                models.append({**_model(model), **_answer(answer)})
            else:
                problem = model.problem if answer is None else answer.problem
                others.append({**_model(model), "problem": problem})
    host = question.host
    return {
        "schema": "advisor.scan/1",
        "intent": question.intent,
        "engine": engine_shape(question.engine, question.tool),
        "host": {
            "devices": [
                {"id": d.id, "backend": d.backend, "name": d.name, "total_bytes": d.total_bytes,
                 "free_bytes": d.free_bytes}
                for d in host.devices
            ],
            "ram": {"total_bytes": host.ram.total_bytes, "available_bytes": host.ram.available_bytes},
        },
        "stores": [
            {
                "store": report.store,
                "folder": report.folder,
                "status": report.status,
                "detail": report.detail,
                "n_entries": len(report.models),
            }
            for report in reports
        ],
        "models": models,
        "not_planned": others,
        "rulebook": f"sha256:{rulebook}",
    }  # fmt: skip


def _model(model: StoredModel) -> dict[str, Any]:
    facts = model.facts
    return {
        "store": model.store,
        "name": model.name,
        "path": model.path or None,
        "paths": list(model.paths),
        "file_bytes": model.file_bytes,
        "kind": facts.kind if facts else None,
        "architecture": facts.architecture if facts else None,
        "title": facts.title if facts else None,
        "quantization": facts.quantization if facts else None,
        "n_ctx_train": facts.n_ctx_train if facts else None,
        "weights_bytes": facts.weights_bytes if facts else None,
        "companions": [companion._asdict() for companion in model.companions],
        "params": dict(model.params),
        "also": [other._asdict() for other in model.also],
    }


def _answer(answer: Answer) -> dict[str, Any]:
    return {
        "verdict": answer.verdict,
        "max_n_ctx": answer.max_n_ctx,
        "settings": answer.settings,
        "speed": answer.speed,
        "summary": answer.summary,
    }
