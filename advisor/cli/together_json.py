"""`advisor.together/1`: the answer for several models in JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from advisor.cli import shapes
from advisor.host import HostSnapshot
from advisor.memory.engine_spec import EngineSpec
from advisor.recommend.budget import Shortfall
from advisor.recommend.recommendation import Fix
from advisor.together.shares import less, load_of, total
from advisor.together.types import Member, Seat, Together


def together_shape(
    answer: Together, engine: EngineSpec, tool: str, host: HostSnapshot, lines: Sequence[str | None],
    options: Sequence[Sequence[tuple[str, str]] | None], digest: str,
) -> dict[str, Any]:  # fmt: skip
    """The whole document. `lines` and `options`: each member's command line, and the options in it."""
    names = [member.name for member in answer.members]
    return {
        "schema": "advisor.together/1",
        "engine": shapes.engine_shape(engine, tool),
        "verdict": answer.verdict,
        "fit_together": [[names[index] for index in who] for who in answer.subsets],
        "over": _short(answer.over),
        "lacks": [
            {
                "name": names[lack.member],
                "beside": [names[index] for index in lack.beside],
                **(_short(lack.short) or {}),
                "fixes": [_fix(fix) for fix in lack.fixes],
            }
            for lack in answer.lacks
        ],
        **_machine(answer, host),
        "models": [
            _member(member, seat, line, of or ())
            for member, seat, line, of in zip(answer.members, answer.seats, lines, options, strict=True)
        ],
        "warnings": shapes.notes_shape(answer.notes),
        "rulebook": digest,
    }


def _machine(answer: Together, host: HostSnapshot) -> dict[str, Any]:
    """What all of them take of each place."""
    taken = total(load_of(seat.answer.chosen.plan) for seat in answer.seats if seat is not None)
    left = less(answer.budget, taken)
    devices = [
        {
            "id": limit.id,
            "name": real.name,
            "total_bytes": limit.total_bytes,
            "free_bytes": limit.free_bytes,
            "margin_bytes": limit.margin_bytes,
            "planned_bytes": taken.devices.get(limit.id, 0),
            "spare_bytes": rest.usable_bytes,
        }
        for real, limit, rest in zip(host.devices, answer.budget.devices, left.devices, strict=True)
    ]
    ram = {
        "total_bytes": answer.budget.ram_total_bytes,
        "available_bytes": answer.budget.ram_available_bytes,
        "margin_bytes": answer.budget.ram_margin_bytes,
        "planned_bytes": taken.host_bytes,
        "spare_bytes": left.ram_usable_bytes,
    }
    return {"devices": devices, "host": ram}


def _member(member: Member, seat: Seat | None, line: str | None, options: Sequence[tuple[str, str]]) -> dict[str, Any]:
    nothing = dict.fromkeys(("settings", "devices", "host", "speed", "verdict", "reasons", "warnings", "fixes"))
    shape: dict[str, Any] = {
        "name": member.name,
        "model": shapes.model_shape(member.spec),
        "intent": member.intent.name,
        "resident": seat is not None,
        **nothing,
        "command": line,
    }
    if seat is not None:
        answer = seat.answer
        shape |= {
            "settings": shapes.settings_shape(answer.chosen.plan, options),
            "devices": shapes.devices_shape(answer.chosen.plan, answer.budget, seat.host),
            "host": shapes.host_shape(answer.chosen.plan, answer.budget),
            "speed": shapes.speed_shape(answer.speed),
            "verdict": answer.verdict,
            "reasons": [{"code": note.code, "text": note.text, "rule": note.rule} for note in answer.reasons],
            "warnings": shapes.notes_shape(answer.warnings),
            "fixes": [_fix(fix) for fix in answer.fixes],
        }
    return shape


def _short(short: Shortfall | None) -> dict[str, Any] | None:
    return {"device": short.device, "over_bytes": short.over_bytes} if short is not None else None


def _fix(fix: Fix) -> dict[str, Any]:
    return {"change": fix.change, "saves_bytes": fix.saves_bytes, "costs": fix.costs, "enough": fix.enough}
