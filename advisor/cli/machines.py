"""The machines of a command line: one as everywhere, or with --each one for every --gpu."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.errors import UsageError
from advisor.host import HostSnapshot
from advisor.units import GIB, format_bytes

if TYPE_CHECKING:
    from advisor.app import App
    from advisor.cli.options import HardwareChoice

EACH_HELP = 'every --gpu is a machine of its own; "RTX 3090 + RTX 3060" is one with both'


def machines(app: App, hardware: HardwareChoice, *, each: bool) -> list[HostSnapshot]:
    """What to plan for, in the order of the command line. Raises UsageError."""
    if each and not hardware.gpus:
        raise UsageError("--each makes a machine of every --gpu; give --gpu several times.")
    teams = [spec.split(" + ") for spec in hardware.gpus] if each else [list(hardware.gpus)]
    return [
        app.host(gpus=team, no_gpu=hardware.no_gpu, ram=hardware.ram_bytes, hardware_file=hardware.hardware_file)
        for team in teams
    ]


def machine_name(host: HostSnapshot, *, ram: bool = True) -> str:
    """The GPUs of a machine in words, equal ones counted, with its system memory."""
    counts: dict[str, int] = {}
    for device in host.devices:
        unified = device.memory_kind == "unified" and not ram  # then the memory is what tells two of them apart
        name = f"{device.name} {host.ram.total_bytes / GIB:.0f} GiB" if unified else device.name
        counts[name] = counts.get(name, 0) + 1
    cards = " + ".join(f"{count}x {name}" if count > 1 else name for name, count in counts.items()) or "no GPU"
    return f"{cards}, {format_bytes(host.ram.total_bytes)} of system memory" if ram else cards
