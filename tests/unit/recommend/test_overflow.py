"""What is told of plans beyond memory."""

from __future__ import annotations

import re

import pytest

from advisor.recommend.overflow import overflow_notes
from advisor.recommend.recommendation import Note
from advisor.settings import RequestedSettings
from tests.tools.machines import GIB, advise, evaluator, machine, policy


def codes(notes: tuple[Note, ...] | list[Note]) -> set[str]:
    return {note.code for note in notes}


def text_of(notes: tuple[Note, ...] | list[Note], code: str) -> str:
    return next(note.text for note in notes if note.code == code)


def notes_for(model: str, host: object, **settings: object) -> list[Note]:
    judge = evaluator(model, host)  # type: ignore[arg-type]
    judged = judge.judge(RequestedSettings(n_parallel=1, **settings))  # type: ignore[arg-type]
    return overflow_notes(judge, judged, judge.speed(judged, policy().intent("balanced")))


def test_70b_on_4_gib_and_16_gib_of_ram() -> None:
    answer = advise("llama33-70b-q4_k_m", machine(4, ram_gib=16))
    assert answer.verdict == "does_not_fit"
    disk = text_of(answer.warnings, "streams_from_disk")
    seconds = re.search(r"at 3 GB/s, about (\d+) seconds a token", disk)
    assert seconds is not None
    assert 12 <= int(seconds[1]) <= 16  # 40 GB at 3 GB/s
    streaming = text_of(answer.warnings, "layer_streaming")
    assert "exact results" in streaming
    assert "131.42 GiB of the 16-bit weights" in streaming
    assert "47 seconds a token or more" in streaming
    fits = text_of(answer.warnings, "smaller_quantization_fits")
    assert re.search(r"^As \w+ \([\d.]+ GiB, [\d.]+ bits a weight\) it would fit: .* tokens/s\.", fits)


def test_nothing_of_that_where_it_fits() -> None:
    answer = advise("llama33-70b-q4_k_m", machine(24, ram_gib=64))
    assert codes(answer.warnings).isdisjoint({"streams_from_disk", "layer_streaming", "spills_to_system_memory"})


@pytest.mark.parametrize("platform", ["windows", "wsl"])
def test_windows_spills_without_a_word(platform: str) -> None:
    host = machine(8, ram_gib=32)._replace(platform=platform)
    notes = notes_for("llama3-8b", host, n_ctx=65536, n_gpu_layers=999)
    text = text_of(notes, "spills_to_system_memory")
    assert "Prefer No Sysmem Fallback" in text
    rate = re.search(r"about ([\d.]+) tokens/s", text)
    assert rate is None or float(rate[1]) < 10
    assert "spills_to_system_memory" not in codes(notes_for("llama3-8b", machine(8, ram_gib=32), n_ctx=65536))


def test_windows_is_warned_of_a_full_card() -> None:
    host = machine(8, ram_gib=32)._replace(platform="windows")
    answer = advise("llama3-8b", host)
    assert answer.verdict == "full"
    assert "nearly full" in text_of(answer.warnings, "windows_may_spill")
    roomy = machine(24, ram_gib=32)._replace(platform="windows")
    assert "windows_may_spill" not in codes(advise("llama3-8b", roomy, n_ctx=8192).warnings)


def test_vulkan_spills_on_linux_too() -> None:
    notes = notes_for("llama3-8b", machine(8, ram_gib=32, backend="vulkan"), n_ctx=65536, n_gpu_layers=999)
    assert "Vulkan's drivers move" in text_of(notes, "spills_to_system_memory")


def shared(gib: float, ram_gib: float, backend: str = "vulkan", platform: str = "linux"):
    host = machine(gib, ram_gib=ram_gib, backend=backend, bandwidth=90 * 10**9)
    device = host.devices[0]._replace(memory_kind="unified", shared_bytes=int(gib * GIB))
    return host._replace(devices=(device,), platform=platform)


def test_a_gpu_in_system_memory_says_so() -> None:
    notes = notes_for("llama3-8b", shared(16, 32), n_ctx=8192, n_gpu_layers=999)
    assert "taken from everything else" in text_of(notes, "works_in_system_memory")
    assert "spills_to_system_memory" not in codes(notes)


def test_what_a_gpu_in_system_memory_takes_is_not_there_for_the_cpu() -> None:
    """40 GB of which 12 GiB lie on the GPU do not fit 32 GiB of RAM, though the CPU's part alone would."""
    host = shared(14, 32)
    judge = evaluator("llama33-70b-q4_k_m", host)
    judged = judge.judge(RequestedSettings(n_parallel=1, n_ctx=4096, n_gpu_layers=25))
    assert judged.plan.host.weights_bytes < judge.budget.ram_usable_bytes
    assert judge.speed(judged, policy().intent("balanced")).bound_by == "disk"


def test_the_limit_of_shared_memory_can_be_raised() -> None:
    """27B in 17 GiB: half of 48 GiB is too little, the rest of the memory is not."""
    notes = notes_for("qwen35-27b", shared(12, 48), n_ctx=8192, n_gpu_layers=999)
    assert "ttm.pages_limit" in text_of(notes, "shared_memory_limit")
    notes = notes_for("qwen35-27b", shared(12, 48, "metal", "darwin"), n_ctx=8192, n_gpu_layers=999)
    assert "iogpu.wired_limit_mb" in text_of(notes, "shared_memory_limit")
    assert "shared_memory_limit" not in codes(notes_for("qwen35-27b", shared(12, 16), n_ctx=8192, n_gpu_layers=999))
