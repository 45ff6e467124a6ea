"""AMD GPUs through the amdgpu driver's sysfs files and the KFD topology; no ROCm package needed.

An APU's "VRAM" is a carve-out of system memory and GTT is the part of system RAM that the GPU may map
in addition, as far as RAM is free. Vulkan's driver takes both together. ROCm allocates in one of them: in GTT where
that is larger than the carve-out (apu_prefer_gtt of the kernel's amdgpu, since 6.10), else in the carve-out alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from advisor.hardware._read import key_values, list_folder, read_int, read_text, sysfs_link_bytes_per_s, under
from advisor.hardware.device_ids import number_devices
from advisor.hardware.drm_clients import drm_process_use
from advisor.host import Device, ProbeReport, Ram

NAME = "amd_sysfs"
_GIB = 1 << 30
# Graphics IPs that exist only inside a processor.
_APU_GFX = frozenset({
    "gfx902", "gfx909", "gfx90c", "gfx1013", "gfx1033", "gfx1035", "gfx1036", "gfx1037",
    "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153",
})  # fmt: skip
# What current ROCm packages are built for; other chips run llama.cpp's Vulkan build.
_ROCM_GFX = frozenset({
    "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1101", "gfx1102",
    "gfx1151", "gfx1200", "gfx1201",
})  # fmt: skip
_HBM_GFX = frozenset(("gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950"))
_ROCM_LIBRARIES = (
    "/opt/rocm/lib/libamdhip64.so", "/usr/lib/x86_64-linux-gnu/libamdhip64.so.6",
    "/usr/lib/x86_64-linux-gnu/libamdhip64.so.7", "/usr/lib/x86_64-linux-gnu/libamdhip64.so.5",
    "/usr/lib64/libamdhip64.so.6", "/usr/lib64/libamdhip64.so.7", "/usr/lib/libamdhip64.so",
    "/usr/local/lib/ollama/rocm", "/usr/lib/ollama/rocm",
)  # fmt: skip


class _KfdNode:
    """One GPU in the KFD topology."""

    __slots__ = ("bandwidth_bytes_per_s", "gfx")

    def __init__(self, gfx: str, bandwidth_bytes_per_s: int | None) -> None:
        self.gfx = gfx
        self.bandwidth_bytes_per_s = bandwidth_bytes_per_s


def probe_amd(*, root: str = "/", environ: Mapping[str, str], ram: Ram) -> tuple[tuple[Device, ...], ProbeReport]:
    """Devices in PCI order, numbered per backend, and how it went. Never raises.

    ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES are respected where the backend is ROCm, with plain
    numbers only.
    """
    started = time.perf_counter()
    devices: list[Device] = []
    troubles: list[str] = []
    try:
        drm = under(root, "/sys/class/drm")
        cards = [name for name in list_folder(drm) if name.startswith("card") and name[4:].isdecimal()]
        folders = [f"{drm}/{name}/device" for name in cards]
        folders = [folder for folder in folders if read_int(folder + "/vendor") == 0x1002]
        if not folders:
            return (), ProbeReport(NAME, "absent", "no AMD GPU", time.perf_counter() - started)
        nodes = _kfd_nodes(root)
        rocm = os.path.exists(under(root, "/dev/kfd")) and any(
            os.path.exists(under(root, path)) for path in _ROCM_LIBRARIES
        )
        for folder in folders:
            device = _device(root, folder, nodes, rocm, ram)
            if isinstance(device, str):
                troubles.append(device)
            else:
                devices.append(device)
        devices.sort(key=lambda device: device.pci_id or "")
        devices, hidden = _visible(devices, environ)
        if hidden:
            troubles.append(f"{hidden} hidden by the environment")
        status = "ok" if devices or hidden else "failed"
        names = ", ".join(f"{device.name} ({device.backend})" for device in devices) or "none usable"
        detail = "; ".join([names, *troubles])
    except Exception as error:  # a probe reports, it never stops the answer
        devices, status, detail = [], "failed", f"{type(error).__name__}: {error}"
    return number_devices(devices), ProbeReport(NAME, status, detail, time.perf_counter() - started)


def _device(root: str, folder: str, nodes: Mapping[str, _KfdNode], rocm: bool, ram: Ram) -> Device | str:
    uevent = key_values(read_text(folder + "/uevent", 4096) or "", "=")
    address = uevent.get("PCI_SLOT_NAME") or os.path.basename(os.path.realpath(folder))
    device_id = read_int(folder + "/device") or 0
    revision = read_int(folder + "/revision")
    vram = read_int(folder + "/mem_info_vram_total")
    if vram is None:
        return f"{address}: the amdgpu driver is not loaded for it"
    vram_used = read_int(folder + "/mem_info_vram_used") or 0
    gtt = read_int(folder + "/mem_info_gtt_total") or 0
    gtt_used = read_int(folder + "/mem_info_gtt_used") or 0
    node = nodes.get(address)
    gfx = node.gfx if node else None
    integrated = gfx in _APU_GFX or (gfx is None and _looks_integrated(folder, vram, gtt))
    backend = "rocm" if rocm and gfx in _ROCM_GFX else "vulkan"
    vram_free = max(0, vram - vram_used)
    shared = gtt if integrated else None
    if integrated:
        mapped = min(max(0, gtt - gtt_used), ram.available_bytes)
        total, free = vram + gtt, vram_free + mapped
        if backend == "rocm":
            total, free, shared = (gtt, mapped, gtt) if gtt > vram else (vram, vram_free, 0)
        processes = drm_process_use(root, address, ("vram", "gtt"))
    else:
        total, free = vram, vram_free
        processes = drm_process_use(root, address, ("vram",))
    bandwidth = None if integrated or node is None else node.bandwidth_bytes_per_s
    return Device(
        id="", backend=backend, name=_name(root, folder, device_id, revision, gfx),
        total_bytes=total, free_bytes=free,
        memory_kind="unified" if integrated else "dedicated", integrated=integrated,
        pci_id=address, uuid=(read_text(folder + "/unique_id", 64) or "").strip() or None,
        used_by_engines_bytes=sum(use.used_bytes or 0 for use in processes if use.is_engine),
        processes=processes, bandwidth_bytes_per_s=bandwidth,
        bandwidth_source="KFD topology: bus width x memory clock" if bandwidth else None,
        link_bytes_per_s=None if integrated else sysfs_link_bytes_per_s(folder),
        compute_capability=gfx, driver="amdgpu",
        shared_bytes=shared,
        pci_device=f"1002:{device_id:04x}" + (f":{revision:02x}" if revision is not None else ""),
    )  # fmt: skip


def _looks_integrated(folder: str, vram: int, gtt: int) -> bool:
    """Without a KFD node: a small carve-out beside a large GTT, or memory chips of no vendor."""
    vendor = (read_text(folder + "/mem_info_vram_vendor", 64) or "").strip()
    return (vram <= 4 * _GIB and gtt >= 4 * vram) or vendor in ("", "unknown")


def _name(root: str, folder: str, device_id: int, revision: int | None, gfx: str | None) -> str:
    product = (read_text(folder + "/product_name", 128) or "").strip()
    if product:
        return product
    # Mesa's list, present wherever libdrm is: "744C,\tC8,\tAMD Radeon RX 7900 XTX".
    if revision is not None:
        start = f"{device_id:04X},"
        for line in (read_text(under(root, "/usr/share/libdrm/amdgpu.ids")) or "").splitlines():
            if line.startswith(start):
                fields = [field.strip() for field in line.split(",", 2)]
                if len(fields) == 3 and fields[1].upper() == f"{revision:02X}":
                    return fields[2]
    return f"AMD GPU {device_id:04x}" + (f" ({gfx})" if gfx else "")


def _kfd_nodes(root: str) -> dict[str, _KfdNode]:
    """Compute nodes by PCI address."""
    base = under(root, "/sys/class/kfd/kfd/topology/nodes")
    nodes: dict[str, _KfdNode] = {}
    for number in list_folder(base):
        numbers = _numbers(read_text(f"{base}/{number}/properties", 8192))
        version = numbers.get("gfx_target_version", 0)
        if not version:  # a processor
            continue
        location = numbers.get("location_id", 0)
        address = (
            f"{numbers.get('domain', 0):04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7:x}"
        )
        gfx = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
        bank = _numbers(read_text(f"{base}/{number}/mem_banks/0/properties", 1024))
        # Transfers per memory clock: 2 on HBM, 16 on GDDR6, whose clock KFD gives before its multiplier.
        factor = 2 if gfx in _HBM_GFX else 16
        bandwidth = bank.get("width", 0) * bank.get("mem_clk_max", 0) * 1_000_000 * factor // 8
        known = gfx in _HBM_GFX or gfx.startswith(("gfx101", "gfx103", "gfx110", "gfx120"))
        nodes[address] = _KfdNode(gfx, bandwidth if known and bandwidth else None)
    return nodes


def _numbers(text: str | None) -> dict[str, int]:
    return {key: int(value) for key, value in key_values(text or "", " ").items() if value.isdecimal()}


def _visible(devices: list[Device], environ: Mapping[str, str]) -> tuple[list[Device], int]:
    """Devices with their numbers, after the environment hid some of ROCm's; how many were hidden."""
    wanted = environ.get("HIP_VISIBLE_DEVICES", environ.get("ROCR_VISIBLE_DEVICES"))
    rocm = [device for device in devices if device.backend == "rocm"]
    if wanted is not None and rocm:
        kept = []
        for entry in (part.strip() for part in wanted.split(",")):
            if not entry.isdecimal() or int(entry) >= len(rocm):
                break
            kept.append(rocm[int(entry)])
    else:
        kept = rocm
    return kept + [device for device in devices if device.backend != "rocm"], len(rocm) - len(kept)
