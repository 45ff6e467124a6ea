"""All probes together: the machine as one HostSnapshot. Each physical GPU appears once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from advisor.gguf_header.errors import printable
from advisor.hardware.amd import probe_amd
from advisor.hardware.device_ids import number_devices
from advisor.hardware.intel import probe_intel
from advisor.hardware.nvidia import probe_nvidia
from advisor.hardware.system import probe_system
from advisor.host import Device, HostSnapshot, ProbeReport, Storage

if TYPE_CHECKING:
    from advisor.hardware.gpu_table import GpuTable

_DISAGREEMENT = 0.05  # of the total: below that, drivers merely count their own share differently


def probe_host(
    *,
    environ: Mapping[str, str],
    root: str = "/",
    ask_engine: bool = False,
    storage_folders: Sequence[str] = (),
    load_table: Callable[[], GpuTable] | None = None,
    platform: str = sys.platform,
) -> HostSnapshot:
    """Look at this machine. Never raises: what a probe could not do stands in its report.

    `environ` is the process environment (visible devices, PATH), `root` the folder that holds /proc and
    /sys. `ask_engine` also runs `llama-server --list-devices`, which takes up to 3 s. `load_table` is called
    only when a GPU was found, to supply bandwidth and compute that the driver does not tell.
    """
    facts, system_report = probe_system(root=root, platform=platform)
    ram = facts.ram
    reports: list[ProbeReport] = [system_report]
    nvidia, report = probe_nvidia(root=root, environ=environ, ram=ram, platform=platform)
    reports.append(report)
    found: list[Device] = list(nvidia)
    if platform.startswith("linux"):
        for probe in (probe_amd, probe_intel):
            devices, report = probe(root=root, environ=environ, ram=ram)
            found.extend(devices)
            reports.append(report)
    elif platform == "darwin":
        from advisor.hardware.apple import probe_apple  # each platform loads only its own probes

        devices, report = probe_apple(ram=ram, platform=platform)
        found.extend(devices)
        reports.append(report)
    notes: list[str] = []
    merged = _once(found)
    if ask_engine:
        from advisor.hardware.engine_list import probe_engine_list

        listed, report = probe_engine_list(environ=environ)
        reports.append(report)
        if report.status == "ok":
            merged, remarks = merge_engine_list(merged, listed)
            notes.extend(remarks)
    if merged and load_table is not None:
        merged, trouble = _with_table(merged, load_table)
        notes.extend(trouble)
    devices_in_use, idle = _leave_integrated_idle(merged)
    storage: tuple[Storage, ...] = ()
    if storage_folders:
        from advisor.hardware.storage import probe_storage

        storage, report = probe_storage(storage_folders, root=root)
        reports.append(report)
    unified = next((device for device in devices_in_use if device.memory_kind == "unified"), None)
    if unified is not None and unified.bandwidth_bytes_per_s is not None and ram.bandwidth_bytes_per_s is None:
        # One memory, one bandwidth.
        ram = ram._replace(
            bandwidth_bytes_per_s=unified.bandwidth_bytes_per_s, bandwidth_source=unified.bandwidth_source
        )
    if idle and devices_in_use:
        notes.append(f"{idle[0].name} is left alone: llama.cpp uses integrated graphics only where there is no card")
    if any("split by MIG" in report.detail for report in reports):
        notes.append("one process sees one MIG instance; CUDA_VISIBLE_DEVICES=MIG-... chooses it")
    return HostSnapshot(
        devices=devices_in_use, ram=ram, cpu=facts.cpu, platform=facts.platform, storage=storage,
        probes=tuple(reports), origin="probed", notes=tuple(notes), idle_devices=idle,
    )  # fmt: skip


def _once(devices: Sequence[Device]) -> tuple[Device, ...]:
    """Keep the first of devices at one PCI address; MIG instances share it and have their own uuid."""
    kept: list[Device] = []
    for device in devices:
        twin = device.pci_id is not None and any(
            other.pci_id == device.pci_id and (other.uuid is None or device.uuid is None or other.uuid == device.uuid)
            for other in kept
        )
        if not twin and device.total_bytes >= 0:  # drivers have been seen to say -1
            free = max(0, min(device.free_bytes, device.total_bytes))
            kept.append(device._replace(free_bytes=free, name=printable(device.name)))
    return number_devices(kept)


def merge_engine_list(probed: Sequence[Device], listed: Sequence[Device]) -> tuple[tuple[Device, ...], list[str]]:
    """Let the engine's own list decide which devices there are, their ids, order and memory.

    What the probes know beyond that (processes, bandwidth, link) is kept, matched by name within the
    order. Disagreements above 5 % of the total are returned as remarks.
    """
    remarks: list[str] = []
    left = list(probed)
    result: list[Device] = []
    for item in listed:
        match = next((device for device in left if device.id == item.id), None)
        if match is None or not _same_name(match.name, item.name):
            match = next((device for device in left if _same_name(device.name, item.name)), match)
        if match is None:
            result.append(item)
            continue
        left.remove(match)
        if abs(match.total_bytes - item.total_bytes) > _DISAGREEMENT * max(match.total_bytes, 1):
            remarks.append(
                f"{item.id}: the engine sees {item.total_bytes >> 20} MiB, the driver {match.total_bytes >> 20} MiB"
            )
        result.append(
            match._replace(id=item.id, backend=item.backend, name=item.name, total_bytes=item.total_bytes,
                free_bytes=item.free_bytes, source="engine",
            )
        )  # fmt: skip
    for device in left:
        remarks.append(f"{device.name} is there, but the engine on PATH does not use it")
    return tuple(result), remarks


def _same_name(one: str, other: str) -> bool:
    words = [set(name.lower().replace("(", " ").replace(")", " ").split()) for name in (one, other)]
    return bool(words[0] & words[1] - {"nvidia", "amd", "intel", "geforce", "radeon", "graphics", "gpu", "rtx", "rx"})


def _with_table(devices: Sequence[Device], load_table: Callable[[], GpuTable]) -> tuple[tuple[Device, ...], list[str]]:
    """Supply name, bandwidth, compute and link where the driver gave none; never memory."""
    try:
        table = load_table()
        parts = [table.find(device.name, device.total_bytes, device.pci_device) for device in devices]
    except Exception as error:  # a broken rule file must not hide the card
        return tuple(devices), [f"the table of GPUs cannot be used: {error}"]
    result = []
    for device, part in zip(devices, parts, strict=True):
        if part is None:
            result.append(device)
            continue
        source = f"rules/gpus.toml: {part.source}"
        # A MIG instance has a share of its card's bandwidth and compute that nobody tells.
        whole = " MIG " not in device.name
        use_bandwidth = device.bandwidth_bytes_per_s is None and whole
        result.append(
            device._replace(
                name=part.name if device.name.startswith(("AMD GPU ", "Intel GPU ")) else device.name,
                bandwidth_bytes_per_s=part.bandwidth_bytes_per_s if use_bandwidth else device.bandwidth_bytes_per_s,
                bandwidth_source=source if use_bandwidth else device.bandwidth_source,
                f16_tflops=part.f16_tflops if device.f16_tflops is None and whole else device.f16_tflops,
                link_bytes_per_s=device.link_bytes_per_s or part.link_bytes_per_s,
                compute_capability=device.compute_capability or part.compute_capability,
            )
        )
    return tuple(result), []


def _leave_integrated_idle(devices: Sequence[Device]) -> tuple[tuple[Device, ...], tuple[Device, ...]]:
    """Split into what llama.cpp uses by default and what it leaves alone: integrated graphics beside a card."""
    cards = [device for device in devices if not device.integrated]
    if not cards:
        return number_devices(devices) if _numbered_here(devices) else tuple(devices), ()
    idle = tuple(device for device in devices if device.integrated)
    return number_devices(cards) if idle and _numbered_here(devices) else tuple(cards), idle


def _numbered_here(devices: Sequence[Device]) -> bool:
    """Whether the numbers are ours; the engine's own must stay."""
    return all(device.source != "engine" for device in devices)
