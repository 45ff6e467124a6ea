"""The whole prediction: weights, cache and compute of one model with one set of settings on one set of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add
from typing import TYPE_CHECKING

from advisor.host import Device
from advisor.memory.cache import CacheTable, refusal
from advisor.memory.compute import ComputeModel
from advisor.memory.engine_spec import EngineSpec
from advisor.memory.parcels import Parcels
from advisor.memory.placement import HOST, Overrides, one_block, place_layers
from advisor.memory.server import server_extras
from advisor.memory.types import DevicePlan, HostPlan, Interval, MemoryPlan
from advisor.memory.weights import Place, WeightBytes, WeightTable
from advisor.model.spec import ModelSpec
from advisor.settings import RunSettings

if TYPE_CHECKING:
    from advisor.memory.extras import Beside, ExtrasPlanner, Placed


_NOTHING = Interval(0, 0, 0)
_UNUSED = (_NOTHING, "rules")  # overhead where a device has nothing


class Planner:
    """Plans for one model on one set of devices; weights and placement are kept between plans that share them."""

    def __init__(
        self, spec: ModelSpec, engine: EngineSpec, devices: Sequence[Device], *, server: bool = True,
        beside: Beside | None = None, overheads: Mapping[tuple[str, str], int] | None = None,
        like: Planner | None = None,
    ) -> None:  # fmt: skip
        """`beside`: files loaded with the model; `overheads`: observed overhead bytes by (backend, device name).

        `like`: of the same model, in this or another quantization, on devices that differ in memory at most: what
        does not depend on that is shared.
        """
        self._beside = beside
        self._extras: ExtrasPlanner | None = None
        self._overheads = overheads or {}
        self._known_overhead: dict[int, tuple[Interval, str]] = {}
        self._spec, self._engine, self._devices, self._server = spec, engine, devices, server
        self._backends = [engine.backends[device.backend] for device in devices]
        self.compute: ComputeModel
        if like is not None and like._spec is spec and self._on_the_same(like):
            self.compute = like.compute
        else:
            self.compute = ComputeModel(spec, engine, self._backends, like.compute if like is not None else None)
        self._placed: dict[tuple[object, ...], Place] = {}
        self._overrides: dict[tuple[object, ...], Overrides] = {}
        self._weights: dict[tuple[object, ...], WeightBytes] = {}
        parcels = Parcels(spec, engine)
        self._table = WeightTable(spec, engine, self._backends, parcels)
        self._layer_table = WeightTable(spec, engine, self._backends[:1] * (spec.n_layer_all + 1), parcels)
        self._by_layer: dict[bool, Sequence[int]] = {}
        self._matched: dict[str, int] = {}
        self._by_name: dict[tuple[object, ...], list[int]] = {}
        self._asked_last: tuple[RunSettings | None, tuple[int, ...]] = (None, ())  # of layer_bytes
        self._cache = CacheTable(spec)
        self._widest = max([layer.n_window for layer in spec.layers], default=0)
        self._said: dict[tuple[object, ...], tuple[str | None, Mapping[str, int]]] = {}
        self._alone: dict[int, Planner] = {}  # per device, for split mode none

    def share(self, other: Planner) -> None:
        """Share what is known of weights and cache with a planner of the same model and engine for other devices."""
        self._table.parcels = self._layer_table.parcels = other._table.parcels
        self._cache = other._cache
        if self._beside is other._beside and self._server == other._server:
            self._said = other._said
        if self._on_the_same(other):
            self._weights, self.compute = other._weights, other.compute
            self._by_layer, self._matched, self._by_name = other._by_layer, other._matched, other._by_name
        self.compute.share(other.compute)

    def _on_the_same(self, other: Planner) -> bool:
        """Whether both have the same backends in the same order; their memory may differ."""
        return list(map(id, self._backends)) == list(map(id, other._backends))

    def _place(self, settings: RunSettings) -> Place:
        named = (settings.n_cpu_moe, settings.tensor_overrides)
        key = (settings.n_gpu_layers, named, settings.split_mode, settings.tensor_split, settings.main_gpu)
        known = self._placed.get(key)
        if known is None:
            overrides = self._overrides.get(named)
            if overrides is None:
                overrides = Overrides(settings, [device.id for device in self._devices])
                self._overrides[named] = overrides
            free = [device.free_bytes for device in self._devices]
            placement = place_layers(settings, self._spec.n_layer_all, free)
            blocks = placement[: self._spec.n_layer_all]  # those of one device follow one another
            counts = [blocks.count(index) for index in range(len(free))]
            begins = [blocks.index(index) if count else 0 for index, count in enumerate(counts)]
            known = self._placed[key] = Place(
                placement,
                overrides,
                [((first, first + n - 1) if n else None, n) for first, n in zip(begins, counts, strict=True)],
                {},
            )
        return known

    def _weights_of(self, settings: RunSettings, place: Place) -> WeightBytes:
        known = place.weights.get((settings.mmap, settings.repack))
        if known is None:
            named = (settings.n_cpu_moe, settings.tensor_overrides, place.overrides.buffers)
            key = (place.placement, named, settings.mmap, settings.repack)
            known = self._weights.get(key)
            if known is None:
                known = self._weights[key] = self._table.place(settings, place.placement, place.overrides)
            place.weights[settings.mmap, settings.repack] = known
        return known

    def plan(self, settings: RunSettings, *, exact: bool = True, compute: bool = True) -> MemoryPlan:
        """Bytes per device and component. `settings` come from resolve_settings for the same devices.

        Without `exact` compute buffers may be interpolated between those of earlier plans; without `compute` they, and
        what is loaded beside the model, are left out: no place then needs more than in the whole plan.
        """
        if settings.split_mode == "none" and len(self._devices) > 1:
            return self._plan_alone(settings, exact=exact, compute=compute)
        spec, backends = self._spec, self._backends
        place = self._place(settings)
        placement, overrides, spans, _ = place
        weights = self._weights_of(settings, place)
        cache, host_cache = self._cache.place(settings, placement, backends)
        if compute:
            flash = self.compute.flash_attn(settings, placement, overrides, exact=exact)
            computes, host_compute = self.compute.buffers(settings, placement, overrides, exact=exact)
        else:
            flash = settings.flash_attn != "off" and not spec.flash_attn_forced_off
            computes, host_compute = (_NOTHING,) * len(self._devices), _NOTHING
        extras = self._extras_of(settings, cache, computes, exact=exact) if compute else ()
        plans = []
        for index, device in enumerate(self._devices):
            n_weights, n_cache, needed = weights.devices[index], cache[index], computes[index]
            mine = tuple([extra for where, extra in extras if where == index and extra.n_bytes.high]) if extras else ()
            used = mine or n_weights + n_cache + needed.high > 0
            overhead, source = self._overhead(index) if used else _UNUSED
            layers, count = spans[index]
            plans.append(
                DevicePlan(
                    device.id, n_weights, n_cache, needed, overhead.value, layers, count,
                    placement[-1] == index, "formula", overhead, source, mine,
                )
            )  # fmt: skip
        refused, filled = self._said_of(settings, flash)
        beside = tuple([extra for where, extra in extras if where == HOST and extra.n_bytes.high]) if extras else ()
        output_bytes = 4 * spec.n_vocab * max(settings.n_parallel, 1)  # reserved even where nothing fills it
        host = HostPlan(
            weights.host, host_cache, host_compute, output_bytes, weights.mapped, weights.repack, filled, beside
        )
        return MemoryPlan(
            settings, flash, tuple(plans), host, refused, (), placement,
            weights.read_devices, weights.read_host, weights.host_expert_blocks,
        )  # fmt: skip

    def _said_of(self, settings: RunSettings, flash: bool) -> tuple[str | None, Mapping[str, int]]:
        """(why the engine refuses the settings, what the server fills over time), wherever the layers lie."""
        s, tokens = settings, settings.n_ubatch
        # a context counts up to a micro-batch, and in windows up to these and a micro-batch
        key = (min(s.n_ctx, tokens), min(s.n_ctx_seq, self._widest + tokens), tokens, s.n_batch, s.n_parallel,
               s.kv_unified, s.cache_type_k, s.cache_type_v, s.flash_attn, s.swa_full, s.split_mode, s.n_outputs,
               s.beside, flash)  # fmt: skip
        known = self._said.get(key)
        if known is None:
            refused = refusal(self._spec, settings, flash) or self._rows_refusal(settings)
            nothing = {"prompt_cache_bytes": 0, "context_checkpoints_bytes": 0}
            fills = self._server and self._spec.answers  # what embeds goes on with no prompt
            extras = server_extras(self._cache.alike, settings, self._engine) if fills else nothing
            if settings.split_mode in ("row", "tensor") and refused is None:
                from advisor.memory.split import split_refusal

                refused = split_refusal(self._spec, settings, self._engine, self._backends)
            known = self._said[key] = (refused or self._draft_refusal(settings), extras)
        return known

    def flash_attn(self, settings: RunSettings) -> bool:
        """What -fa comes to; nothing else is worked out."""
        placement, overrides, *_ = self._place(settings)
        return self.compute.flash_attn(settings, placement, overrides)

    def beside_layers(self, settings: RunSettings) -> list[int]:
        """What each device needs beside weights and cache, as far as it is known without building a graph anew."""
        placement, overrides, *_ = self._place(settings)
        computes, _ = self.compute.buffers(settings, placement, overrides, exact=False)
        needs = [compute.high + self._overhead(index)[0].value for index, compute in enumerate(computes)]
        if self._has_extras(settings):
            cache, _ = self._cache.place(settings, placement, self._backends)
            for where, extra in self._extras_of(settings, cache, computes, exact=False):
                if where != HOST:
                    needs[where] += extra.n_bytes.high
        return needs

    def _has_extras(self, settings: RunSettings) -> bool:
        return self._beside is not None or settings.beside.mtp

    def _extras_of(
        self, settings: RunSettings, cache: Sequence[int], computes: Sequence[Interval], *, exact: bool
    ) -> Placed:
        """What is loaded beside a plan with this cache and these compute buffers on each device."""
        if not self._has_extras(settings):
            return []
        place = self._place(settings)
        placement, overrides, weights = place.placement, place.overrides, self._weights_of(settings, place)
        taken = [weights.devices[i] + cache[i] + computes[i].high for i in range(len(self._devices))]
        return self._extras_planner().extras(settings, placement, overrides, self.compute, taken, exact=exact)

    def can_sketch(self, settings: RunSettings) -> bool:
        """Whether compute buffers can be told from those of earlier plans."""
        placement, overrides, *_ = self._place(settings)
        return self.compute.can_guess(settings, placement, overrides)

    def cache_bytes(self, settings: RunSettings) -> int:
        """The cache of every device and of the host together; nothing else is worked out."""
        placement = self._place(settings).placement
        devices, host = self._cache.place(settings, placement, self._backends)
        return sum(devices) + host

    def bytes_by_layer(self, settings: RunSettings) -> tuple[int, ...]:
        """Weights and cache that each block, and last the output, has on a GPU, 0 for those on the host."""
        return (0,) * max(self._spec.n_layer_all + 1 - settings.n_gpu_layers, 0) + self.layer_bytes(settings)

    def layer_bytes(self, settings: RunSettings) -> tuple[int, ...]:
        """The same of those on GPUs alone."""
        if self._asked_last[0] is settings:  # asked more than once in a row
            return self._asked_last[1]
        first = max(self._spec.n_layer_all + 1 - settings.n_gpu_layers, 0)
        named = (settings.n_cpu_moe, settings.tensor_overrides)
        weights = self._by_name.get(named) or self._by_name.setdefault(named, self._layers_without(settings))
        found = weights[first:]
        if settings.kv_offload:  # blocks that do not run, and the output, have no cache
            cache = self._cache.by_layer(settings, self._backends[0])
            found[: max(len(cache) - first, 0)] = map(add, found, cache[first:])
        self._asked_last = settings, tuple(found)
        return self._asked_last[1]

    def _layers_without(self, settings: RunSettings) -> list[int]:
        """Weights of each block and the output on a GPU without what is kept on the host."""
        count, away = self._spec.n_layer_all + 1, settings.n_cpu_moe
        weights = [*self._layer_weights(settings, away)[:away], *self._layer_weights(settings, 0)[away:]]
        for override in settings.tensor_overrides:  # those of one block, to the CPU; others are not looked at
            block = one_block(override.pattern)
            if block is not None and away <= block < count and override.buffer == "CPU":
                weights[block] -= self.matched_bytes(block, override.pattern)
        return weights

    def matched_bytes(self, block: int, pattern: str) -> int:
        """What the tensors of a block that an override finds take on a GPU."""
        known = self._matched.get(pattern)
        if known is None:
            known = self._matched[pattern] = self._layer_table.matched_bytes(block, pattern)
        return known

    def _layer_weights(self, settings: RunSettings, n_cpu_moe: int) -> Sequence[int]:
        """Weights of each block and the output on a GPU, with or without every block's experts."""
        key = bool(n_cpu_moe)
        known = self._by_layer.get(key)
        if known is None:
            count = self._spec.n_layer_all + 1
            wished = settings._replace(n_cpu_moe=count - 1 if n_cpu_moe else 0, tensor_overrides=())
            overrides = Overrides(wished, [f"layer {il}" for il in range(count)])
            known = self._by_layer[key] = self._layer_table.place(wished, range(count), overrides).devices
        return known

    def _plan_alone(self, settings: RunSettings, *, exact: bool, compute: bool) -> MemoryPlan:
        """Split mode none: the engine forgets every device but main_gpu (llama_model_load_from_file_impl)."""
        only = min(settings.main_gpu, len(self._devices) - 1)
        planner = self._alone.get(only)
        if planner is None:
            planner = self._alone[only] = Planner(
                self._spec, self._engine, [self._devices[only]], server=self._server,
                beside=self._beside, overheads=self._overheads,
            )  # fmt: skip
        plan = planner.plan(settings, exact=exact, compute=compute)
        devices = [DevicePlan(device.id, 0, 0, _NOTHING, 0, None, 0, False) for device in self._devices]
        devices[only] = plan.devices[0]
        read = [0] * len(devices)
        read[only] = plan.read_device_bytes[0]
        return plan._replace(
            devices=tuple(devices),
            placement=tuple(only if place >= 0 else HOST for place in plan.placement),
            read_device_bytes=tuple(read),
        )

    def _extras_planner(self) -> ExtrasPlanner:
        if self._extras is None:
            from advisor.memory.extras import Beside, ExtrasPlanner

            beside = self._beside or Beside()
            self._extras = ExtrasPlanner(self._spec, self._engine, self._devices, self._backends, beside)
        return self._extras

    def _overhead(self, index: int) -> tuple[Interval, str]:
        """The backend's context and scratch on a device, and where the figure comes from."""
        known = self._known_overhead.get(index)
        if known is None:
            known = self._known_overhead[index] = self._overhead_of(index)
        return known

    def _overhead_of(self, index: int) -> tuple[Interval, str]:
        device, rules = self._devices[index], self._backends[index]
        seen = self._overheads.get((device.backend, device.name)) if self._overheads else None
        if seen is not None:
            return Interval(seen, seen, seen), "observed"
        return Interval(rules.overhead_low_bytes, rules.overhead_bytes, rules.overhead_high_bytes), "rules"

    def _rows_refusal(self, settings: RunSettings) -> str | None:
        """The engine stops when its rows of logits, at most a batch, are fewer than sequences (output_reserve)."""
        rows = settings.n_outputs or settings.n_batch
        if self._engine.server_reserves_every_row or rows >= settings.n_parallel:
            return None
        return f"-np {settings.n_parallel} needs a batch of as many tokens; give -b {settings.n_parallel} or more"

    def _draft_refusal(self, settings: RunSettings) -> str | None:
        """The engine makes no draft context for a model without NextN blocks it can run."""
        drafting = self._beside.draft if self._beside is not None and self._beside.draft is not None else self._spec
        if not settings.beside.mtp or drafting.mtp_layers:
            return None
        return f"{drafting.name} has no NextN (MTP) block that can draft; leave --spec-type draft-mtp away"


def plan_memory(
    spec: ModelSpec, settings: RunSettings, engine: EngineSpec, devices: Sequence[Device], *, server: bool = True,
    beside: Beside | None = None,
) -> MemoryPlan:  # fmt: skip
    """One plan; for many plans of one model keep a Planner."""
    return Planner(spec, engine, devices, server=server, beside=beside).plan(settings)
