"""Odd things where advisor expects files of its own: nothing is waited for, nothing implausible is believed."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.calibration import BROKEN, Calibration, DiskRate, Machine, from_json, to_json
from advisor.calibration_file import FILE, load_calibration, save_calibration

KNOWN = Calibration(Machine("cpu", 2, 2, 1 << 34), "2026-11-30", 35_000_000_000, (DiskRate("/srv", 900_000_000),))


def advisor(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "advisor", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_pipe_in_the_place_of_the_calibration_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE)
    calibration, said = load_calibration(str(tmp_path))
    assert calibration is None
    assert said is not None
    assert "not a regular file" in said


def test_a_pipe_as_a_hardware_snapshot_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "machine.json"
    os.mkfifo(pipe)
    said = advisor("hardware", "--hardware", pipe)
    assert said.returncode == 2
    assert "not a regular file" in said.stderr


def test_others_cannot_read_what_was_measured(tmp_path: Path) -> None:
    folder = tmp_path / "advisor"
    folder.mkdir(mode=0o755)
    assert save_calibration(str(folder), KNOWN) is None
    assert stat.S_IMODE((folder / FILE).stat().st_mode) == 0o600
    assert load_calibration(str(folder)) == (KNOWN, None)


@pytest.mark.parametrize("rate", [1, 99_999, 1 << 50])
def test_a_pace_that_no_memory_or_disk_has_is_not_believed(rate: int) -> None:
    for change in ({"ram_bytes_per_s": rate}, {"disks": [{"folder": "/srv", "bytes_per_s": rate}]}):
        document: dict[str, Any] = json.loads(json.dumps(to_json(KNOWN))) | change
        with pytest.raises(BROKEN):
            from_json(document)


@pytest.mark.parametrize("place", ["/nonexistent", "/etc/passwd", ""])
def test_a_folder_that_is_none_is_refused(place: str) -> None:
    said = advisor("calibrate", "--no-engine", "--folder", place)
    assert said.returncode == 2
    assert "is no folder" in said.stderr
