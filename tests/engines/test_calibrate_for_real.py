"""calibrate on the real CPU engine with a real model: everything is measured, used afterwards, and nothing is left.

How near the figures come is the benchmark's business: machines that run tests are busy with other things.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine

SECONDS = 90  # for a command; on a machine that does nothing else a quarter of it is enough


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go when they do not go to memory."""
    folder = tmp_path / "room"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def advisor(*words: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "advisor", *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, ""), done
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def trial_folders() -> set[Path]:
    memory = Path("/dev/shm")
    return {path.parent for path in memory.glob("advisor-*/trial.gguf")} if memory.is_dir() else set()


def children_of_servers() -> set[int]:
    """Processes that were started as advisor starts the package's server."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"import xllamacpp as x\n" in words and f"PPid:\t{os.getpid()}" not in (entry / "status").read_text():
                found.add(int(entry.name))
    return found


def test_a_real_machine(gemma3_270m_path, room):
    pytest.importorskip("xllamacpp")
    before = children_of_servers(), trial_folders()
    words = ["estimate", gemma3_270m_path, "-c", "4096", "-np", "1", "--no-gpu"]
    assert advisor(*words)["speed"]["confidence"] != "calibrated"
    document = advisor("calibrate", gemma3_270m_path, "--engine-binary", "xllamacpp", "--seconds", "5")
    assert document["schema"] == "advisor.calibrate/1"
    assert document["ram_bytes_per_s"] > 10**8
    assert document["trials"]["binary_kind"] == "xllamacpp"
    timed = {(trial["what"], trial["type"]): trial for trial in document["trials"]["timed"]}
    assert {("type", "q8_0"), ("rows", "q8_0"), ("blocks", "q8_0")} <= set(timed)
    assert all(trial["decode_seconds"] > 0 for trial in timed.values())
    assert timed["type", "q8_0"]["prefill_seconds"] > 0
    cpu = document["cpu"]
    assert cpu["engine"] == "xllamacpp"
    assert {entry["name"]: entry["bytes_per_s"] for entry in cpu["types"]}["q8_0"] > 10**7
    check = document["check"]
    assert check["model"]["path"] == str(gemma3_270m_path)
    assert check["device"] == "cpu"
    assert check["figures"][0]["what"] == "decode"
    assert all(figure["measured_tokens_per_s"] > 0 for figure in check["figures"])
    assert all(figure["after_tokens_per_s"] > 0 for figure in check["figures"])
    (run,) = document["runs"]
    assert run["device"] == "cpu"

    assert advisor(*words)["speed"]["confidence"] == "calibrated"
    kept = json.loads(Path(document["kept_in"]).read_text())
    assert kept["cpu"] == cpu
    assert advisor("hardware", "--no-gpu")["calibration"] == kept
    assert list(room.iterdir()) == []
    assert (children_of_servers(), trial_folders()) == before


def test_a_real_server_and_its_log(gemma3_270m_path, xllamacpp_server, tmp_path):
    """A server that runs teaches when it is asked, and by its log when it has answered others."""
    settings = {"model": gemma3_270m_path, "n_ctx": 2048, "n_parallel": 1}
    with xllamacpp_server(settings) as server:
        asked = advisor("calibrate", "--url", server.url)
        for number in range(3):
            server.complete(f"{number} times a hundred words about the sea. " * 20, n_predict=33)
    assert asked["model"]["path"] == str(gemma3_270m_path)
    assert all(figure["measured_tokens_per_s"] > 0 for figure in asked["figures"])
    log = tmp_path / "log"
    log.write_text(server.log_text())
    observed = advisor("observe", log)
    # all requests but those of a token or two: advisor's own and the three
    assert observed["speed"]["requests"] > 3
    learned = observed["speed"]["learned"]
    assert learned["device"] == "cpu"
    assert learned["prefill_factors"]
    (run,) = advisor("hardware", "--no-gpu")["calibration"]["runs"]
    assert run["n_seen"] == asked["learned"]["n_seen"] + learned["n_seen"]
    assert run["build"] == asked["learned"]["build"] == learned["build"]
