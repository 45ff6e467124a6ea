"""Asking the user's own engine and predicting the same: what `verify` and `recommend --verify` share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from advisor.cli.measured import Row, compare, predicted_figures
from advisor.errors import EngineError, ModelError
from advisor.memory.engine_spec import EngineSpec
from advisor.memory.types import MemoryPlan
from advisor.model.spec import ModelSpec
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings, without_beside

if TYPE_CHECKING:
    from advisor.app import App
    from advisor.engines.dry_run import DryRun
    from advisor.host import Device


class Asked(NamedTuple):
    """One question and both answers."""

    dry_run: DryRun
    engine: EngineSpec
    tool: str
    devices: tuple[Device, ...]
    plan: MemoryPlan
    rows: tuple[Row, ...]
    settings_differ: tuple[str, ...]  # sentences
    notes: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Whether every component lies in its interval and the engine runs the settings that were meant."""
        return all(row.agrees for row in self.rows) and not self.settings_differ


def ask(
    app: App,
    spec: ModelSpec,
    request: RequestedSettings,
    *,
    engine_name: str | None,
    binary: str | None,
    only_devices: Sequence[str] | None,
) -> Asked:
    """Ask the engine for `request` and predict it for the devices that the engine itself names.

    `only_devices` restricts it to some, none included. Raises EngineError.
    """
    from advisor.engines.dry_run import ask_engine
    from advisor.engines.find import BINDINGS, find_engines

    engines = find_engines(binary, os.environ)
    _readable(spec.path)
    alone = without_beside(request)
    dry_run = ask_engine(engines, spec.path, alone, os.environ, only_devices=only_devices)
    notes = []
    if alone != request:
        notes.append("adapters, projectors and draft models are left out: the comparison is of the model alone.")
    request = alone
    if engine_name is None and dry_run.binary.kind == BINDINGS:
        engine = app.engine("llama-cpp-python")
        notes.append("llama-cpp-python tells no weights, and of the caches only their sum over the devices.")
    elif engine_name is None and dry_run.build is not None:
        engine = app.engine(f"llama.cpp@b{dry_run.build}")
    else:
        engine = app.engine(engine_name)
        if engine_name is None:
            notes.append(
                f"the engine does not say its build, so the rules of b{engine.build} are used; "
                "name it with --engine llama.cpp@BUILD."
            )
    if any(name.startswith("LLAMA_ARG_") for name in os.environ):
        notes.append("settings in LLAMA_ARG_* variables were kept from the engine; give them as options.")
    tool = "bench" if dry_run.every_row else "server"
    if dry_run.every_row:
        notes.append("llama-fit-params reserves logits for every token, so the prediction here does so too.")
    devices = engine_devices(dry_run, engine)
    plan = plan_for(spec, request, engine, devices, tool)
    backends = {device.id: device.backend for device in devices}
    rows = compare(predicted_figures(plan), dry_run.figures, backends)
    return Asked(dry_run, engine, tool, devices, plan, rows, settings_that_differ(plan, dry_run.settings), tuple(notes))


def plan_for(
    spec: ModelSpec, request: RequestedSettings, engine: EngineSpec, devices: tuple[Device, ...], tool: str
) -> MemoryPlan:
    """The prediction for these devices."""
    from advisor.memory.plan import plan_memory
    from advisor.memory.resolve import resolve_settings

    settings = resolve_settings(request, spec, engine, tool=tool, n_devices=len(devices))
    return plan_memory(spec, settings, engine, devices, server=tool == "server")


def engine_devices(dry_run: DryRun, engine: EngineSpec) -> tuple[Device, ...]:
    """The engine's devices as ours, in its order."""
    from advisor.engines.load_log import backend_of
    from advisor.host import Device

    devices = []
    for listed in dry_run.devices:
        backend = backend_of(listed.id)
        if backend not in engine.backends:
            raise EngineError(
                f"the engine uses the device {listed.id}, for which advisor has no rules; "
                f"leave it out with --no-gpu, or read a log with 'advisor observe'."
            )
        free = listed.free_bytes or 0
        devices.append(Device(listed.id, backend or "", listed.name, listed.total_bytes or free, free, source="engine"))
    return tuple(devices)


def pinned(plan: MemoryPlan) -> RequestedSettings:
    """Every setting of a plan as a wish, so that nothing is left to the engine's defaults."""
    s = plan.settings
    flash = "on" if plan.flash_attn else "off" if s.flash_attn == "off" else "auto"
    return RequestedSettings(
        n_ctx=s.n_ctx, n_batch=s.n_batch, n_ubatch=s.n_ubatch, n_parallel=s.n_parallel, kv_unified=s.kv_unified,
        n_gpu_layers=s.n_gpu_layers if plan.devices else None, n_cpu_moe=s.n_cpu_moe or None,
        tensor_overrides=s.tensor_overrides, cache_type_k=s.cache_type_k, cache_type_v=s.cache_type_v,
        flash_attn=flash, swa_full=s.swa_full or None, kv_offload=None if s.kv_offload else False,
        op_offload=None if s.op_offload else False, split_mode=None if s.split_mode == "layer" else s.split_mode,
        tensor_split=s.tensor_split, main_gpu=s.main_gpu or None, load_mode=None if s.mmap else "none",
        n_threads=s.n_threads, repack=None if s.repack else False,
    )  # fmt: skip


def settings_that_differ(plan: MemoryPlan, said: dict[str, str]) -> tuple[str, ...]:
    """Settings that the engine runs otherwise than the plan."""
    s = plan.settings
    ours = {
        "n_ctx": str(s.n_ctx), "n_batch": str(s.n_batch), "n_ubatch": str(s.n_ubatch), "n_seq_max": str(s.n_parallel),
        "kv_unified": str(s.kv_unified).lower(), "flash_attn_resolved": "on" if plan.flash_attn else "off",
    }  # fmt: skip
    return tuple(
        f"the engine runs {name.removesuffix('_resolved')} = {said[name]}, predicted was {value}."
        for name, value in ours.items()
        if name in said and said[name] != value
    )


def _readable(path: str) -> None:
    try:
        with open(path, "rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ModelError(
            f"{path} cannot be read ({error.strerror}); give a .gguf file that the engine can load."
        ) from None
    if magic != b"GGUF":
        raise ModelError(f"{path} is no file that an engine can load; verify needs the .gguf file itself.")
