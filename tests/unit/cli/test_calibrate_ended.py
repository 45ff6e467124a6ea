"""`advisor calibrate` that is ended in the middle, by a terminal that closes, an impatient user, a shutdown."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tools.fake_server import fake_server
from tests.unit.cli.test_bad_input import ROOT


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL], ids=lambda n: n.name)
def test_it_is_ended_while_an_engine_runs(tmp_path, number):
    """No engine is left and no model of hundreds of MiB in memory; SIGKILL leaves an empty folder there."""
    starts = tmp_path / "starts"
    engine = fake_server(tmp_path, starts)
    engine.write_text(engine.read_text().replace("        depth = 1", "        time.sleep(60)\n        depth = 1"))
    command = [sys.executable, "-m", "advisor", "calibrate", "--engine-binary", str(engine)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, env=environ, cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=heed_signals
    ) as process:
        try:
            wait(lambda: starts.exists() and starts.read_text().endswith("\n"))
            pid, words, _ = json.loads(starts.read_text())
            model = Path(words[words.index("-m") + 1])
            wait(lambda: not model.exists())  # as soon as the engine has it
            process.send_signal(number)
            _, err = process.communicate(timeout=20)
        finally:
            process.kill()
    wait(lambda: not running(pid))
    assert not model.exists()
    if number != signal.SIGKILL:
        assert not model.parent.exists()
        assert (process.returncode, err.strip()) == (130, "advisor: stopped.")
    else:
        model.parent.rmdir()


def heed_signals() -> None:
    """Under nohup and in the background of a script some are ignored, and so they are by every child."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def wait(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90  # memory and disks are measured before, on a machine that may be full
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def running(pid: int) -> bool:
    try:
        return not Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return False
