"""The measurements of `advisor calibrate`, one after the other, each bounded; what fails leaves a sentence."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from advisor.calibration import CpuTimes, DiskRate
from advisor.errors import EngineError, ModelError
from advisor.records import NamedTuple
from advisor.units import MIB

if TYPE_CHECKING:
    from advisor.app import App
    from advisor.cli.progress import Progress
    from advisor.engines.find import EngineBinary
    from advisor.engines.timings import Timing
    from advisor.engines.trial import AtDepth
    from advisor.model.spec import ModelSpec
    from advisor.speed.trials import Timed, Trial
    from advisor.stores.types import StoreReport

_BUSY_SHARE = 0.5  # of the cores
_MODELS_LOOKED_AT = 40  # for their storage types and head sizes
_CHECK_BYTES = (48 * MIB, 3072 * MIB)  # a smaller model comes from the cache, a larger one takes too long
_CHECK_DEPTHS = (4096, 2048, 1024, 512, 256)
CHECK_PROMPT_S = 25.0  # for reading a prompt of that depth


def is_busy(cores: int) -> str | None:
    """A sentence when other programs use much of the processor."""
    try:
        load = os.getloadavg()[0]
    except (OSError, AttributeError):
        return None
    if load <= _BUSY_SHARE * cores:
        return None
    return (
        f"The machine is busy (load {load:.1f} on {cores} cores), so figures may come out too low; "
        "run it again when nothing else runs."
    )


# ---------------------------------------------------------------- disks


class DiskFound(NamedTuple):
    """One model folder: its rate, or why there is none."""

    folder: str
    file: str | None
    bytes_per_s: int | None
    reason: str


def measure_disks(folders: Sequence[tuple[str, Sequence[str]]]) -> list[DiskFound]:
    """For each (folder, files in it). A disk under several folders is read once."""
    from advisor.hardware.disk_speed import measure_file
    from advisor.hardware.storage import probe_storage

    known: dict[int, DiskFound] = {}
    found = []
    kinds, _ = probe_storage([folder for folder, _ in folders])
    for (folder, files), storage in zip(folders, kinds, strict=True):
        sized = sorted(((_size(path), path) for path in files), reverse=True)
        path = sized[0][1] if sized and sized[0][0] else None
        if path is None:
            found.append(DiskFound(folder, None, None, "holds no file to measure with"))
            continue
        if storage.source is not None and storage.source.endswith("in memory"):
            found.append(DiskFound(folder, None, None, "is in memory, not on a disk"))
            continue
        device = os.stat(path).st_dev
        if device not in known or known[device].bytes_per_s is None:
            rate, reason = measure_file(path)
            known[device] = DiskFound(folder, path, rate, reason)
        found.append(known[device]._replace(folder=folder))
    return found


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def disk_rates(found: Sequence[DiskFound]) -> tuple[DiskRate, ...]:
    """Those that could be measured."""
    return tuple(DiskRate(disk.folder, disk.bytes_per_s) for disk in found if disk.bytes_per_s is not None)


def model_folders(reports: Sequence[StoreReport], given: Sequence[str]) -> list[tuple[str, list[str]]]:
    """(folder, its models' files) of every store with models, and of the folders that were named."""
    found: dict[str, list[str]] = {os.path.abspath(folder): [] for folder in given}
    for report in reports:
        folder = os.path.abspath(report.folder)
        files = [path for model in report.models if model.problem is None for path in model.paths]
        if report.status == "ok" and (files or folder in found):
            found.setdefault(folder, []).extend(files)
    return list(found.items())


# ---------------------------------------------------------------- the engine's trials


class Tried(NamedTuple):
    """What one engine did."""

    binary: EngineBinary
    cpu: CpuTimes | None
    timed: tuple[Timed, ...]
    left_out: tuple[Trial, ...]  # no time was left, or the engine does not take them
    seconds: float


def try_engines(
    engines: Sequence[EngineBinary], wanted: Sequence[Trial], seconds: float, progress: Progress
) -> tuple[Tried | None, list[str]]:
    """(the first engine's trials that came to something, why others did not)."""
    problems: list[str] = []
    for binary in engines:
        folder = _room()
        try:
            tried, problem = _try(binary, wanted, folder, seconds, progress)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        problems += [problem] if problem else []
        if tried is not None:
            return tried, problems
    return None, problems


def _try(
    binary: EngineBinary, wanted: Sequence[Trial], folder: str, seconds: float, progress: Progress
) -> tuple[Tried | None, str | None]:
    from advisor.engines.trial import run_trial
    from advisor.speed.trials import fit, middles

    started = time.monotonic()
    timed: list[Timed] = []
    refused: dict[Trial, None] = {}
    problem = build = None
    for number, trial in enumerate(wanted):
        progress.show("timing the engine", number, len(wanted))
        if time.monotonic() - started > seconds and fit(middles(timed), "", None) is not None:
            break
        if trial in refused:
            continue
        try:
            answer, build = run_trial(binary, trial, folder, os.environ)
            timed.append(answer)
        except EngineError as error:
            if not timed:
                return None, str(error)
            problem = f"{trial.what} {trial.kind}: {error}"
            refused[trial] = None
        except OSError as error:
            return None, f"no room for a trial's file in {folder} ({error.strerror})."
    timed = middles(timed)
    cpu = fit(timed, binary.kind if binary.origin == "Python" else os.path.basename(binary.path), build)
    if cpu is None:
        return None, problem or "the engine's trials came to nothing."
    done = {entry.trial for entry in timed}
    left_out = tuple(trial for trial in dict.fromkeys(wanted) if trial not in done)
    return Tried(binary, cpu, tuple(timed), left_out, time.monotonic() - started), problem


def _room() -> str:
    """A folder for trial files, in memory where there is one."""
    memory = "/dev/shm"  # noqa: S108
    if os.path.isdir(memory) and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2048 * MIB:
        return tempfile.mkdtemp(prefix="advisor-", dir=memory)
    return tempfile.mkdtemp(prefix="advisor-")


def types_and_heads(app: App, reports: Sequence[StoreReport]) -> tuple[list[str], list[int]]:
    """Storage types, the most used first, and head sizes of the models at hand."""
    from advisor.ggml_types import GGML_TYPES

    types: dict[str, int] = {}
    heads: dict[int, None] = {}
    for spec in _specs(app, reports):
        for tensor in spec.tensors:
            if len(tensor.shape) > 1:
                name = GGML_TYPES[tensor.ggml_type].name
                types[name] = types.get(name, 0) + tensor.n_bytes
        heads.update((layer.head_size_k, None) for layer in spec.layers if layer.head_size_k == layer.head_size_v)
    return sorted(types, key=lambda name: -types[name]), list(heads)


def _specs(app: App, reports: Sequence[StoreReport]) -> list[ModelSpec]:
    found = []
    models = [model for report in reports for model in report.models if model.kind == "model" and not model.problem]
    for model in models[:_MODELS_LOOKED_AT]:
        try:
            found.append(app.model(app.header(model.path)))
        except ModelError:
            continue
    return found


# ---------------------------------------------------------------- a real model


class Checked(NamedTuple):
    """A whole model on an engine."""

    at_depths: tuple[AtDepth, ...]
    prompt: Timing  # the longest
    n_ctx: int
    build: int | None


def small_model(app: App, reports: Sequence[StoreReport]) -> ModelSpec | None:
    """The smallest model at hand that is large enough to tell something, that answers, and that advisor knows."""
    sizes = [
        (model.file_bytes, model.path)
        for report in reports
        for model in report.models
        if model.kind == "model" and model.problem is None and len(model.paths) == 1
        if _CHECK_BYTES[0] <= model.file_bytes <= _CHECK_BYTES[1]
    ]
    for _, path in sorted(sizes)[:_MODELS_LOOKED_AT]:
        with contextlib.suppress(ModelError):
            spec = app.model(app.header(path))
            if spec.arch_rule and spec.answers:
                return spec
    return None


def check_model(
    binary: EngineBinary,
    path: str,
    n_ctx_train: int,
    prompt_s: Callable[[int], float],
    *,
    patience_s: float,
    layers: int,
    device: str | None,
) -> Checked:
    """Run the model empty and behind a long prompt. Raises EngineError.

    `prompt_s`: predicted seconds of a prompt, which may take `patience_s`.
    """
    from advisor.engines.serve import running
    from advisor.engines.trial import build_of, time_model

    longest = n_ctx_train - 256 if n_ctx_train else _CHECK_DEPTHS[0]
    depth = next((n for n in _CHECK_DEPTHS if n <= longest and prompt_s(n) <= patience_s), 0)
    n_ctx = depth + 256
    with running(binary, path, n_ctx, os.environ, layers=layers, device=device) as address:
        build = build_of(address)
        at_depths, prompt = time_model(address, (0, depth) if depth else (0,))
    return Checked(tuple(at_depths), prompt, n_ctx, build)
