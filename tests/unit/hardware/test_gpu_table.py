from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest
import tomli

from advisor.app import App
from advisor.errors import HardwareError, RuleError
from advisor.hardware.gpu_table import GpuTable
from tests.unit.hardware.conftest import REPOSITORY

GIB = 1 << 30

# Devices of the public benchmark rows that the speed formula was fitted on, as they are written there.
BENCHMARKED = {
    "16x RTX 3090": "RTX 3090",
    "2x RTX 3090 (Windows 10)": "RTX 3090",
    "A100 SXM 80GB": "A100 SXM 80GB",
    "Apple M1 Max 32-core 64GB": "M1 Max",
    "Apple M1 Pro 32GB": "M1 Pro",
    "Apple M1 Pro": "M1 Pro",
    "Apple M1": "M1",
    "Apple M2 Max": "M2 Max",
    "Apple M2 Ultra 76-core 192GB": "M2 Ultra",
    "Apple M3 Max 40-core 64GB": "M3 Max",
    "Apple M3 Max": "M3 Max",
    "Apple M3 Pro": "M3 Pro",
    "Apple M3 Ultra": "M3 Ultra",
    "Apple M4 Max 36GB": "M4 Max",
    "Apple M4 Max": "M4 Max",
    "Apple M5 Pro": "M5 Pro",
    "GTX 1650 Super 4GB": "GTX 1650 Super",
    "H100 PCIe 80GB": "H100 PCIe",
    "RTX 2060 12GB (11833 MiB)": "RTX 2060 12GB",
    "RTX 2080 8GB": "RTX 2080",
    "RTX 3050 Laptop 6GB": "RTX 3050 Laptop 6GB",
    "RTX 3060 12GB": "RTX 3060",
    "RTX 3080 Ti 12GB": "RTX 3080 Ti",
    "RTX 4000 Ada 20GB": "RTX 4000 Ada",
    "RTX 4050 Laptop 6GB": "RTX 4050 Laptop",
    "RTX 4060 Laptop 8GB": "RTX 4060 Laptop",
    "RTX 4070 12GB": "RTX 4070",
    "RTX 4080 SUPER 16GB": "RTX 4080 Super",
    "RTX 4090 24GB": "RTX 4090",
    "RTX 5060 12GB (as listed)": "RTX 5060",
    "RTX 5060 Ti 16GB": "RTX 5060 Ti 16GB",
    "RTX A6000 48GB": "RTX A6000",
    "Radeon 8060S (Ryzen AI Max+ 395, Strix Halo)": "8060S",
}

# (part, eta of its backend, active parameters in 10^9, measured prefill tokens/s at no depth).
LLAMA_2_7B, LLAMA_3_8B, LLAMA_3_70B = 6.6, 7.5, 69.5
PREFILL = [
    ("RTX 3060", 0.43, LLAMA_2_7B, 2137.5),
    ("RTX 3050 Laptop 6GB", 0.43, LLAMA_2_7B, 1147.0),
    ("RTX 4050 Laptop", 0.43, LLAMA_2_7B, 1725.9),
    ("RTX 3080 Ti", 0.43, LLAMA_3_8B, 3556.7),
    ("RTX 4090", 0.43, LLAMA_3_8B, 6898.7),
    ("RTX 4090", 0.43, LLAMA_3_8B, 9056.3),
    ("RTX 4000 Ada", 0.43, LLAMA_3_8B, 2310.5),
    ("RTX 4000 Ada", 0.43, LLAMA_3_8B, 2951.9),
    ("RTX A6000", 0.43, LLAMA_3_8B, 3621.8),
    ("RTX A6000", 0.43, LLAMA_3_8B, 4315.2),
    ("RTX A6000", 0.43, LLAMA_3_70B, 466.8),
    ("A100 SXM 80GB", 0.43, LLAMA_3_70B, 796.8),
    ("H100 PCIe", 0.43, LLAMA_3_8B, 10342.6),
    ("H100 PCIe", 0.43, LLAMA_3_70B, 984.1),
    ("M1", 0.69, LLAMA_2_7B, 118.0),
    ("M1 Pro", 0.69, LLAMA_2_7B, 266.3),
    ("M1 Max", 0.69, LLAMA_3_8B, 418.8),
    ("M2 Max", 0.69, LLAMA_2_7B, 671.3),
    ("M2 Ultra", 0.69, LLAMA_3_8B, 1202.7),
    ("M3 Pro", 0.69, LLAMA_2_7B, 341.7),
    ("M3 Max", 0.69, LLAMA_2_7B, 759.7),
    ("M4 Max", 0.69, LLAMA_2_7B, 885.7),
    ("8060S", 0.31, LLAMA_2_7B, 1545.4),
]


def test_the_table_is_large_and_whole(table: GpuTable) -> None:
    assert len(table.parts) >= 120
    assert {part.vendor for part in table.parts} == {"nvidia", "amd", "intel", "apple"}
    for part in table.parts:
        assert part.source
        assert 2 * GIB <= part.memory_bytes[0] <= part.memory_bytes[-1] <= 512 * GIB, part.name
        assert 3e10 <= part.bandwidth_bytes_per_s <= 9e12, part.name
        assert (part.link_bytes_per_s is None) == (part.memory_kind == "unified"), part.name
        if part.vendor == "nvidia":
            assert part.compute_capability is not None, part.name


@pytest.mark.parametrize(("name", "part"), list(BENCHMARKED.items()))
def test_every_benchmarked_device_is_known(table: GpuTable, name: str, part: str) -> None:
    found = table.find(name)
    assert found is not None
    assert found.name == part


def test_compute_figures_give_the_measured_prefill(table: GpuTable) -> None:
    errors = []
    for name, eta, parameters, measured in PREFILL:
        predicted = eta * table.lookup(name)[0].f16_tflops * 1e12 / (2 * parameters * 1e9)
        errors.append(abs(predicted / measured - 1))
        assert errors[-1] < 0.4, f"{name}: {predicted:.0f} tokens/s predicted, {measured} measured"
    assert median(errors) < 0.15


@pytest.mark.parametrize(
    ("text", "name", "memory"),
    [
        ("RTX 3060", "RTX 3060", 12 * GIB),
        ("nvidia geforce rtx 3060", "RTX 3060", 12 * GIB),
        ("RTX3060", "RTX 3060", 12 * GIB),
        ("rtx 3060 8gb", "RTX 3060 8GB", 8 * GIB),
        ("RTX 3060 12 GB", "RTX 3060", 12 * GIB),
        ("3060ti", "RTX 3060 Ti", 8 * GIB),
        ("RX 7900 XTX", "RX 7900 XTX", 24 * GIB),
        ("Radeon RX 7900 XTX", "RX 7900 XTX", 24 * GIB),
        ("AMD Instinct MI300X", "MI300X", 192 * GIB),
        ("Intel Arc A770", "Arc A770", 16 * GIB),
        ("RTX 4090 Laptop GPU", "RTX 4090 Laptop", 16 * GIB),
        ("rtx 3060 mobile", "RTX 3060 Laptop", 6 * GIB),
        ("Tesla P40", "P40", 24 * GIB),
    ],
)
def test_names_as_people_write_them(table: GpuTable, text: str, name: str, memory: int) -> None:
    part, _ = table.lookup(text)
    assert (part.name, part.memory_bytes) == (name, (memory,))


@pytest.mark.parametrize(
    ("name", "total_gib", "part"),
    [
        ("NVIDIA GeForce RTX 3050 Laptop GPU", 4, "RTX 3050 Laptop"),
        ("NVIDIA GeForce RTX 3050 Laptop GPU", 6, "RTX 3050 Laptop 6GB"),
        ("NVIDIA GeForce RTX 4060 Ti", 16, "RTX 4060 Ti 16GB"),
        ("NVIDIA A100-SXM4-80GB", 80, "A100 SXM 80GB"),
        ("NVIDIA H100 80GB HBM3", 80, "H100 SXM"),
        ("NVIDIA RTX 6000 Ada Generation", 48, "RTX 6000 Ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 96, "RTX PRO 6000 Blackwell"),
        ("NVIDIA GB10", 120, "GB10"),
        ("Tesla V100-SXM2-16GB", 16, "V100 SXM2 16GB"),
        ("AMD Radeon 780M Graphics", 24, "780M"),
        ("Apple M2 Max", 72, "M2 Max"),
    ],
)
def test_names_as_drivers_write_them(table: GpuTable, name: str, total_gib: int, part: str) -> None:
    found = table.find(name, total_gib * GIB)
    assert found is not None
    assert found.name == part


def test_a_driver_name_that_says_nothing_finds_nothing(table: GpuTable) -> None:
    assert table.find("AMD Radeon Graphics", 8 * GIB) is None
    assert table.find("") is None
    assert table.find("AMD Radeon Graphics", pci_device="1002:744c:cc") == table.lookup("RX 7900 XT")[0]
    assert table.find("Intel GPU e20b", pci_device="8086:e20b") == table.lookup("Arc B580")[0]


def test_ambiguous_and_unknown_names(table: GpuTable) -> None:
    with pytest.raises(HardwareError) as caught:
        table.lookup("RX 7900")
    assert all(name in str(caught.value) for name in ("RX 7900 GRE", "RX 7900 XT,", "RX 7900 XTX"))
    with pytest.raises(HardwareError, match="RTX 4060 Ti 16GB, RTX 4060 Ti 8GB"):
        table.lookup("RTX 4060 Ti")
    with pytest.raises(HardwareError, match="RTX 5090") as caught:
        table.lookup("RTX 5091")
    assert "cuda:12GiB" in str(caught.value)
    with pytest.raises(HardwareError, match="RTX 3060 with 12 GiB"):
        table.lookup("RTX 3060 24GB")


GOOD_PART = {"name": "X", "memory_gib": 8, "bandwidth_gb_per_s": 100, "f16_tflops": 1}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"memory_gb": 8}, "unknown key 'memory_gb' at 'X'"),
        ({"memory_gib": -1}, "'memory_gib' of 'X'"),
        ({"memory_gib": float("nan")}, "'memory_gib' of 'X'"),
        ({"memory_gib": [8, 16]}, "only unified memory has several"),
        ({"memory_gib": True}, "'memory_gib' of 'X'"),
        ({"bandwidth_gb_per_s": "fast"}, "'bandwidth_gb_per_s' of 'X'"),
        ({"f16_tflops": None}, "'f16_tflops' of 'X'"),
        ({"pcie": "fast"}, "GENxLANES"),
        ({"backend": "opencl"}, "'backend' of 'X'"),
        ({"aliases": "Y"}, "'aliases' of 'X'"),
        ({"name": ""}, "no 'name'"),
    ],
)
def test_a_wrong_part_is_refused_with_file_and_key(change: dict[str, object], words: str) -> None:
    group = {"name": "g", "vendor": "amd", "backend": "rocm", "source": "s", "parts": [{**GOOD_PART, **change}]}
    with pytest.raises(RuleError, match=words) as caught:
        GpuTable.from_mapping({"schema_version": 1, "group": [group]}, "mine/gpus.toml")
    assert str(caught.value).startswith("mine/gpus.toml: ")


def test_a_part_without_source_and_two_parts_of_one_name_are_refused() -> None:
    group = {"name": "g", "vendor": "amd", "backend": "rocm", "parts": [GOOD_PART]}
    with pytest.raises(RuleError, match="'source' of 'X' is missing"):
        GpuTable.from_mapping({"group": [group]})
    with pytest.raises(RuleError, match="name of two parts"):
        GpuTable.from_mapping(
            {"group": [{**group, "source": "s", "parts": [GOOD_PART, {**GOOD_PART, "name": "amd x"}]}]}
        )
    with pytest.raises(RuleError, match="'group' is missing"):
        GpuTable.from_mapping({})


def test_a_table_read_in_part_answers_as_the_whole(table: GpuTable) -> None:
    data = tomli.loads((REPOSITORY / "rules" / "gpus.toml").read_text())
    shipped = App()
    for part in table.parts:
        for make in (lambda: GpuTable(lambda: data), shipped.gpu_table):
            for name in (part.name, *part.aliases, f"NVIDIA GeForce {part.name}", part.name.replace(" ", "")):
                for memory in (None, part.memory_bytes[0], part.memory_bytes[0] // 2):
                    assert make().find(name, memory) == table.find(name, memory)
            assert make().lookup(part.name) == table.lookup(part.name)
            for pci_id in part.pci_ids:
                assert make().find("a card", None, pci_id) == part


def test_a_folder_of_the_user_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "gpus.toml").write_text(
        '[[group]]\nname = "geforce-rtx-30"\nparts = [{ name = "RTX 3060", bandwidth_gb_per_s = 1 }]\n'
    )
    assert App(str(tmp_path)).gpu_table().lookup("RTX 3060")[0].bandwidth_bytes_per_s == 10**9
