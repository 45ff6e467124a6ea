"""What was measured on this machine, put to the snapshot that the probes made of it."""

from __future__ import annotations

from advisor.calibration import Calibration, Machine, same_machine
from advisor.calibration_file import load_calibration
from advisor.host import HostSnapshot, Storage


def machine_of(host: HostSnapshot) -> Machine:
    """What measured speed is tied to."""
    return Machine(host.cpu.name, host.cpu.physical_cores, host.cpu.logical_cores, host.ram.total_bytes)


def current_calibration(folder: str, host: HostSnapshot) -> tuple[Calibration | None, str | None]:
    """(what was measured on `host`, as the state `folder` keeps it, a sentence when it was another machine)."""
    calibration, problem = load_calibration(folder)
    if calibration is None or same_machine(calibration.machine, machine_of(host)):
        return calibration, problem
    was = calibration.machine
    return None, (
        f"the calibration of {calibration.measured_on} was made on other hardware ({was.cpu}, {was.physical_cores} "
        f"cores, {was.ram_bytes >> 30} GiB) and is not used; run 'advisor calibrate' again."
    )


def with_calibration(host: HostSnapshot, folder: str) -> HostSnapshot:
    """`host`, just probed, with its measured memory and disks, or with a note when what was measured does not hold."""
    calibration, problem = current_calibration(folder, host)
    if problem is not None:
        host = host._replace(notes=(*host.notes, problem))
    return calibrated(host, calibration) if calibration is not None else host


def calibrated(host: HostSnapshot, calibration: Calibration) -> HostSnapshot:
    """`host` with what was measured on it."""
    source = f"measured on {calibration.measured_on}"
    ram = host.ram
    if calibration.ram_bytes_per_s is not None:
        ram = ram._replace(bandwidth_bytes_per_s=calibration.ram_bytes_per_s, bandwidth_source=source)
    rates = {disk.folder: disk.bytes_per_s for disk in calibration.disks}
    storage = [
        item._replace(read_bytes_per_s=rates.pop(item.folder), source=source) if item.folder in rates else item
        for item in host.storage
    ]
    storage += [Storage(path, read_bytes_per_s=rate, source=source) for path, rate in rates.items()]
    return host._replace(ram=ram, storage=tuple(storage), calibration=calibration)
