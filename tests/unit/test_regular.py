"""Small files of whom nobody knows what they are."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest

from advisor.calibration_file import load_calibration
from advisor.keeper.seen import Seen, read_seen
from advisor.overheads import load_overheads
from advisor.regular import NotRegularError, read_regular
from advisor.state import load_residuals


def test_a_file_is_read_up_to_one_byte_more_than_asked_for(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"0123456789")
    assert read_regular(str(path), 10)[0] == b"0123456789"
    data, status = read_regular(str(path), 3)
    assert (data, status.st_size) == (b"0123", 10)
    path.write_bytes(b"")
    assert read_regular(str(path), 3)[0] == b""


def test_what_is_no_file_is_told_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for name in ("pipe", "."):
            with pytest.raises(NotRegularError):
                read_regular(str(tmp_path / name), 10)
        for name in ("socket", "missing", "a\0b"):
            with pytest.raises(OSError):  # noqa: PT011
                read_regular(str(tmp_path / name), 10)
    with pytest.raises(NotRegularError):
        read_regular("/dev/zero", 10)


@pytest.mark.parametrize("name", ["calibration.json", "overheads.json", "residuals.json", "seen.json"])
def test_a_pipe_among_advisors_own_files_is_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    folder = str(tmp_path)
    assert load_calibration(folder)[0] is None
    assert load_overheads(folder) == {}
    assert load_residuals(folder)[0] == ()
    assert read_seen(folder) == Seen()


def test_a_pipe_is_no_snapshot_to_be_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    command = [sys.executable, "-m", "advisor", "hardware", "--save", str(tmp_path / "pipe")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1, json.dumps(done.stderr)
    assert done.stderr.count("\n") == 1
    assert "not a regular file" in done.stderr
