"""The shipped unit under a real `systemd --user` manager, installed by `advisor service install`.

A drop-in puts the worker of tests/tools/daemon_child.py behind it and shortens its times.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest

from advisor.cli.service_files import Program, exec_line, unit_text
from tests.tools.user_manager import start_user_manager, wait_for

ROOT = Path(__file__).resolve().parents[2]
UNIT = "advisor.service"


@pytest.fixture(scope="module")
def manager():
    with start_user_manager() as manager:
        yield manager


class Service:
    """The installed service."""

    def __init__(self, manager):
        self.manager = manager
        self.models, self.preset = manager.home / "models", manager.home / ".config/advisor/preset"

    def install(self, *options, more=""):
        child = exec_line((sys.executable, "-m", "tests.tools.daemon_child", str(self.models), str(self.preset)))
        drop_in = self.manager.units / f"{UNIT}.d/test.conf"
        drop_in.parent.mkdir(parents=True, exist_ok=True)
        drop_in.write_text(
            "[Unit]\nStartLimitBurst=50\n"
            f"[Service]\nExecStart=\nExecStart={child}\nWorkingDirectory={ROOT}\nWatchdogSec=2\nRestartSec=100ms\n{more}"
        )
        return self.advisor("service", "install", *options)

    def advisor(self, *arguments, status=0):
        ran = self.manager.run(sys.executable, "-m", "advisor", *arguments, cwd=ROOT)
        assert ran.returncode == status, ran.stdout + ran.stderr
        return ran.stdout

    def pid(self):
        return int(self.manager.show(UNIT, "MainPID")[0])

    def names(self):
        return self.preset.read_text().split() if self.preset.exists() else None

    def copy(self, name):
        """Seconds until a model that is copied in stands in the preset, from its last byte on."""
        with open(self.models / name, "wb") as file:
            for _ in range(20):
                file.write(b"x" * 10_000)
                file.flush()
                time.sleep(0.02)
        began = time.monotonic()
        wait_for(lambda: name in (self.names() or ()), f"{name} in the preset")
        return time.monotonic() - began

    def reloads(self):
        return int((self.models / ".reloads").read_text())


@pytest.fixture
def service(manager):
    service = Service(manager)
    service.models.mkdir()
    service.preset.parent.mkdir(parents=True, exist_ok=True)
    yield service
    manager.run("systemctl", "--user", "disable", "--now", UNIT)
    manager.run("rm", "-rf", manager.units, service.models, service.preset)
    manager.systemctl("daemon-reload")


def test_a_day(service):
    manager = service.manager
    (service.models / "hog").touch()  # imports what a real worker does, under the unit's filters
    service.install()
    assert manager.show(UNIT, "ActiveState", "Type", "UnitFileState") == ["active", "notify", "enabled"]
    wait_for(lambda: service.names() == [], "the first pass")
    assert manager.show(UNIT, "StatusText") == ["watching 1 folder, 0 models"]
    pid = service.pid()

    assert service.copy("a.gguf") < 3
    (service.models / "a.gguf").unlink()
    wait_for(lambda: service.names() == [], "the model to go")
    status = json.loads(service.advisor("status", "--json"))
    assert (status["pid"], status["watching"][0]) == (pid, {"path": str(service.models), "how": "events"})
    answer = json.loads(service.advisor("service", "status", "--json"))
    assert (answer["active"], answer["enabled"], answer["pid"]) == (True, True, pid)
    assert answer["status_text"] == "watching 1 folder, 0 models"
    assert [file["state"] for file in answer["files"]] == ["ours", "absent"]

    before = service.reloads()
    manager.systemctl("reload", UNIT)
    wait_for(lambda: service.reloads() == before + 1, "the reload")
    wait_for(lambda: manager.show(UNIT, "ActiveState") == ["active"], "READY after the reload")

    time.sleep(3)  # longer than WatchdogSec: it lives by its pings
    assert service.pid() == pid
    assert manager.show(UNIT, "NRestarts") == ["0"]

    began = time.monotonic()
    manager.systemctl("stop", UNIT)
    assert time.monotonic() - began < 1
    assert manager.show(UNIT, "ActiveState", "Result", "ExecMainStatus") == ["inactive", "success", "0"]
    service.advisor("status", status=3)
    service.advisor("service", "status", status=3)
    service.advisor("service", "uninstall")
    assert not (manager.units / UNIT).exists()
    assert not (manager.units / "default.target.wants" / UNIT).is_symlink()


def test_a_hung_loop_and_a_killed_process_are_started_again(service):
    manager = service.manager
    service.install()
    wait_for(lambda: service.names() == [], "the first pass")
    pid = service.pid()
    (service.models / "hang").touch()
    wait_for(lambda: service.pid() not in (pid, 0), "the watchdog")
    assert not (service.models / "hang").exists()
    assert service.copy("b.gguf") < 3

    pid = service.pid()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: service.pid() not in (pid, 0), "the restart after kill -9")
    assert service.copy("c.gguf") < 3
    assert service.names() == ["b.gguf", "c.gguf"]
    assert manager.show(UNIT, "NRestarts") == ["2"]


def test_a_long_pass_is_stopped_within_a_second(service):
    (service.models / "slow").touch()
    service.install()
    wait_for(lambda: json.loads(service.advisor("status", "--json"))["state"] == "working", "the pass")
    began = time.monotonic()
    service.manager.systemctl("stop", UNIT)
    assert time.monotonic() - began < 1
    assert service.manager.show(UNIT, "Result") == ["success"]


def test_a_second_daemon_is_refused_and_the_first_goes_on(service):
    service.install()
    pid = service.pid()
    ran = service.manager.run(
        sys.executable, "-m", "tests.tools.daemon_child", service.models, service.preset, cwd=ROOT
    )  # fmt: skip
    assert ran.returncode == 1
    assert f"as process {pid}" in ran.stderr
    assert service.pid() == pid


def test_strict(service):
    """What it closes. What it costs a user (other programs' /proc) does not show where tests run as root."""
    manager = service.manager
    service.install("--strict", more=f"PrivateTmp=no\nReadOnlyPaths={manager.home}\n")  # the tests' home lies in /tmp
    wait_for(lambda: service.names() == [], "the first pass")
    assert manager.show(UNIT, "ActiveState", "PrivateUsers", "ProtectHome") == ["active", "yes", "read-only"]
    wait_for(lambda: manager.show(UNIT, "StatusText") == ["watching 1 folder, 0 models, 1 failure"], "the failure")
    mounts = {
        line.split()[4]: line.split()[5] for line in Path(f"/proc/{service.pid()}/mountinfo").read_text().splitlines()
    }
    for folder, how in (("/usr", "ro"), ("/home", "ro"), (str(manager.home), "ro"), (str(service.preset.parent), "rw")):
        assert mounts[folder].split(",")[0] == how
    assert service.copy("d.gguf") < 3
    time.sleep(2.5)  # pings arrive, too
    assert manager.show(UNIT, "NRestarts") == ["0"]


@pytest.mark.parametrize("strict", [False, True])
def test_systemd_has_nothing_to_say_about_the_files(manager, tmp_path, strict):
    unit = tmp_path / UNIT
    unit.write_text(unit_text(Program((sys.executable, "-m", "advisor", "daemon"), str(ROOT))))
    if strict:
        (tmp_path / f"{UNIT}.d").mkdir()
        (tmp_path / f"{UNIT}.d/strict.conf").write_text((ROOT / "systemd/advisor-strict.conf").read_text())
    ran = manager.run("systemd-analyze", "--user", "verify", unit)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.parametrize("name", ["plain", "two words", "100%", "$HOME", 'a"b', "a'b", "back\\slash", "é ✓", "a;b #c"])
def test_systemd_reads_words_as_they_are_meant(manager, tmp_path, name):
    program, out = tmp_path / name, tmp_path / "out"
    program.write_text(f'#!/bin/sh\nprintf "%s" "$1" > {shlex.quote(str(out))}\n')
    program.chmod(0o755)
    manager.units.mkdir(parents=True, exist_ok=True)
    unit = manager.units / "words.service"
    unit.write_text(f"[Service]\nType=oneshot\nExecStart={exec_line((str(program), name))}\n")
    manager.systemctl("daemon-reload")
    manager.systemctl("start", "words.service")
    assert out.read_text() == name
    unit.unlink()
