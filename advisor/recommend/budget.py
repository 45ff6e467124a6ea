"""What may be used: per device and of system memory, and whether a plan stays within it."""

from collections.abc import Mapping

from advisor.host import HostSnapshot
from advisor.memory.types import MemoryPlan
from advisor.recommend.policy import Policy
from advisor.records import NamedTuple


class DeviceBudget(NamedTuple):
    """`usable_bytes` is what the plan may take in all: free memory without what must stay free."""

    id: str
    total_bytes: int
    free_bytes: int  # as planned with: engines' own memory counts as free unless planning for this minute
    margin_bytes: int
    usable_bytes: int
    unified: bool
    private_bytes: int  # of a unified device: what is not system RAM (an APU's carve-out)
    backend: str = "cuda"

    @property
    def below_margin_bytes(self) -> int:
        """What is lacking of that which must stay free before anything is planned."""
        return max(self.margin_bytes - self.free_bytes, 0)


class Budget(NamedTuple):
    """The machine's limits for one model."""

    devices: tuple[DeviceBudget, ...]
    ram_total_bytes: int
    ram_available_bytes: int
    ram_margin_bytes: int

    @property
    def ram_usable_bytes(self) -> int:
        """System memory that the plan may take."""
        return max(self.ram_available_bytes - self.ram_margin_bytes, 0)

    @property
    def ram_below_margin_bytes(self) -> int:
        """What is lacking of the system memory that must stay free before anything is planned."""
        return max(self.ram_margin_bytes - self.ram_available_bytes, 0)


class Shortfall(NamedTuple):
    """Where a plan goes over the budget most, and by how much."""

    device: str  # a device id or "host"
    over_bytes: int


def make_budget(
    host: HostSnapshot,
    policy: Policy,
    *,
    now: bool = False,
    keep_free_bytes: int | None = None,
    keep_free_ram_bytes: int | None = None,
) -> Budget:
    """Budgets for the machine at rest, or with `now` for this minute; bytes to keep free replace the margins."""
    devices = []
    for device in host.devices:
        margin = policy.margins[device.backend]
        if host.platform in ("windows", "wsl"):
            margin = max(margin, policy.margins["windows_or_wsl_at_least"])
        if keep_free_bytes is not None:
            margin = keep_free_bytes
        free = device.free_bytes if now else min(device.free_bytes + device.used_by_engines_bytes, device.total_bytes)
        devices.append(
            DeviceBudget(
                id=device.id,
                total_bytes=device.total_bytes,
                free_bytes=free,
                margin_bytes=margin,
                usable_bytes=max(free - margin, 0),
                unified=device.memory_kind == "unified",
                private_bytes=device.total_bytes - device.shared_bytes if device.shared_bytes is not None else 0,
                backend=device.backend,
            )
        )
    ram = host.ram
    available = ram.available_bytes if now else min(ram.available_bytes + ram.used_by_engines_bytes, ram.total_bytes)
    unified = any(device.unified for device in devices)
    margin = policy.host["unified_margin_bytes" if unified else "margin_bytes"]
    if keep_free_ram_bytes is not None:
        margin = keep_free_ram_bytes
    return Budget(tuple(devices), ram.total_bytes, available, margin)


def shared_bytes(plan: MemoryPlan, budget: Budget) -> int:
    """Bytes of system memory behind the plans of unified devices, 0 where every GPU has its own memory."""
    shared = 0
    for device, limit in zip(plan.devices, budget.devices, strict=True):
        if limit.unified:
            shared += max(device.planned_bytes - limit.private_bytes, 0)
    return shared


def host_over_bytes(plan: MemoryPlan, budget: Budget) -> int:
    """How far system memory is overdrawn by the host's own part and the GPUs'; negative is to spare."""
    need = plan.host.planned_bytes + shared_bytes(plan, budget)
    return need - budget.ram_usable_bytes + budget.ram_below_margin_bytes


def shortfalls(plan: MemoryPlan, budget: Budget) -> tuple[Shortfall, ...]:
    """Every place where `plan` exceeds `budget`, the worst first. Unified memory is counted once, on the host."""
    found = []
    for device, limit in zip(plan.devices, budget.devices, strict=True):
        need = device.planned_bytes
        if need and need > limit.usable_bytes:
            found.append(Shortfall(device.id, need - limit.usable_bytes + limit.below_margin_bytes))
    over = host_over_bytes(plan, budget)
    if over > 0:
        found.append(Shortfall("host", over))
    return tuple(sorted(found, key=lambda short: -short.over_bytes)) if len(found) > 1 else tuple(found)


class ServerCaches(NamedTuple):
    """What the server may keep in system memory over time, None = its default is well."""

    cache_ram_mib: int | None
    n_ctx_checkpoints: int | None

    def applied(self, extras: Mapping[str, int], checkpoints: int) -> dict[str, int]:
        """A plan's `extras` with these limits; `checkpoints`: how many a slot would come to keep without."""
        kept, states = extras["prompt_cache_bytes"], extras["context_checkpoints_bytes"]
        if self.cache_ram_mib is not None:
            kept = self.cache_ram_mib << 20
        if self.n_ctx_checkpoints is not None:
            states = states // checkpoints * self.n_ctx_checkpoints
        return {**extras, "prompt_cache_bytes": kept, "context_checkpoints_bytes": states}


def server_caches(plan: MemoryPlan, budget: Budget, checkpoints: int) -> ServerCaches:
    """Limits that keep saved prompts and checkpoints within what the plan leaves of system memory.

    Checkpoints come first, up to half of what is left: without them a changed prompt is read again from its beginning.
    Saved prompts get half of the rest, since both are filled while other programs need memory as well.
    `checkpoints`: how many a slot comes to keep, see `checkpoints_of_slot`.
    """
    left = -host_over_bytes(plan, budget)
    kept, states = plan.host.extras["prompt_cache_bytes"], plan.host.extras["context_checkpoints_bytes"]
    if left < 0:  # what does not fit needs more than this
        return ServerCaches(None, None)
    count = None
    room = left // 2 if kept else left
    if states > room:
        count = room // (states // checkpoints)
        states = states // checkpoints * count
    if 0 < kept > left - states:
        return ServerCaches(((left - states) // 2 >> 20) // 256 * 256, count)
    return ServerCaches(None, count)


def surely_over(least: MemoryPlan, budget: Budget, *, host: bool = True) -> bool:
    """Whether a lower bound of a plan is over however its layers were dealt to the GPUs; `host`: or system memory."""
    need = sum(device.planned_bytes for device in least.devices)
    over = need > sum(limit.usable_bytes for limit in budget.devices)
    return over or (host and host_over_bytes(least, budget) > 0)
