"""Measured cells of the engine's own accounting, planned through the core."""

from __future__ import annotations

import functools
import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

import tomli

from advisor.gguf_header import GgufHeader, read_snapshot
from advisor.host import Device
from advisor.memory.compute import ComputeModel
from advisor.memory.engine_spec import BackendRules, EngineSpec, parse_engine
from advisor.memory.graph import GraphPlacement, GraphSettings
from advisor.memory.placement import Overrides, place_layers
from advisor.memory.plan import plan_memory
from advisor.memory.resolve import resolve_settings
from advisor.memory.types import MemoryPlan
from advisor.model.arch_rule import parse_arch_rule
from advisor.model.describe import describe
from advisor.model.spec import ModelSpec
from advisor.settings import RequestedSettings, RunSettings, TensorOverride
from tests.truth.shapes import fresh_snapshot

DATA = Path(__file__).parent.parent / "data"
RULES = Path(__file__).parent.parent.parent / "rules"
_FLASH = {"1": "on", "0": "off", "auto": "auto"}


def snapshot(name: str) -> dict[str, Any]:
    """The header snapshot of a model of the zoo, of the small shapes, or of those that nothing was fitted to."""
    path = DATA / "zoo" / f"{name}.json.gz"
    if path.is_file():
        return json.loads(gzip.decompress(path.read_bytes()))
    return _small()[name] if name in _small() else fresh_snapshot(name)


@functools.cache
def header(name: str) -> GgufHeader:
    """The same, read by our reader."""
    return read_snapshot(json.dumps(snapshot(name)).encode(), name)


@functools.cache
def _small() -> dict[str, Any]:
    return json.loads(gzip.decompress((DATA / "small.json.gz").read_bytes()))


@functools.cache
def spec(name: str, load_mtp: bool = False) -> ModelSpec:
    """A zoo model, described with its architecture's rule."""
    return describe_header(header(name), load_mtp=load_mtp)


def describe_header(head: GgufHeader, *, load_mtp: bool = False, draft: bool = False) -> ModelSpec:
    """Any header, described with the shipped rule of its architecture, or none."""
    file = f"arch/{head.metadata.get('general.architecture')}.toml"
    path = RULES / file
    rule = parse_arch_rule(tomli.loads(path.read_text()) if path.is_file() else None, file)
    return describe(head, rule, load_mtp=load_mtp, draft=draft)


@functools.cache
def engine(build: int | None = 11434) -> EngineSpec:
    """llama.cpp at a build, by default the one that the cells were measured with; None = the newest known."""
    return parse_engine(tomli.loads((RULES / "engines" / "llama_cpp.toml").read_text()), build)


@functools.cache
def cells(name: str) -> tuple[dict[str, Any], ...]:
    """All cells of `grid`, `grid-cpu`, `small`, `wide` or `fresh`."""
    with gzip.open(DATA / "cases" / f"{name}.jsonl.gz", "rt") as file:
        return tuple(json.loads(line) for line in file)


class Planned(NamedTuple):
    """A cell with our plan for it."""

    cell: dict[str, Any]
    settings: RunSettings
    plan: MemoryPlan

    def measured(self, index: int) -> tuple[int, int, int]:
        """(weights, cache, compute) of GPU `index` as measured."""
        weights, cache, compute = self.cell["bufs"].get(f"FAKE{index}", (0, 0, 0))
        return weights, cache, compute

    def measured_host(self) -> tuple[int, int, int]:
        """(weights, cache, compute) over all host buffers as measured."""
        host = [v for k, v in self.cell["bufs"].items() if k in ("CPU", "CPU_REPACK", "FAKE_Host")]
        return sum(v[0] for v in host), sum(v[1] for v in host), sum(v[2] for v in host)


def requested(cell: dict[str, Any]) -> RequestedSettings:
    """A cell's settings under llama.cpp's names."""
    s = cell["settings"]
    return RequestedSettings(
        n_ctx=s["c"],
        n_batch=s.get("b", 2048),
        n_ubatch=s["ub"],
        n_parallel=s["np"],
        kv_unified=bool(s["kvu"]),
        n_gpu_layers=s["ngl"],
        n_cpu_moe=s.get("_ncmoe"),
        tensor_overrides=_overrides(s),
        cache_type_k=s["ctk"],
        cache_type_v=s["ctv"],
        flash_attn=_FLASH[s["fa"]],
        swa_full=bool(int(s.get("swafull", 0))),
        kv_offload=s.get("kvo", 1) != 0,
        op_offload=s.get("opo", 1) != 0,
        split_mode=s.get("sm", "layer"),
        main_gpu=s.get("mg", 0),
        tensor_split=tuple(float(x) for x in s["ts"].split(",")) if "ts" in s else None,
        load_mode="none",
        repack=bool(s.get("extra", 1)),
    )


def _overrides(settings: dict[str, Any]) -> tuple[TensorOverride, ...]:
    pairs = (item.rpartition("=") for item in settings["ots"].split(";")) if "ots" in settings else ()
    listed = [TensorOverride(pattern, buffer.replace("FAKE", "CUDA")) for pattern, _, buffer in pairs]
    if "ot" in settings and "_ncmoe" not in settings:
        listed.append(TensorOverride(settings["ot"], "CPU"))
    return tuple(listed)


class GraphInputs(NamedTuple):
    """What the graph model takes for one cell."""

    model: ComputeModel
    settings: GraphSettings
    placement: GraphPlacement
    devices: tuple[BackendRules, ...]


def graph_inputs(cell: dict[str, Any]) -> GraphInputs:
    """A cell as the graph model sees it."""
    n = len(cell["free_mib"])
    model, rules = spec(cell["model"]), (engine().backends["cuda"],) * n
    tool = "server" if cell["settings"]["no"] else "cli"
    settings = resolve_settings(requested(cell), model, engine(), tool=tool, n_devices=n)
    compute = ComputeModel(model, engine(), rules)
    placement = place_layers(settings, model.n_layer_all, [mib << 20 for mib in cell["free_mib"]])
    overrides = Overrides(settings, [f"CUDA{i}" for i in range(n)])
    return GraphInputs(compute, *compute.values(settings, placement, overrides), rules)


def planned(cell: dict[str, Any]) -> Planned:
    """Plan one cell."""
    devices = [Device(f"CUDA{i}", "cuda", f"CUDA{i}", mib << 20, mib << 20) for i, mib in enumerate(cell["free_mib"])]
    model = spec(cell["model"])
    tool = "server" if cell["settings"]["no"] else "cli"
    settings = resolve_settings(requested(cell), model, engine(), tool=tool, n_devices=len(devices))
    return Planned(cell, settings, plan_memory(model, settings, engine(), devices))


def setting_class(cell: dict[str, Any]) -> str:
    """Which kind of setting a cell is, for tables and shares."""
    s, n = cell["settings"], len(cell["free_mib"])
    if n == 0:
        return "CPU only, flash attention" if s["fa"] != "0" else "CPU only, -fa off"
    if "ot" in s:
        return "experts on the CPU"
    if s.get("kvo", 1) == 0:
        return "cache on the host"
    if s["ngl"] == 0:
        return "-ngl 0"
    if s["ngl"] <= spec(cell["model"]).n_layer_all:
        return "partial offload"
    if n > 1:
        return f"{n} GPUs"
    if s["fa"] == "0":
        return "one GPU, -fa off"
    return "one GPU, f16 cache" if s["ctk"] == s["ctv"] == "f16" else "one GPU, quantised cache"
