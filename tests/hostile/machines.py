"""Lies of the machine: files of /sys and /proc, answers of NVIDIA's library, hardware snapshots."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from advisor.app import App
from advisor.errors import HardwareError
from advisor.hardware import nvidia
from advisor.hardware.probe import probe_host
from advisor.hardware.snapshot_file import from_json, to_json
from advisor.host import Cpu, Device, HostSnapshot, ProcessUse, Ram
from tests.hostile.lies import MARK, READ, Case, Group, Lie, Made

TREES = Path(__file__).resolve().parents[1] / "data/hardware"
CASES = ("amd-rx7900xtx", "amd-780m-big-carveout", "intel-arc-b580", "jetson-orin", "cgroup-v2-limited")
JUNK = (
    b"",
    b"\0" * 64,
    b"-1\n",
    b"9" * 5000,
    b"\xff\xfe\x80",
    "²\n".encode(),
    b"nan\n",
    b"18446744073709551615\n",
    b"0\n",
    b"\x1b[2J",
)
GIB = 1 << 30


def _probed(root: Path) -> str:
    """Every probe says how it went, and what it found can be written and read."""
    host = probe_host(environ={}, root=str(root), platform="linux", load_table=App(None).gpu_table)
    assert all(report.status in ("ok", "absent", "failed") for report in host.probes)
    assert all(0 <= device.free_bytes <= device.total_bytes for device in host.devices), host.devices
    assert all(device.name.isprintable() for device in host.devices), host.devices
    document = to_json(host)
    assert json.loads(json.dumps(document)) is not None
    return READ


def trees(folder: Path) -> Made:
    """Each file of a tree with something else in it, one after the other."""
    for name in CASES:
        root = folder / name
        shutil.copytree(TREES / name, root, symlinks=True)
        for path in sorted(root.rglob("*")):
            if not path.is_file() or path.is_symlink():
                continue
            before = path.read_bytes()
            for junk in JUNK:
                path.write_bytes(junk)
                yield Case(f"{path.relative_to(folder)} is {junk[:9]!r}", lambda r=root: _probed(r), READ)
            path.unlink()
            yield Case(f"{path.relative_to(folder)} is missing", lambda r=root: _probed(r), READ)
            path.mkdir()
            yield Case(f"{path.relative_to(folder)} is a folder", lambda r=root: _probed(r), READ)
            path.rmdir()
            path.write_bytes(before)


class _Error(Exception):
    pass


class _NotFoundError(_Error):
    pass


def _library(**answers: Any) -> Any:
    """NVIDIA's library as a module that answers as told; an exception is raised, other functions refuse."""
    good: dict[str, Any] = {
        "nvmlDeviceGetCount": 1, "nvmlDeviceGetHandleByIndex": object(), "nvmlDeviceGetName": b"RTX 3060",
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=12 * GIB, free=11 * GIB, reserved=GIB // 4, used=0),
        "nvmlSystemGetDriverVersion": "550.1", "nvmlDeviceGetUUID": "GPU-1", "nvmlDeviceGetCudaComputeCapability": (8, 6),
        "nvmlDeviceGetMaxClockInfo": 7501, "nvmlDeviceGetMemoryBusWidth": 192, "nvmlDeviceGetMaxPcieLinkGeneration": 4,
        "nvmlDeviceGetMaxPcieLinkWidth": 16, "nvmlDeviceGetNumGpuCores": 3584, "nvmlDeviceGetComputeRunningProcesses": [],
        "nvmlDeviceGetGraphicsRunningProcesses": [], "nvmlDeviceGetMigMode": (0, 0), "nvmlDeviceGetMaxMigDeviceCount": 0,
        "nvmlDeviceGetPciInfo": SimpleNamespace(busId=b"00000000:01:00.0", pciDeviceId=0x250310DE), "nvmlDeviceGetAddressingMode": 0,
        "nvmlDeviceGetMigDeviceHandleByIndex": object(), "nvmlInit": None, "nvmlShutdown": None,
    }  # fmt: skip

    def calling(value: Any) -> Any:
        def call(*_: Any, **__: Any) -> Any:
            if isinstance(value, Exception):
                raise value
            return value

        return call

    calls = {name: calling(value) for name, value in {**good, **answers}.items()}
    return SimpleNamespace(NVMLError=_Error, NVMLError_LibraryNotFound=_NotFoundError, NVML_CLOCK_MEM=2, NVML_CLOCK_SM=1,
                           nvmlMemory_v2=2, **calls)  # fmt: skip


ANSWERS: tuple[Any, ...] = (
    None, -1, 0, 2**64, 2**200, float("nan"), "x", b"\xff\xfe\x1b[2J", "", [], (), {}, object(), _Error("no"), OSError("lost"),
    ValueError("odd"), SimpleNamespace(total=-1, free=2**70, reserved=2**70, busId=5, pciDeviceId="x", pid=-1, usedGpuMemory=-1),
    [SimpleNamespace(pid=2**70, usedGpuMemory=2**70), SimpleNamespace(pid="x", usedGpuMemory="y")], (1, 1), ("x", None),
)  # fmt: skip


def library(_: Path) -> Made:
    """Every answer of every call as something else."""
    ram = Ram(GIB, GIB)
    names = [name for name in vars(_library()) if name.startswith("nvml") and name != "nvmlMemory_v2"]

    def asked(nvml: Any) -> str:
        import sys

        before = sys.modules.get("pynvml")
        sys.modules["pynvml"] = nvml
        try:
            devices, report = nvidia.probe_nvidia(root=str(TREES / "nvidia"), environ={}, ram=ram, platform="linux")
        finally:
            if before is None:
                del sys.modules["pynvml"]
            else:
                sys.modules["pynvml"] = before
        assert report.status in ("ok", "absent", "failed")
        assert all(0 <= device.free_bytes <= device.total_bytes for device in devices), devices
        json.dumps([device._asdict() for device in devices], default=lambda use: use._asdict())
        return READ

    yield Case("good", lambda: asked(_library()), READ)
    for name in names:
        for number, answer in enumerate(ANSWERS):
            yield Case(f"{name} gives number {number}", lambda n=name, a=answer: asked(_library(**{n: a})), READ)


def _snapshot() -> dict[str, Any]:
    uses = (ProcessUse(1, "x", GIB, True),)
    card = Device("CUDA0", "cuda", "RTX", 8 * GIB, 7 * GIB, processes=uses)
    return to_json(HostSnapshot((card,), Ram(GIB, GIB), Cpu("c", 4, 8, ("avx2",)), "linux"))


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _places(item, (*path, key))


def _replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.copy(document)
    changed[path[0]] = _replaced(document[path[0]], path[1:], value)
    return changed


def snapshots(folder: Path) -> Made:
    """Hardware snapshots with every value as something else: refused, or taken and never more than the file says."""
    good = _snapshot()
    for path in _places(good):
        for value in (None, -1, 2**70, 1.5, "", "x" * 5000, f"../{MARK}", [], {}, True, [[]], "\x1b[2J"):
            yield Case(
                f"{'.'.join(map(str, path))} is {str(value)[:9]!r}",
                _taken(_replaced(good, path, value)),
                "taken or refused",
            )
    for label, data in (("empty", b""), ("deep", b"[" * 100_000), ("many", b"[" + b"[]," * 600_000 + b"[]]"), ("large", b" " * (3 << 20)),
                        ("digits", b'{"schema": ' + b"9" * 9999 + b"}"), ("broken UTF-8", b'{"\xff": 1}')):  # fmt: skip
        path = folder / f"{label}.json"
        path.write_bytes(data)
        yield Case(f"file: {label}", lambda p=str(path): App(None).host(hardware_file=p), "HardwareError")
    yield Case("file: missing", lambda: App(None).host(hardware_file=str(folder / "no")), "UsageError")
    yield Case("file: a folder", lambda: App(None).host(hardware_file=str(folder)), "UsageError")


def _taken(document: Any) -> Any:
    def call() -> str:
        refused = ""
        try:
            host = from_json(document, "h.json")
            if to_json(host) != to_json(from_json(json.loads(json.dumps(to_json(host))), "h.json")):
                return "another after it was written"
        except HardwareError as error:
            refused = str(error)
        return "taken or refused" if not refused or refused.startswith("h.json: ") else refused

    return call


TREE = Group(
    "hardware trees", (Lie("files of /sys and /proc", "values of drivers that are new, old or broken", trees),)
)
NVML = Group(
    "NVML answers", (Lie("answers of the library", "structures of another version, cards that fell off", library),)
)
REPLAYED = Group(
    "hardware snapshots", (Lie("every value", "snapshots come with bug reports, from strangers", snapshots),)
)
