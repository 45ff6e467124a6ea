"""NVML through the real pynvml module and a stand-in library that is compiled here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.hardware.nvidia import probe_nvidia
from advisor.hardware.snapshot_file import from_json
from advisor.host import Device, HostSnapshot, ProbeReport, Ram

from .conftest import CASES, REPOSITORY

MIB = 1 << 20
PROGRAM = """
import json, os, sys
from advisor.hardware.probe import probe_host
from advisor.hardware.snapshot_file import to_json
print(json.dumps(to_json(probe_host(environ=os.environ, root=sys.argv[1], platform="linux"))))
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("nvml")
    source = REPOSITORY / "tests" / "tools" / "fake_nvml.c"
    target = folder / "libnvidia-ml.so.1"
    command = [compiler, "-Wall", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([*command, "-o", str(target), str(source)], check=True)
    return folder


def ask(library: Path | None, machine: str, case: str = "nvidia", **environ: str) -> HostSnapshot:
    """Probe in a process of its own: the library is loaded by name, once per process."""
    variables: dict[str, str] = {**os.environ, "FAKE_NVML": machine, **environ}
    variables["PYTHONPATH"] = str(REPOSITORY)
    if library is not None:
        variables["LD_LIBRARY_PATH"] = str(library)
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(CASES / case)], env=variables, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    data: Any = json.loads(answer.stdout)
    return from_json(data, "output")


def nvml_report(host: HostSnapshot) -> ProbeReport:
    return next(report for report in host.probes if report.name == "nvidia_nvml")


def test_one_gpu(library: Path) -> None:
    host = ask(library, "one")
    (card,) = host.devices
    assert nvml_report(host).status == "ok"
    assert (card.id, card.backend, card.name) == ("CUDA0", "cuda", "NVIDIA GeForce RTX 3060")
    assert card.total_bytes == (12288 - 240) * MIB  # what the driver keeps is nobody's
    assert card.reserved_bytes == 240 * MIB
    assert card.free_bytes == 9000 * MIB
    assert card.bandwidth_bytes_per_s == 7501 * 10**6 * 2 * 192 // 8
    assert card.link_bytes_per_s == 16 * 1_969_230_769
    assert (card.compute_capability, card.driver) == ("8.6", "550.54.14")
    assert (card.pci_id, card.pci_device) == ("0000:01:00.0", "10de:2503")
    assert [(use.name, use.used_bytes, use.is_engine) for use in card.processes] == [
        ("llama-server", 2500 * MIB, True),
        ("Xorg", 548 * MIB, False),
    ]
    assert card.used_by_engines_bytes == 2500 * MIB


def names(devices: tuple[Device, ...]) -> list[str]:
    return [f"{device.id} {device.name.rpartition(' ')[2]}" for device in devices]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ["CUDA0 3090", "CUDA1 3060"]),  # CUDA's default is the fastest first, NVML's is the slot
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, ["CUDA0 3060", "CUDA1 3090"]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, ["CUDA0 3060"]),
        ({"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, ["CUDA0 3090"]),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, ["CUDA0 3060", "CUDA1 3090"]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1111"}, ["CUDA0 3060"]),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,1"}, ["CUDA0 3090"]),  # the list ends at its first invalid entry
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "7"}, []),
    ],
)
def test_two_gpus_are_numbered_as_cuda_does(library: Path, environ: dict[str, str], expected: list[str]) -> None:
    host = ask(library, "two", **environ)
    assert names(host.devices) == expected
    assert nvml_report(host).status == "ok"


def test_equal_gpus_stay_in_slot_order_without_a_remark(library: Path) -> None:
    host = ask(library, "twins")
    assert [device.pci_id for device in host.devices] == ["0000:02:00.0", "0000:03:00.0"]
    assert "estimate" not in nvml_report(host).detail


def test_one_mig_instance_is_the_device_and_its_parent_is_not(library: Path) -> None:
    """Of two instances a process sees the first, or the one that it is told."""
    host = ask(library, "mig")
    assert [(device.id, device.total_bytes, device.free_bytes) for device in host.devices] == [
        ("CUDA0", 19968 * MIB, 19900 * MIB)
    ]
    assert "MIG" in host.devices[0].name
    assert "split by MIG into 2" in nvml_report(host).detail
    assert any("one MIG instance" in note for note in host.notes)
    host = ask(library, "mig", CUDA_VISIBLE_DEVICES="MIG-55555555-aaaa-bbbb-cccc-000000000002")
    assert [(device.id, device.free_bytes) for device in host.devices] == [("CUDA0", 12000 * MIB)]


@pytest.mark.parametrize(
    ("machine", "words"),
    [("nodriver", "Driver Not Loaded"), ("mismatch", "mismatch"), ("nomemory", "memory cannot be read: Not Supported")],
)
def test_what_fails_is_a_failed_report(library: Path, machine: str, words: str) -> None:
    host = ask(library, machine)
    assert host.devices == ()
    assert nvml_report(host).status == "failed"
    assert words in nvml_report(host).detail
    assert host.ram.total_bytes > 0  # the other probes go on


def test_calls_without_permission_leave_their_fields_unknown(library: Path) -> None:
    (card,) = ask(library, "noperm").devices
    assert card.total_bytes == (12288 - 240) * MIB
    assert (card.uuid, card.pci_id, card.driver, card.compute_capability) == (None, None, None, None)
    assert (card.bandwidth_bytes_per_s, card.link_bytes_per_s, card.processes) == (None, None, ())


def test_an_old_driver_without_version_2_of_the_memory_query(library: Path) -> None:
    (card,) = ask(library, "v1").devices
    assert (card.total_bytes, card.free_bytes, card.reserved_bytes) == (12288 * MIB, 9000 * MIB, 0)


def test_wsl_does_not_tell_memory_per_process(library: Path) -> None:
    (card,) = ask(library, "wsl").devices
    assert [use.used_bytes for use in card.processes] == [None, None]
    assert card.used_by_engines_bytes == 0


def test_unified_memory_is_the_systems(library: Path) -> None:
    host = ask(library, "gb10")
    (chip,) = host.devices
    assert (chip.memory_kind, chip.integrated) == ("unified", True)
    assert (chip.total_bytes, chip.free_bytes) == (host.ram.total_bytes, host.ram.available_bytes)
    assert chip.link_bytes_per_s is None


def test_kernel_module_without_library() -> None:
    report = nvml_report(ask(None, "one", "nvidia-driver-files-only"))
    assert report.status == "failed"
    assert "libnvidia-ml.so.1 is not installed" in report.detail
    assert "550.54.14" in report.detail


def test_without_a_driver_it_is_absent_and_nothing_is_imported() -> None:
    sys.modules.pop("pynvml", None)
    devices, report = probe_nvidia(root=str(CASES / "no-gpu"), environ={}, ram=Ram(1, 1), platform="linux")
    assert (devices, report.status) == ((), "absent")
    assert "pynvml" not in sys.modules


def test_jetson_without_nvml_is_known_from_the_device_tree() -> None:
    ram = Ram(64 << 30, 48 << 30)
    (chip,), report = probe_nvidia(root=str(CASES / "jetson-orin"), environ={}, ram=ram, platform="linux")
    assert report.status == "ok"
    assert (chip.id, chip.compute_capability, chip.memory_kind) == ("CUDA0", "8.7", "unified")
    assert (chip.total_bytes, chip.free_bytes) == (64 << 30, 48 << 30)
