from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from advisor.cli.render_hardware import render_hardware
from advisor.errors import HardwareError
from advisor.hardware.given import given_host
from advisor.hardware.gpu_table import GpuTable
from advisor.hardware.probe import probe_host
from advisor.hardware.snapshot_file import SCHEMA, from_json, to_json
from advisor.host import Cpu, Device, HostSnapshot, ProbeReport, ProcessUse, Ram, Storage

from .conftest import CASES

FULL = HostSnapshot(
    devices=(
        Device(
            id="CUDA0", backend="cuda", name="RTX 3060", total_bytes=12 << 30, free_bytes=9 << 30,
            memory_kind="unified", integrated=True, pci_id="0000:01:00.0", uuid="GPU-1", used_by_engines_bytes=5,
            processes=(ProcessUse(1, "a", None, False), ProcessUse(2, "b", 7, True)), bandwidth_bytes_per_s=1,
            bandwidth_source="s", link_bytes_per_s=2, f16_tflops=51.5, compute_capability="8.6", driver="550",
            source="engine", reserved_bytes=3, shared_bytes=4, pci_device="10de:2503",
        ),
    ),
    ram=Ram(10, 9, 8, 7, 6, "x"),
    cpu=Cpu("cpu", 8, 16, ("avx2", "fma"), "x86_64"),
    platform="wsl",
    storage=(Storage("/m", "/dev/sda", "ssd", 5, "y"), Storage("/n")),
    probes=(ProbeReport("p", "failed", "why", 0.0125),),
    origin="given",
    notes=("one", "two"),
    idle_devices=(Device("Vulkan0", "vulkan", "i", 1, 1),),
)  # fmt: skip


@pytest.mark.parametrize("case", ["no-gpu", "amd-rx7900xtx", "amd-strix-halo", "intel-arc-b580", "jetson-orin"])
def test_round_trip_of_probed_machines(case: str) -> None:
    host = probe_host(environ={}, root=str(CASES / case), storage_folders=["/m"], platform="linux")
    assert from_json(json.loads(json.dumps(to_json(host))), "f") == host


def test_round_trip_of_every_field_and_of_a_given_machine(table: GpuTable) -> None:
    assert from_json(json.loads(json.dumps(to_json(FULL))), "f") == FULL
    given = given_host(["RTX 3060@9.5GiB", "8060S 128GB"], False, None, FULL, table)
    assert from_json(json.loads(json.dumps(to_json(given))), "f") == given


def test_the_contracts_keys_are_there() -> None:
    data = to_json(FULL)
    assert data["schema"] == SCHEMA == "advisor.hardware/1"
    assert {"devices", "ram", "cpu", "storage", "probes"} <= set(data)
    assert {
        "id", "backend", "name", "pci_id", "uuid", "total_bytes", "free_bytes", "used_by_engines_bytes", "memory_kind",
        "bandwidth_bytes_per_s", "bandwidth_source", "link_bytes_per_s", "compute_capability",
    } <= set(data["devices"][0])  # fmt: skip
    assert set(data["probes"][0]) == {"name", "status", "detail", "seconds"}


def test_unknown_keys_are_tolerated_and_optional_ones_may_be_missing() -> None:
    small = {
        "schema": SCHEMA,
        "news": {"x": 1},
        "devices": [
            {"id": "CUDA0", "backend": "cuda", "name": "n", "total_bytes": 5, "free_bytes": 5, "colour": "red"}
        ],
        "ram": {"total_bytes": 2, "available_bytes": 1},
        "cpu": {"name": "c", "physical_cores": 1, "logical_cores": 1},
    }
    host = from_json(small, "f")
    assert host == HostSnapshot((Device("CUDA0", "cuda", "n", 5, 5),), Ram(2, 1), Cpu("c", 1, 1), origin="file")


REMOVE = object()


@pytest.mark.parametrize(
    ("place", "value", "key"),
    [
        (("schema",), "advisor.hardware/2", "schema"),
        (("schema",), REMOVE, "schema"),
        (("ram",), REMOVE, "ram"),
        (("ram",), [1], "ram"),
        (("ram", "total_bytes"), REMOVE, "ram.total_bytes"),
        (("ram", "total_bytes"), -1, "ram.total_bytes"),
        (("ram", "total_bytes"), 1e12, "ram.total_bytes"),
        (("ram", "total_bytes"), 2**61, "ram.total_bytes"),
        (("ram", "available_bytes"), float("nan"), "ram.available_bytes"),
        (("ram", "available_bytes"), True, "ram.available_bytes"),
        (("ram", "available_bytes"), "9 GiB", "ram.available_bytes"),
        (("cpu", "physical_cores"), 0, "cpu.physical_cores"),
        (("cpu", "instruction_sets"), "avx2", "instruction_sets"),
        (("devices",), {}, "devices"),
        (("devices",), [1], "devices[0]"),
        (("devices", 0, "backend"), "opencl", "devices[0].backend"),
        (("devices", 0, "memory_kind"), "both", "devices[0].memory_kind"),
        (("devices", 0, "free_bytes"), 13 << 30, "devices[0].free_bytes"),
        (("devices", 0, "f16_tflops"), float("inf"), "devices[0].f16_tflops"),
        (("devices", 0, "f16_tflops"), -1, "devices[0].f16_tflops"),
        (("devices", 0, "name"), "x" * 5000, "devices[0].name"),
        (("devices", 0, "integrated"), 1, "devices[0].integrated"),
        (("devices", 0, "processes", 0, "pid"), None, "devices[0].processes[0].pid"),
        (("probes", 0, "status"), "fine", "probes[0].status"),
        (("probes", 0, "seconds"), float("nan"), "probes[0].seconds"),
    ],
)
def test_wrong_content_is_refused_with_file_and_key(place: tuple[Any, ...], value: object, key: str) -> None:
    data = copy.deepcopy(to_json(FULL))
    target: Any = data
    for step in place[:-1]:
        target = target[step]
    if value is REMOVE:
        del target[place[-1]]
    else:
        target[place[-1]] = value
    with pytest.raises(HardwareError) as caught:
        from_json(data, "bug.json")
    assert str(caught.value).startswith("bug.json: ")
    assert key in str(caught.value)
    assert "advisor hardware --save" in str(caught.value)


@pytest.mark.parametrize("content", [None, [], "text", 5])
def test_content_that_is_no_object(content: object) -> None:
    with pytest.raises(HardwareError, match=r"bug\.json: the content must be a JSON object"):
        from_json(content, "bug.json")


# -------------------------------------------------------------------------------------- rendering


def test_rendering_says_what_was_found_by_whom_and_who_holds_memory() -> None:
    text = "\n".join(render_hardware(FULL))
    for words in (
        "CUDA0    RTX 3060: 12.00 GiB, 9.00 GiB free",
        "held by a (1): an unknown amount",
        "held by b (2) [engine]: 7 B",
        "probe    p: failed, 12.5 ms, why",
        "8 cores, 16 threads, avx2",
        "as given on the command line",
        "note     one",
        "disk     /m: ssd (/dev/sda)",
    ):
        assert words in text


def test_rendering_strips_control_characters_from_names() -> None:
    device = Device("CUDA0", "cuda", "evil\x1b[2J\ncard", 1 << 30, 1 << 30)
    text = render_hardware(HostSnapshot((device,), Ram(1, 1), Cpu("c\x07", 1, 1)))
    assert not [line for line in text if "\x1b" in line or "\n" in line or "\x07" in line]
    assert "evil[2Jcard" in text[0]


def test_rendering_of_a_machine_without_gpu() -> None:
    lines = render_hardware(probe_host(environ={}, root=str(CASES / "no-gpu"), platform="linux"))
    assert lines[0].startswith("GPU      none")
    assert any("engines hold 1.50 GiB" in line for line in lines)
