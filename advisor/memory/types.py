"""The memory plan: bytes per device and component, as the engine itself accounts for them."""

from collections.abc import Mapping

from advisor.records import NamedTuple
from advisor.settings import RunSettings


class Interval(NamedTuple):
    """An estimate in bytes with its bounds; planning uses `high`. Exact when all three are equal."""

    low: int
    value: int
    high: int


class Extra(NamedTuple):
    """Something loaded beside the model: an adapter, a projector, a draft model; planning uses the upper end."""

    name: str  # "LoRA style.gguf", "mmproj compute", "draft weights", "MTP cache", ...
    n_bytes: Interval
    source: str  # what the figure rests on


class DevicePlan(NamedTuple):
    """One GPU's share. `layers` is the (first, last) block that lives there, None without blocks."""

    id: str
    weights_bytes: int
    cache_bytes: int
    compute: Interval
    overhead_bytes: int  # the backend's context and scratch, outside the engine's own accounting
    layers: tuple[int, int] | None
    n_layers: int
    has_output: bool
    source: str = "formula"
    overhead: Interval = Interval(0, 0, 0)  # the bounds of overhead_bytes
    overhead_source: str = "rules"  # or "observed": from the log of a load on this card
    extras: tuple[Extra, ...] = ()

    @property
    def extras_bytes(self) -> int:
        """What is loaded beside the model, at its upper end."""
        return sum(extra.n_bytes.high for extra in self.extras)

    @property
    def planned_bytes(self) -> int:
        """What must be free for the model to load and survive a full context."""
        own = self.weights_bytes + self.cache_bytes + self.compute.high + self.overhead_bytes
        return own + self.extras_bytes if self.extras else own

    @property
    def beside_layers_bytes(self) -> int:
        """The same without weights and cache."""
        return self.planned_bytes - self.weights_bytes - self.cache_bytes


class HostPlan(NamedTuple):
    """System memory's share. Mapped bytes are the file span the engine prints, evictable page cache."""

    weights_bytes: int
    cache_bytes: int
    compute: Interval
    output_bytes: int
    mapped_bytes: int
    repack_bytes: int
    extras: Mapping[str, int]  # prompt_cache_bytes, context_checkpoints_bytes: grow over time in the server
    beside: tuple[Extra, ...] = ()  # adapters, projector and draft model as far as they live here

    @property
    def beside_bytes(self) -> int:
        """What is loaded beside the model, at its upper end."""
        return sum(extra.n_bytes.high for extra in self.beside)

    @property
    def planned_bytes(self) -> int:
        """What must be available, without the extras that fill over time."""
        own = self.weights_bytes + self.cache_bytes + self.compute.high + self.output_bytes
        return own + self.beside_bytes if self.beside else own


class MemoryPlan(NamedTuple):
    """The whole prediction for one model, one set of settings and one machine."""

    settings: RunSettings
    flash_attn: bool  # what -fa resolves to
    devices: tuple[DevicePlan, ...]
    host: HostPlan
    refused: str | None  # why the engine would refuse these settings, None if it takes them
    notes: tuple[str, ...]
    placement: tuple[int, ...]  # device index of each block and, last, of the output; -1 = host
    read_device_bytes: tuple[int, ...]  # weights read for one token, per device
    read_host_bytes: int
    host_expert_blocks: int
