"""The daemon as a process: signals, two at once, what it costs, and `advisor status`."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 20.0  # a loaded machine


def wait_for(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not (result := condition()):
        assert time.monotonic() < deadline, f"still waiting for {what}"
        time.sleep(0.02)
    return result


class Child:
    """A daemon with its folder, its preset and the socket on which it notifies."""

    def __init__(self, tmp_path, environ):
        self.models, self.preset = tmp_path / "models", tmp_path / "preset"
        self.models.mkdir()
        self.stderr = tmp_path / "stderr"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(tmp_path / "notify"))
        self.socket.setblocking(False)
        self.environ = {**os.environ, **environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "PYTHONPATH": str(ROOT)}
        self.messages = []

    def start(self):
        command = [sys.executable, "-m", "tests.tools.daemon_child", self.models, self.preset]
        with open(self.stderr, "ab") as stderr:
            self.process = subprocess.Popen(command, cwd=ROOT, env=self.environ, stderr=stderr)
        wait_for(lambda: self.has("READY=1"), "READY")
        return self

    def has(self, text):
        while True:
            try:
                self.messages.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return any(text in message for message in self.messages)

    def names(self):
        return self.preset.read_text().split() if self.preset.exists() else None

    def stop(self, number=signal.SIGTERM):
        """Seconds until it has ended, and its status."""
        began = time.monotonic()
        self.process.send_signal(number)
        status = self.process.wait(PATIENCE_S)
        return time.monotonic() - began, status


@pytest.fixture
def child(tmp_path, home):
    (home / "run").mkdir(mode=0o700)
    child = Child(tmp_path, {})
    yield child
    if getattr(child, "process", None) is not None and child.process.poll() is None:
        child.process.kill()
        child.process.wait()
    child.socket.close()


def advisor(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "advisor", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


def test_a_day(child, home):
    child.start()
    wait_for(lambda: child.names() == [], "the first pass")
    began = time.monotonic()
    (child.models / "m.gguf").write_bytes(b"x")
    wait_for(lambda: child.names() == ["m.gguf"], "the model")
    assert time.monotonic() - began < 3

    answer = advisor("status", "--json")
    assert answer.returncode == 0, answer.stderr
    status = json.loads(answer.stdout)
    assert status["schema"] == "advisor.status/1"
    assert (status["running"], status["pid"], status["state"]) == (True, child.process.pid, "idle")
    assert {"path": str(child.models), "how": "events"} in status["watching"]
    assert status["last_changes"][-1]["text"] == f"{child.preset}: [] -> ['m.gguf']"
    answer = advisor("status")
    assert answer.returncode == 0
    for text in (f"as process {child.process.pid}", f"{child.models}  events", "['m.gguf']"):
        assert text in answer.stdout

    (child.models / "config.toml").write_text("greeting\n")
    wait_for(lambda: child.names() == ["greeting", "m.gguf"], "the configuration")
    (child.models / "config.toml").write_text("broken\n")
    wait_for(lambda: "broken; repair it." in child.stderr.read_text(), "the complaint")
    assert child.names() == ["greeting", "m.gguf"]
    child.messages.clear()
    child.process.send_signal(signal.SIGHUP)
    wait_for(lambda: child.has("RELOADING=1\nMONOTONIC_USEC="), "RELOADING")
    wait_for(lambda: child.has("READY=1"), "READY after the reload")

    second = subprocess.run(
        [sys.executable, "-m", "tests.tools.daemon_child", child.models, child.preset],
        cwd=ROOT, env=child.environ, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert second.returncode == 1
    assert f"runs already as process {child.process.pid}" in second.stderr

    seconds, status = child.stop()
    assert (seconds < 1, status) == (True, 0)
    assert child.has("STOPPING=1")
    assert child.stderr.read_text().splitlines()[-1].endswith(" stopped")
    assert not (home / "run/advisor/status.json").exists()
    answer = advisor("status")
    assert answer.returncode == 3
    assert "does not run" in answer.stdout
    assert json.loads(advisor("status", "--json").stdout)["running"] is False


def test_a_long_pass_is_stopped_within_a_second(child):
    (child.models / "slow").touch()
    child.start()
    wait_for(lambda: child.has("STATUS=watching"), "the pass")
    time.sleep(0.3)
    seconds, status = child.stop(signal.SIGINT)
    assert (seconds < 1, status) == (True, 0)


def test_a_worker_that_hangs_is_ended_by_a_second_signal(child):
    (child.models / "hang").touch()
    child.start()
    wait_for(lambda: not (child.models / "hang").exists(), "the pass")
    child.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert child.process.poll() is None
    seconds, status = child.stop(signal.SIGTERM)
    assert (seconds < 1, status) == (True, -signal.SIGTERM)


def test_a_killed_daemon_counts_as_not_running_and_the_next_one_starts(child):
    child.start()
    wait_for(lambda: child.names() == [], "the first pass")
    child.process.kill()
    child.process.wait()
    assert advisor("status").returncode == 3
    child.messages.clear()
    child.start()
    assert advisor("status").returncode == 0


def test_once(child):
    (child.models / "m.gguf").touch()
    command = [sys.executable, "-m", "tests.tools.daemon_child", child.models, child.preset, "--once"]
    assert subprocess.run(command, cwd=ROOT, env=child.environ, timeout=60).returncode == 0
    assert child.names() == ["m.gguf"]
    (child.models / "config.toml").write_text("broken")
    assert subprocess.run(command, cwd=ROOT, env=child.environ, timeout=60, stderr=subprocess.PIPE).returncode == 1


def cpu_ticks(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_it_sleeps_and_is_small(child):
    (child.models / "hog").touch()
    for i in range(1000):
        (child.models / f"{i}.gguf").touch()
    child.environ["WATCHDOG_USEC"] = "2000000"  # pings each second: more than it will ever have to do
    child.start()
    wait_for(lambda: child.names() is not None, "the first pass")
    time.sleep(0.5)
    before = cpu_ticks(child.process.pid)
    time.sleep(5)
    assert cpu_ticks(child.process.pid) - before <= 1  # of 10 ms
    resident = next(
        int(line.split()[1])
        for line in Path(f"/proc/{child.process.pid}/status").read_text().splitlines()
        if line.startswith("VmRSS")
    )
    assert resident <= 45 * 1024


def test_closing_its_terminal_stops_it(child):
    master, slave = pty.openpty()

    def take_terminal():
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    command = [sys.executable, "-m", "tests.tools.daemon_child", child.models, child.preset]
    child.process = subprocess.Popen(
        command, cwd=ROOT, env=child.environ, stdin=slave, stdout=slave, stderr=slave, preexec_fn=take_terminal
    )
    os.close(slave)
    wait_for(lambda: child.has("READY=1"), "READY")
    child.process.send_signal(signal.SIGHUP)  # with the terminal there, this is a reload
    wait_for(lambda: child.has("RELOADING=1"), "the reload")
    os.close(master)
    assert child.process.wait(PATIENCE_S) == 0
