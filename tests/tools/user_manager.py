"""A real `systemd --user` manager for tests, with a home of its own, also where no init system runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

MANAGER = "/lib/systemd/systemd"
PATIENCE_S = 30.0  # a loaded machine
# read at start: the fixture `home` clears the environment of the tests
_REQUIRED = os.environ.get("ADVISOR_REQUIRE_ENGINES", "") not in ("", "0")
_BOOTED = Path("/run/systemd/system")  # sd_booted(3): systemctl refuses to work without

Result = TypeVar("Result")


def wait_for(condition: Callable[[], Result], what: str, patience_s: float = PATIENCE_S) -> Result:
    """The first true answer of `condition`."""
    deadline = time.monotonic() + patience_s
    while not (result := condition()):
        assert time.monotonic() < deadline, f"still waiting for {what}"
        time.sleep(0.02)
    return result


class UserManager:
    """A running manager: `environ` leads programs to it."""

    def __init__(self, home: Path, environ: dict[str, str]) -> None:
        self.home, self.environ = home, environ
        self.units = home / ".config/systemd/user"

    def systemctl(self, *arguments: str) -> str:
        """What `systemctl --user` says; it must succeed."""
        ran = self.run("systemctl", "--user", *arguments)
        assert ran.returncode == 0, f"systemctl {arguments}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def run(self, *command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program that talks to this manager."""
        return subprocess.run(command, env=self.environ, cwd=cwd, capture_output=True, text=True, timeout=120)

    def show(self, unit: str, *names: str) -> list[str]:
        """Values of properties."""
        text = self.systemctl("show", unit, f"--property={','.join(names)}")
        values = dict(line.partition("=")[::2] for line in text.splitlines())
        return [values[name] for name in names]


@contextlib.contextmanager
def start_user_manager() -> Iterator[UserManager]:
    """One at a time: two would share control groups. Without systemd it skips, or fails where engines are required."""
    lacking = _lacking()
    if lacking:
        _refuse(lacking)
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(open(Path(tempfile.gettempdir()) / f"advisor-tests-manager-{os.getuid()}", "w"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        # not pytest's folder: the path of a socket holds 107 bytes
        home = Path(tempfile.mkdtemp(prefix="advisor-"))
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        (home / "run").mkdir(mode=0o700)
        if not _BOOTED.is_dir():
            _BOOTED.mkdir(parents=True)
            stack.callback(_BOOTED.rmdir)
        environ = {
            **{name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ},
            "HOME": str(home),
            "XDG_RUNTIME_DIR": str(home / "run"),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "XDG_STATE_HOME": str(home / ".local/state"),
            "XDG_CACHE_HOME": str(home / ".cache"),
        }
        manager = UserManager(home, environ)
        with open(home / "manager.log", "w") as log:
            process = subprocess.Popen([MANAGER, "--user"], env=environ, stdout=log, stderr=log, start_new_session=True)
        stack.callback(_end, process)
        up = ("running", "degraded")
        wait_for(
            lambda: (
                process.poll() is not None
                or manager.run("systemctl", "--user", "is-system-running").stdout.strip() in up
            ),
            "the manager to answer",
        )
        if process.poll() is not None:  # a user whose session has no control group of its own
            _refuse((home / "manager.log").read_text())
        yield manager


def _refuse(why: str) -> None:
    (pytest.fail if _REQUIRED else pytest.skip)(f"no systemd user manager: {why}")


def _lacking() -> str:
    missing = [name for name in ("systemctl", "systemd-analyze") if shutil.which(name) is None]
    if missing or not os.access(MANAGER, os.X_OK):
        return f"{MANAGER} and {' '.join(missing)} are not installed (Debian: systemd)"
    if not _BOOTED.is_dir() and os.geteuid() != 0:
        return f"{_BOOTED} does not exist, and only root can make it"
    return ""


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()  # stops its units first
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
