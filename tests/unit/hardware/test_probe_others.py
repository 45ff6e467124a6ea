"""Apple, storage, the engine's own list, the merge of all, and what a look costs."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.hardware.apple import metal_budget_bytes, probe_apple
from advisor.hardware.engine_list import parse_device_list, probe_engine_list
from advisor.hardware.probe import merge_engine_list, probe_host
from advisor.hardware.storage import probe_storage
from advisor.host import Device, Ram

from .conftest import CASES, REPOSITORY

GIB = 1 << 30
MIB = 1 << 20


# ------------------------------------------------------------------------------------------ Apple


@pytest.mark.parametrize(
    ("memory", "limit_mb", "expected"),
    [
        (16 * GIB, 0, 16 * GIB * 2 // 3),
        (36 * GIB, 0, 24 * GIB),
        (64 * GIB, 0, 48 * GIB),
        (64 * GIB, 57344, 56 * GIB),
        (16 * GIB, 99999, 16 * GIB),
    ],
)
def test_metal_limit(memory: int, limit_mb: int, expected: int) -> None:
    assert metal_budget_bytes(memory, limit_mb) == expected


def test_apple_chip() -> None:
    values = {
        "hw.optional.arm64": "1",
        "hw.memsize": str(64 * GIB),
        "iogpu.wired_limit_mb": "0",
        "machdep.cpu.brand_string": "Apple M1 Max",
    }
    (chip,), report = probe_apple(ram=Ram(64 * GIB, 30 * GIB), platform="darwin", sysctl=lambda: values)
    assert report.status == "ok"
    assert (chip.id, chip.backend, chip.name, chip.memory_kind) == ("MTL0", "metal", "Apple M1 Max", "unified")
    assert (chip.total_bytes, chip.free_bytes) == (48 * GIB, 30 * GIB)


def test_apple_elsewhere_and_broken() -> None:
    assert probe_apple(ram=Ram(1, 1), platform="linux")[1].status == "absent"
    assert probe_apple(ram=Ram(1, 1), platform="darwin", sysctl=dict)[1].status == "absent"
    broken = {"hw.optional.arm64": "1", "hw.memsize": "many"}
    devices, report = probe_apple(ram=Ram(1, 1), platform="darwin", sysctl=lambda: broken)
    assert (devices, report.status) == ((), "failed")


# ---------------------------------------------------------------------------------------- storage


def block(root: Path, name: str, rotational: int, partition_of: str = "", numbers: str = "") -> None:
    """A block device in sysfs, as a partition where `partition_of` is given."""
    device = root / "sys/devices" / partition_of / name
    device.mkdir(parents=True)
    if partition_of:
        (device / "partition").write_text("1\n")
    else:
        (device / "queue").mkdir()
        (device / "queue/rotational").write_text(f"{rotational}\n")
    for folder, link in (("sys/class/block", name), ("sys/dev/block", numbers)):
        if link:
            (root / folder).mkdir(parents=True, exist_ok=True)
            (root / folder / link).symlink_to(device)


@pytest.fixture
def disks(tmp_path: Path) -> Path:
    block(tmp_path, "nvme0n1", 0)
    block(tmp_path, "nvme0n1p2", 0, "nvme0n1", "259:2")
    block(tmp_path, "sda", 1)
    block(tmp_path, "sda1", 1, "sda", "8:1")
    block(tmp_path, "sdb", 0, numbers="8:16")
    block(tmp_path, "vda", 1, numbers="254:0")
    block(tmp_path, "dm-0", 0, numbers="253:0")
    (tmp_path / "sys/devices/dm-0/slaves").mkdir()
    for below in ("sda1", "nvme0n1p2"):
        (tmp_path / "sys/devices/dm-0/slaves" / below).symlink_to(tmp_path / "sys/class/block" / below)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(
        "22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n"
        "30 22 8:1 / /mnt/big\\040disk rw,relatime shared:2 - ext4 /dev/sda1 rw\n"
        "31 22 8:16 / /mnt/ssd rw - xfs /dev/sdb rw\n"
        "32 22 0:44 / /mnt/nas rw - nfs4 nas:/models rw\n"
        "33 22 0:45 /@home /home rw - btrfs /dev/sda1 rw\n"
        "34 22 0:46 / /tmp rw - tmpfs tmpfs rw\n"
        "35 22 254:0 / /virtual rw - ext4 /dev/vda rw\n"
        "36 22 253:0 / /lvm rw - ext4 /dev/mapper/vg-models rw\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("folder", "kind", "device"),
    [
        ("/srv/models", "nvme", "/dev/nvme0n1p2"),
        ("/mnt/big disk/m", "hdd", "/dev/sda1"),
        ("/mnt/ssd", "ssd", "/dev/sdb"),
        ("/mnt/ssd2", "nvme", "/dev/nvme0n1p2"),  # a name that only begins like a mount point
        ("/mnt/nas/gguf", "network", "nas:/models"),
        ("/home/user", "hdd", "/dev/sda1"),
        ("/tmp/x", None, "tmpfs"),
        ("/virtual/x", None, "/dev/vda"),  # a virtual disk says "rotational" whatever lies below
        ("/lvm/x", "hdd", "/dev/dm-0"),  # the slower of two disks
    ],
)
def test_kind_of_disk(disks: Path, folder: str, kind: str | None, device: str) -> None:
    (item,), report = probe_storage([folder], root=str(disks))
    assert report.status == "ok"
    assert (item.folder, item.kind, item.device) == (folder, kind, device)


def test_storage_without_a_list_of_mounts(tmp_path: Path) -> None:
    (item,), report = probe_storage(["/models"], root=str(tmp_path))
    assert (item.kind, report.status) == (None, "absent")


# ------------------------------------------------------------------------------ the engine's list

LIST = """ggml_vulkan: Found 2 Vulkan devices:
Available devices:
  CUDA0: NVIDIA GeForce RTX 3060 (12044 MiB, 11873 MiB free)
  Vulkan0: llvmpipe (LLVM 15.0.6, 256 bits) (24105 MiB, 24105 MiB free)
  ROCm0: AMD Radeon RX 7900 XTX (24560 MiB, 24000 MiB free)
  BLAS: OpenBLAS (0 MiB, 0 MiB free)
"""


def test_list_of_devices() -> None:
    devices, ignored = parse_device_list(LIST)
    assert [
        (item.id, item.backend, item.name, item.total_bytes // MIB, item.free_bytes // MIB) for item in devices
    ] == [
        ("CUDA0", "cuda", "NVIDIA GeForce RTX 3060", 12044, 11873),
        ("ROCm0", "rocm", "AMD Radeon RX 7900 XTX", 24560, 24000),
    ]
    assert ignored == ("Vulkan0 (llvmpipe (LLVM 15.0.6, 256 bits))", "BLAS (OpenBLAS)")
    assert parse_device_list("Available devices:\n  (none)\n") == ((), ())


def program(folder: Path, body: str) -> str:
    path = folder / "llama-server"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(folder)


def test_asking_the_engine(tmp_path: Path) -> None:
    path = program(tmp_path, f'[ "$1" = --list-devices ] || exit 9\ncat <<"END"\n{LIST}END')
    devices, report = probe_engine_list(environ={"PATH": f"{path}:/usr/bin:/bin"})
    assert report.status == "ok"
    assert [device.id for device in devices] == ["CUDA0", "ROCm0"]


def test_engine_that_hangs_or_fails_or_is_not_there(tmp_path: Path) -> None:
    path = program(tmp_path, "exec sleep 30")
    _, report = probe_engine_list(environ={"PATH": f"{path}:/usr/bin:/bin"}, time_limit_s=0.2)
    assert (report.status, "no answer" in report.detail) == ("failed", True)
    path = program(tmp_path, "echo error: libcuda.so not found >&2; exit 127")
    _, report = probe_engine_list(environ={"PATH": f"{path}:/bin"})
    assert (report.status, "127" in report.detail) == ("failed", True)
    assert probe_engine_list(environ={"PATH": ""})[1].status == "absent"


def test_the_engines_list_wins_and_keeps_what_the_probe_knows() -> None:
    probed = [
        Device("CUDA0", "cuda", "NVIDIA GeForce RTX 3090", 24000 * MIB, 23000 * MIB, bandwidth_bytes_per_s=936),
        Device("CUDA1", "cuda", "NVIDIA GeForce RTX 3060", 12048 * MIB, 9000 * MIB, bandwidth_bytes_per_s=360),
    ]
    listed = [Device("CUDA0", "cuda", "NVIDIA GeForce RTX 3060", 10000 * MIB, 8900 * MIB, source="engine")]
    devices, remarks = merge_engine_list(probed, listed)
    assert [(item.id, item.name, item.total_bytes, item.bandwidth_bytes_per_s) for item in devices] == [
        ("CUDA0", "NVIDIA GeForce RTX 3060", 10000 * MIB, 360)
    ]
    assert any("10000 MiB" in remark and "12048 MiB" in remark for remark in remarks)
    assert any("3090" in remark and "does not use it" in remark for remark in remarks)


# ------------------------------------------------------------------------------------------- cost

PROGRAM = """
import os, sys, time, typing, dataclasses
import advisor.host, advisor.units
started = time.process_time()
from advisor.hardware.probe import probe_host
for _ in range(5):
    before = time.process_time()
    host = probe_host(environ={}, root=sys.argv[1], platform="linux")
    print(time.process_time() - before)
heavy = {"pynvml", "psutil", "subprocess", "ctypes", "json", "tomli", "difflib", "logging", "pathlib", "click"}
print("heavy:", *sorted(heavy & set(sys.modules)))
"""


def test_a_machine_without_gpu_costs_three_milliseconds_and_imports_nothing_heavy() -> None:
    answer = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM, str(CASES / "no-gpu")],
        env={"PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert answer[-1] == "heavy:"
    assert min(float(line) for line in answer[:-1]) < 0.003


def test_probing_reports_every_probe_with_its_time() -> None:
    host = probe_host(environ={}, root=str(CASES / "no-gpu"), storage_folders=["/models"], platform="linux")
    assert [report.name for report in host.probes] == [
        "system", "nvidia_nvml", "amd_sysfs", "intel_sysfs", "storage",
    ]  # fmt: skip
    assert all(report.seconds >= 0 for report in host.probes)
    assert host.devices == ()


def test_this_very_machine_can_be_probed() -> None:
    host = probe_host(environ={"PATH": "/usr/bin"})
    assert host.ram.total_bytes >= host.ram.available_bytes > 0
    assert host.cpu.logical_cores >= host.cpu.physical_cores >= 1
