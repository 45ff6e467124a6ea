"""Published speed measurements as cases for advisor's own prediction: a device, a model's file, settings, a depth.

A row is used where its device and its model are clear; `LeftOut` says what is missing in the others.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from advisor.errors import HardwareError
from advisor.hardware.gpu_table import GpuTable
from advisor.host import Cpu, Device, HostSnapshot, Ram
from advisor.memory.plan import Planner
from advisor.memory.resolve import resolve_settings
from advisor.memory.types import MemoryPlan
from advisor.model.spec import ModelSpec
from advisor.settings import RequestedSettings
from tests.tools.cells import DATA, engine
from tests.tools.speed_models import UnclearModelError, file_of

GIB = 1 << 30
ROWS = DATA / "speeds.jsonl"
_BACKENDS = {"cuda": "cuda", "rocm": "rocm", "vulkan": "vulkan", "metal": "metal", "cpu": "cpu", "sycl": "sycl"}
# what a row itself says about being no plain run of llama.cpp with the model in memory
_UNLIKE = {
    "another program": r"airllm|ik fork|\bmla \d",
    "memory was overdrawn": r"spill|shared memory|vram taken|disk paging|squeezed",
    "a BLAS build, which keeps prompts on the CPU": r"\bblas enabled",
}


class Case(NamedTuple):
    """One row that is used. `plan` is advisor's own; speeds are measured, None where the row has none."""

    id: str
    device: str  # what is left out together when constants are refitted
    spec: ModelSpec
    host: HostSnapshot
    plan: MemoryPlan
    n_bytes: int  # of the file
    decode_depth: int  # tokens in the cache in the middle of the answer
    decode_tokens_per_s: float | None
    prompt_tokens: int
    prompt_depth: int  # tokens in the cache before the prompt
    prefill_tokens_per_s: float | None


class LeftOut(NamedTuple):
    """A row that is not used, and why."""

    id: str
    why: str


class _UnclearError(Exception):
    pass


def read_cases(path: Path = ROWS, table: GpuTable | None = None) -> tuple[list[Case], list[LeftOut]]:
    """All rows of a file of measurements, those that are used and those that are not."""
    known = table or _gpu_table()
    cases: list[Case] = []
    left_out: list[LeftOut] = []
    for line in path.read_text().splitlines():
        row = json.loads(line)
        try:
            cases.append(_case(row, known))
        except (_UnclearError, UnclearModelError) as error:
            left_out.append(LeftOut(row["id"], str(error)))
    return cases, left_out


def _gpu_table() -> GpuTable:
    import tomli

    from tests.tools.cells import RULES

    return GpuTable.from_mapping(tomli.loads((RULES / "gpus.toml").read_text()))


def _case(row: dict[str, Any], table: GpuTable) -> Case:
    notes = str(row.get("notes") or "")
    told = " ".join(str(row.get(key) or "") for key in ("backend", "notes", "model")).lower()
    for why, pattern in _UNLIKE.items():
        if re.search(pattern, told):
            raise _UnclearError(why)
    host = _host(row, table)
    spec, n_bytes = file_of(str(row["model"]), str(row.get("quant") or ""), row.get("size_gib"))
    cache = re.search(r"kv type (\w+)|(f16|q[458]_[01]) kv\b", notes, re.IGNORECASE)
    cache_type = next((kind for kind in (cache.groups() if cache else ()) if kind), "f16").lower()
    read, answered = re.search(r"pp(\d+)", notes), re.search(r"tg(\d+)", notes)
    depth, prompt = int(row.get("depth") or 0), int(read[1]) if read else 512
    prompt_depth = depth
    if "really filled" in notes:  # the prompt itself filled the cache
        prompt, prompt_depth = depth, 0
    answer = int(answered[1]) if answered else 128
    n_ctx = max(depth + prompt, depth + answer)
    flash = row.get("fa")
    if flash is None and "no fa" in notes.lower():
        flash = 0
    layers = row["ngl"]
    asked = RequestedSettings(
        n_ctx=n_ctx, n_parallel=1, kv_unified=False, n_gpu_layers=layers if isinstance(layers, int) else 999,
        n_cpu_moe=row.get("n_cpu_moe"), cache_type_k=cache_type, cache_type_v=cache_type,
        flash_attn={0: "off", 1: "on", None: "auto"}[flash], load_mode="none",
    )  # fmt: skip
    settings = resolve_settings(asked, spec, engine(), tool="bench", n_devices=len(host.devices))
    plan = Planner(spec, engine(), host.devices, server=False).plan(settings)
    if plan.read_host_bytes and not host.ram.bandwidth_bytes_per_s:
        raise _UnclearError("part of it runs on the CPU, and the speed of its memory is not told")
    device = host.devices[0].name if host.devices else host.cpu.name
    return Case(
        row["id"], device, spec, host, plan, n_bytes, depth + answer // 2, row.get("tg_tps"), prompt, prompt_depth,
        row.get("pp_tps"),
    )  # fmt: skip


def _host(row: dict[str, Any], table: GpuTable) -> HostSnapshot:
    hardware, backend = row["hw"], str(row.get("backend") or "")
    ram = Ram(1024 * GIB, 1024 * GIB, bandwidth_bytes_per_s=_ram_bandwidth(hardware))
    cpu = Cpu(str(hardware.get("cpu") or "unknown"), *_cores(str(hardware.get("cpu") or "")))
    named = hardware.get("gpu")
    if not named:
        if not ram.bandwidth_bytes_per_s:
            raise _UnclearError("the speed of the memory is not told")
        return HostSnapshot((), ram, cpu)
    count = re.match(r"(\d+) ?x ", str(named)) or re.search(r"[x*] ?(\d)$", str(named))
    try:
        part, _ = table.lookup(re.sub(r"\(.*?\)|[x*] ?\d$", "", str(named)))
    except HardwareError as error:
        raise _UnclearError(f"no such card: {error}") from None
    word = re.match(r"[a-z]+", backend.lower())
    chosen = _BACKENDS.get(word[0] if word else "", part.backend)
    if chosen == "cpu":
        return HostSnapshot((), ram, cpu)
    devices = tuple(
        Device(
            f"{chosen.upper()}{index}", chosen, part.name, 1024 * GIB, 1024 * GIB,
            memory_kind=part.memory_kind, bandwidth_bytes_per_s=part.bandwidth_bytes_per_s,
            link_bytes_per_s=part.link_bytes_per_s, f16_tflops=part.f16_tflops,
            compute_capability=part.compute_capability,
        )
        for index in range(int(count[1]) if count else 1)
    )  # fmt: skip
    return HostSnapshot(devices, ram, cpu)


def _ram_bandwidth(hardware: dict[str, Any]) -> int | None:
    """Nominal: what the row says, else two channels of the DDR memory that it names."""
    if hardware.get("mem_bw_gbps") and not hardware.get("gpu"):
        return int(float(hardware["mem_bw_gbps"]) * 1e9)
    found = re.search(r"DDR\d-(\d{4})", str(hardware.get("ram") or ""))
    server = re.search(r"xeon|epyc|threadripper", str(hardware.get("cpu") or ""), re.IGNORECASE)
    return int(found[1]) * 16 * 10**6 if found and not server else None


# published cores and vector instructions of the processors that rows name
_CPUS = {
    "ryzen ai 9 hx": (12, 24, ("avx2", "avx512f")),
    "ryzen 9 7950x": (16, 32, ("avx2", "avx512f")),
    "ryzen 5 3500": (6, 6, ("avx2",)),
    "ryzen 5 5600x": (6, 12, ("avx2",)),
}


def _cores(name: str) -> tuple[int, int, tuple[str, ...]]:
    return next((facts for known, facts in _CPUS.items() if known in name.lower()), (8, 16, ("avx2",)))
