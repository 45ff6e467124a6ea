"""What several models leave of a machine: sums per device and of system memory."""

from collections.abc import Iterable, Mapping

from advisor.host import Device
from advisor.memory.types import MemoryPlan
from advisor.recommend.budget import Budget, Shortfall
from advisor.records import NamedTuple


class Load(NamedTuple):
    """What one process takes: each has a backend context, buffers and a share of system memory of its own."""

    devices: Mapping[str, int]  # bytes by device id
    host_bytes: int


def load_of(plan: MemoryPlan) -> Load:
    """What a plan takes."""
    devices = {device.id: device.planned_bytes for device in plan.devices if device.planned_bytes}
    return Load(devices, plan.host.planned_bytes)


def total(loads: Iterable[Load]) -> Load:
    """What several take together."""
    devices: dict[str, int] = {}
    host_bytes = 0
    for load in loads:
        host_bytes += load.host_bytes
        for name, n_bytes in load.devices.items():
            devices[name] = devices.get(name, 0) + n_bytes
    return Load(devices, host_bytes)


def less(budget: Budget, load: Load) -> Budget:
    """The budget that `load` leaves. What unified devices take beyond their own memory comes off system memory."""
    devices, ram = [], load.host_bytes
    for limit in budget.devices:
        taken = load.devices.get(limit.id, 0)
        if limit.unified:
            ram += max(taken - limit.private_bytes, 0)
        devices.append(
            limit._replace(
                free_bytes=max(limit.free_bytes - taken, 0),
                usable_bytes=max(limit.usable_bytes - taken, 0),
                private_bytes=max(limit.private_bytes - taken, 0),
            )
        )
    return budget._replace(devices=tuple(devices), ram_available_bytes=max(budget.ram_available_bytes - ram, 0))


def only(budget: Budget, team: tuple[Device, ...]) -> Budget:
    """The budget of a part of the GPUs."""
    names = {device.id for device in team}
    return budget._replace(devices=tuple(limit for limit in budget.devices if limit.id in names))


def over(budget: Budget, load: Load) -> tuple[Shortfall, ...]:
    """Every place where a load is over the budget, the worst first."""
    found, ram = [], load.host_bytes
    for limit in budget.devices:
        taken = load.devices.get(limit.id, 0)
        ram += max(taken - limit.private_bytes, 0) if limit.unified else 0
        if taken > limit.usable_bytes:
            found.append(Shortfall(limit.id, taken - limit.usable_bytes + limit.below_margin_bytes))
    if ram > budget.ram_usable_bytes:
        found.append(Shortfall("host", ram - budget.ram_usable_bytes + budget.ram_below_margin_bytes))
    return tuple(sorted(found, key=lambda short: -short.over_bytes))


def spare_ram(budget: Budget, load: Load) -> int:
    """System memory that a load leaves of what may be used."""
    left = less(budget, load)
    return left.ram_usable_bytes
