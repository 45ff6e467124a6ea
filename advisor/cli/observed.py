"""The prediction for a load that a log tells of: settings, devices and build as the log says."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from advisor.cli.ask import plan_for, settings_that_differ
from advisor.cli.measured import Row, compare, predicted_figures, residuals
from advisor.errors import UsageError
from advisor.ggml_types import CACHE_TYPES
from advisor.gguf_header.errors import excerpt
from advisor.memory.types import Interval
from advisor.settings import RequestedSettings

if TYPE_CHECKING:
    from advisor.engines.load_log import Load, LoadLog
    from advisor.host import Device
    from advisor.memory.engine_spec import EngineSpec
    from advisor.model.spec import ModelSpec

_MAX = 1 << 31


def predict_load(
    load: Load, log: LoadLog, model: str, *, engine_name: str | None, rules_folder: str | None
) -> tuple[ModelSpec, tuple[Row, ...], list[str], str | None]:
    """(model, rows, notes, where the residual is remembered); no rows when the log does not tell enough."""
    from advisor.app import App
    from advisor.cli.observe import sums
    from advisor.state import remember, state_folder

    app = App(rules_folder)
    header = app.header(model)
    spec = app.model(header)
    said = load.facts.get("arch")
    if said and said != spec.architecture:
        raise UsageError(
            f"the log tells of a {said[:40]} model, {model} is {excerpt(spec.architecture)}; give the right --model."
        )
    notes: list[str] = []
    name = engine_name or (f"llama.cpp@b{log.build}" if log.build else None)
    engine = app.engine(name)
    if name is None:
        notes.append(f"the log does not say the build; the rules of b{engine.build} are used, --engine names another.")
    request = settings_of(load)
    if request.n_ctx is None:
        return spec, (), [*notes, "the log does not say the context, so there is nothing to compare."], None
    devices, unknown = devices_of(load, log, engine)
    if unknown:
        notes.append(f"advisor has no rules for {', '.join(unknown)}; nothing is compared.")
        return spec, (), notes, None
    if len(devices) > 1:
        notes.append("the split over the devices is predicted from their free memory; a -ts is not in the log.")
    plan = plan_for(spec, request, engine, devices, "server")
    mapped = any(buffer.name.endswith("_Mapped") for buffer in load.weights)
    backends = {device.id: device.backend for device in devices}
    predicted = predicted_figures(plan, mapped=mapped)
    if mapped and devices:  # holes of tensors that went to a device are mapped with the rest
        sum_bytes = predicted["host", "weights"].value
        span = max(plan.host.mapped_bytes, sum_bytes)
        predicted["host", "weights"] = Interval(sum_bytes, span, span)
    if any(buffer.name.startswith("MTL") and buffer.name.endswith("_Mapped") for buffer in load.weights):
        notes.append("Metal maps a span of the file, holes included; its weights are not compared.")
        predicted = {key: value for key, value in predicted.items() if key[1] != "weights"}
    measured = {key: value for key, value in sums(load).items() if key[1] != "lora"}
    if not any(kind == "weights" for _, kind in predicted):
        measured = {key: value for key, value in measured.items() if key[1] != "weights"}
    rows = compare(predicted, measured, backends)
    settings = dict(load.contexts[0].settings) if load.contexts else {}
    notes += settings_that_differ(plan, settings)
    path, problem = remember(state_folder(os.environ), residuals(rows, spec.architecture, log.build, "observed"))
    if problem:
        notes.append(problem)
    return spec, rows, notes, path


def settings_of(load: Load) -> RequestedSettings:
    """The settings of a load's first context; what the log does not say stays open."""
    from advisor.engines.load_log import is_host

    context = load.contexts[0] if load.contexts else None
    said = context.settings if context else {}
    cache = next((cache for cache in context.caches if cache.kind == "kv"), None) if context else None
    types = {
        side: kind if kind in CACHE_TYPES else None
        for side, kind in (("k", cache.type_k if cache else None), ("v", cache.type_v if cache else None))
    }
    flash = said.get("flash_attn_resolved") or {
        "1": "on", "0": "off", "enabled": "on", "disabled": "off", "true": "on", "false": "off",
    }.get(said.get("flash_attn", ""))  # fmt: skip
    names = [buffer.name for buffer in load.weights]
    mapped = any(name.endswith("_Mapped") for name in names)
    caches = [buffer.name for buffer in (context.buffers if context else ()) if buffer.kind == "kv"]
    host_cache = bool(caches) and all(is_host(name) for name in caches)
    on_gpu = load.offloaded[0] if load.offloaded else None
    slots = _count(said.get("n_seq_max")) or 1
    unified = said.get("kv_unified")
    return RequestedSettings(
        n_ctx=_count(said.get("n_ctx")), n_batch=_count(said.get("n_batch")), n_ubatch=_count(said.get("n_ubatch")),
        n_parallel=slots, kv_unified=None if unified is None else unified in ("true", "1"),
        n_gpu_layers=on_gpu, cache_type_k=types["k"], cache_type_v=types["v"], flash_attn=flash,
        load_mode="mmap" if mapped else "none", repack=any(name == "CPU_REPACK" for name in names),
        kv_offload=False if on_gpu and on_gpu > 1 and host_cache else None,
    )  # fmt: skip


def devices_of(load: Load, log: LoadLog, engine: EngineSpec) -> tuple[tuple[Device, ...], list[str]]:
    """(devices that hold a part of this load, names without rules)."""
    from advisor.engines.load_log import backend_of
    from advisor.host import Device

    listed = {device.id: device for device in log.devices}
    devices, unknown = [], []
    for name in used_devices(load):
        backend = backend_of(name)
        if backend is None or backend not in engine.backends:
            unknown.append(name)
            continue
        known = listed.get(name)
        total = (known.total_bytes if known else None) or 0
        free = (known.free_bytes if known else None) or 1
        devices.append(Device(name, backend, known.name if known else name, max(total, free), free, source="engine"))
    return tuple(devices), unknown


def used_devices(load: Load) -> list[str]:
    """The names of the devices that hold a part of this load, without the host."""
    from advisor.engines.load_log import device_of

    used = [device_of(buffer.name) for buffer in load.weights]
    used += [device_of(buffer.name) for context in load.contexts[:1] for buffer in context.buffers]
    return sorted({name for name in used if name != "host"}, key=lambda name: (len(name), name))


def _count(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 11 and 0 < int(text) < _MAX else None
