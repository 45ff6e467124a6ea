"""The whole prediction: weights, cache and compute of one model with one set of settings on one set of devices."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.ggml_types import BY_NAME
from advisor.host import Device
from advisor.memory.cache import place_cache, refusal
from advisor.memory.compute import ComputeModel
from advisor.memory.engine_spec import EngineSpec
from advisor.memory.placement import Overrides, place_layers
from advisor.memory.types import DevicePlan, HostPlan, MemoryPlan
from advisor.memory.weights import WeightBytes, place_weights
from advisor.model.spec import ModelSpec
from advisor.settings import RunSettings


class Planner:
    """Plans for one model on one set of devices; weights and placement are kept between plans that share them."""

    def __init__(self, spec: ModelSpec, engine: EngineSpec, devices: Sequence[Device], *, server: bool = True) -> None:
        self._spec, self._engine, self._devices, self._server = spec, engine, devices, server
        self._backends = [engine.backends[device.backend] for device in devices]
        self._compute = ComputeModel(spec, engine, self._backends)
        self._placed: dict[tuple[object, ...], tuple[tuple[int, ...], Overrides, WeightBytes]] = {}

    def _place(self, settings: RunSettings) -> tuple[tuple[int, ...], Overrides, WeightBytes]:
        key = (settings.n_gpu_layers, settings.n_cpu_moe, settings.tensor_overrides, settings.split_mode,
               settings.tensor_split, settings.main_gpu, settings.mmap, settings.repack)  # fmt: skip
        known = self._placed.get(key)
        if known is None:
            free = [device.free_bytes for device in self._devices]
            placement = place_layers(settings, self._spec.n_layer_all, free)
            overrides = Overrides(settings, [device.id for device in self._devices])
            weights = place_weights(self._spec, settings, self._engine, placement, self._backends, overrides)
            known = self._placed[key] = (placement, overrides, weights)
        return known

    def plan(self, settings: RunSettings, *, exact: bool = True) -> MemoryPlan:
        """Bytes per device and component. `settings` come from resolve_settings for the same devices.

        Without `exact` compute buffers may be interpolated between those of earlier plans.
        """
        spec, engine, backends = self._spec, self._engine, self._backends
        placement, overrides, weights = self._place(settings)
        cache, host_cache = place_cache(spec, settings, placement, backends)
        flash = self._compute.flash_attn(settings, placement, overrides)
        computes, host_compute = self._compute.buffers(settings, placement, overrides, exact=exact)
        plans = []
        for index, device in enumerate(self._devices):
            blocks = [i for i in range(spec.n_layer_all) if placement[i] == index]
            used = weights.devices[index] + cache[index] + computes[index].high > 0
            plans.append(
                DevicePlan(
                    id=device.id,
                    weights_bytes=weights.devices[index],
                    cache_bytes=cache[index],
                    compute=computes[index],
                    overhead_bytes=backends[index].overhead_bytes if used else 0,
                    layers=(blocks[0], blocks[-1]) if blocks else None,
                    n_layers=len(blocks),
                    has_output=placement[spec.n_layer_all] == index,
                )
            )
        extras = {"prompt_cache_bytes": 0, "context_checkpoints_bytes": 0}
        host = HostPlan(
            weights_bytes=weights.host,
            cache_bytes=host_cache,
            compute=host_compute,
            output_bytes=4 * spec.n_vocab * max(settings.n_parallel, 1) if spec.has_logits else 0,
            mapped_bytes=weights.mapped,
            repack_bytes=weights.repack,
            extras=_extras(spec, settings, engine) if self._server else extras,
        )
        return MemoryPlan(
            settings=settings,
            flash_attn=flash,
            devices=tuple(plans),
            host=host,
            refused=refusal(spec, settings, flash),
            notes=(),
            placement=placement,
            read_device_bytes=weights.read_devices,
            read_host_bytes=weights.read_host,
            host_expert_blocks=weights.host_expert_blocks,
        )


def plan_memory(
    spec: ModelSpec, settings: RunSettings, engine: EngineSpec, devices: Sequence[Device], *, server: bool = True
) -> MemoryPlan:
    """One plan; for many plans of one model keep a Planner."""
    return Planner(spec, engine, devices, server=server).plan(settings)


def _extras(spec: ModelSpec, settings: RunSettings, engine: EngineSpec) -> dict[str, int]:
    """Host memory that the server fills over time: saved prompts, and checkpoints of what cannot be rewound."""
    per_sequence = 0
    for layer in spec.layers:
        per_sequence += 4 * (layer.recurrent_conv + layer.recurrent_state)
        if layer.has_cache and layer.n_window and not settings.swa_full:
            cells = min(settings.n_ctx_seq, layer.n_window + settings.n_ubatch)
            for name, width in ((settings.cache_type_k, layer.k_width), (settings.cache_type_v, layer.v_width)):
                kind = BY_NAME[name.lower()]
                per_sequence += cells * width // kind.block_elements * kind.block_bytes
    spacing = engine.server["checkpoint_spacing_tokens"]
    count = min(engine.server["context_checkpoints"], -(-settings.n_ctx_seq // spacing))
    return {
        "prompt_cache_bytes": engine.server["prompt_cache_bytes"],
        "context_checkpoints_bytes": per_sequence * count * settings.n_parallel,
    }
