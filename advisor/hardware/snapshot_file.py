"""The file format "advisor.hardware/1": what `advisor hardware --save` writes and `--hardware` replays.

Every field of HostSnapshot is in it, so the same file gives the same answer on every machine. Unknown keys
are skipped (a newer advisor may add some); a wrong value is an error that names file and key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from advisor import calibration
from advisor.calibration import Calibration
from advisor.errors import HardwareError
from advisor.gguf_header.errors import printable
from advisor.hardware.device_ids import BACKENDS
from advisor.host import Cpu, Device, HostSnapshot, ProbeReport, ProcessUse, Ram, Storage

SCHEMA = "advisor.hardware/1"
_MAX_BYTES = 1 << 60
_MAX_ITEMS = 1024
_MAX_TEXT = 4096


def to_json(snapshot: HostSnapshot) -> dict[str, Any]:
    """Return the snapshot as plain values for json.dump. Sizes are integers in bytes; unknown is None."""
    return {
        "schema": SCHEMA,
        "origin": snapshot.origin,
        "platform": snapshot.platform,
        "devices": [_device_json(device) for device in snapshot.devices],
        "idle_devices": [_device_json(device) for device in snapshot.idle_devices],
        "ram": dict(snapshot.ram._asdict()),
        "cpu": {**snapshot.cpu._asdict(), "instruction_sets": list(snapshot.cpu.instruction_sets)},
        "storage": [dict(item._asdict()) for item in snapshot.storage],
        "probes": [dict(report._asdict()) for report in snapshot.probes],
        "notes": list(snapshot.notes),
        "calibration": calibration.to_json(snapshot.calibration) if snapshot.calibration is not None else None,
    }


def _device_json(device: Device) -> dict[str, Any]:
    return {**device._asdict(), "processes": [dict(use._asdict()) for use in device.processes]}


def from_json(data: object, path: str) -> HostSnapshot:
    """Read what `to_json` wrote. `path` is named in errors. Raises HardwareError with file, key and cure."""
    reader = _Reader(data, path, "")
    schema = reader.optional("schema", reader.text)
    if schema != SCHEMA:
        raise HardwareError(
            f"{path}: 'schema' is {_shown(schema)}, not \"{SCHEMA}\"; give a file written by advisor hardware --save."
        )
    ram, cpu = reader.table("ram"), reader.table("cpu")
    return HostSnapshot(
        devices=tuple(_device(item) for item in reader.tables("devices")),
        idle_devices=tuple(_device(item) for item in reader.tables("idle_devices")),
        ram=Ram(
            total_bytes=ram.required("total_bytes", ram.size),
            available_bytes=ram.required("available_bytes", ram.size),
            cgroup_limit_bytes=ram.optional("cgroup_limit_bytes", ram.size),
            used_by_engines_bytes=ram.optional("used_by_engines_bytes", ram.size) or 0,
            bandwidth_bytes_per_s=ram.optional("bandwidth_bytes_per_s", ram.size),
            bandwidth_source=ram.optional("bandwidth_source", ram.text),
        ),
        cpu=Cpu(
            name=cpu.required("name", cpu.text),
            physical_cores=cpu.required("physical_cores", cpu.count),
            logical_cores=cpu.required("logical_cores", cpu.count),
            instruction_sets=cpu.texts("instruction_sets"),
            architecture=cpu.optional("architecture", cpu.text) or "",
        ),
        platform=reader.optional("platform", reader.text) or "linux",
        storage=tuple(_storage(item) for item in reader.tables("storage")),
        probes=tuple(_report(item) for item in reader.tables("probes")),
        origin=reader.optional("origin", reader.text) or "file",
        notes=reader.texts("notes"),
        calibration=reader.optional("calibration", reader.calibration),
    )


def _device(item: _Reader) -> Device:
    total = item.required("total_bytes", item.size)
    free = item.required("free_bytes", item.size)
    if free > total:
        item.fail("free_bytes", "is more than total_bytes")
    backend = item.required("backend", item.text)
    if backend not in BACKENDS:
        item.fail("backend", f"must be one of {', '.join(BACKENDS)}")
    kind = item.optional("memory_kind", item.text) or "dedicated"
    if kind not in ("dedicated", "unified"):
        item.fail("memory_kind", 'must be "dedicated" or "unified"')
    return Device(
        id=item.required("id", item.text), backend=backend, name=item.required("name", item.text),
        total_bytes=total, free_bytes=free, memory_kind=kind,
        integrated=item.optional("integrated", item.flag) or False,
        pci_id=item.optional("pci_id", item.text), uuid=item.optional("uuid", item.text),
        used_by_engines_bytes=item.optional("used_by_engines_bytes", item.size) or 0,
        processes=tuple(_process(use) for use in item.tables("processes")),
        bandwidth_bytes_per_s=item.optional("bandwidth_bytes_per_s", item.size),
        bandwidth_source=item.optional("bandwidth_source", item.text),
        link_bytes_per_s=item.optional("link_bytes_per_s", item.size),
        f16_tflops=item.optional("f16_tflops", item.number),
        compute_capability=item.optional("compute_capability", item.text),
        driver=item.optional("driver", item.text), source=item.optional("source", item.text) or "probe",
        reserved_bytes=item.optional("reserved_bytes", item.size) or 0,
        shared_bytes=item.optional("shared_bytes", item.size),
        pci_device=item.optional("pci_device", item.text),
    )  # fmt: skip


def _process(item: _Reader) -> ProcessUse:
    return ProcessUse(
        pid=item.required("pid", item.size), name=item.required("name", item.text),
        used_bytes=item.optional("used_bytes", item.size), is_engine=item.optional("is_engine", item.flag) or False,
    )  # fmt: skip


def _storage(item: _Reader) -> Storage:
    return Storage(
        folder=item.required("folder", item.text), device=item.optional("device", item.text),
        kind=item.optional("kind", item.text), read_bytes_per_s=item.optional("read_bytes_per_s", item.size),
        source=item.optional("source", item.text),
    )  # fmt: skip


def _report(item: _Reader) -> ProbeReport:
    status = item.required("status", item.text)
    if status not in ("ok", "absent", "failed"):
        item.fail("status", 'must be "ok", "absent" or "failed"')
    return ProbeReport(
        name=item.required("name", item.text), status=status, detail=item.optional("detail", item.text) or "",
        seconds=item.optional("seconds", item.number) or 0.0,
    )  # fmt: skip


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


class _Reader:
    """One JSON object, with its place in the file for the error messages."""

    def __init__(self, value: object, path: str, place: str) -> None:
        self._path, self._place = path, place
        if not isinstance(value, Mapping):
            where = f"'{place}'" if place else "the content"
            raise HardwareError(f"{path}: {where} must be a JSON object; write the file with advisor hardware --save.")
        self._values: Mapping[str, object] = value

    def fail(self, key: str, why: str) -> None:
        """Raise HardwareError about `key`."""
        place = f"{self._place}.{key}" if self._place else key
        raise HardwareError(f"{self._path}: '{place}' {why}; write the file anew with advisor hardware --save.")

    def required(self, key: str, read: Callable[[str, object], Any]) -> Any:
        """Return the value of a key that must be there."""
        if self._values.get(key) is None:
            self.fail(key, "is missing")
        return read(key, self._values[key])

    def optional(self, key: str, read: Callable[[str, object], Any]) -> Any:
        """Return the value of a key, None where it is missing or null."""
        value = self._values.get(key)
        return None if value is None else read(key, value)

    def size(self, key: str, value: object) -> int:
        """Return a whole number from 0 to 2**60."""
        if type(value) is not int or not 0 <= value <= _MAX_BYTES:
            self.fail(key, f"must be a whole number from 0 to 2**60, not {_shown(value)}")
        return value  # type: ignore[return-value]

    def count(self, key: str, value: object) -> int:
        """Return a whole number from 1 to 65536."""
        if type(value) is not int or not 1 <= value <= 65536:
            self.fail(key, f"must be a whole number from 1 to 65536, not {_shown(value)}")
        return value  # type: ignore[return-value]

    def number(self, key: str, value: object) -> float:
        """Return a finite number from 0 to 10**9."""
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not good or not math.isfinite(value) or not 0 <= value <= 1e9:  # type: ignore[arg-type, operator]
            self.fail(key, f"must be a number from 0 to 10**9, not {_shown(value)}")
        return value  # type: ignore[return-value]

    def text(self, key: str, value: object) -> str:
        """Return a text of at most 4096 characters, those that a terminal would obey replaced."""
        if not isinstance(value, str) or len(value) > _MAX_TEXT:
            self.fail(key, f"must be a text of at most {_MAX_TEXT} characters, not {_shown(value)}")
        return printable(value)  # type: ignore[arg-type]

    def flag(self, key: str, value: object) -> bool:
        """Return true or false."""
        if not isinstance(value, bool):
            self.fail(key, f"must be true or false, not {_shown(value)}")
        return value  # type: ignore[return-value]

    def calibration(self, key: str, value: object) -> Calibration:
        """Return what was measured on the machine."""
        try:
            return calibration.from_json(value)
        except calibration.BROKEN:
            self.fail(key, "is not what 'advisor calibrate' measures")
            raise  # never comes here: fail raises

    def _list(self, key: str) -> list[object]:
        value = self._values.get(key)
        if value is None:
            return []
        if not isinstance(value, list) or len(value) > _MAX_ITEMS:
            self.fail(key, f"must be a list of at most {_MAX_ITEMS} items")
        return value  # type: ignore[return-value]

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts."""
        return tuple(self.text(key, item) for item in self._list(key))

    def tables(self, key: str) -> list[_Reader]:
        """Return a list of objects."""
        place = f"{self._place}.{key}" if self._place else key
        return [_Reader(item, self._path, f"{place}[{number}]") for number, item in enumerate(self._list(key))]

    def table(self, key: str) -> _Reader:
        """Return an object that must be there."""
        if self._values.get(key) is None:
            self.fail(key, "is missing")
        return _Reader(self._values[key], self._path, f"{self._place}.{key}" if self._place else key)
