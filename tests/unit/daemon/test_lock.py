from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

from advisor.daemon.lock import AlreadyRunningError, DaemonLock, is_running, runtime_folder
from advisor.errors import AdvisorError


def test_the_second_is_told_which_process_runs(tmp_path):
    folder = str(tmp_path / "advisor")
    with DaemonLock(folder):
        assert is_running(folder)
        with pytest.raises(AlreadyRunningError, match=f"as process {os.getpid()};") as caught, DaemonLock(folder):
            pass
        assert caught.value.exit_status == 1
    assert not is_running(folder)
    with DaemonLock(folder):
        pass


def test_a_killed_holder_leaves_no_lock(tmp_path):
    code = (
        "import sys, time; from advisor.daemon.lock import DaemonLock\n"
        "with DaemonLock(sys.argv[1]):\n print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, cwd=os.getcwd())
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    assert is_running(str(tmp_path))
    process.kill()
    process.communicate()
    assert not is_running(str(tmp_path))
    with DaemonLock(str(tmp_path)):
        assert (tmp_path / "daemon.lock").read_text() == f"{os.getpid()}\n"


def test_a_status_question_does_not_keep_a_daemon_from_starting(tmp_path):
    code = (
        "import sys, time; from advisor.daemon.lock import is_running\n"
        "print('asking', flush=True)\nwhile True: is_running(sys.argv[1])"
    )
    (tmp_path / "daemon.lock").touch()
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, cwd=os.getcwd())
    assert process.stdout is not None
    process.stdout.readline()
    try:
        for _ in range(20):
            with DaemonLock(str(tmp_path)):
                pass
    finally:
        process.kill()
        process.communicate()


def test_a_lock_in_a_tidied_folder_is_taken_anew(tmp_path):
    folder = tmp_path / "advisor"
    with DaemonLock(str(folder)):
        shutil.rmtree(folder)
        with DaemonLock(str(folder)):
            assert is_running(str(folder))


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(AdvisorError, match=re.escape("cannot be locked (Not a directory)")),
        DaemonLock(str(tmp_path / "file/advisor")),
    ):
        pass


def test_where(tmp_path):
    assert runtime_folder({"XDG_RUNTIME_DIR": str(tmp_path)}) == str(tmp_path / "advisor")
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    for given in ("", "relative", str(tmp_path / "none")):
        assert runtime_folder({**state, "XDG_RUNTIME_DIR": given}) == str(tmp_path / "state/advisor")
