"""Hardware that is not there: `--gpu SPEC`, `--no-gpu` and `--ram SIZE` as a HostSnapshot.

SPEC is a card's name from the table or `BACKEND:SIZE`, either with `@FREE`.
"""

from __future__ import annotations

from collections.abc import Sequence

from advisor.errors import HardwareError, UsageError
from advisor.excerpts import excerpt
from advisor.hardware.apple import metal_budget_bytes
from advisor.hardware.device_ids import BACKENDS, device_id, number_devices
from advisor.hardware.gpu_parts import GIB, GpuPart
from advisor.hardware.gpu_table import GpuTable
from advisor.host import Cpu, Device, HostSnapshot, Ram
from advisor.units import format_bytes, parse_size

_SMALLEST_GPU = 64 << 20


def parse_gpu_spec(text: str, table: GpuTable, *, ram_bytes: int | None = None) -> Device:
    """Make the device that SPEC describes, with number 0; everything is free unless `@FREE` says otherwise.

    `ram_bytes` is the RAM of the imagined machine: a chip that works in system memory gets its share of
    it, unless its SPEC names a size ("M2 Ultra 192GB"). Raises HardwareError with the cure.
    """
    name, at, free_text = text.rpartition("@")
    if not at:
        name, free_text = text, ""
    name = name.strip()
    if not name:
        raise HardwareError('--gpu needs a card, as in --gpu "RTX 3060" or --gpu cuda:12GiB.')
    backend, colon, size_text = name.partition(":")
    if colon:
        device = _plain_device(backend.strip().lower(), size_text, text)
    elif name.lower() in BACKENDS:
        raise HardwareError(f"--gpu '{excerpt(text)}' names no memory; write for example {name.lower()}:12GiB.")
    else:
        part, size_bytes = table.lookup(name)
        device = _table_device(part, size_bytes, ram_bytes, name, table)
    if at:
        device = _with_free(device, _size(free_text, text), text)
    return device


def _size(text: str, spec: str) -> int:
    try:
        return parse_size(text)
    except UsageError:
        raise HardwareError(
            f"'{excerpt(text.strip())}' in --gpu '{excerpt(spec)}' is not a size with a unit; "
            'write for example cuda:12GiB or "RTX 3060@9.5GiB".'
        ) from None


def _plain_device(backend: str, size_text: str, spec: str) -> Device:
    if backend not in BACKENDS:
        raise HardwareError(
            f"'{excerpt(backend)}' in --gpu '{excerpt(spec)}' is no backend; use one of {', '.join(BACKENDS)}."
        )
    total = _size(size_text, spec)
    if total < _SMALLEST_GPU:
        raise HardwareError(f"--gpu '{excerpt(spec)}' has no memory to plan with; write for example {backend}:12GiB.")
    kind = "unified" if backend == "metal" else "dedicated"
    return Device(
        id=device_id(backend, 0), backend=backend, name=f"{backend} {format_bytes(total)}", total_bytes=total,
        free_bytes=total, memory_kind=kind, integrated=kind == "unified", source="given",
    )  # fmt: skip


def _table_device(part: GpuPart, size_bytes: int | None, ram_bytes: int | None, spec: str, table: GpuTable) -> Device:
    total, shared = part.memory_bytes[0], None
    if part.memory_kind == "unified":
        memory = size_bytes if size_bytes is not None else ram_bytes
        if memory is None:
            if len(part.memory_bytes) > 1:
                sizes = ", ".join(f"{part.name} {size >> 30}GB" for size in table.sold_with(part))
                raise HardwareError(
                    f"'{excerpt(spec)}' works in the machine's RAM, which may be of several sizes: "
                    f"{sizes}; give one of these or --ram SIZE."
                )
            memory = part.memory_bytes[0]
        total = shared = unified_budget_bytes(part, memory)
    return Device(
        id=device_id(part.backend, 0), backend=part.backend, name=part.name, total_bytes=total, free_bytes=total,
        memory_kind=part.memory_kind, integrated=part.memory_kind == "unified",
        bandwidth_bytes_per_s=part.bandwidth_bytes_per_s, bandwidth_source=f"rules/gpus.toml: {part.source}",
        link_bytes_per_s=part.link_bytes_per_s, f16_tflops=part.f16_tflops,
        compute_capability=part.compute_capability, source="rules/gpus.toml", shared_bytes=shared,
    )  # fmt: skip


def unified_budget_bytes(part: GpuPart, ram_bytes: int) -> int:
    """Bytes of `ram_bytes` RAM that the GPU of a chip may use where nobody changed the system's defaults.

    Apple: Metal's working-set limit. AMD on Linux: half of RAM (the kernel's default for GTT). Intel: three
    quarters. NVIDIA's boards: all of it.
    """
    if part.vendor == "apple":
        return metal_budget_bytes(ram_bytes)
    if part.vendor == "amd":
        return ram_bytes // 2
    if part.vendor == "intel":
        return ram_bytes * 3 // 4
    return ram_bytes


def _with_free(device: Device, free_bytes: int, spec: str) -> Device:
    total = device.total_bytes
    if free_bytes > total:
        if device.memory_kind != "unified":
            raise HardwareError(
                f"--gpu '{excerpt(spec)}' has more free memory than the card's {format_bytes(total)}; "
                "give at most that after @."
            )
        # The limit of a chip in system memory can be raised; who says so is believed.
        total = free_bytes
    shared = None if device.shared_bytes is None else max(device.shared_bytes, total)
    return device._replace(free_bytes=free_bytes, total_bytes=total, shared_bytes=shared)


def _named_ram_bytes(specs: Sequence[str], table: GpuTable) -> int | None:
    """RAM that a SPEC itself names ("M2 Ultra 192GB"), or that its chip is only sold with."""
    for spec in specs:
        name = spec.rpartition("@")[0] or spec
        if ":" in name or not name.strip() or name.strip().lower() in BACKENDS:
            continue  # no name of a card; parse_gpu_spec says what is wrong with it
        part, size_bytes = table.lookup(name.strip())
        if part.memory_kind == "unified":
            if size_bytes is not None:
                return size_bytes
            if len(part.memory_bytes) == 1:
                return part.memory_bytes[0]
    return None


def given_host(
    gpus: Sequence[str], no_gpu: bool, ram: int | None, base: HostSnapshot | None, table: GpuTable
) -> HostSnapshot:
    """Build the machine that `--gpu`, `--no-gpu` and `--ram` describe, on top of the probed one.

    `ram` is in bytes; without it the RAM of `base` counts, unless a SPEC names it. Without any GPU flag the
    devices of `base` stay. Raises HardwareError, also where the RAM cannot be known.
    """
    if gpus and no_gpu:
        raise HardwareError("--gpu and --no-gpu contradict each other; give one of them.")
    if ram is not None and ram <= 0:
        raise HardwareError("--ram must be more than 0, as in --ram 32GiB.")
    named = _named_ram_bytes(gpus, table) if ram is None else None
    notes: list[str] = []
    if ram is not None or named is not None:
        size = ram if ram is not None else named or 0
        memory = Ram(total_bytes=size, available_bytes=size)
        notes.append(f"RAM as given: {format_bytes(size)}, all of it free")
    elif base is not None and base.ram.total_bytes > 0:
        memory = base.ram
        notes.append("RAM of this machine; --ram SIZE imagines another")
    else:
        raise HardwareError("The size of this machine's RAM cannot be read; give it with --ram SIZE.")
    if gpus:
        # Only a size that somebody gave decides for a chip in system memory; this machine's RAM says nothing of it.
        chosen = number_devices([parse_gpu_spec(spec, table, ram_bytes=ram) for spec in gpus])
        _check_machine(chosen, gpus, ram, table)
        idle: tuple[Device, ...] = ()
    elif no_gpu or base is None:
        chosen, idle = (), ()
    else:
        chosen, idle = base.devices, base.idle_devices
    unified_given = any(device.memory_kind == "unified" for device in chosen)
    if (ram is not None or named is not None) and unified_given:
        unified = next(device for device in chosen if device.memory_kind == "unified")
        memory = memory._replace(
            bandwidth_bytes_per_s=unified.bandwidth_bytes_per_s,
            bandwidth_source=unified.bandwidth_source,
        )
    return HostSnapshot(
        devices=chosen,
        ram=memory,
        cpu=base.cpu if base is not None else Cpu("unknown", 1, 1),
        platform="darwin" if any(device.backend == "metal" for device in chosen) else _platform(base),
        storage=base.storage if base is not None else (),
        probes=base.probes if base is not None else (),
        origin="given",
        notes=(*(base.notes if base is not None and not gpus and not no_gpu else ()), *notes),
        idle_devices=idle,
        # a chip in system memory comes with a processor of its own
        calibration=None if base is None or (gpus and unified_given) else base.calibration,
    )


def _check_machine(devices: Sequence[Device], specs: Sequence[str], ram: int | None, table: GpuTable) -> None:
    """Refuse devices that cannot be in one machine, and RAM that a chip in system memory does not have."""
    unified = [spec for spec, device in zip(specs, devices, strict=True) if device.memory_kind == "unified"]
    if len(unified) > 1:
        raise HardwareError(
            f"--gpu '{unified[0]}' and --gpu '{unified[1]}' are two chips in system memory, "
            "and a machine has one; give one of them."
        )
    if len(devices) > 1 and any(device.backend == "metal" for device in devices):
        raise HardwareError("A machine with an Apple chip has no other GPU; give --gpu once.")
    for spec in unified if ram is not None else ():
        size = _named_size(spec, table)
        if size is not None and ram not in (size, size // GIB * 10**9):
            raise HardwareError(
                f"--gpu '{excerpt(spec)}' has {format_bytes(size)} of memory, which is the machine's RAM, "
                f"and --ram says {format_bytes(ram or 0)}; leave --ram away or name the chip with its other size."
            )
    for spec, device in zip(specs, devices, strict=True):
        if device.memory_kind == "unified" and ram is not None and device.free_bytes > ram:
            raise HardwareError(
                f"--gpu '{excerpt(spec)}' works in the machine's RAM and cannot have more than the {format_bytes(ram)} "
                "of --ram; give a larger --ram."
            )


def _named_size(spec: str, table: GpuTable) -> int | None:
    """The memory that a SPEC of a chip in system memory names, None where it names none."""
    name = (spec.rpartition("@")[0] or spec).strip()
    return None if ":" in name else table.lookup(name)[1]


def _platform(base: HostSnapshot | None) -> str:
    return base.platform if base is not None else "linux"
