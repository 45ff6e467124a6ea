"""The preset that `recommend --output` writes, read by a real llama-server in router mode. No model is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tools.router import arguments, listed

pytestmark = pytest.mark.engine

ENGINE = ("--engine", "llama.cpp@b10434")  # the build of the server that is asked here


def write(preset: Path, model: Path, *wishes: str) -> dict[str, Any]:
    """Run `advisor recommend MODEL --output PRESET --json`."""
    command = [sys.executable, "-m", "advisor", "recommend", str(model), "--output", str(preset), "--json"]
    done = subprocess.run([*command, *ENGINE, *wishes], capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 3), done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_the_router_takes_the_recommendation(tmp_path, gemma3_270m_path, router):
    preset = tmp_path / "preset.ini"
    document = write(preset, gemma3_270m_path, "--no-gpu")
    with router(preset) as server:
        models = listed(server)
    assert set(models) == {"gemma-3-270m-q4_k_m"}
    model = models["gemma-3-270m-q4_k_m"]
    assert model["source"] == "preset"
    assert model["status"]["value"] == "unloaded"
    given = arguments(model)
    settings = document["settings"]
    assert given["--model"] == str(gemma3_270m_path)
    assert given["--ctx-size"] == str(settings["n_ctx"])
    assert given["--parallel"] == str(settings["n_parallel"])
    assert given["--flash-attn"] == "on"
    assert given["--fit"] == "off"
    assert given["--device"] == "none"
    own = {"--host", "--port", "--alias"}  # the router's
    assert set(given) - own == {"--model", "--ctx-size", "--parallel", "--flash-attn", "--fit", "--device"}


# every key that can be written, and what the router makes of it
EVERY_KEY = [
    (["--gpu", "vulkan:2GiB", "-ngl", "5"], {"--n-gpu-layers": "5"}),
    (["--no-gpu", "-ctk", "q8_0", "-ctv", "q4_0"], {"--cache-type-k": "q8_0", "--cache-type-v": "q4_0"}),
    (["--no-gpu", "-np", "3", "--kv-unified"], {"--parallel": "3", "--kv-unified": ""}),
    (["--no-gpu", "-c", "8192", "-b", "4096", "-ub", "1024"], {"--batch-size": "4096", "--ubatch-size": "1024"}),
    (["--no-gpu", "-c", "4096", "-b", "4096"], {"--ctx-size": "4096", "--batch-size": "4096"}),
    (["--no-gpu", "--swa-full", "-t", "3"], {"--swa-full": "", "--threads": "3"}),
    (["--no-gpu", "-fa", "off"], {"--flash-attn": "off"}),
    (["--no-gpu", "--no-mmap"], {"--no-mmap": ""}),
    (["--no-gpu", "--no-repack"], {"--no-repack": ""}),
    (["--gpu", "vulkan:2GiB", "-ngl", "19", "-nkvo"], {"--no-kv-offload": ""}),
    (["--gpu", "vulkan:2GiB", "-ngl", "9", "--no-op-offload"], {"--no-op-offload": ""}),
    (["--gpu", "vulkan:2GiB", "-ngl", "9", "-ncmoe", "3"], {"--n-cpu-moe": "3"}),
    (["--gpu", "vulkan:2GiB", "-ngl", "9", "--cpu-moe"], {"--cpu-moe": ""}),
    (
        ["--gpu", "vulkan:2GiB", "-ngl", "19", "-ot", r"blk\.1\.ffn=CPU", "-ot", r"blk\.(2|3)\.attn=CPU"],
        {"--override-tensor": r"blk\.1\.ffn=CPU,blk\.(2|3)\.attn=CPU"},
    ),
    (
        ["--gpu", "vulkan:2GiB", "--gpu", "vulkan:2GiB", "-ngl", "19", "-ts", "3,1"],
        {"--tensor-split": "15,4"},  # 18 blocks and the output layer, as the layers each card gets
    ),
    (
        ["--gpu", "vulkan:2GiB", "--gpu", "vulkan:2GiB", "-ngl", "19", "-sm", "none", "-mg", "1"],
        {"--split-mode": "none", "--main-gpu": "1"},
    ),
    (["--gpu", "vulkan:2GiB", "--mode", "safe"], {"--fit": "on"}),
]


@pytest.mark.parametrize(("wishes", "expected"), EVERY_KEY, ids=lambda value: " ".join(value))
def test_every_key_that_can_be_written_is_known_to_the_server(wishes, expected, tmp_path, gemma3_270m_path, router):
    preset = tmp_path / "preset.ini"
    write(preset, gemma3_270m_path, *wishes)
    with router(preset) as server:
        (model,) = listed(server).values()
    assert expected.items() <= arguments(model).items()


def test_a_second_model_and_an_update_are_listed_too(tmp_path, gemma3_270m_path, router):
    second = tmp_path / "a second (small) one.gguf"
    second.symlink_to(gemma3_270m_path)
    preset = tmp_path / "preset.ini"
    write(preset, gemma3_270m_path, "--no-gpu", "-c", "4096")
    write(preset, second, "--no-gpu", "-c", "8192")
    write(preset, gemma3_270m_path, "--no-gpu", "-c", "2048")
    with router(preset) as server:
        models = listed(server)
    assert {name: arguments(model)["--ctx-size"] for name, model in models.items()} == {
        "gemma-3-270m-q4_k_m": "2048",
        "a second (small) one": "8192",
    }
    assert arguments(models["a second (small) one"])["--model"] == str(second)


def test_the_server_does_refuse_a_key_that_it_does_not_know(tmp_path, gemma3_270m_path, router):
    preset = tmp_path / "preset.ini"
    write(preset, gemma3_270m_path, "--no-gpu")
    preset.write_text(preset.read_text() + "no-such-option = 1\n")
    with pytest.raises(RuntimeError, match="no-such-option"), router(preset):
        pass
