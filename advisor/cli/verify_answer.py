"""`advisor recommend --verify`: the answer held against the engine, and planned again where the engine wants more."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from advisor.errors import EngineError
from advisor.recommend.budget import Budget
from advisor.recommend.recommendation import Note, Recommendation
from advisor.units import format_bytes

if TYPE_CHECKING:
    from advisor.app import App
    from advisor.cli.ask import Asked
    from advisor.model.spec import ModelSpec

ROUNDS = 2  # how often to plan again


def verify_answer(
    app: App,
    spec: ModelSpec,
    answer: Recommendation,
    plan_again: Callable[[Budget], Recommendation],
    *,
    engine_name: str | None,
    binary: str | None,
    only_devices: bool = False,
) -> Recommendation:
    """`answer`, or a more careful one, with what the engine said among its warnings. Raises EngineError.

    `only_devices`: the machine has more GPUs than the plan uses.
    """
    from advisor.cli.ask import ask, pinned

    if answer.verdict == "does_not_fit":
        return answer
    notes: list[Note] = []
    for left in range(ROUNDS, -1, -1):
        plan = answer.chosen.plan
        ids = [device.id for device in plan.devices]
        asked = ask(
            app,
            spec,
            pinned(plan),
            engine_name=engine_name,
            binary=binary,
            only_devices=ids if only_devices or not ids else None,
        )
        if (seen := [device.id for device in asked.devices]) != ids:
            raise EngineError(
                f"the engine has {', '.join(seen) or 'no GPU'}, the plan is for {', '.join(ids)}, so it cannot be "
                "verified here; leave --verify away."
            )
        if asked.agrees:
            notes.append(Note("engine_agrees", f"{asked.dry_run.binary.path} agrees with every figure."))
            return _with(answer, notes, from_engine=True)
        more = {row.device: 0 for row in asked.rows}
        for row in asked.rows:
            more[row.device] += max(row.difference_bytes, 0)
        notes.append(Note("engine_differs", _sentence(asked)))
        if not any(more.values()):
            return _with(answer, notes)
        if left:
            answer = plan_again(widen(answer.budget, more))
            text = ", ".join(f"{device} by {format_bytes(n_bytes)}" for device, n_bytes in more.items() if n_bytes)
            notes.append(Note("planned_again", f"planned again with larger margins: {text}."))
    return _with(answer, notes)


def widen(budget: Budget, more: dict[str, int]) -> Budget:
    """`budget` with more bytes kept free on each device; "host" is system memory."""
    devices = tuple(
        limit._replace(
            margin_bytes=limit.margin_bytes + more.get(limit.id, 0),
            usable_bytes=max(limit.usable_bytes - more.get(limit.id, 0), 0),
        )
        for limit in budget.devices
    )
    return budget._replace(devices=devices, ram_margin_bytes=budget.ram_margin_bytes + more.get("host", 0))


def _with(answer: Recommendation, notes: list[Note], *, from_engine: bool = False) -> Recommendation:
    if from_engine:
        devices = tuple(device._replace(source="engine") for device in answer.chosen.plan.devices)
        chosen = answer.chosen._replace(plan=answer.chosen.plan._replace(devices=devices))
        answer = answer._replace(chosen=chosen)
    return answer._replace(warnings=(*answer.warnings, *notes))


def _sentence(asked: Asked) -> str:
    parts = [
        f"{row.device} {row.component} by {format_bytes(row.difference_bytes)}" for row in asked.rows if not row.agrees
    ]
    text = f"{asked.dry_run.binary.path} differs: {', '.join(parts)}." if parts else ""
    return " ".join([text, *asked.settings_differ]).strip()
