"""What is to be said about a set as a whole, and what is not to be said of a member that is not alone."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.host import HostSnapshot
from advisor.memory.engine_spec import EngineSpec
from advisor.memory.server import checkpoints_of_slot
from advisor.recommend.budget import Budget, server_caches
from advisor.recommend.recommendation import Note, Recommendation
from advisor.together.shares import load_of, spare_ram, total
from advisor.together.types import Member, Seat
from advisor.units import format_bytes

# true of one model on a machine of its own
_ALONE = ("engine_fit_as_good", "prompt_cache_fills_ram", "context_checkpoints_fill_ram")


def without_alone(answer: Recommendation) -> Recommendation:
    """An answer without the sentences that do not hold beside others."""
    return answer._replace(
        reasons=tuple(note for note in answer.reasons if note.code not in _ALONE),
        warnings=tuple(note for note in answer.warnings if note.code not in _ALONE),
    )


def shared_out(seats: Sequence[Seat | None], budget: Budget) -> list[Budget | None]:
    """For each seat its budget with its part of the system memory that all leave, which servers fill over time.

    In proportion to what each would fill, so that nobody is limited where there is enough for all.
    """
    there = [seat for seat in seats if seat is not None]
    left = spare_ram(budget, total(load_of(seat.answer.chosen.plan) for seat in there))
    fills = sum(_fills(seat) for seat in there)
    found: list[Budget | None] = []
    for seat in seats:
        if seat is None:
            found.append(None)
            continue
        part = left * _fills(seat) // fills if fills else left // len(there)
        limits = seat.answer.budget
        found.append(limits._replace(ram_available_bytes=max(limits.ram_available_bytes - (left - part), 0)))
    return found


def _fills(seat: Seat) -> int:
    """Bytes that a server fills over time: saved prompts and checkpoints."""
    return sum(max(n_bytes, 0) for n_bytes in seat.answer.chosen.plan.host.extras.values())


def notes_of(
    members: Sequence[Member], seats: Sequence[Seat | None], host: HostSnapshot, budget: Budget, engine: EngineSpec
) -> tuple[Note, ...]:
    """Who shares a GPU, what the servers keep of old prompts, and who uses the processor."""
    notes = []
    there = [(member, seat) for member, seat in zip(members, seats, strict=True) if seat is not None]
    for device in host.devices:
        names = [member.name for member, seat in there if device.id in load_of(seat.answer.chosen.plan).devices]
        if len(names) > 1:
            overheads = sum(
                plan.overhead_bytes
                for _, seat in there
                for plan in seat.answer.chosen.plan.devices
                if plan.id == device.id and plan.planned_bytes
            )
            text = (
                f"{listed(names)} share {device.id}, each with a backend context of its own "
                f"({format_bytes(overheads)} in all); their speeds hold while one of them answers."
            )
            notes.append(Note("gpu_shared", text, "policy.toml: together"))
    on_cpu = [member.name for member, seat in there if seat.answer.chosen.plan.read_host_bytes and host.devices]
    if len(on_cpu) > 1:
        text = f"{listed(on_cpu)} all read weights from system memory: two that answer share its bandwidth."
        notes.append(Note("ram_shared", text))
    kept = []
    for (member, seat), limits in zip(there, [each for each in shared_out(seats, budget) if each], strict=True):
        plan = seat.answer.chosen.plan
        if server_caches(plan, limits, checkpoints_of_slot(plan.settings, engine)).cache_ram_mib is not None:
            kept.append(member.name)
    if kept:
        left = spare_ram(budget, total(load_of(seat.answer.chosen.plan) for _, seat in there))
        text = (
            f"Over time the servers fill up to {format_bytes(sum(_fills(seat) for _, seat in there))} of system memory "
            f"with old prompts and checkpoints, and {format_bytes(left)} is left: --cache-ram keeps {listed(kept)} "
            "within a share of that."
        )
        notes.append(Note("prompt_caches_fill_ram", text, "llama_cpp.toml: server"))
    return tuple(notes)


def listed(names: Sequence[str]) -> str:
    """A, B and C; there must be one."""
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else names[0]
