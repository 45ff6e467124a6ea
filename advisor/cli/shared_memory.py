"""System memory that GPUs without memory of their own take: what a plan's host line must count besides its own."""

from __future__ import annotations

from advisor.memory.types import MemoryPlan
from advisor.recommend.budget import Budget


def shared_bytes(plan: MemoryPlan, budget: Budget) -> int:
    """Bytes of system memory behind the plans of unified devices, 0 where every GPU has its own memory."""
    return sum(
        max(device.planned_bytes - limit.private_bytes, 0)
        for device, limit in zip(plan.devices, budget.devices, strict=True)
        if limit.unified
    )


def host_over_bytes(plan: MemoryPlan, budget: Budget) -> int:
    """How far system memory is overdrawn by the host's own part and the GPUs'; negative is to spare."""
    return plan.host.planned_bytes + shared_bytes(plan, budget) - budget.ram_usable_bytes
