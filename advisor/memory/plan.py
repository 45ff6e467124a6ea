"""The whole prediction: weights, cache and compute of one model with one set of settings on one set of devices."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.ggml_types import BY_NAME
from advisor.host import Device
from advisor.memory.cache import layer_cache_bytes, padded_v_width, place_cache, refusal
from advisor.memory.compute.buffers import (
    host_inputs_bytes,
    single_device_bytes,
    widest_block_bytes,
    with_host_blocks,
    with_host_experts,
)
from advisor.memory.compute.terms import Reserve, mask_bytes, reserve
from advisor.memory.engine_spec import BackendRules, EngineSpec
from advisor.memory.placement import HOST, Overrides, place_layers
from advisor.memory.types import DevicePlan, HostPlan, Interval, MemoryPlan
from advisor.memory.weights import WeightBytes, place_weights
from advisor.model.spec import ModelSpec
from advisor.settings import RunSettings


class Planner:
    """Plans for one model on one set of devices; weights and placement are kept between plans that share them."""

    def __init__(self, spec: ModelSpec, engine: EngineSpec, devices: Sequence[Device], *, server: bool = True) -> None:
        self._spec, self._engine, self._devices, self._server = spec, engine, devices, server
        self._backends = [engine.backends[device.backend] for device in devices]
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

    def plan(self, settings: RunSettings) -> MemoryPlan:
        """Bytes per device and component. `settings` come from resolve_settings for the same devices."""
        spec, engine, backends = self._spec, self._engine, self._backends
        placement, overrides, weights = self._place(settings)
        cache, host_cache = place_cache(spec, settings, placement, backends)
        flash, off_by_auto, unsupported = resolve_flash_attn(spec, settings, placement, backends)
        computes, host_compute = _compute(
            spec, settings, engine, backends, placement, weights, overrides, flash, off_by_auto, unsupported
        )
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


def resolve_flash_attn(
    spec: ModelSpec, settings: RunSettings, placement: Sequence[int], backends: Sequence[BackendRules]
) -> tuple[bool, bool, bool]:
    """(flash attention in the graph, switched off by auto, some device cannot run it though it is on)."""
    if settings.flash_attn == "off" or spec.flash_attn_forced_off:
        return False, False, False
    runs = True
    checked: set[tuple[int, int, int, int]] = set()
    for layer in spec.layers:
        device = placement[layer.il]
        if layer.attention == "none" or device == HOST:
            continue
        head_v = spec.shapes.head_size_v_mla and layer.head_size_v if layer.attention == "latent" else layer.head_size_v
        key = (device, layer.head_size_k, head_v, layer.n_head // layer.n_head_kv)
        if key in checked:
            continue
        checked.add(key)
        backend = backends[device]
        types = {settings.cache_type_k.lower(), settings.cache_type_v.lower()}
        runs = runs and backend.runs_flash_attn(*key[1:]) and types <= backend.cache_types
    if runs:
        return True, False, False
    quantized_v = BY_NAME[settings.cache_type_v.lower()].is_quantized
    if settings.flash_attn == "auto" and not quantized_v:
        return False, True, False
    return True, False, True


def _compute(
    spec: ModelSpec, settings: RunSettings, engine: EngineSpec, backends: Sequence[BackendRules],
    placement: Sequence[int], weights: WeightBytes, overrides: Overrides,
    flash: bool, off_by_auto: bool, unsupported: bool,
) -> tuple[list[Interval], Interval]:  # fmt: skip
    """(compute per device, compute on the host)."""
    if not backends:
        r = reserve(
            spec, settings, engine.input_copies_cpu, on_cpu=True, flash=flash, off_by_auto=off_by_auto, scratch=False
        )
        total = single_device_bytes(r, spec.layers, with_output=True)
        return [], Interval(total, total, total)
    r = reserve(
        spec, settings, engine.input_copies_gpu, on_cpu=False, flash=flash, off_by_auto=off_by_auto,
        scratch=flash and backends[0].f16_scratch_in_flash_attn,
    )  # fmt: skip
    everything_on_gpu = HOST not in placement and settings.kv_offload and not overrides.any
    host = host_inputs_bytes(r)
    if unsupported:
        return _unsupported_flash(r, backends, placement, host)
    if everything_on_gpu:
        return _all_on_gpu(r, backends, placement, host)
    return _mixed(r, backends, placement, weights, host)


def _all_on_gpu(
    r: Reserve, backends: Sequence[BackendRules], placement: Sequence[int], host: int
) -> tuple[list[Interval], Interval]:
    spec = r.spec
    used = sorted(set(placement))
    pipeline = len(backends) > 1 and all(backend.pipeline_copies > 1 for backend in backends)
    mask, row = mask_bytes(r), 4 * r.n_tokens * spec.n_embd
    computes = []
    for index in range(len(backends)):
        layers = [layer for layer in spec.layers if placement[layer.il] == index]
        has_output = placement[spec.n_layer_all] == index
        if not layers and not has_output:
            computes.append(Interval(0, 0, 0))
            continue
        value = single_device_bytes(r, layers, with_output=has_output)
        if not pipeline:
            computes.append(Interval(value, value, value))
            continue
        value += 3 * mask + (12 if index == used[0] else 7) * row
        computes.append(Interval(int(value * 0.97), value, int(value * 1.03)))
    if pipeline:
        host = host - mask - r.copies * row + 4 * mask + 10 * row
    return computes, Interval(host, host, host)


def _unsupported_flash(
    r: Reserve, backends: Sequence[BackendRules], placement: Sequence[int], host: int
) -> tuple[list[Interval], Interval]:
    """`-fa on` where a device has no kernel for the head size: the operation runs on the CPU."""
    spec, t = r.spec, r.n_tokens
    computes = []
    for index in range(len(backends)):
        layers = [layer for layer in spec.layers if placement[layer.il] == index]
        value = widest_block_bytes(r, layers, attention=False) + 40 * t if layers else 0
        computes.append(Interval(value, value, value))
    moved = max(
        layer_cache_bytes(layer, r.settings, 0, None) + 4 * t * (layer.n_head * (layer.head_size_k + layer.head_size_v))
        for layer in spec.layers
        if layer.attention != "none"
    )
    value = max(host, mask_bytes(r) + moved + 4 * t * (spec.n_embd + 9))
    return computes, Interval(value, value, value)


def _mixed(
    r: Reserve, backends: Sequence[BackendRules], placement: Sequence[int], weights: WeightBytes, host: int
) -> tuple[list[Interval], Interval]:  # fmt: skip
    """Weights, experts or cache on the host: the first GPU computes them too for large batches."""
    spec, settings = r.spec, r.settings
    padded_v = padded_v_width(spec, settings)
    host_layers = [layer for layer in spec.layers if placement[layer.il] == HOST or not settings.kv_offload]
    caches = [layer_cache_bytes(layer, settings, padded_v, None) for layer in host_layers]
    computes = []
    helper = min((p for p in placement if p != HOST), default=0)
    for index in range(len(backends)):
        layers = [layer for layer in spec.layers if placement[layer.il] == index]
        has_output = placement[spec.n_layer_all] == index
        if not layers and not has_output and index != helper:
            computes.append(Interval(0, 0, 0))
            continue
        full = single_device_bytes(r, layers or spec.layers, with_output=has_output)
        if not settings.op_offload or index != helper:
            computes.append(Interval(full, full, full))
        elif HOST in placement or not settings.kv_offload:
            computes.append(with_host_blocks(r, full, weights.host_tensors, host_layers, caches))
        else:
            computes.append(with_host_experts(r, full, weights.host_tensors))
    if not settings.op_offload:
        host = single_device_bytes(r, spec.layers, with_output=placement[spec.n_layer_all] == HOST)
    return computes, Interval(host, host, host)


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
