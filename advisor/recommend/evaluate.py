"""One candidate judged: its plan, whether it fits, how fast it is, and its cost for the intent."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from advisor.host import HostSnapshot, with_devices
from advisor.memory.engine_spec import EngineSpec
from advisor.memory.plan import Planner
from advisor.memory.resolve import resolve_settings
from advisor.memory.types import MemoryPlan
from advisor.model.spec import ModelSpec
from advisor.recommend.budget import Budget, Shortfall, host_over_bytes, shared_bytes, shortfalls
from advisor.recommend.cache_safety import ON_CPU, CacheRow, on_cpu_factor
from advisor.recommend.chain import expert_kinds
from advisor.recommend.policy import Intent, Policy, lack, lossiness
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings, RunSettings
from advisor.speed import Constants, Speed, SpeedModel

if TYPE_CHECKING:
    from advisor.memory.extras import Beside
    from advisor.recommend.dealing import Dealer


# Judgement: sketches beside what is planned exactly are off by less than that share of their compute buffers.
ROUGHLY = 8


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
        self._speed, self._tool, self.beside, self._overheads = speed, tool, beside, overheads
        devices = [
            device._replace(free_bytes=limit.free_bytes) if device.free_bytes != limit.free_bytes else device
            for device, limit in zip(host.devices, budget.devices, strict=True)
        ]
        self._planner: Planner = Planner(
            spec, engine, devices, server=tool == "server", beside=beside, overheads=overheads,
            like=like._planner if like is not None else None,
        )  # fmt: skip
        self._judged: dict[RequestedSettings, Judged] = {}
        self._least: dict[RequestedSettings, Judged] = {}
        self._drawn: dict[RequestedSettings, tuple[int, Judged]] = {}
        self._shared_out: dict[RequestedSettings, RequestedSettings] = {}
        self._dealt_out: set[RequestedSettings] = set()
        self._dealt_at = 0
        self._dealer: Dealer | None = None
        self._resolved: dict[RequestedSettings, RunSettings] = {}
        self._limits = tuple([max(limit.usable_bytes, 0) for limit in budget.devices])
        # by what GPUs share for it: which of them were used last, and what each has for layers by which are used
        self._rooms: dict[RequestedSettings, tuple[tuple[bool, ...], dict[tuple[bool, ...], tuple[int, ...]]]] = {}
        self._expert_kinds: Mapping[int, tuple[str, ...]] | None = None
        self._n_sketched = 0
        self._slow_rows: tuple[CacheRow, ...] = ()

    def look_far(self, far_apart: bool) -> None:
        """Whether contexts far apart are sketched: more is read off for them."""
        self._planner.compute.look_far(far_apart)

    def know(self, rows: Sequence[CacheRow]) -> None:
        """What is known of cache types with this model on these GPUs: speeds carry attention on the CPU."""
        self._slow_rows = tuple(rows) if any(row.effect == ON_CPU for row in rows) else ()

    def share(self, other: "Evaluator") -> None:
        """Share with the evaluator of the same model on another set of GPUs what does not depend on these."""
        self._planner.share(other._planner)
        self._speed.share(other._speed)
        self._expert_kinds = other.expert_kinds

    @property
    def expert_kinds(self) -> Mapping[int, tuple[str, ...]]:
        """By block the kinds of its experts' tensors, see there."""
        if self._expert_kinds is None:
            self._expert_kinds = expert_kinds(self.spec)
        return self._expert_kinds

    def flash_attn(self, request: RequestedSettings) -> bool:
        """Whether flash attention ends up on for a candidate."""
        return self._planner.flash_attn(self._resolve(request))

    def of(self, spec: ModelSpec, *, alone: bool = False) -> "Evaluator":
        """What judges the same model in another quantization; `alone`: with an engine that is told to use no GPU."""
        host, budget, machine = self.host, self.budget, self._speed.machine
        if alone:
            host, budget, machine = with_devices(host, ()), budget._replace(devices=()), machine._replace(devices=())
        speed, like = SpeedModel(spec, host, {}, machine), None if alone else self
        return Evaluator(spec, host, self.engine, budget, speed, self._tool, self.beside, self._overheads, like)

    def on(self, host: HostSnapshot, budget: Budget) -> "Evaluator":
        """What judges the same model on the same GPUs with other memory."""
        other = Evaluator(
            self.spec, host, self.engine, budget, self._speed, self._tool, self.beside, self._overheads, self
        )
        other._planner.share(self._planner)
        other._expert_kinds, other._slow_rows = self._expert_kinds, self._slow_rows
        return other

    def judge(self, request: RequestedSettings) -> Judged:
        """Plan `request` and hold it against the budget; layers that `share_out` dealt may be dealt anew to fit."""
        known = self._judged.get(request)
        if known is None:
            known = self._exactly(request)
            if request in self._dealt_out and not known.fits_devices and self._left(known) > 0:
                # dealt by buffers that were known roughly: by those of this very plan it may fit
                again = self.dealt_anew(known)
                hopeful = again != request and not self.far_over(again, ROUGHLY)
                known = other if hopeful and (other := self._exactly(again)).fits_devices else known
            self._judged[request] = known
        return known

    def _exactly(self, request: RequestedSettings) -> Judged:
        plan = self._planner.plan(self._resolve(request))
        return Judged(request, plan, shortfalls(plan, self.budget))

    def _left(self, judged: Judged) -> int:
        """Bytes left in all GPUs together."""
        pairs = zip(self.budget.devices, judged.plan.devices, strict=True)
        return sum([limit.usable_bytes - plan.planned_bytes for limit, plan in pairs])

    def sketch(self, request: RequestedSettings) -> Judged:
        """As `judge`, with compute buffers between those of earlier candidates: to find where to look."""
        known = self._judged.get(request)
        if known is not None:
            return known
        n_known = self._planner.compute.n_known
        drawn_at, drawn = self._drawn.get(request, (-1, None))
        # what is loaded beside the model has anchors of its own
        if drawn is None or drawn_at != n_known or self.beside is not None or request.spec_type:
            self._n_sketched += 1
            plan = self._planner.plan(self._resolve(request), exact=False)
            drawn = Judged(request, plan, shortfalls(plan, self.budget))
            self._drawn[request] = (self._planner.compute.n_known, drawn)
        return drawn

    def far_over(self, request: RequestedSettings, share: int = 2) -> bool:
        """Whether a sketch is over by more than it can be wrong: by a `share`, half, of the compute buffers it draws.

        False where nothing is known yet to draw from.
        """
        if request in self._judged or not self._planner.can_sketch(self._resolve(request)):
            return False
        drawn = self.sketch(request)
        compute = {device.id: device.compute.high for device in drawn.plan.devices}
        compute["host"] = drawn.plan.host.compute.high
        return any(short.over_bytes > compute[short.device] // share for short in drawn.shorts)

    def least(self, request: RequestedSettings) -> Judged:
        """As `judge` without compute buffers: what does not fit here does not fit at all. Costs next to nothing."""
        known = self._least.get(request)
        if known is None:
            plan = self._planner.plan(self._resolve(request), compute=False)
            known = self._least[request] = Judged(request, plan, shortfalls(plan, self.budget))
        return known

    def spare(self, judged: Judged, *, host: bool) -> int:
        """Bytes left in the fullest GPU, and with `host` in system memory if that is fuller; negative = over.

        Where layers were dealt to several GPUs: in all together.
        """
        limits = zip(self.budget.devices, judged.plan.devices, strict=True)
        spare = [limit.usable_bytes - plan.planned_bytes for limit, plan in limits if plan.planned_bytes]
        if judged.request in self._dealt_out:
            spare = [self._left(judged)]
        if host:
            spare.append(-host_over_bytes(judged.plan, self.budget))
        return min(spare, default=0)

    def cache_bytes(self, request: RequestedSettings) -> int:
        """The whole cache of a candidate, wherever it lies."""
        return self._planner.cache_bytes(self._resolve(request))

    def share_out(self, request: RequestedSettings) -> RequestedSettings:
        """`request` with its layers dealt to several GPUs by what each has room for, as a tensor_split of counts.

        The engine's own split goes by free memory alone: it forgets compute buffers, and blocks without experts.
        """
        if self._dealt_at != self._planner.compute.n_known:  # by what is known of buffers now
            self._shared_out, self._rooms = {}, {}
        dealt = self._shared_out.get(request)
        if dealt is None:
            dealt = self._shared_out[request] = self._share_out(request)
            self._dealt_out.add(dealt)
        self._dealt_at = self._planner.compute.n_known
        return dealt

    def dealt_without_buffers(self, request: RequestedSettings) -> RequestedSettings:
        """`request` with its layers dealt as if they and the cache alone took room: no buffer is worked out."""
        return self._dealt(request, self._limits)

    def _share_out(self, request: RequestedSettings) -> RequestedSettings:
        settings = self._resolve(request)
        whole = settings.n_gpu_layers > self.spec.n_layer_all
        experts = settings.n_cpu_moe > 0 or bool(settings.tensor_overrides)
        alike = request._replace(n_gpu_layers=whole, n_cpu_moe=experts, cpu_moe=None, tensor_overrides=())
        used_before, room = self._rooms.get(alike, ((), {}))
        dealt = self._dealt(request, room.get(used_before, self._limits))
        for _ in self._limits:
            # compute buffers hardly change with the number of layers, but a GPU without any needs none
            used = tuple(map(bool, dealt.tensor_split or ()))
            if room and used == used_before:
                break
            if used not in room:
                beside = self._planner.beside_layers(self._resolve(dealt))
                room[used] = tuple([max(n - taken, 0) for n, taken in zip(self._limits, beside, strict=True)])
            used_before = used
            self._rooms[alike] = used, room
            dealt = self._dealt(request, room[used])
        return dealt

    def bytes_by_layer(self, request: RequestedSettings) -> Sequence[int]:
        """Weights and cache of each block, and last the output, on a GPU."""
        return self._planner.bytes_by_layer(self._resolve(request))

    def matched_bytes(self, block: int, pattern: str) -> int:
        """What the tensors of a block that a pattern finds take on a GPU."""
        return self._planner.matched_bytes(block, pattern)

    def room_beside(self, judged: Judged) -> tuple[int, ...]:
        """What each GPU has for layers when compute buffers and the backend take what they do in `judged`."""
        pairs = zip(self.budget.devices, judged.plan.devices, strict=True)
        return tuple([max(limit.usable_bytes - plan.beside_layers_bytes, 0) for limit, plan in pairs])

    def is_dealt(self, request: RequestedSettings) -> bool:
        """Whether its layers were dealt to several GPUs by `share_out`."""
        return request in self._dealt_out

    def split_anew(self, judged: Judged) -> tuple[float, ...] | None:
        """How layers that were dealt here are dealt by what buffers were found to leave; None where nobody dealt."""
        return self.dealt_anew(judged).tensor_split if judged.request in self._dealt_out else None

    def dealt_anew(self, judged: Judged) -> RequestedSettings:
        """The same with its layers dealt by what buffers were found to leave."""
        return self._dealt(judged.request, self.room_beside(judged))

    def _dealt(self, request: RequestedSettings, room: tuple[int, ...]) -> RequestedSettings:
        if self._dealer is None:
            from advisor.recommend.dealing import Dealer  # only several GPUs need it

            self._dealer = Dealer(self.read_rates)
        settings = self._resolve(request)
        split = self._dealer.split(self._planner.layer_bytes(settings), room)
        if not any(split):
            return request
        dealt = request._replace(tensor_split=split)
        self._resolved[dealt] = settings._replace(tensor_split=split)
        return dealt

    def _resolve(self, request: RequestedSettings) -> RunSettings:
        known = self._resolved.get(request)
        if known is None:
            known = resolve_settings(request, self.spec, self.engine, tool=self._tool, n_devices=len(self.host.devices))
            self._resolved[request] = known
        return known

    @property
    def read_rates(self) -> tuple[float, ...]:
        """Bytes per second that decoding gets out of each GPU's memory."""
        return tuple(self._speed.read_rates)

    @property
    def n_judged(self) -> int:
        """How many candidates were planned."""
        return len(self._judged) + self._n_sketched

    def speed(self, judged: Judged, intent: Intent) -> Speed:
        """Speed of a candidate for the intent's turn."""
        speed = self._speed.predict(judged.plan, intent.turn, self._ram_left(judged))
        return self._with_kernels(judged, speed)

    def when_full(self, judged: Judged, speed: Speed) -> Speed:
        """The speed of a candidate with what a full context makes of it."""
        full = self._speed.when_full(judged.plan, speed, self._ram_left(judged)).when_full
        if full is not None and self._slow_rows:
            full = self._with_kernels(judged, speed._replace(when_full=full)).when_full
        return speed._replace(when_full=full, full_depth=judged.plan.settings.n_ctx_seq)

    def _with_kernels(self, judged: Judged, speed: Speed) -> Speed:
        """`speed` with what attention on the CPU makes of it."""
        factor = on_cpu_factor(self._slow_rows, judged.plan) if self._slow_rows else 1.0
        return speed.slowed(factor) if factor > 1 else speed

    def _ram_left(self, judged: Judged) -> int:
        """System memory for the host's part: what GPUs that work in it leave."""
        return self.budget.ram_usable_bytes - shared_bytes(judged.plan, self.budget)

    @property
    def constants(self) -> Constants:
        """What the speeds rest on."""
        return self._speed.constants

    def tokens_per_s(self, judged: Judged, depth: int) -> float:
        """Decode speed of a candidate with `depth` tokens in the cache."""
        factor = on_cpu_factor(self._slow_rows, judged.plan) if self._slow_rows else 1.0
        return 1 / (self._speed.decode(judged.plan, depth, self._ram_left(judged)).seconds * factor)


def cost(judged: Judged, speed: Speed, intent: Intent, policy: Policy, n_ctx_train: int) -> float:
    """Seconds per turn, made worse by a context shorter than comfortable and by lossy caches. Smaller is better."""
    settings = judged.plan.settings
    per_slot = settings.n_ctx // settings.n_parallel if settings.kv_unified else settings.n_ctx_seq
    lossy = lossiness(policy, settings.cache_type_k, settings.cache_type_v)
    unusual = 1.0 if settings.n_ubatch == min(512, settings.n_ctx) else policy.search["unusual_n_ubatch_factor"]
    return float(speed.turn_seconds.value * lack(per_slot, intent, policy, n_ctx_train) * lossy * unusual)
