"""How a HostSnapshot reads as plain text; `advisor hardware` prints these lines."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.host import Device, HostSnapshot
from advisor.units import format_bytes

_INSTRUCTION_SETS_SHOWN = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "neon", "dotprod", "i8mm", "sve")


def render_hardware(snapshot: HostSnapshot) -> list[str]:
    """Return what was found, what is planned with, who holds memory, and how each probe went, line by line."""
    lines: list[str] = []
    if not snapshot.devices:
        lines.append("GPU      none: everything runs on the processor")
    for device in snapshot.devices:
        lines.extend(_device_lines(device))
    for device in snapshot.idle_devices:
        lines.append(f"idle     {_clean(device.name)} ({device.backend}), not used beside a card")
    lines.extend(_ram_lines(snapshot))
    cpu = snapshot.cpu
    sets = [name for name in cpu.instruction_sets if name in _INSTRUCTION_SETS_SHOWN]
    shown = f", {' '.join(sets)}" if sets else ""
    cores = f"{_count(cpu.physical_cores, 'core')}, {_count(cpu.logical_cores, 'thread')}"
    lines.append(f"CPU      {_clean(cpu.name)}: {cores}{shown}")
    for item in snapshot.storage:
        where = f" ({_clean(item.device)})" if item.device else ""
        rate = f", {item.read_bytes_per_s / 1e6:,.0f} MB/s" if item.read_bytes_per_s else ""
        kind = item.kind or ("kind unknown" if not rate else "")
        lines.append(f"disk     {_clean(item.folder)}: {(kind + where + rate).removeprefix(', ')}")
    if snapshot.calibration is not None:
        from advisor.cli.render_calibrate import calibration_lines

        lines.extend(calibration_lines(snapshot.calibration))
    origin = {"probed": "this machine", "given": "as given on the command line", "file": "from a file"}
    lines.append(f"planned  {origin.get(snapshot.origin, snapshot.origin)}, {snapshot.platform}")
    lines.extend(f"note     {_clean(note)}" for note in snapshot.notes)
    for report in snapshot.probes:
        lines.append(
            f"probe    {report.name}: {report.status}, {report.seconds * 1000:.1f} ms, {_clean(report.detail)}"
        )
    return lines


def _device_lines(device: Device) -> list[str]:
    kind = "shares the system's RAM" if device.memory_kind == "unified" else "own memory"
    lines = [
        f"{device.id:<8} {_clean(device.name)}: {format_bytes(device.total_bytes)}, "
        f"{format_bytes(device.free_bytes)} free, {kind}"
    ]
    facts = []
    if device.compute_capability:
        # NVIDIA's is a number; AMD's has a name that says what it is (gfx1100)
        number = device.compute_capability.replace(".", "").isdecimal()
        facts.append(f"{'compute capability ' if number else ''}{_clean(device.compute_capability)}")
    if device.bandwidth_bytes_per_s:
        facts.append(f"{device.bandwidth_bytes_per_s / 1e9:.0f} GB/s ({_clean(device.bandwidth_source or 'given')})")
    if device.f16_tflops:
        facts.append(f"{device.f16_tflops:g} TFLOPS f16")
    if device.link_bytes_per_s:
        facts.append(f"link {device.link_bytes_per_s / 1e9:.1f} GB/s")
    if device.driver:
        facts.append(f"driver {_clean(device.driver)}")
    if device.pci_id:
        facts.append(device.pci_id)
    if facts:
        lines.append("         " + ", ".join(facts))
    if device.used_by_engines_bytes:
        lines.append(
            f"         engines hold {format_bytes(device.used_by_engines_bytes)}, which comes back when they restart"
        )
    for use in device.processes:
        held = "an unknown amount" if use.used_bytes is None else format_bytes(use.used_bytes)
        lines.append(f"         held by {_clean(use.name)} ({use.pid}){' [engine]' if use.is_engine else ''}: {held}")
    return lines


def _ram_lines(snapshot: HostSnapshot) -> Sequence[str]:
    ram = snapshot.ram
    line = f"RAM      {format_bytes(ram.total_bytes)}, {format_bytes(ram.available_bytes)} available"
    if ram.cgroup_limit_bytes is not None:
        line += f", a cgroup limits it to {format_bytes(ram.cgroup_limit_bytes)}"
    if ram.bandwidth_bytes_per_s:
        source = f" ({_clean(ram.bandwidth_source)})" if ram.bandwidth_source else ""
        line += f", {ram.bandwidth_bytes_per_s / 1e9:.0f} GB/s{source}"
    lines = [line]
    if ram.used_by_engines_bytes:
        lines.append(
            f"         engines hold {format_bytes(ram.used_by_engines_bytes)}, which comes back when they restart"
        )
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _clean(text: str) -> str:
    """Text from drivers and files without control characters, which a terminal would obey."""
    return "".join(character for character in text if character.isprintable())
