"""NVIDIA GPUs through the driver's management library (NVML), with Jetson boards from the device tree.

NVML lists cards in PCI order; CUDA, and so llama.cpp's CUDA0, lists them fastest first unless
CUDA_DEVICE_ORDER says PCI_BUS_ID, and shows only what CUDA_VISIBLE_DEVICES names.
Every call is optional: a card may refuse any of them (NOT_SUPPORTED, NO_PERMISSION).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from advisor.hardware._read import pcie_bytes_per_s, read_text, under
from advisor.hardware.cuda_order import Card, cuda_order, visible_cards
from advisor.hardware.engine_processes import describe_process
from advisor.host import Device, ProbeReport, ProcessUse, Ram

NAME = "nvidia_nvml"
_LIBRARY = "libnvidia-ml.so.1"
_LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/lib/aarch64-linux-gnu", "/usr/lib/wsl/lib",
    "/usr/lib/x86_64-linux-gnu/nvidia/current", "/usr/lib/aarch64-linux-gnu/nvidia", "/usr/lib64/nvidia",
    "/usr/local/nvidia/lib64", "/run/opengl-driver/lib", "/usr/lib/nvidia",
)  # fmt: skip
_DRIVER_MARKS = ("/dev/nvidiactl", "/dev/nvidia0", "/proc/driver/nvidia/version")
_UNIFIED_NAMES = ("GB10", "ORIN", "THOR", "XAVIER", "TEGRA", "N1X")
_TEGRA = {
    "tegra194": ("Jetson AGX Xavier", "7.2"),
    "tegra234": ("Jetson Orin", "8.7"),
    "tegra264": ("Jetson Thor", "11.0"),
}


def probe_nvidia(
    *, root: str = "/", environ: Mapping[str, str], ram: Ram, platform: str = sys.platform
) -> tuple[tuple[Device, ...], ProbeReport]:
    """Devices in llama.cpp's order (CUDA0 first) and how it went. Never raises.

    `ram` is needed for boards whose GPU has no memory of its own. Importing pynvml costs 35 ms of CPU
    time, so it is imported only when something of a driver is there.
    """
    started = time.perf_counter()
    devices: tuple[Device, ...] = ()
    try:
        if not driver_could_exist(root, environ, platform):
            devices = _tegra_devices(root, ram)
            status, detail = ("ok", "Jetson board, no NVML") if devices else ("absent", "no NVIDIA driver")
        else:
            devices, status, detail = _ask_nvml(root, environ, ram)
            if not devices and status == "absent":
                devices = _tegra_devices(root, ram)
                status = "ok" if devices else status
    except Exception as error:  # a probe reports, it never stops the answer
        status, detail = "failed", f"{type(error).__name__}: {error}"
    return devices, ProbeReport(NAME, status, detail, time.perf_counter() - started)


def driver_could_exist(root: str, environ: Mapping[str, str], platform: str) -> bool:
    """Whether an NVIDIA driver may be installed: its library or its device files are in a usual place."""
    if platform.startswith("win"):
        return os.path.exists(environ.get("SystemRoot", r"C:\Windows") + r"\System32\nvml.dll")
    if not platform.startswith("linux"):
        return False
    if any(os.path.exists(under(root, mark)) for mark in _DRIVER_MARKS):
        return True
    return _library_path(root, environ) is not None


def _library_path(root: str, environ: Mapping[str, str]) -> str | None:
    for folder in environ.get("LD_LIBRARY_PATH", "").split(":"):
        if folder and os.path.exists(f"{folder}/{_LIBRARY}"):
            return f"{folder}/{_LIBRARY}"
    for folder in _LIBRARY_FOLDERS:
        path = under(root, f"{folder}/{_LIBRARY}")
        if os.path.exists(path):
            return path
    return None


def _ask_nvml(root: str, environ: Mapping[str, str], ram: Ram) -> tuple[tuple[Device, ...], str, str]:
    try:
        import pynvml  # type: ignore[import-untyped]
    except ImportError:
        return (), "failed", "an NVIDIA driver is there, but the Python package nvidia-ml-py is not installed"
    nvml: Any = pynvml
    kernel = (read_text(under(root, "/proc/driver/nvidia/version"), 512) or "").strip().splitlines()
    hint = f"; kernel module: {kernel[0]}" if kernel else ""
    try:
        _init(nvml, root, environ)
    except nvml.NVMLError_LibraryNotFound:
        if kernel:  # a container without the driver's libraries, or half an installation
            return (), "failed", f"{_LIBRARY} is not installed{hint}"
        return (), "absent", "no NVIDIA driver library"
    except nvml.NVMLError as error:
        return (), "failed", f"the NVIDIA driver does not answer: {error}{hint}"
    try:
        return _list_devices(nvml, root, environ, ram)
    finally:
        _optional(nvml.nvmlShutdown)


def _init(nvml: Any, root: str, environ: Mapping[str, str]) -> None:
    try:
        nvml.nvmlInit()
    except nvml.NVMLError_LibraryNotFound:
        # Under WSL and on NixOS the library lies outside the loader's path; once loaded by its path
        # the loader finds it by name.
        path = _library_path(root, environ)
        if path is None:
            raise
        import ctypes

        try:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            raise nvml.NVMLError(nvml.NVML_ERROR_LIBRARY_NOT_FOUND) from None
        nvml.nvmlInit()


def _optional(call: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Return the value of an NVML call, or None where the card or the driver refuses it."""
    try:
        return call(*arguments, **keywords)
    except Exception:  # NVMLError, a structure of another version, a binding older or newer than ours
        return None


def _list_devices(nvml: Any, root: str, environ: Mapping[str, str], ram: Ram) -> tuple[tuple[Device, ...], str, str]:
    driver = _text(_optional(nvml.nvmlSystemGetDriverVersion))
    count = int(nvml.nvmlDeviceGetCount())
    cards: list[Card] = []
    troubles: list[str] = []
    for index in range(count):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            troubles.append(f"GPU {index}: {error}")
            continue
        instances = _mig_cards(nvml, root, handle, driver)
        if instances is not None:
            cards.extend(instances)
            name = _text(_optional(nvml.nvmlDeviceGetName, handle)) or f"GPU {index}"
            troubles.append(f"{name} is split by MIG into {len(instances)}; one process uses one instance")
            continue
        card = _card(nvml, root, handle, driver, ram)
        if isinstance(card, str):
            troubles.append(f"GPU {index}: {card}")
        else:
            cards.append(card)
    ordered, order_note = cuda_order(cards, environ)
    visible = visible_cards(ordered, environ)
    if order_note:
        troubles.append(order_note)
    if len(visible) < len(ordered):
        troubles.append(f"CUDA_VISIBLE_DEVICES hides {len(ordered) - len(visible)} of {len(ordered)}")
    # NVIDIA's MIG guide: a process sees one instance, and no whole card beside it
    visible = [card for card in visible if card.parent_uuid is not None][:1] or visible
    devices = tuple(card.device._replace(id=f"CUDA{number}") for number, card in enumerate(visible))
    status = ("ok" if cards else "failed") if count else "absent"
    found = ", ".join(device.name for device in devices) or "no GPU"
    detail = f"driver {driver or 'unknown'}: {found}"
    return devices, status, "; ".join([detail, *troubles])


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value) if value is not None else None


def _positive(value: Any) -> int | None:
    return int(value) if isinstance(value, int) and value > 0 else None


def _memory(nvml: Any, handle: Any) -> tuple[int, int, int] | str:
    """(usable total, free, reserved) in bytes, or why it cannot be read."""
    try:
        info = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        reserved = int(getattr(info, "reserved", 0) or 0)
        # Version 2 counts the driver's own share apart; no program can ever have it.
        return max(0, int(info.total) - reserved), int(info.free), reserved
    except (nvml.NVMLError, AttributeError, TypeError):
        pass
    try:
        info = nvml.nvmlDeviceGetMemoryInfo(handle)
        return int(info.total), int(info.free), 0
    except nvml.NVMLError as error:
        return f"its memory cannot be read: {error}"


def _card(nvml: Any, root: str, handle: Any, driver: str | None, ram: Ram) -> Card | str:
    name = _text(_optional(nvml.nvmlDeviceGetName, handle)) or "NVIDIA GPU"
    memory = _memory(nvml, handle)
    unified = any(word in name.upper() for word in _UNIFIED_NAMES)
    if unified or (isinstance(memory, str) and _coherent(nvml, handle)):
        # The GPU works in system RAM, so what the kernel can give is what is free.
        memory = (ram.total_bytes, ram.available_bytes, 0)
        unified = True
        if ram.total_bytes <= 0:
            return "it shares the system's memory, whose size is unknown"
    if isinstance(memory, str):
        return memory
    total, free, reserved = memory
    if unified:  # NVML calls a Jetson's GPU "Orin (nvgpu)"; the board's name says which one
        board = (read_text(under(root, "/proc/device-tree/model"), 256) or "").strip("\0\n ")
        name = board if "Jetson" in board else name
    processes = _processes(nvml, root, handle)
    capability = _optional(nvml.nvmlDeviceGetCudaComputeCapability, handle)
    clock = _positive(_optional(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_MEM))
    width = _positive(_optional(nvml.nvmlDeviceGetMemoryBusWidth, handle))
    bandwidth = None
    if clock and width and not unified:
        bandwidth = clock * 1_000_000 * 2 * width // 8  # double data rate; NVML's clock is in MHz
    generation = _positive(_optional(nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle))
    lanes = _positive(_optional(nvml.nvmlDeviceGetMaxPcieLinkWidth, handle))
    pci = _optional(nvml.nvmlDeviceGetPciInfo, handle)
    cores = _positive(_optional(nvml.nvmlDeviceGetNumGpuCores, handle)) or 0
    core_clock = _positive(_optional(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM)) or 1
    device = Device(
        id="", backend="cuda", name=name, total_bytes=total, free_bytes=min(free, total),
        memory_kind="unified" if unified else "dedicated", integrated=unified,
        pci_id=_pci_address(pci), uuid=_text(_optional(nvml.nvmlDeviceGetUUID, handle)),
        used_by_engines_bytes=_engine_bytes(processes), processes=processes,
        bandwidth_bytes_per_s=bandwidth,
        bandwidth_source="driver: bus width x memory clock" if bandwidth else None,
        link_bytes_per_s=pcie_bytes_per_s(generation, lanes) if generation and lanes and not unified else None,
        compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
        driver=driver, reserved_bytes=reserved, pci_device=_pci_device(pci),
    )  # fmt: skip
    return Card(device, cores * core_clock)


def _coherent(nvml: Any, handle: Any) -> bool:
    """Whether the GPU addresses system memory through the processor's page tables (ATS)."""
    return bool(_optional(lambda: nvml.nvmlDeviceGetAddressingMode(handle)) == 2)  # NVML_DEVICE_ADDRESSING_MODE_ATS


def _pci_address(pci: Any) -> str | None:
    """PCI address as sysfs writes it: four-digit domain, lower case."""
    text = (_text(getattr(pci, "busId", None)) or "").lower()
    domain, _, rest = text.partition(":")
    return f"{domain[-4:].rjust(4, '0')}:{rest}" if rest else None


def _pci_device(pci: Any) -> str | None:
    combined = getattr(pci, "pciDeviceId", None)
    if not isinstance(combined, int) or combined <= 0:
        return None
    return f"{combined & 0xFFFF:04x}:{combined >> 16 & 0xFFFF:04x}"


def _processes(nvml: Any, root: str, handle: Any) -> tuple[ProcessUse, ...]:
    used: dict[int, int | None] = {}
    for call in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses):
        for process in _optional(call, handle) or ():
            pid, size = int(process.pid), process.usedGpuMemory  # None under WSL and WDDM
            known = used.get(pid)
            used[pid] = known if size is None else max(int(size), known or 0)
    found = []
    for pid, size in used.items():
        name, is_engine = describe_process(root, pid)
        found.append(ProcessUse(pid, name, size, is_engine))
    return tuple(sorted(found, key=lambda use: (-(use.used_bytes or 0), use.pid)))


def _engine_bytes(processes: tuple[ProcessUse, ...]) -> int:
    return sum(use.used_bytes or 0 for use in processes if use.is_engine)


def _mig_cards(nvml: Any, root: str, handle: Any, driver: str | None) -> list[Card] | None:
    """List the MIG instances of a card, or None where MIG is off. The parent itself is then unusable."""
    mode = _optional(nvml.nvmlDeviceGetMigMode, handle)
    if not mode or mode[0] != 1:
        return None
    parent_uuid = _text(_optional(nvml.nvmlDeviceGetUUID, handle))
    capability = _optional(nvml.nvmlDeviceGetCudaComputeCapability, handle)
    pci = _optional(nvml.nvmlDeviceGetPciInfo, handle)
    cards: list[Card] = []
    for index in range(int(_optional(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0)):
        instance = _optional(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        if instance is None:
            continue
        memory = _memory(nvml, instance)
        if isinstance(memory, str):
            continue
        total, free, reserved = memory
        parent_name = _text(_optional(nvml.nvmlDeviceGetName, handle)) or "NVIDIA GPU"
        name = _text(_optional(nvml.nvmlDeviceGetName, instance)) or f"{parent_name} MIG {index}"
        processes = _processes(nvml, root, instance)
        device = Device(
            id="", backend="cuda", name=name, total_bytes=total, free_bytes=min(free, total),
            pci_id=_pci_address(pci), uuid=_text(_optional(nvml.nvmlDeviceGetUUID, instance)),
            used_by_engines_bytes=_engine_bytes(processes), processes=processes,
            compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
            driver=driver, reserved_bytes=reserved, pci_device=_pci_device(pci),
        )  # fmt: skip
        cards.append(Card(device, 0, parent_uuid))
    return cards


def _tegra_devices(root: str, ram: Ram) -> tuple[Device, ...]:
    """Find the GPU of a Jetson board, from the device tree; it has no memory of its own."""
    compatible = read_text(under(root, "/proc/device-tree/compatible"), 1024)
    if compatible is None or "nvidia,tegra" not in compatible or ram.total_bytes <= 0:
        return ()
    for chip, (name, capability) in _TEGRA.items():
        if chip in compatible:
            model = (read_text(under(root, "/proc/device-tree/model"), 256) or "").strip("\0\n ")
            return (
                Device(
                    id="CUDA0", backend="cuda", name=model or name, total_bytes=ram.total_bytes,
                    free_bytes=ram.available_bytes, memory_kind="unified", integrated=True,
                    compute_capability=capability,
                ),
            )  # fmt: skip
    return ()
