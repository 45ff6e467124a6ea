"""The commands against real engines: what advisor says a load takes, and what the load then took.

Weights and cache are asked to be equal at the engine's printed precision, hundredths of a MiB per line of its log.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.tools.engines import Buffers, EngineServer, engine_buffers

pytestmark = pytest.mark.engine

ZOO = Path(__file__).parents[1] / "data" / "zoo"
MIB = 1024 * 1024
HALF_HUNDREDTH = 5243  # bytes by which a printed figure can be off
# what the engine can be told beyond its defaults; with the model and the load mode that is all the JSON says
PASSED_ON = (
    "n_ctx", "n_batch", "n_ubatch", "n_parallel", "kv_unified", "n_gpu_layers", "swa_full", "kv_offload",
    "cache_type_k", "cache_type_v",
)  # fmt: skip


def advisor_json(*words: object) -> dict[str, Any]:
    """What `python -m advisor ... --json` prints; its status must be one of the answers 0, 3, 4."""
    command = [sys.executable, "-m", "advisor", *map(str, words[:1]), "--json", *map(str, words[1:])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 3, 4), done.stderr
    assert done.stderr == ""
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def printed(log: str, buffer: str, kind: str) -> list[float]:
    """MiB of every '<buffer> <kind> buffer size' line."""
    return [float(mib) for mib in re.findall(rf" {re.escape(buffer)} +{kind} buffer size = +(\d+\.\d+) MiB", log)]


def assert_printed(predicted: int, lines: Iterable[float]) -> None:
    """The prediction is the sum of what was printed, each line rounded to a hundredth of a MiB."""
    figures = list(lines)
    assert abs(predicted - sum(figures) * MIB) <= HALF_HUNDREDTH * max(len(figures), 1), (predicted / MIB, figures)


# ---------------------------------------------------------------- the CPU, with a model that answers

RECOMMENDED = [
    [],
    ["--for", "speed"],
    ["--for", "parallel:2"],
    ["--for", "context", "-ctk", "q8_0", "-ctv", "q8_0"],
]
ESTIMATED = [
    ["-c", "4096", "-np", "2"],
    ["-c", "4096", "-np", "1", "--swa-full"],
    ["-c", "4096", "-np", "1", "-ctk", "q8_0", "-ctv", "q8_0"],
    ["-c", "4096", "-np", "1", "-fa", "off"],
    ["-c", "4096", "-np", "4", "--kv-unified"],
    ["-c", "4096", "-np", "1", "-b", "1024", "-ub", "256", "--no-mmap"],
    ["-c", "2048"],
]


def serve(start: Any, document: dict[str, Any]) -> tuple[EngineServer, dict[str, Any], dict[str, Any]]:
    """Run the engine with exactly the settings of `document`; (server with its whole log, /props, an answer)."""
    settings = document["settings"]
    given = {name: settings[name] for name in PASSED_ON}
    given["model"] = document["model"]["path"]
    given["flash_attn"] = "on" if settings["flash_attn"] else "off"
    given["load_mode"] = "mmap" if settings["mmap"] else "none"
    with start(given) as server:
        props = server.get("/props")
        answer = server.complete("The capital of France is")
    return server, props, answer


def assert_as_predicted(document: dict[str, Any], log: str) -> None:
    """Every buffer that the engine reports is the prediction's."""
    host, settings = document["host"], document["settings"]
    assert document["devices"] == []
    repacked = printed(log, "CPU_REPACK", "model")
    if settings["mmap"]:
        assert_printed(host["mapped_bytes"], printed(log, "CPU_Mapped", "model"))
    else:
        assert_printed(host["weights_bytes"], printed(log, "CPU", "model") + repacked)
    assert repacked
    assert_printed(host["repack_bytes"], repacked)
    caches = printed(log, "CPU", "KV")
    assert len(caches) == 2  # of the blocks that see everything, of the blocks with a window
    assert_printed(host["cache_bytes"], caches)
    assert_printed(host["output_bytes"], printed(log, "CPU", "output"))

    engine = engine_buffers(log)["host"]["compute"]
    # printed to four decimals
    assert abs(host["compute_bytes"] - engine) <= 0.00005 * MIB + 1
    assert host["compute_low_bytes"] <= host["compute_bytes"] <= host["compute_high_bytes"]


@pytest.mark.parametrize("wishes", RECOMMENDED, ids=" ".join)
def test_recommended_settings_run_answer_and_take_what_was_said(wishes, gemma3_270m_path, xllamacpp_server):
    # xllamacpp's wheel knows no GPU, whatever this machine has
    document = advisor_json("recommend", gemma3_270m_path, "--no-gpu", *wishes)
    assert document["verdict"] == "cpu"
    assert document["settings"]["n_gpu_layers"] == 0
    server, props, answer = serve(xllamacpp_server, document)
    assert answer["content"].strip()
    assert props["total_slots"] == document["settings"]["n_parallel"]
    assert props["default_generation_settings"]["n_ctx"] == document["settings"]["n_ctx_seq"]
    assert_as_predicted(document, server.log_text())


@pytest.mark.parametrize("wishes", RECOMMENDED, ids=" ".join)
def test_the_command_to_paste_says_the_same_settings(wishes, gemma3_270m_path):
    document = advisor_json("recommend", gemma3_270m_path, "--no-gpu", *wishes)
    words = shlex.split(document["command"])
    assert words[:3] == ["llama-server", "-m", str(gemma3_270m_path)]
    again = advisor_json("estimate", "--no-gpu", "--", *words)
    assert again["settings"] == document["settings"]
    for name in ("weights_bytes", "cache_bytes", "compute_bytes", "output_bytes", "repack_bytes", "planned_bytes"):
        assert again["host"][name] == document["host"][name]


@pytest.mark.parametrize("settings", ESTIMATED, ids=" ".join)
def test_estimated_settings_take_what_was_said(settings, gemma3_270m_path, xllamacpp_server):
    document = advisor_json("estimate", gemma3_270m_path, "--no-gpu", *settings)
    server, props, answer = serve(xllamacpp_server, document)
    assert answer["content"].strip()
    assert props["default_generation_settings"]["n_ctx"] == document["settings"]["n_ctx_seq"]
    assert_as_predicted(document, server.log_text())


# ---------------------------------------------------------------- partial offload, on the Vulkan software device

# blocks and the output; the software device takes no tensor over 128 MiB, and none of these is wider
N_LAYERS = {"small-llama": 17, "small-qwen3moe": 13, "small-gemma3": 19, "small-gptoss": 9, "small-ds2": 28}
FULL = ("-ngl 99 -np 1", "-ngl 99 -np 1 -ctk q8_0 -ctv q8_0")
EXPERTS = ("small-qwen3moe", "small-gptoss", "small-ds2")


def offloads() -> list[tuple[str, str]]:
    """(model, settings): all, half, one and no layers, quantized caches, slots, the cache or experts on the host."""
    cells = []
    for model, n_layers in N_LAYERS.items():
        half = n_layers // 2
        for settings in (
            *FULL,
            f"-ngl {half} -np 1",
            "-ngl 1 -np 1",
            "-ngl 0 -np 1",
            f"-ngl {half} -np 2 -ctk q8_0 -ctv q8_0",
            "-ngl 99 -np 2 -ub 256 -nkvo",
            f"-ngl {half + 1} -np 4 -kvu -fa off",
        ):
            cells.append((model, settings))
        if model in EXPERTS:
            cells.append((model, "-ngl 99 -np 1 -ncmoe 4"))
            cells.append((model, f"-ngl {half} -np 1 -cmoe"))
        if model in ("small-gemma3", "small-gptoss"):
            cells.append((model, f"-ngl {half} -np 2 --swa-full"))
    return cells


def predict_offload(path: Path, free_mib: int, *flags: str) -> dict[str, dict[str, Any]]:
    """The estimate for the Vulkan server's build, by the names of `engine_buffers`."""
    spec = f"vulkan:{free_mib}MiB@{free_mib}MiB"  # the device's free memory decides nothing with one device
    words = ["--engine", "llama.cpp@b10434", "--gpu", spec, "--load-mode", "none", *flags]
    document = advisor_json("estimate", path, *words)
    assert [device["id"] for device in document["devices"]] == ["Vulkan0"]
    return {"Vulkan0": document["devices"][0], "host": document["host"]}


def device_memory_mib(log: str) -> int:
    """Free memory of the software device, as the engine reports it when it takes the device."""
    found = re.search(r"using device Vulkan0 .*- (\d+) MiB free", log)
    assert found, log[-2000:]
    return int(found[1])


def n_lines(log: str, device: str, kinds: str) -> int:
    """How many rounded figures `engine_buffers` added up."""
    names = r"(?:CPU\w*|\w+_Host)" if device == "host" else device
    return len(re.findall(rf": +{names} +(?:{kinds}) buffer size", log))


@pytest.mark.parametrize(("model", "settings"), offloads(), ids=lambda value: value)
def test_offloaded_weights_and_cache_are_where_they_were_said_to_be(model, settings, empty_model, vulkan_breakdown):
    flags = ["-c", "4096", *settings.split()]
    path = empty_model(model)
    result = vulkan_breakdown(path, flags)
    predicted = predict_offload(path, device_memory_mib(result.log_text), *flags)
    nothing = {"weights": 0, "cache": 0, "compute": 0, "output": 0}
    measured: Buffers = {device: result.buffers.get(device, nothing) for device in predicted}
    assert set(result.buffers) <= set(predicted)
    for device, sizes in predicted.items():
        for kind, lines in (("weights", "model"), ("cache", "KV|RS")):
            slack = HALF_HUNDREDTH * max(n_lines(result.log_text, device, lines), 1)
            difference = sizes[f"{kind}_bytes"] - measured[device][kind]
            assert abs(difference) <= slack, (device, kind, sizes[f"{kind}_bytes"] / MIB, measured[device][kind] / MIB)
    assert abs(predicted["host"]["output_bytes"] - measured["host"]["output"]) <= HALF_HUNDREDTH
    if settings in FULL:
        assert measured["Vulkan0"]["compute"] <= predicted["Vulkan0"]["compute_high_bytes"] + HALF_HUNDREDTH
        assert measured["host"]["compute"] == pytest.approx(predicted["host"]["compute_bytes"], rel=0.01)
    # every byte of the model is somewhere: the comparison above cannot pass on a load that kept nothing
    total = sum(sizes["weights"] for sizes in measured.values())
    assert total >= path.stat().st_size * 0.9


def test_what_stays_on_the_host_with_no_layer_and_all_layers(empty_model, vulkan_breakdown):
    """By hand, small-llama: 16 blocks, 8 KV heads of 64, 4096 cells: 4 MiB of f16 keys a block, as much of values."""
    path = empty_model("small-llama")
    block = 2 * 8 * 64 * 2 * 4096
    for n_gpu, on_device in (("0", 0), ("1", 0), ("3", 2), ("99", 16)):
        flags = ["-c", "4096", "-np", "1", "-ngl", n_gpu]
        result = vulkan_breakdown(path, flags)
        predicted = predict_offload(path, device_memory_mib(result.log_text), *flags)
        assert predicted["Vulkan0"]["cache_bytes"] == on_device * block
        assert result.buffers.get("Vulkan0", {"cache": 0})["cache"] == on_device * block
        assert predicted["host"]["cache_bytes"] == result.buffers["host"]["cache"] == (16 - on_device) * block
