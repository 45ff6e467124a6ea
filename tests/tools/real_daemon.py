"""`advisor daemon` with its real worker, as a process of its own, and what Linux says about that process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from advisor.daemon.lock import runtime_folder
from advisor.daemon.status import read_status
from tests.tools.kept import ROOT
from tests.tools.user_manager import wait_for


class RealDaemon:
    """One in the home of `environ` (HOME and the XDG folders); its log is in `log`."""

    def __init__(self, environ: dict[str, str], log: Path) -> None:
        self.environ, self.log = environ, log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, first_pass: bool = True) -> RealDaemon:
        """Start it and wait for its first pass, unless none can be made."""
        command = [sys.executable, "-m", "advisor", "daemon"]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, env=self.environ, stdin=subprocess.DEVNULL, stderr=log)
        if first_pass:
            wait_for(lambda: self.idle(), "the first pass")
        return self

    def idle(self) -> bool:
        """Whether it has made a pass and waits. It must live."""
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        status = self.status()
        return status["pid"] == self.process.pid and status["state"] == "idle" and status["last_pass"] is not None

    def status(self) -> dict[str, Any]:
        """What `advisor status --json` prints."""
        return read_status(runtime_folder(self.environ))

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self.process is not None
        return self.process.pid

    def stop(self) -> float:
        """Stop it as systemd does; the seconds that took. It must end well."""
        assert self.process is not None
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(30)
        assert status == 0, self.log.read_text()
        return time.monotonic() - began

    def kill(self) -> None:
        """End it whatever it does; nothing if it has ended."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def cpu_ticks(pid: int) -> int:
    """CPU time in ticks (mostly 10 ms) since it was started, its own and the kernel's for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def memory_kib(pid: int, name: str) -> int:
    """VmRSS (resident now) or VmHWM (the most that ever was)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def n_descriptors(pid: int) -> int:
    """Open files."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def n_threads(pid: int) -> int:
    """Threads."""
    return len(os.listdir(f"/proc/{pid}/task"))


def environ_of(home: Path) -> dict[str, str]:
    """The environment of a program whose user lives in `home`; a folder for its runtime files is made there."""
    (home / "run").mkdir(mode=0o700, exist_ok=True)
    return {
        **{name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH") if name in os.environ},
        "HOME": str(home), "XDG_RUNTIME_DIR": str(home / "run"), "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_STATE_HOME": str(home / ".local/state"), "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_DATA_HOME": str(home / ".local/share"), "PYTHONPATH": str(ROOT),
    }  # fmt: skip
