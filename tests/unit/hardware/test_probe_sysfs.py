"""AMD and Intel cards from captured sysfs trees."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from advisor.hardware.amd import probe_amd
from advisor.hardware.gpu_table import GpuTable
from advisor.hardware.intel import i915_vram, probe_intel, xe_vram
from advisor.hardware.probe import probe_host
from advisor.host import Device, ProbeReport, Ram

from .conftest import CASES

RAM = Ram(total_bytes=64 << 30, available_bytes=50 << 30)


def amd(case: str, ram: Ram = RAM, **environ: str) -> tuple[tuple[Device, ...], ProbeReport]:
    return probe_amd(root=str(CASES / case), environ=environ, ram=ram)


def test_discrete_card_with_rocm() -> None:
    (card,), report = amd("amd-rx7900xtx")
    assert report.status == "ok"
    assert (card.id, card.backend, card.name) == ("ROCm0", "rocm", "AMD Radeon RX 7900 XTX")
    assert (card.total_bytes, card.free_bytes) == (25_753_026_560, 25_753_026_560 - (1 << 30))
    assert (card.memory_kind, card.integrated, card.shared_bytes) == ("dedicated", False, None)
    assert card.compute_capability == "gfx1100"
    assert card.bandwidth_bytes_per_s == 384 // 8 * 1249 * 10**6 * 16
    assert card.link_bytes_per_s == 16 * 1_969_230_769  # max, although it idles at 2.5 GT/s
    assert (card.pci_id, card.pci_device) == ("0000:03:00.0", "1002:744c:c8")


def test_without_rocm_the_vulkan_build_is_planned_for() -> None:
    (card,), _ = amd("amd-rx6700xt-no-rocm")
    assert (card.id, card.backend, card.compute_capability) == ("Vulkan0", "vulkan", "gfx1031")


def test_apu_with_a_small_carve_out_counts_gtt_as_far_as_ram_is_free() -> None:
    (chip,), _ = amd("amd-strix-halo", Ram(130_000_000 << 10, 120_000_000 << 10))
    vram, vram_used, gtt, gtt_used = 536_870_912, 209_715_200, 115_964_116_992, 1_048_576_000
    assert (chip.memory_kind, chip.integrated) == ("unified", True)
    assert (vram, vram_used) == (512 << 20, 200 << 20)  # ROCm allocates in GTT alone where that is larger
    assert chip.total_bytes == chip.shared_bytes == gtt
    assert chip.free_bytes == gtt - gtt_used

    (chip,), _ = amd("amd-strix-halo", Ram(130_000_000 << 10, 20 << 30))
    assert chip.free_bytes == 20 << 30


def test_apu_with_a_big_carve_out_is_still_an_apu() -> None:
    (chip,), _ = amd("amd-780m-big-carveout", Ram(15 << 30, 4 << 30))
    assert chip.integrated
    assert chip.total_bytes == (16 << 30) + 8_053_063_680
    assert chip.free_bytes == (16 << 30) - (1 << 30) + (4 << 30)
    assert chip.link_bytes_per_s is None


def test_apu_rule_without_kfd(tmp_path: Path) -> None:
    shutil.copytree(CASES / "amd-strix-halo" / "sys" / "class" / "drm", tmp_path / "sys" / "class" / "drm")
    (chip,), _ = probe_amd(root=str(tmp_path), environ={}, ram=RAM)
    assert chip.integrated
    assert chip.compute_capability is None


def test_hidden_devices_are_hidden() -> None:
    devices, report = amd("amd-rx7900xtx", HIP_VISIBLE_DEVICES="-1")
    assert devices == ()
    assert report.status == "ok"
    assert "1 hidden" in report.detail


def test_no_amd_gpu_is_absent_and_a_card_without_driver_is_failed(tmp_path: Path) -> None:
    assert amd("no-gpu")[1].status == "absent"
    shutil.copytree(CASES / "amd-rx7900xtx", tmp_path / "case")
    (tmp_path / "case/sys/class/drm/card1/device/mem_info_vram_total").unlink()
    devices, report = probe_amd(root=str(tmp_path / "case"), environ={}, ram=RAM)
    assert devices == ()
    assert report.status == "failed"
    assert "0000:03:00.0" in report.detail


def hold_memory(root: Path, pid: int, descriptor: int, text: str) -> None:
    """Let process `pid` hold a render node open."""
    for folder in ("fd", "fdinfo"):
        (root / f"proc/{pid}/{folder}").mkdir(parents=True, exist_ok=True)
    (root / f"proc/{pid}/fd/{descriptor}").symlink_to("/dev/dri/renderD128")
    (root / f"proc/{pid}/fdinfo/{descriptor}").write_text(text)


def test_memory_per_process_counts_each_drm_client_once(tmp_path: Path) -> None:
    root = tmp_path / "case"
    shutil.copytree(CASES / "amd-rx7900xtx", root)
    client = "drm-driver:\tamdgpu\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t{}\ndrm-memory-vram:\t{} KiB\n"
    hold_memory(root, 4242, 5, client.format(7, 4_194_304))
    hold_memory(root, 4242, 6, client.format(7, 4_194_304))  # the same client through another descriptor
    hold_memory(root, 4242, 8, client.format(9, 1024))
    hold_memory(root, 4300, 3, client.format(11, 524_288))
    hold_memory(root, 4300, 4, "drm-pdev:\t0000:99:00.0\ndrm-client-id:\t1\ndrm-memory-vram:\t999999 KiB\n")
    (card,), _ = probe_amd(root=str(root), environ={}, ram=RAM)
    assert [(use.pid, use.name, use.used_bytes, use.is_engine) for use in card.processes] == [
        (4242, "llama-server", (4_194_304 + 1024) << 10, True),
        (4300, "firefox", 524_288 << 10, False),
    ]
    assert card.used_by_engines_bytes == (4_194_304 + 1024) << 10


def test_intel_card_and_graphics_in_the_processor() -> None:
    devices, report = probe_intel(root=str(CASES / "intel-arc-b580"), environ={}, ram=RAM)
    assert report.status == "ok"
    graphics, card = devices
    assert (graphics.integrated, graphics.memory_kind, graphics.total_bytes) == (True, "unified", 48 << 30)
    assert (card.integrated, card.total_bytes, card.driver) == (False, 0x2FA000000, "xe")
    assert card.link_bytes_per_s == 8 * 1_969_230_769
    assert card.backend == "vulkan"
    (_, card), _ = probe_intel(root=str(CASES / "intel-arc-b580"), environ={"ONEAPI_ROOT": "/opt/x"}, ram=RAM)
    assert card.backend == "sycl"


def test_intel_card_of_unknown_size_is_failed_with_a_cure() -> None:
    devices, report = probe_intel(root=str(CASES / "intel-no-size"), environ={}, ram=RAM)
    assert devices == ()
    assert report.status == "failed"
    assert "--gpu" in report.detail


def test_drm_query_answers_are_read_by_the_kernels_layout() -> None:
    def xe(kind: int, total: int, used: int) -> bytes:
        return struct.pack("=HHIQQQQ48x", kind, 0, 4096, total, used, 0, 0)

    answer = struct.pack("=II", 2, 0) + xe(0, 99 << 30, 5) + xe(1, 12 << 30, 3 << 30)
    assert xe_vram(answer) == (12 << 30, 9 << 30)

    def i915(kind: int, total: int, unallocated: int) -> bytes:
        return struct.pack("=HHIQQ64x", kind, 0, 0, total, unallocated)

    answer = struct.pack("=I12x", 2) + i915(0, 99 << 30, 5) + i915(1, 16 << 30, 2**64 - 1)
    assert i915_vram(answer) == (16 << 30, 16 << 30)  # unknown: all of it
    assert i915_vram(struct.pack("=I12x", 1) + i915(0, 99 << 30, 5)) is None


@pytest.mark.parametrize(
    ("case", "used", "idle"),
    [
        ("amd-card-and-igpu", ["Vulkan0 AMD Radeon RX 7900 XTX"], ["610M"]),
        ("intel-arc-b580", ["Vulkan0 Arc B580"], ["UHD 770"]),
        ("intel-igpu", ["Vulkan0 Iris Xe"], []),
    ],
)
def test_integrated_graphics_are_used_only_where_there_is_no_card(
    table: GpuTable, case: str, used: list[str], idle: list[str]
) -> None:
    host = probe_host(environ={}, root=str(CASES / case), load_table=lambda: table, platform="linux")
    assert [f"{device.id} {device.name}" for device in host.devices] == used
    assert [device.name for device in host.idle_devices] == idle


def test_the_table_supplies_what_the_driver_does_not_tell_but_never_memory(table: GpuTable) -> None:
    host = probe_host(environ={}, root=str(CASES / "amd-rx7900xtx"), load_table=lambda: table, platform="linux")
    (card,) = host.devices
    assert card.total_bytes == 25_753_026_560  # the table says 24 GiB = 25,769,803,776
    assert card.f16_tflops == 122.8
    assert card.bandwidth_source == "KFD topology: bus width x memory clock"

    host = probe_host(environ={}, root=str(CASES / "amd-strix-halo"), load_table=lambda: table, platform="linux")
    assert host.devices[0].bandwidth_bytes_per_s == 256 * 10**9
    assert host.ram.bandwidth_bytes_per_s == 256 * 10**9  # one memory, one bandwidth


def test_a_broken_table_does_not_hide_the_card() -> None:
    def broken() -> GpuTable:
        raise OSError("no such file")

    host = probe_host(environ={}, root=str(CASES / "amd-rx7900xtx"), load_table=broken, platform="linux")
    assert len(host.devices) == 1
    assert any("no such file" in note for note in host.notes)
