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

SECONDS = 240  # for a command; on a machine that does nothing else a tenth of it is enough


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


def engines_in(room: Path) -> list[int]:
    """Processes of this test, told by their folder for temporary files."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if b"TMPDIR=" + os.fsencode(room) in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_a_real_machine(gemma3_270m_path, xllamacpp_server, room, tmp_path):
    """Calibrated, then a server that runs is asked, then the log of that server is read."""
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

    assert advisor(*words)["speed"]["confidence"] == "calibrated"
    kept = json.loads(Path(document["kept_in"]).read_text())
    assert kept["cpu"] == cpu
    assert advisor("hardware", "--no-gpu")["calibration"] == kept
    assert list(room.iterdir()) == []
    assert engines_in(room) == []

    with xllamacpp_server({"model": gemma3_270m_path, "n_ctx": 512, "n_parallel": 1}) as server:
        assert len(engines_in(room)) > 0  # so the search above can find something
        asked = advisor("calibrate", "--url", server.url)
        server.complete("A few words about the sea. " * 20, n_predict=33)
    assert asked["model"]["path"] == str(gemma3_270m_path)
    assert asked["learned"]["device"] == "cpu"
    log = tmp_path / "log"
    log.write_text(server.log_text())
    observed = advisor("observe", log)
    assert observed["speed"]["requests"] > 4  # those of advisor too
    assert observed["speed"]["learned"]["device"] == "cpu"
    runs = advisor("hardware", "--no-gpu")["calibration"]["runs"]
    assert {run["quantization"] for run in runs} == {"Q4_K_M"}
    assert sum(len(run["decode_factors"]) for run in runs) == len(document["runs"]) + 2
