"""One candidate judged: its plan, whether it fits, how fast it is, and its cost for the intent."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from advisor.host import HostSnapshot
from advisor.memory.engine_spec import EngineSpec
from advisor.memory.plan import Planner
from advisor.memory.resolve import resolve_settings
from advisor.memory.types import MemoryPlan
from advisor.model.spec import ModelSpec
from advisor.recommend.budget import Budget, Shortfall, shared_bytes, shortfalls
from advisor.recommend.policy import Intent, Policy
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings, RunSettings
from advisor.speed import Constants, Speed, SpeedModel

if TYPE_CHECKING:
    from advisor.memory.extras import Beside


class Judged(NamedTuple):
    """A candidate with everything that was found out about it."""

    request: RequestedSettings
    plan: MemoryPlan
    shorts: tuple[Shortfall, ...]  # empty = fits; the worst first

    @property
    def fits(self) -> bool:
        """Whether the engine takes the settings and the plan stays within the budget."""
        return not self.shorts and self.plan.refused is None

    @property
    def fits_devices(self) -> bool:
        """Whether the GPUs' part fits, whatever the host says."""
        return self.plan.refused is None and all(short.device == "host" for short in self.shorts)


class Evaluator:
    """Judges candidates for one model, machine and engine; remembers what it has judged."""

    def __init__(
        self, spec: ModelSpec, host: HostSnapshot, engine: EngineSpec, budget: Budget, speed: SpeedModel, tool: str,
        beside: "Beside | None" = None, overheads: Mapping[tuple[str, str], int] | None = None,
        like: "Evaluator | None" = None,
    ) -> None:  # fmt: skip
        """`beside`, `overheads` and `like` as for Planner."""
        self.spec, self.host, self.engine, self.budget = spec, host, engine, budget
        self._speed, self._tool, self._beside, self._overheads = speed, tool, beside, overheads
        devices = [
            device._replace(free_bytes=limit.free_bytes) if device.free_bytes != limit.free_bytes else device
            for device, limit in zip(host.devices, budget.devices, strict=True)
        ]
        self._planner: Planner = Planner(
            spec, engine, devices, server=tool == "server", beside=beside, overheads=overheads,
            like=like._planner if like is not None else None,
        )  # fmt: skip
        self._judged: dict[RequestedSettings, Judged] = {}
        self._n_sketched = 0

    def of(self, spec: ModelSpec) -> "Evaluator":
        """What judges the same model in another quantization with everything else the same."""
        speed = SpeedModel(spec, self.host, {}, self._speed.machine)
        return Evaluator(
            spec, self.host, self.engine, self.budget, speed, self._tool, self._beside, self._overheads, self
        )

    def judge(self, request: RequestedSettings) -> Judged:
        """Plan `request` and hold it against the budget."""
        known = self._judged.get(request)
        if known is None:
            plan = self._planner.plan(self._resolve(request))
            known = self._judged[request] = Judged(request, plan, shortfalls(plan, self.budget))
        return known

    def sketch(self, request: RequestedSettings) -> Judged:
        """As `judge`, with compute buffers between those of earlier candidates: to find where to look."""
        known = self._judged.get(request)
        if known is None:
            self._n_sketched += 1
            plan = self._planner.plan(self._resolve(request), exact=False)
            known = Judged(request, plan, shortfalls(plan, self.budget))
        return known

    def cache_bytes(self, request: RequestedSettings) -> int:
        """The whole cache of a candidate, wherever it lies."""
        return self._planner.cache_bytes(self._resolve(request))

    def share_out(self, request: RequestedSettings) -> RequestedSettings:
        """`request` with its layers dealt to several GPUs by what each has room for, as a tensor_split of counts.

        The engine's own split goes by free memory alone: it forgets compute buffers, and blocks without experts.
        """
        sketch = self.sketch(request)
        limits = zip(self.budget.devices, sketch.plan.devices, strict=True)
        room = [max(limit.usable_bytes - plan.compute.high - plan.overhead_bytes, 0) for limit, plan in limits]
        first = len(sketch.plan.placement) - sum(place >= 0 for place in sketch.plan.placement)
        layers = self._planner.bytes_by_layer(sketch.plan.settings)[first:]
        counts = deal(layers, fastest_first(layers, room, self._speed.read_rates))
        return request._replace(tensor_split=tuple(float(count) for count in counts)) if any(counts) else request

    def _resolve(self, request: RequestedSettings) -> RunSettings:
        n_devices = len(self.host.devices)
        return resolve_settings(request, self.spec, self.engine, tool=self._tool, n_devices=n_devices)

    @property
    def n_judged(self) -> int:
        """How many candidates were planned."""
        return len(self._judged) + self._n_sketched

    def speed(self, judged: Judged, intent: Intent) -> Speed:
        """Speed of a candidate for the intent's turn."""
        return self._speed.predict(judged.plan, intent.turn, self._ram_left(judged))

    def when_full(self, judged: Judged, speed: Speed) -> Speed:
        """The speed of a candidate with what a full context makes of it."""
        return self._speed.when_full(judged.plan, speed, self._ram_left(judged))

    def _ram_left(self, judged: Judged) -> int:
        """System memory for the host's part: what GPUs that work in it leave."""
        return self.budget.ram_usable_bytes - shared_bytes(judged.plan, self.budget)

    @property
    def constants(self) -> Constants:
        """What the speeds rest on."""
        return self._speed.constants

    def tokens_per_s(self, judged: Judged, depth: int) -> float:
        """Decode speed of a candidate with `depth` tokens in the cache."""
        return 1 / self._speed.decode(judged.plan, depth, self._ram_left(judged)).seconds


def fastest_first(layer_bytes: Sequence[int], room_bytes: Sequence[int], speeds: Sequence[float]) -> list[int]:
    """Bytes for each device: the fastest ones full up to a layer, equally fast ones to the same share.

    All the room where that is not enough.
    """
    room = [max(n_bytes - max(layer_bytes, default=0), 0) for n_bytes in room_bytes]
    left = sum(layer_bytes)
    shares = [0] * len(room)
    for speed in sorted(set(speeds), reverse=True):
        members = [index for index, value in enumerate(speeds) if value == speed]
        together = sum(room[index] for index in members)
        taken = min(together, left)
        for index in members:
            shares[index] = taken * room[index] // together if together else 0
        left -= taken
    return shares if left == 0 else list(room_bytes)


def deal(layer_bytes: Sequence[int], room_bytes: Sequence[int]) -> list[int]:
    """How many of the layers, in their order, go to each device, so that all are filled to the same share."""
    total, rooms = sum(layer_bytes), sum(room_bytes)
    counts = [0] * len(room_bytes)
    if not total or not rooms:
        return counts
    ends, end = [], 0
    for room in room_bytes:
        end += room
        ends.append(end * total / rooms)
    at = 0
    for n_bytes in layer_bytes:
        middle = at + n_bytes / 2
        counts[next((index for index, end in enumerate(ends) if middle < end), len(ends) - 1)] += 1
        at += n_bytes
    return counts


def cost(judged: Judged, speed: Speed, intent: Intent, policy: Policy, n_ctx_train: int) -> float:
    """Seconds per turn, made worse by a context shorter than comfortable and by lossy caches. Smaller is better."""
    settings = judged.plan.settings
    per_slot = settings.n_ctx // settings.n_parallel if settings.kv_unified else settings.n_ctx_seq
    comfortable = min(intent.comfortable_n_ctx, n_ctx_train or intent.comfortable_n_ctx)
    lack = max(comfortable / max(per_slot, 1), 1.0)
    factor = policy.cache_factor
    lossy = max(factor.get(settings.cache_type_k, 2.0), factor.get(settings.cache_type_v, 2.0))
    unusual = 1.0 if settings.n_ubatch == min(512, settings.n_ctx) else policy.search["unusual_n_ubatch_factor"]
    return float(speed.turn_seconds.value * lack**intent.context_exponent * lossy * unusual)
