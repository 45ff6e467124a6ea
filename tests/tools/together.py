"""Sets of zoo models planned together, and what an independent estimate makes of the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from advisor.host import HostSnapshot
from advisor.memory.plan import plan_memory
from advisor.memory.resolve import resolve_settings
from advisor.memory.types import MemoryPlan
from advisor.recommend.budget import Budget, make_budget
from advisor.recommend.evaluate import Evaluator
from advisor.recommend.search import Wishes
from advisor.settings import RequestedSettings
from advisor.speed import SpeedModel
from advisor.together.plan import plan_together
from advisor.together.types import Member, Seat, Together
from tests.tools.cells import engine, spec
from tests.tools.machines import policy, quant_rules, speed_rules


def member(name: str, intent: str = "balanced", **pins: object) -> Member:
    """A zoo model with an intent and pinned settings."""
    return Member(name, spec(name), policy().intent(intent), Wishes(RequestedSettings(**pins)))  # type: ignore[arg-type]


def evaluator_for(one: Member, host: HostSnapshot, limits: Budget, like: Evaluator | None) -> Evaluator:
    """What judges one member within limits."""
    speed = SpeedModel(one.spec, host, speed_rules())
    return Evaluator(one.spec, host, engine(), limits, speed, "server", one.beside, like=like)


def together(host: HostSnapshot, *members: Member | str) -> Together:
    """The answer for a set."""
    whole = [one if isinstance(one, Member) else member(one) for one in members]
    return plan_together(whole, host, make_budget(host, policy()), evaluator_for, policy(), quant_rules)


def planned_anew(one: Member, seat: Seat) -> MemoryPlan:
    """The member's settings, estimated by themselves on its GPUs."""
    request = seat.answer.chosen.request
    devices = seat.host.devices
    settings = resolve_settings(request, one.spec, engine(), tool="server", n_devices=len(devices))
    return plan_memory(one.spec, settings, engine(), devices, beside=one.beside)


def sums(answer: Together) -> tuple[Mapping[str, int], int]:
    """(bytes by GPU, bytes of system memory) of all members, each estimated by itself."""
    devices: dict[str, int] = {}
    host_bytes = 0
    for one, seat in zip(answer.members, answer.seats, strict=True):
        if seat is None:
            continue
        plan = planned_anew(one, seat)
        host_bytes += plan.host.planned_bytes
        for device in plan.devices:
            devices[device.id] = devices.get(device.id, 0) + device.planned_bytes
    return devices, host_bytes


def over_budget(answer: Together, host: HostSnapshot) -> list[str]:
    """Every place of the machine that the members overdraw, from first principles."""
    devices, ram = sums(answer)
    found = []
    for device in host.devices:
        margin = policy().margins[device.backend]
        need = devices.get(device.id, 0)
        if need > max(device.free_bytes - margin, 0):
            found.append(device.id)
        if device.memory_kind == "unified":
            own = 0 if device.shared_bytes is None else device.total_bytes - device.shared_bytes
            ram += max(need - own, 0)
    unified = any(device.memory_kind == "unified" for device in host.devices)
    margin = policy().host["unified_margin_bytes" if unified else "margin_bytes"]
    return [*found, *(["host"] if ram > max(host.ram.available_bytes - margin, 0) else [])]


def named(answer: Together, who: Sequence[int]) -> tuple[str, ...]:
    """The names of some members."""
    return tuple(answer.members[index].name for index in who)
