"""Recommended settings on a card of a pretended size: the real server loads them, and one step more is over.

The software device has all of the machine's memory, so what it prints is held against the size that advisor was told.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.engines.test_recommend_for_real import HALF_HUNDREDTH, advisor_json, n_lines

pytestmark = pytest.mark.engine

STEP_TOKENS = 1024
# MiB of the pretended card, of which 512 stay free and 150 are the backend's own, and wishes. With every layer there by
# wish experts are on the CPU by kind of tensor. The software device takes nothing over 128 MiB, so the micro-batch
# stays small. Sizes at which the output alone is there with a comfortable context are left out: no memory ends that.
EVERY_LAYER = ("-ngl", "99")
CASES = [
    *(("small-llama", size, ()) for size in (820, 960, 1200, 1700)),
    *(("small-qwen3moe", size, ()) for size in (760, 900, 1300, 1500)),
    *(("small-gemma3", size, ()) for size in (860, 1000)),
    *(("small-gptoss", size, ()) for size in (1000, 1100)),
    *(("small-gptoss", size, EVERY_LAYER) for size in (1000, 1200)),
]


def recommend(path: Path, size_mib: int, wishes: tuple[str, ...] = ()) -> dict[str, Any]:
    """The answer for one slot on the Vulkan server's build."""
    card = f"vulkan:{size_mib}MiB@{size_mib}MiB"
    given = ["--engine", "llama.cpp@b10434", "--gpu", card, "--ram", "16GiB", "-np", "1", "-ub", "512"]
    return advisor_json("recommend", path, *given, *wishes, "--load-mode", "none")


def room(document: dict[str, Any]) -> tuple[int, int]:
    """Bytes for what the engine accounts for, and the same without what is set aside for compute buffers.

    No Vulkan card has been measured, so the plan counts them at the upper end of an interval; their middle is exact.
    """
    (device,) = document["devices"]
    whole = device["total_bytes"] - device["margin_bytes"] - device["overhead_bytes"]
    return whole, whole - (device["compute_high_bytes"] - device["compute_bytes"])


def loaded(vulkan_breakdown: Any, path: Path, words: list[str]) -> tuple[int, int]:
    """(bytes that the real server took on the device, how far rounding can be off)."""
    result = vulkan_breakdown(path, words)
    sizes = result.buffers["Vulkan0"]
    rounding = HALF_HUNDREDTH * n_lines(result.log_text, "Vulkan0", "model|KV|RS|compute")
    return sizes["weights"] + sizes["cache"] + sizes["compute"], rounding


def replaced(words: list[str], flag: str, value: int) -> list[str]:
    """`words` with another value of a flag."""
    at = words.index(flag)
    return [*words[: at + 1], str(value), *words[at + 2 :]]


@pytest.mark.parametrize(("model", "size_mib", "wishes"), CASES, ids=str)
def test_it_loads_and_one_step_more_is_over(model, size_mib, wishes, empty_model, vulkan_breakdown):
    path = empty_model(model)
    document = recommend(path, size_mib, wishes)
    assert document["verdict"] in ("full", "partial")
    (device,) = document["devices"]
    settings, words = document["settings"], shlex.split(document["command"])[3:]
    whole, limit = room(document)
    taken, rounding = loaded(vulkan_breakdown, path, words)
    said = device["weights_bytes"] + device["cache_bytes"] + device["compute_bytes"]
    assert abs(taken - said) <= rounding
    assert taken <= limit + rounding < whole
    steps = []
    if settings["n_ctx"] + STEP_TOKENS <= document["model"]["n_ctx_train"]:
        steps.append(replaced(words, "-c", settings["n_ctx"] + STEP_TOKENS))
    if settings["n_gpu_layers"] <= document["model"]["n_layer"]:
        steps.append(replaced(words, "-ngl", settings["n_gpu_layers"] + 1))
    if "-ot" in words:  # the experts of which a part is on the CPU
        at = words.index("-ot")
        steps.append([*words[:at], *words[at + 2 :]])
    assert len(steps) == (1 if document["verdict"] == "full" else 2)
    for step in steps:
        more, rounding = loaded(vulkan_breakdown, path, step)
        assert more > limit - rounding, step


def test_experts_go_by_kind_of_tensor_in_some_of_them(empty_model):
    asked = [case for case in CASES if case[0] == "small-gptoss"]
    commands = [recommend(empty_model(model), size, wishes)["command"] for model, size, wishes in asked]
    assert any(" -ot " in command for command in commands)
