"""D. How the hardware is seen: chips in system memory, limits of drivers, Windows, containers, parts of a card."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from advisor.app import App
from advisor.hardware.probe import probe_host
from advisor.host import HostSnapshot
from tests.situations.faces import DATA, GIB, MIB, ask, codes, document, machine, warned, zoo
from tests.tools.machines import machine as imagined
from tests.unit.hardware.test_probe_nvidia import ask as probe_nvidia
from tests.unit.hardware.test_probe_nvidia import library  # noqa: F401  # a fixture: the driver's library, played

HALO, PHOENIX = "amd-strix-halo", "amd-780m-big-carveout"


def probed(folder: Path, case: str, values: Mapping[str, int], ram_gib: tuple[int, int] | None = None) -> HostSnapshot:
    """A captured machine with other figures in the driver's files, and with RAM of (total, available) GiB."""
    tree = folder / "tree"
    shutil.copytree(DATA / "hardware" / case, tree, symlinks=True)
    for card in tree.glob("sys/class/drm/card?/device"):
        for name, value in values.items():
            (card / f"mem_info_{name}").write_text(f"{value}\n")
    if ram_gib is not None:
        total, available = (size << 20 for size in ram_gib)
        (tree / "proc/meminfo").write_text(f"MemTotal: {total} kB\nMemAvailable: {available} kB\n")
    return probe_host(environ={}, root=str(tree), load_table=App().gpu_table, platform="linux")


# carve-out, GTT, RAM (total, available) -> what an engine can use; the model that then runs wholly on the chip
APUS = [
    # 512 MiB of "VRAM" and 108 GiB of GTT: ROCm allocates in GTT, which is larger
    (HALO, {"vram_total": GIB // 2, "gtt_total": 108 * GIB}, (124, 114), 108 * GIB, "llama33-70b-q4_k_m"),
    # 96 GiB carved out in the BIOS: ROCm allocates there alone
    (HALO, {"vram_total": 96 * GIB, "gtt_total": 15 * GIB}, (31, 27), 96 * GIB, "llama33-70b-q4_k_m"),
    # a 780M: Vulkan takes a carve-out of 16 GiB and what GTT may map
    (PHOENIX, {"vram_total": 16 * GIB, "gtt_total": 8 * GIB}, (15, 12), 24 * GIB, "mistral-small-24b"),
    # 1 GiB carved out once meant a context of 4k
    (PHOENIX, {"vram_total": GIB, "vram_used": 0, "gtt_total": 15 * GIB}, (31, 27), 16 * GIB, "qwen3-8b"),
    # none carved out at all
    (PHOENIX, {"vram_total": 0, "vram_used": 0, "gtt_total": 15 * GIB}, (31, 27), 15 * GIB, "qwen3-8b"),
]


@pytest.mark.parametrize(("case", "values", "ram", "budget", "name"), APUS)
def test_38_a_carve_out_is_not_all_that_a_chip_has(
    tmp_path: Path, case: str, values: dict[str, int], ram: tuple[int, int], budget: int, name: str
) -> None:
    host = probed(tmp_path, case, values, ram)
    (chip,) = host.devices
    assert (chip.total_bytes, chip.memory_kind, chip.integrated) == (budget, "unified", True)
    found = document("recommend", zoo(name), "--hardware", machine(tmp_path, host))
    assert found["verdict"] == "full"
    assert found["settings"]["n_ctx"] > 4096
    (device,) = found["devices"]
    private = values["vram_total"] if budget != values["gtt_total"] else 0
    assert device["planned_bytes"] <= budget
    # what lies beyond the carve-out is system memory, and counted once
    side = found["host"]
    assert side["shared_with_gpus_bytes"] == max(device["planned_bytes"] - private, 0)
    assert side["shared_with_gpus_bytes"] + side["planned_bytes"] + side["margin_bytes"] <= side["available_bytes"]
    if side["shared_with_gpus_bytes"]:
        said = warned(found, "works_in_system_memory")
        assert "of it are taken from everything else" in said


def test_40_the_limit_of_gtt_is_read_and_how_to_raise_it_is_told(tmp_path: Path) -> None:
    """Only 63 GiB of 124 were visible until ttm.pages_limit was set."""
    host = probed(tmp_path, HALO, {"gtt_total": 63 * GIB}, (124, 114))
    assert host.devices[0].total_bytes == 63 * GIB
    file = machine(tmp_path, host)
    found = document("recommend", zoo("glm4moe-mtp0"), "--hardware", file)
    assert found["verdict"] == "partial"
    said = warned(found, "shared_memory_limit")
    assert "may take only 63.00 GiB of it" in said
    pages = int(said.partition("ttm.pages_limit=")[2].split()[0])
    assert pages * 4096 > sum(d["planned_bytes"] for d in found["devices"])
    assert said in ask("recommend", zoo("glm4moe-mtp0"), "--hardware", file).flat
    raised = probed(tmp_path / "again", HALO, {"gtt_total": pages * 4096, "gtt_used": 0}, (124, 114))
    better = document("recommend", zoo("glm4moe-mtp0"), "--hardware", machine(tmp_path / "again", raised))
    assert better["verdict"] == "full"
    assert "shared_memory_limit" not in codes(better)


@pytest.mark.parametrize("chip", ["M2 Max 32GB", "M4 Max 64GB"])
def test_40_apples_limit_is_raised_by_another_setting(chip: str) -> None:
    found = document("recommend", zoo("llama33-70b-q4_k_m"), "--gpu", chip)
    if found["verdict"] == "partial":
        assert "sudo sysctl iogpu.wired_limit_mb=" in warned(found, "shared_memory_limit")
    else:
        assert "shared_memory_limit" not in codes(found) or found["verdict"] == "does_not_fit"


def test_41_the_buffer_that_radv_refused_is_foreseen() -> None:
    """8753520640 bytes, "Requested buffer size exceeds device buffer size limit": Qwen3 30B-A3B at 131,072 tokens."""
    words = (zoo("qwen3moe-30b"), "-c", 131072, "-fa", "off", "-np", 1, "--ram", "64GiB")
    found = document("estimate", *words, "--gpu", "vulkan:64GiB")
    assert abs(found["devices"][0]["compute_bytes"] - 8753520640) < 0.02 * 8753520640
    said = warned(found, "single_allocation")
    assert "one tensor of 8.00 GiB" in said  # 32 heads x 131,072 x 512 x 4 bytes
    for word in ("AMDVLK 2.00 GiB", "RADV 4.00 GiB", "-ub 256 halves it", "-fa on"):
        assert word in said
    assert "single_allocation" not in codes(document("estimate", *words, "--gpu", "cuda:64GiB"))


@pytest.mark.parametrize(("name", "n_ctx", "n_ubatch", "told"), [
    ("llama3-8b", 32768, 512, True), ("llama3-8b", 8192, 512, False), ("llama3-8b", 8192, 2048, True),
    ("gemma3-12b", 65536, 512, True),
])  # fmt: skip
def test_41_two_gib_in_one_piece_are_the_border(name: str, n_ctx: int, n_ubatch: int, told: bool) -> None:
    words = (zoo(name), "-c", n_ctx, "-ub", n_ubatch, "-fa", "off", "-np", 1, "--ram", "64GiB")
    found = document("estimate", *words, "--gpu", "vulkan:64GiB")
    assert ("single_allocation" in codes(found)) is told
    assert (found["devices"][0]["compute_high_bytes"] > 2 * GIB) is told
    fused = document("estimate", zoo(name), "-c", n_ctx, "-np", 1, "--ram", "64GiB", "--gpu", "vulkan:64GiB")
    assert "single_allocation" not in codes(fused)


FAILED = [
    ("ggml_gallocr_reserve_n: failed to allocate Vulkan0 buffer of size 4571325856", "Vulkan0", 4571325856),
    ("alloc_tensor_range: failed to allocate Vulkan0 buffer of size 2819260416", "Vulkan0", 2819260416),
]


@pytest.mark.parametrize(("line", "device", "n_bytes"), FAILED)
def test_41_a_failed_allocation_in_a_log_is_explained(tmp_path: Path, line: str, device: str, n_bytes: int) -> None:
    """4.2 GB were asked for with 11 GB free, 2.8 GB on AMDVLK."""
    log = tmp_path / "server.log"
    log.write_text(
        "llama_model_loader: loaded meta data with 30 key-value pairs and 291 tensors from /m/x.gguf\n"
        f"load_tensors:      Vulkan0 model buffer size =  4403.49 MiB\n{line}\n"
    )
    found = document("observe", log, status=0)
    assert found["failed_allocations"] == [{"device": device, "bytes": n_bytes}]
    said = ask("observe", log).flat
    assert f"An allocation of {n_bytes / GIB:.2f} GiB failed on Vulkan0." in said
    assert "AMDVLK 2.00 GiB" in said
    assert "a smaller -ub, or -fa on" in said


@pytest.mark.parametrize("platform", ["windows", "wsl"])
@pytest.mark.parametrize("cards", [(24, 24), (24,), (8,)])
def test_43_windows_keeps_a_gib_free_and_says_how_it_spills(
    tmp_path: Path, platform: str, cards: tuple[int, ...]
) -> None:
    """A 70B at 1.5 tokens/s on two 3090: the driver had moved a part of it to system memory."""
    host = imagined(*cards, ram_gib=96, bandwidth=936 * 10**9)._replace(platform=platform)
    file = machine(tmp_path, host)
    found = document("recommend", zoo("llama33-70b-q4_k_m"), "--hardware", file)
    for device in found["devices"]:
        assert device["free_bytes"] - device["planned_bytes"] >= GIB
        assert device["margin_bytes"] >= GIB
    if any(device["free_bytes"] - device["planned_bytes"] < 1.5 * GIB for device in found["devices"]):
        said = warned(found, "windows_may_spill")
        assert "Prefer No Sysmem Fallback" in said
    forced = document("estimate", zoo("llama33-70b-q4_k_m"), "-ngl", 99, "-c", 65536, "-np", 1, "--hardware", file)
    spill = warned(forced, "spills_to_system_memory")
    assert "Windows moves what does not fit" in spill
    assert "Prefer No Sysmem Fallback" in spill
    whole = imagined(*(80,) * len(cards), ram_gib=96, bandwidth=936 * 10**9)
    (tmp_path / "roomy").mkdir()
    roomy = machine(tmp_path / "roomy", whole)
    fits = document("estimate", zoo("llama33-70b-q4_k_m"), "-ngl", 99, "-c", 65536, "-np", 1, "--hardware", roomy)
    assert "a token" in spill or float(spill.partition("about ")[2].split()[0]) < (
        fits["speed"]["decode_tokens_per_s"]["value"] / 2
    )


def test_43_linux_with_cuda_fails_instead_and_keeps_half_a_gib(tmp_path: Path) -> None:
    file = machine(tmp_path, imagined(24, 24, ram_gib=96))
    found = document("recommend", zoo("llama33-70b-q4_k_m"), "--hardware", file)
    assert {device["margin_bytes"] for device in found["devices"]} == {GIB // 2}
    assert codes(found).isdisjoint({"windows_may_spill", "spills_to_system_memory"})


def test_44_wsl_offers_less_than_the_card_has(tmp_path: Path) -> None:
    """An 8 GB card of which 6.9 GiB were offered: the free figure counts, and Windows' margin with it."""
    host = imagined(8, ram_gib=16)
    card = host.devices[0]._replace(free_bytes=int(6.9 * GIB))
    found = document(
        "recommend", zoo("qwen3-8b"), "--hardware",
        machine(tmp_path, host._replace(devices=(card,), platform="wsl")), "--for", "context",
    )  # fmt: skip
    assert found["devices"][0]["planned_bytes"] <= 6.9 * GIB - GIB
    assert probed(tmp_path / "wsl", "wsl2", {}).platform == "wsl"


@pytest.mark.parametrize(("case", "limit"), [("cgroup-v2-limited", 16 * GIB), ("cgroup-v1-limited", None)])
def test_44_a_cgroup_is_the_memory_there_is(tmp_path: Path, case: str, limit: int | None) -> None:
    """The host's total was taken, and the container was killed."""
    host = probed(tmp_path, case, {})
    assert host.ram.cgroup_limit_bytes is not None
    assert limit in (None, host.ram.cgroup_limit_bytes)
    assert host.ram.available_bytes <= host.ram.cgroup_limit_bytes < host.ram.total_bytes
    file = machine(tmp_path, host)
    found = document("recommend", zoo("llama3-1b"), "--hardware", file)
    side = found["host"]
    assert side["available_bytes"] <= host.ram.cgroup_limit_bytes
    assert side["planned_bytes"] + side["margin_bytes"] <= side["available_bytes"]
    pieces = found["command"].split()
    assert int(pieces[pieces.index("--cache-ram") + 1]) << 20 <= side["available_bytes"]
    shown = ask("hardware", "--hardware", file).flat
    assert f"a cgroup limits it to {host.ram.cgroup_limit_bytes / GIB:.2f} GiB" in shown


@pytest.mark.parametrize("gib", [6, 12])
def test_44_a_chips_memory_is_charged_to_the_cgroup(tmp_path: Path, gib: int) -> None:
    """An integrated GPU's buffers count against the container: the kernel killed it."""
    host = probed(tmp_path, HALO, {"gtt_total": 60 * GIB}, (124, 114))
    ram = host.ram._replace(available_bytes=gib * GIB, cgroup_limit_bytes=gib * GIB)
    found = document("recommend", zoo("llama32-3b"), "--hardware", machine(tmp_path, host._replace(ram=ram)))
    side, (device,) = found["host"], found["devices"]
    assert device["free_bytes"] > 50 * GIB
    assert side["shared_with_gpus_bytes"] == device["planned_bytes"] > 2 * GIB
    assert device["planned_bytes"] + side["planned_bytes"] + side["margin_bytes"] <= gib * GIB


def test_44_a_part_of_a_card_has_its_own_memory(library: Path, tmp_path: Path) -> None:  # noqa: F811
    """MIG: the card itself says Insufficient Permissions, its instances have 20 GB each, and a process sees one."""
    host = probe_nvidia(library, "mig")
    (instance,) = host.devices
    assert instance.total_bytes == 19968 * MIB
    assert "MIG" in instance.name
    other = probe_nvidia(library, "mig", CUDA_VISIBLE_DEVICES="MIG-55555555-aaaa-bbbb-cccc-000000000002")
    assert [device.free_bytes for device in other.devices] == [12000 * MIB]
    file = machine(tmp_path, host)
    found = document("recommend", zoo("llama33-70b-q4_k_m"), "--hardware", file, "--ram", "64GiB")
    assert found["verdict"] == "partial"
    (device,) = found["devices"]
    assert device["planned_bytes"] + device["margin_bytes"] <= instance.free_bytes
    assert "one process sees one MIG instance" in ask("hardware", "--hardware", file).flat


def test_44_a_free_figure_above_the_total_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ROCm through DXG reports a free figure larger than the card."""
    engine = tmp_path / "llama-server"
    line = "  ROCm0: AMD Radeon RX 7900 XTX (24560 MiB, 99999 MiB free)"
    engine.write_text(f"#!/bin/sh\ncat <<'END'\nAvailable devices:\n{line}\nEND\n")
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (device,) = document("hardware", "--ask-engine")["devices"]
    assert device["free_bytes"] <= device["total_bytes"] == 24560 * MIB
