from __future__ import annotations

import pytest

from advisor.errors import HardwareError
from advisor.hardware.given import given_host, parse_gpu_spec
from advisor.hardware.gpu_table import GpuTable
from advisor.hardware.probe import probe_host
from advisor.host import Cpu, Device, HostSnapshot, Ram

from .conftest import CASES

GIB = 1 << 30
BASE = HostSnapshot((Device("CUDA0", "cuda", "old", GIB, GIB),), Ram(32 * GIB, 20 * GIB), Cpu("c", 8, 16))


@pytest.mark.parametrize(
    ("spec", "backend", "total", "free"),
    [
        ("RTX 3060", "cuda", 12 * GIB, 12 * GIB),
        ("RTX 3060@9.5GiB", "cuda", 12 * GIB, 19 * GIB // 2),
        ("RTX 3060 @ 9 GiB", "cuda", 12 * GIB, 9 * GIB),
        ("cuda:12GiB", "cuda", 12 * GIB, 12 * GIB),
        ("CUDA:12G@3G", "cuda", 12 * GIB, 3 * GIB),
        ("vulkan:8GB", "vulkan", 8 * 10**9, 8 * 10**9),
        ("rocm:16384MiB", "rocm", 16 * GIB, 16 * GIB),
        ("sycl:16GiB", "sycl", 16 * GIB, 16 * GIB),
        ("metal:48GiB", "metal", 48 * GIB, 48 * GIB),
        ("RX 6700 XT", "vulkan", 12 * GIB, 12 * GIB),
        ("RX 7900 XTX", "rocm", 24 * GIB, 24 * GIB),
        ("Arc A770", "sycl", 16 * GIB, 16 * GIB),
        ("M2 Ultra 192GB", "metal", 144 * GIB, 144 * GIB),  # three quarters of RAM
        ("M1 16GB", "metal", 16 * GIB * 2 // 3, 16 * GIB * 2 // 3),
        ("M4 Max 36GB", "metal", 24 * GIB, 24 * GIB),  # only the 32-core variant is sold with it
        ("8060S 128GB", "rocm", 64 * GIB, 64 * GIB),  # half of RAM unless ttm.pages_limit is raised
        ("8060S 128GB@120GiB", "rocm", 120 * GIB, 120 * GIB),  # who raised it says so
        ("DGX Spark", "cuda", 128 * GIB, 128 * GIB),
    ],
)
def test_spec(table: GpuTable, spec: str, backend: str, total: int, free: int) -> None:
    device = parse_gpu_spec(spec, table)
    assert (device.backend, device.total_bytes, device.free_bytes) == (backend, total, free)


def test_a_named_card_brings_its_figures(table: GpuTable) -> None:
    device = parse_gpu_spec("RTX 3090", table)
    assert (device.bandwidth_bytes_per_s, device.f16_tflops, device.compute_capability) == (936 * 10**9, 142.3, "8.6")
    assert device.link_bytes_per_s == 16 * 1_969_230_769
    assert device.source == "rules/gpus.toml"
    plain = parse_gpu_spec("cuda:24GiB", table)
    assert (plain.bandwidth_bytes_per_s, plain.source) == (None, "given")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("", "needs a card"),
        ("  ", "needs a card"),
        ("@3GiB", "needs a card"),
        ("cuda:", "is not a size"),
        ("cuda:-3GiB", "is not a size"),
        ("cuda:0", "no memory to plan with"),
        ("cuda:9999999TiB", "is not a size"),
        ("opencl:8GiB", "no backend"),
        (":8GiB", "no backend"),
        ("RTX 3060@", "is not a size"),
        ("RTX 3060@13GiB", "more free memory than the card's 12.00 GiB"),
        ("M2 Ultra", "M2 Ultra 64GB, M2 Ultra 128GB, M2 Ultra 192GB"),
        ("Voodoo 2", "nearest names"),
        ("Voodoo\x1b[2J" + "x" * 500, r"'Voodoo\[2Jx{48}\.\.\.' is known"),
    ],
)
def test_wrong_specs(table: GpuTable, spec: str, words: str) -> None:
    with pytest.raises(HardwareError, match=words):
        parse_gpu_spec(spec, table)


def test_devices_are_numbered_per_backend(table: GpuTable) -> None:
    specs = ["RTX 3090", "RX 7900 XTX", "cuda:8GiB", "vulkan:4GiB", "sycl:4GiB"]
    host = given_host(specs, False, 64 * GIB, BASE, table)
    assert [device.id for device in host.devices] == ["CUDA0", "ROCm0", "CUDA1", "Vulkan0", "SYCL0"]
    assert host.origin == "given"


def test_ram_as_given_or_of_this_machine(table: GpuTable) -> None:
    assert given_host(["RTX 3060"], False, 64 * GIB, BASE, table).ram == Ram(64 * GIB, 64 * GIB)
    assert given_host(["RTX 3060"], False, None, BASE, table).ram == BASE.ram
    assert given_host([], True, None, BASE, table).devices == ()
    assert given_host([], False, 8 * GIB, BASE, table).devices == BASE.devices


def test_a_chip_in_system_memory_and_its_ram(table: GpuTable) -> None:
    host = given_host(["M2 Ultra 192GB"], False, None, BASE, table)
    assert (host.ram.total_bytes, host.platform) == (192 * GIB, "darwin")
    assert host.ram.bandwidth_bytes_per_s == 819_200_000_000
    host = given_host(["M2 Ultra"], False, 64 * GIB, BASE, table)
    assert host.devices[0].total_bytes == 48 * GIB
    with pytest.raises(HardwareError, match="--ram SIZE"):
        given_host(["M2 Ultra"], False, None, BASE, table)  # this machine's RAM says nothing of a Mac


@pytest.mark.parametrize(
    ("specs", "ram", "words"),
    [
        (["M2 Ultra 192GB"], 32 * GIB, "'M2 Ultra 192GB' has 192.00 GiB of memory, .* --ram says 32.00 GiB"),
        (["M3 Max 64GB"], 16 * GIB, "leave --ram away"),
        (["M3 Max 64GB@40GiB"], 16 * GIB, "leave --ram away"),
        (["8060S 128GB"], 64 * GIB, "leave --ram away"),
        (["metal:64GiB"], 32 * GIB, "cannot have more than the 32.00 GiB of --ram"),
        (["M2 Ultra@100GiB"], 64 * GIB, "cannot have more than the 64.00 GiB of --ram"),
        (["RTX 3060", "M2 Ultra 192GB"], None, "no other GPU"),
        (["metal:8GiB", "cuda:8GiB"], 64 * GIB, "no other GPU"),
        (["M2 Ultra 192GB", "M2 Ultra 192GB"], None, "a machine has one"),
        (["8060S 128GB", "8060S 128GB"], None, "a machine has one"),
    ],
)
def test_machines_that_cannot_be(table: GpuTable, specs: list[str], ram: int | None, words: str) -> None:
    with pytest.raises(HardwareError, match=words):
        given_host(specs, False, ram, BASE, table)


@pytest.mark.parametrize(
    ("specs", "ram", "total"),
    [
        (["M2 Ultra 192GB"], 192 * GIB, 144 * GIB),
        (["M2 Ultra 192GB"], 192 * 10**9, 144 * GIB),  # --ram 192GB says the same in powers of ten
        (["8060S 128GB", "RTX 3060"], 128 * GIB, 64 * GIB),  # an APU may stand beside a card
    ],
)
def test_machines_that_may_be(table: GpuTable, specs: list[str], ram: int, total: int) -> None:
    assert given_host(specs, False, ram, BASE, table).devices[0].total_bytes == total


def test_a_raised_limit_is_system_memory_too(table: GpuTable) -> None:
    for spec in ("8060S 128GB@120GiB", "M2 Ultra 192GB@180GiB"):
        device = parse_gpu_spec(spec, table)
        assert device.shared_bytes == device.total_bytes == device.free_bytes


def test_contradictions_and_unknown_ram(table: GpuTable) -> None:
    with pytest.raises(HardwareError, match="contradict"):
        given_host(["RTX 3060"], True, None, BASE, table)
    unknown = HostSnapshot((), Ram(0, 0), Cpu("c", 1, 1))
    for base in (None, unknown):
        with pytest.raises(HardwareError, match="--ram"):
            given_host(["RTX 3060"], False, None, base, table)
    assert given_host(["RTX 3060"], False, 16 * GIB, None, table).ram.total_bytes == 16 * GIB
    with pytest.raises(HardwareError, match="more than 0"):
        given_host([], False, 0, BASE, table)


def test_on_top_of_a_probed_machine(table: GpuTable) -> None:
    base = probe_host(environ={}, root=str(CASES / "amd-rx7900xtx"), platform="linux")
    host = given_host(["RTX 3060"], False, None, base, table)
    assert [device.name for device in host.devices] == ["RTX 3060"]
    assert host.cpu == base.cpu


def test_every_size_that_is_named_can_be_given(table: GpuTable) -> None:
    """What the sentence for a chip in system memory offers works, and no size of its family is left out."""
    for part in table.parts:
        if part.memory_kind != "unified" or len(part.memory_bytes) == 1:
            continue
        with pytest.raises(HardwareError) as error:
            parse_gpu_spec(part.name, table)
        for size in table.sold_with(part):
            spec = f"{part.name} {size >> 30}GB"
            assert spec in str(error.value)
            assert parse_gpu_spec(spec, table).name.startswith(part.name)
    named = {size >> 30 for size in table.sold_with(table.lookup("M3 Max")[0])}
    assert named == {36, 48, 64, 96, 128}
    assert {size >> 30 for size in table.sold_with(table.lookup("M4")[0])} == {16, 24, 32}


@pytest.mark.parametrize(
    ("processor", "graphics"),
    [
        ("Ryzen AI Max+ 395", "8060S"),
        ("AMD Ryzen AI Max+ PRO 395", "8060S"),
        ("AI Max+ 395", "8060S"),
        ("Ryzen AI Max 390", "8050S"),
        ("Ryzen AI Max 385", "8050S"),
        ("Ryzen AI 9 HX 370", "890M"),
        ("Ryzen AI 9 365", "880M"),
    ],
)
def test_a_processor_names_its_graphics(table: GpuTable, processor: str, graphics: str) -> None:
    assert parse_gpu_spec(f"{processor} 128GB", table).name == graphics
