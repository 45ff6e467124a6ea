"""Intel GPUs through sysfs of the i915 and xe drivers, and the drivers' own memory query.

sysfs of the mainline drivers does not tell the size of a card's memory; the DRM query of the render
node does, to every user, while the free part needs CAP_PERFMON (then free equals total).
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Mapping

from advisor.hardware._read import key_values, list_folder, read_int, read_text, sysfs_link_bytes_per_s, under
from advisor.hardware.device_ids import number_devices
from advisor.hardware.drm_clients import drm_process_use
from advisor.host import Device, ProbeReport, Ram

NAME = "intel_sysfs"
# _IOWR('d', 0x40 + n, struct) of the kernel's xe_drm.h and i915_drm.h.
_XE_QUERY = 0xC0286440  # struct drm_xe_device_query, 40 bytes, command 0x00
_XE_MEMORY_REGIONS = 1
_I915_QUERY = 0xC0106479  # struct drm_i915_query, 16 bytes, command 0x39
_I915_MEMORY_REGIONS = 4
_SYCL_MARKS = ("/opt/intel/oneapi", "/usr/lib/x86_64-linux-gnu/libze_loader.so.1", "/usr/lib64/libze_loader.so.1")


def probe_intel(*, root: str = "/", environ: Mapping[str, str], ram: Ram) -> tuple[tuple[Device, ...], ProbeReport]:
    """Devices in PCI order and how it went. Never raises.

    `environ` is read for ONEAPI_ROOT: with oneAPI there the SYCL build can run, else the Vulkan build.
    """
    started = time.perf_counter()
    devices: list[Device] = []
    troubles: list[str] = []
    try:
        drm = under(root, "/sys/class/drm")
        cards = [name for name in list_folder(drm) if name.startswith("card") and name[4:].isdecimal()]
        cards = [card for card in cards if read_int(f"{drm}/{card}/device/vendor") == 0x8086]
        if not cards:
            return (), ProbeReport(NAME, "absent", "no Intel GPU", time.perf_counter() - started)
        sycl = bool(environ.get("ONEAPI_ROOT")) or os.path.exists(under(root, _SYCL_MARKS[0]))
        for card in cards:
            device = _device(root, f"{drm}/{card}", sycl, ram)
            if isinstance(device, str):
                troubles.append(device)
            else:
                devices.append(device)
        devices.sort(key=lambda device: device.pci_id or "")
        status = "ok" if devices else "failed"
        names = ", ".join(f"{device.name} ({device.driver})" for device in devices) or "none usable"
        detail = "; ".join([names, *troubles])
    except Exception as error:  # a probe reports, it never stops the answer
        devices, status, detail = [], "failed", f"{type(error).__name__}: {error}"
    return number_devices(devices), ProbeReport(NAME, status, detail, time.perf_counter() - started)


def _device(root: str, card: str, sycl: bool, ram: Ram) -> Device | str:
    folder = card + "/device"
    uevent = key_values(read_text(folder + "/uevent", 4096) or "", "=")
    address = uevent.get("PCI_SLOT_NAME") or os.path.basename(os.path.realpath(folder))
    driver = uevent.get("DRIVER", "")
    device_id = read_int(folder + "/device") or 0
    name = f"Intel GPU {device_id:04x}"
    if driver not in ("i915", "xe"):
        return f"{name} at {address}: no GPU driver is loaded for it"
    backend = "sycl" if sycl else "vulkan"
    # Intel puts the processor's own graphics at 00:02.0, always.
    if address.endswith(":00:02.0"):
        # The Vulkan driver offers three quarters of RAM (half below 4 GiB) as the device's heap.
        total = ram.total_bytes * 3 // 4 if ram.total_bytes > 4 << 30 else ram.total_bytes // 2
        if total <= 0:
            return f"{name} shares the system's memory, whose size is unknown"
        processes = drm_process_use(root, address, ("system0", "gtt", "system"))
        return Device(
            id="", backend=backend, name=name, total_bytes=total, free_bytes=min(total, ram.available_bytes),
            memory_kind="unified", integrated=True, pci_id=address, processes=processes, driver=driver,
            used_by_engines_bytes=sum(use.used_bytes or 0 for use in processes if use.is_engine),
            pci_device=f"8086:{device_id:04x}",
        )  # fmt: skip
    memory = _memory(root, card, driver)
    if memory is None:
        return f"{name} at {address}: the size of its memory cannot be read; name the card with --gpu"
    processes = drm_process_use(root, address, ("vram0", "local0"))
    total, free = memory
    # Without the right to see free memory the driver says "all free"; what is known to be used is taken off.
    free = min(free, max(0, total - sum(use.used_bytes or 0 for use in processes)))
    return Device(
        id="", backend=backend, name=name, total_bytes=total, free_bytes=free, pci_id=address,
        processes=processes, driver=driver,
        used_by_engines_bytes=sum(use.used_bytes or 0 for use in processes if use.is_engine),
        link_bytes_per_s=sysfs_link_bytes_per_s(folder), pci_device=f"8086:{device_id:04x}",
    )  # fmt: skip


def _memory(root: str, card: str, driver: str) -> tuple[int, int] | None:
    """(total, free) bytes of a card's own memory."""
    for path in ("/lmem_total_bytes", "/device/lmem_total_bytes", "/device/tile0/physical_vram_size_bytes"):
        total = read_int(card + path)
        if total:
            free = read_int(card + path.replace("total", "avail")) if "total" in path else None
            return total, min(total, free) if free is not None else total
    renders = [name for name in list_folder(card + "/device/drm") if name.startswith("renderD")]
    if not renders:
        return None
    try:
        return query_memory(under(root, f"/dev/dri/{renders[0]}"), driver)
    except (OSError, struct.error, ValueError):
        return None


def query_memory(render_node: str, driver: str) -> tuple[int, int] | None:
    """(total, free) bytes that the kernel driver gives for a card's memory. Raises OSError."""
    import ctypes
    import fcntl

    descriptor = os.open(render_node, os.O_RDWR | os.O_CLOEXEC)
    try:
        if driver == "xe":
            query = bytearray(struct.pack("=QIIQQQ", 0, _XE_MEMORY_REGIONS, 0, 0, 0, 0))
            fcntl.ioctl(descriptor, _XE_QUERY, query)
            size = struct.unpack_from("=I", query, 12)[0]
            answer = ctypes.create_string_buffer(size)
            struct.pack_into("=Q", query, 16, ctypes.addressof(answer))
            fcntl.ioctl(descriptor, _XE_QUERY, query)
            return xe_vram(answer.raw)
        item = ctypes.create_string_buffer(struct.pack("=QiIQ", _I915_MEMORY_REGIONS, 0, 0, 0), 24)
        query = bytearray(struct.pack("=IIQ", 1, 0, ctypes.addressof(item)))
        fcntl.ioctl(descriptor, _I915_QUERY, query)
        size = struct.unpack_from("=i", item.raw, 8)[0]
        if size <= 0:
            return None
        answer = ctypes.create_string_buffer(size)
        struct.pack_into("=Q", item, 16, ctypes.addressof(answer))
        fcntl.ioctl(descriptor, _I915_QUERY, query)
        return i915_vram(answer.raw)
    finally:
        os.close(descriptor)


def xe_vram(answer: bytes) -> tuple[int, int] | None:
    """(total, free) of the VRAM regions in a drm_xe_query_mem_regions answer.

    Layout: u32 count, u32 pad, then per region 88 bytes: u16 class (1 = VRAM), u16 instance,
    u32 min_page_size, u64 total_size, u64 used, u64 cpu_visible_size, u64 cpu_visible_used, u64 reserved[6].
    """
    return _regions(answer, 8, 88, 8, lambda total, other: total - min(other, total))


def i915_vram(answer: bytes) -> tuple[int, int] | None:
    """(total, free) of the device-local regions in a drm_i915_query_memory_regions answer.

    Layout: u32 count, u32 rsvd[3], then per region 88 bytes: u16 class (1 = device), u16 instance,
    u32 rsvd, u64 probed_size, u64 unallocated_size, u64 rsvd[8]; unallocated -1 where it is unknown.
    """
    return _regions(answer, 16, 88, 8, lambda total, other: min(other, total))


def _regions(
    answer: bytes, start: int, size: int, at: int, free_of: Callable[[int, int], int]
) -> tuple[int, int] | None:
    total = free = 0
    count = struct.unpack_from("=I", answer, 0)[0]
    for index in range(min(count, 16)):
        base = start + index * size
        if struct.unpack_from("=H", answer, base)[0] != 1:
            continue
        region_total, other = struct.unpack_from("=QQ", answer, base + at)
        total += region_total
        free += free_of(region_total, other)
    return (total, free) if total else None
