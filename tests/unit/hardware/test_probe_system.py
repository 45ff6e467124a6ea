from __future__ import annotations

import pytest

from advisor.hardware.system import SystemFacts, cgroup_memory, probe_system

from .conftest import CASES

KIB = 1024


def look(case: str) -> SystemFacts:
    facts, report = probe_system(root=str(CASES / case), platform="linux")
    assert report.status == "ok", report
    return facts


def test_memory_is_read_from_meminfo() -> None:
    ram = look("two-sockets").ram
    assert (ram.total_bytes, ram.available_bytes) == (528_000_000 * KIB, 500_000_000 * KIB)
    assert ram.cgroup_limit_bytes is None


@pytest.mark.parametrize(
    ("case", "physical", "logical", "name", "sets"),
    [
        ("no-gpu", 8, 16, "AMD Ryzen 7 5700X 8-Core Processor", {"avx2", "fma", "f16c"}),
        ("two-sockets", 96, 192, "Intel(R) Xeon(R) Platinum 8468", {"avx512f", "amx_int8", "avx512_fp16"}),
        # 6 cores with two threads and 8 with one
        ("intel-arc-b580", 14, 20, "Intel(R) Core(TM) i5-13600K", {"avx2"}),
        ("jetson-orin", 12, 12, "NVIDIA Jetson AGX Orin Developer Kit", {"neon", "dotprod", "fp16"}),
    ],
)
def test_processor(case: str, physical: int, logical: int, name: str, sets: set[str]) -> None:
    cpu = look(case).cpu
    assert (cpu.name, cpu.physical_cores, cpu.logical_cores) == (name, physical, logical)
    assert sets <= set(cpu.instruction_sets)
    if case == "no-gpu":
        assert not [item for item in cpu.instruction_sets if item.startswith(("avx512", "amx", "neon"))]


def test_cgroup_v2_takes_the_tightest_limit_on_the_way_up() -> None:
    ram = look("cgroup-v2-limited").ram
    assert ram.cgroup_limit_bytes == 16 << 30
    # The parent has a larger limit and less left in it: 32 GiB less 30 GB used, of which 1 GB is page cache.
    assert ram.available_bytes == (32 << 30) - (30_000_000_000 - 1_000_000_000)


def test_cgroup_v1_inside_a_container_reads_the_mount_itself() -> None:
    ram = look("cgroup-v1-limited").ram
    assert ram.cgroup_limit_bytes == 8 << 30
    assert ram.available_bytes == (8 << 30) - (3_000_000_000 - 900_000_000)


def test_cgroup_v1_writes_no_limit_as_a_huge_number() -> None:
    assert cgroup_memory(str(CASES / "cgroup-v1-unlimited")) == (None, None)


def test_memory_of_engines_is_told_apart_and_leaves_out_mapped_weights() -> None:
    # llama-server, python with llama_cpp and an Ollama runner count; a training run and a browser do not.
    expected = (1_048_576 + 2048 + 524_288 + 1024) * KIB
    assert look("no-gpu").ram.used_by_engines_bytes == expected


def test_wsl_is_recognised() -> None:
    assert look("wsl2").platform == "wsl"
    assert look("no-gpu").platform == "linux"


def test_an_empty_machine_is_a_failed_report_not_an_exception(tmp_path: object) -> None:
    facts, report = probe_system(root=str(tmp_path), platform="linux")
    assert report.status == "failed"
    assert "--ram" in report.detail
    assert facts.ram.total_bytes == 0
    assert facts.cpu.physical_cores == 1


def test_other_systems_go_through_psutil() -> None:
    import psutil

    facts, report = probe_system(platform="darwin")
    assert report.status == "ok"
    assert facts.platform == "darwin"
    assert facts.ram.total_bytes == psutil.virtual_memory().total
