"""What is loaded beside the model, per device: LoRA adapters, a projector, a draft model, the model's own draft head.

Source: llama.cpp b11434 src/llama-adapter.cpp, tools/mtmd/clip.cpp, common/speculative.cpp; the rules name theirs.
"""

from collections.abc import Mapping, Sequence
from math import isqrt
from typing import Any

from advisor.host import Device
from advisor.memory.cache import CacheTable
from advisor.memory.compute import ComputeModel
from advisor.memory.engine_spec import BackendRules, EngineSpec
from advisor.memory.parcels import tensor_device_bytes
from advisor.memory.placement import HOST, Overrides
from advisor.memory.plan import Planner
from advisor.memory.types import Extra, Interval
from advisor.model.beside import Adapter, BesideTensor, Encoder, Projector
from advisor.model.spec import ModelSpec
from advisor.records import NamedTuple
from advisor.settings import BesideSettings, RunSettings
from advisor.units import round_up

Placed = list[tuple[int, Extra]]  # (device index or HOST, what)
_F32 = 4
_RGB = 3


class Beside(NamedTuple):
    """The files that the settings name, read."""

    adapters: tuple[Adapter, ...] = ()
    projector: Projector | None = None
    draft: ModelSpec | None = None


class ExtrasPlanner:
    """Plans what stands beside one model on one set of devices."""

    def __init__(
        self, spec: ModelSpec, engine: EngineSpec, devices: Sequence[Device], backends: Sequence[BackendRules],
        beside: Beside,
    ) -> None:  # fmt: skip
        self._spec, self._engine, self._devices, self._backends = spec, engine, devices, backends
        self._beside = beside
        self._homes = {tensor.name: tensor for tensor in spec.tensors}
        self._draft = Planner(beside.draft, engine, devices, server=False) if beside.draft else None

    def extras(
        self, settings: RunSettings, placement: Sequence[int], overrides: Overrides, compute: ComputeModel,
        used_bytes: Sequence[int], *, exact: bool,
    ) -> Placed:  # fmt: skip
        """Everything beside a plan with this placement that takes `used_bytes` on each device; `exact` as there."""
        found: Placed = []
        for adapter in self._beside.adapters:
            found += self._adapter(adapter, settings, placement, overrides)
        if self._beside.projector is not None:
            found += self._projector(self._beside.projector, settings.beside)
        if self._draft is not None:
            found += self._draft_model(settings, used_bytes, exact)
        elif settings.beside.mtp:
            found += self._own_head(self._spec, settings, placement, overrides, compute)
        return found

    def _bytes(self, tensors: Sequence[BesideTensor], device: int) -> int:
        if device == HOST:
            return sum(round_up(tensor.n_bytes, self._engine.cpu_alignment_bytes) for tensor in tensors)
        backend = self._backends[device]
        return sum(tensor_device_bytes(t.n_bytes, t.ggml_type, t.ne0, backend) for t in tensors)

    def _home(self, base: str, placement: Sequence[int], overrides: Overrides) -> int:
        """The device of one of the model's tensors."""
        tensor = self._homes[base]
        target = overrides.target(base, tensor.block) if overrides.any else None
        if target is not None:
            return target
        if tensor.place == "block":
            return placement[min(tensor.block, self._spec.n_layer_all - 1)]
        return {"first": placement[0], "output": placement[self._spec.n_layer_all]}.get(tensor.place, HOST)

    def _adapter(
        self, adapter: Adapter, settings: RunSettings, placement: Sequence[int], overrides: Overrides
    ) -> Placed:
        """Both halves of a pair lie with the matrix they adapt; using them adds its output once more at a time."""
        homes: dict[int, list[BesideTensor]] = {}
        for tensor in adapter.tensors:
            homes.setdefault(self._home(tensor.base, placement, overrides), []).append(tensor)
        widest: dict[int, int] = {}
        for base, width in adapter.outputs:
            home = self._home(base, placement, overrides)
            logits = self._homes[base].place == "output" and settings.n_outputs
            rows = min(settings.n_outputs, settings.n_ubatch) if logits else settings.n_ubatch
            widest[home] = max(widest.get(home, 0), rows * width)
        found: Placed = []
        for home, tensors in homes.items():
            n_bytes = self._bytes(tensors, home)
            found.append((home, Extra(f"LoRA {adapter.name}", _exact(n_bytes), "its tensors, each with its matrix")))
            output = _F32 * widest.get(home, 0)
            span = Interval(0, output, 2 * output)
            found.append((home, Extra(f"LoRA {adapter.name} compute", span, "assumed: its widest output, once more")))
        return found

    def _projector(self, projector: Projector, asked: BesideSettings) -> Placed:
        """On the first GPU unless it is kept off it; the picture itself is an input in system memory."""
        device = 0 if self._backends and asked.mmproj_offload else HOST
        name = f"mmproj {projector.name}"
        found = [(device, Extra(name, _exact(self._bytes(projector.tensors, device)), "its tensors"))]
        if projector.vision is not None:
            flash = device == HOST or encoder_flash(
                projector.vision, self._devices[device], self._backends[device], self._engine
            )
            span, picture, source = encoder_bytes(projector.vision, asked.image_max_tokens, self._engine, flash)
            found.append((device, Extra(f"{name} compute", span, source)))
            found.append((HOST, Extra(f"{name} picture", picture, source)))
        if projector.audio:
            low, value, high = self._engine.projector["audio_compute_bytes"]
            found.append((device, Extra(f"{name} audio compute", Interval(low, value, high), "assumed")))
        return found

    def _draft_model(self, settings: RunSettings, used_bytes: Sequence[int], exact: bool) -> Placed:
        """A second model with a context as long as the target's; split by what the target leaves free."""
        spec, asked = self._beside.draft, settings.beside
        assert spec is not None
        assert self._draft is not None
        everything = spec.n_layer_all + 1
        layers = asked.draft_n_gpu_layers
        free = tuple(
            float(max(device.free_bytes - used, 1)) for device, used in zip(self._devices, used_bytes, strict=True)
        )
        if not self._devices:
            layers = 0
        elif layers is None or layers < 0:
            layers = everything
        own = _draft_settings(settings)._replace(
            n_gpu_layers=min(layers, everything),
            n_cpu_moe=0,
            tensor_overrides=(),
            tensor_split=settings.tensor_split or free or None,
        )
        plan = self._draft.plan(own, exact=exact)
        found: Placed = [
            (index, Extra("draft weights", _exact(device.weights_bytes), "as for the model"))
            for index, device in enumerate(plan.devices)
        ]
        found.append((HOST, Extra("draft weights", _exact(plan.host.weights_bytes), "as for the model")))
        if asked.mtp:
            overrides = Overrides(own, [device.id for device in self._devices])
            return found + self._own_head(spec, settings, plan.placement, overrides, self._draft.compute)
        for index, device in enumerate(plan.devices):
            found.append((index, Extra("draft cache", _exact(device.cache_bytes), "as for the model")))
            found.append((index, Extra("draft compute", device.compute, "as for the model")))
        found.append((HOST, Extra("draft cache", _exact(plan.host.cache_bytes), "as for the model")))
        found.append((HOST, Extra("draft compute", plan.host.compute, "as for the model")))
        found.append((HOST, Extra("draft output", _exact(plan.host.output_bytes), "as for the model")))
        return found

    def _own_head(
        self, spec: ModelSpec, settings: RunSettings, placement: Sequence[int], overrides: Overrides,
        compute: ComputeModel,
    ) -> Placed:  # fmt: skip
        """The context of the NextN blocks; their weights are the model's."""
        if not spec.mtp_layers:
            return []  # the plan says that the engine refuses
        own = _draft_settings(settings)
        drafting = CacheTable(spec._replace(layers=spec.mtp_layers))
        cache, host_cache = drafting.place(own, tuple(placement), self._backends)
        computes, host, modelled = compute.mtp_buffers(own, placement, overrides)
        how = "the engine's graph of the NextN block" if modelled else "assumed: from the widest parts"
        found: Placed = [
            (index, Extra("MTP cache", _exact(n_bytes), "the NextN blocks' cache"))
            for index, n_bytes in enumerate(cache)
        ]
        found += [(index, Extra("MTP compute", span, how)) for index, span in enumerate(computes)]
        found.append((HOST, Extra("MTP cache", _exact(host_cache), "the NextN blocks' cache")))
        found.append((HOST, Extra("MTP compute", host, how)))
        # hidden states handed over: a row per token of the batch, and one per drafting slot (set_embeddings_nextn)
        states = _F32 * spec.n_embd * (settings.n_batch + settings.n_parallel)
        rows = _F32 * spec.n_vocab * settings.n_parallel
        found.append((HOST, Extra("MTP output", _exact(states + rows), "hidden states of a batch, logits per slot")))
        return found


def encoder_flash(vision: Encoder, device: Device, backend: BackendRules, engine: EngineSpec) -> bool:
    """Whether the card's flash attention runs the encoder's heads."""
    if vision.n_head == 0:
        return False
    if device.backend == "cuda" and device.compute_capability is not None:
        try:
            if float(device.compute_capability) < engine.projector["flash_attn_compute_capability"]:
                return False
        except ValueError:
            pass
    size = vision.n_embd // vision.n_head
    return backend.runs_flash_attn(size, size, 1, masked=False)


def encoder_bytes(
    vision: Encoder, image_max_tokens: int | None, engine: EngineSpec, flash: bool
) -> tuple[Interval, Interval, str]:
    """(compute, picture in system memory, source) of a vision encoder: from its warm-up picture to its largest."""
    rules = engine.projector
    kind = vision.kind
    warm, largest = patches_of(vision, image_max_tokens, engine)
    joined, split = (_widths(rules, name, kind) for name in ("widths", "scores_widths"))

    def floats(patches: int, at: int) -> int:
        """The larger of two peaks: the feed-forward part's, and without flash attention that of the scores."""
        feed = vision.n_ff + joined[at] * vision.n_embd
        scores = 0 if flash else vision.n_head * patches + split[at] * vision.n_embd
        return int(_F32 * patches * max(feed, scores))

    span = Interval(floats(warm, 0), floats(warm, 1), floats(largest, 2))
    pixels = [_F32 * patches * (_RGB * vision.patch_size**2 + 4) for patches in (warm, warm, largest)]
    attention = "flash attention" if flash else "no flash attention: scores of every pair of patches"
    capped = "; --image-max-tokens caps it" if largest > warm else ""
    source = f"{warm:,} to {largest:,} patches, {attention}{capped}" if largest > warm else f"{warm:,} patches"
    return span, Interval(*pixels), source if capped else f"{source}, {attention}"


def patches_of(vision: Encoder, image_max_tokens: int | None, engine: EngineSpec) -> tuple[int, int]:
    """Patches of the picture that an encoder warms up with, and of the largest that it takes."""
    rules = engine.projector
    kind = vision.kind
    merge = vision.n_merge or rules["merge"].get(kind, 1)
    warm = largest = (vision.image_size // max(vision.patch_size, 1)) ** 2
    if kind in rules["max_tokens"]:
        most = image_max_tokens or rules["max_tokens"][kind]
        warm_tokens = isqrt(min(rules["warmup_tokens"].get(kind, most), most)) ** 2
        warm, largest = warm_tokens * merge * merge, most * merge * merge
    elif vision.max_pixels:
        largest = max(largest, vision.max_pixels // vision.patch_size**2)
        if image_max_tokens:
            largest = min(largest, image_max_tokens * merge * merge)
    return min(warm, largest), largest


def _widths(rules: Mapping[str, Any], name: str, kind: str) -> tuple[float, float, float]:
    """(low, value, high) in embedding widths per patch."""
    known = rules[name].get(kind)
    if known is None:
        low, value, high = rules[f"{name}_unknown"]
        return low, value, high
    return known - rules["widths_spread"], known, known + rules["widths_spread"]


def _draft_settings(settings: RunSettings) -> RunSettings:
    """The draft context: as long as the target's, with its own cache types, one row of logits per slot."""
    asked = settings.beside
    return settings._replace(
        cache_type_k=asked.draft_cache_type_k, cache_type_v=asked.draft_cache_type_v,
        n_outputs=settings.n_parallel, n_rollback=0, beside=BesideSettings(),
    )  # fmt: skip


def _exact(n_bytes: int) -> Interval:
    return Interval(n_bytes, n_bytes, n_bytes)
