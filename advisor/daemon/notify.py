"""sd_notify(3): telling systemd how the service stands. Without systemd nothing happens."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import MutableMapping

MAX_STATUS = 400
_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    """Sends to the socket that `environ` names. The variables are taken out of it: engines that we start are not us."""

    def __init__(self, environ: MutableMapping[str, str], pid: int | None = None) -> None:
        address, watchdog_us, watchdog_pid = (environ.pop(name, "") for name in _VARIABLES)
        # sd_notify(3): an absolute path, or "@" for the abstract namespace; anything else is not for us
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket: socket.socket | None = None
        if self._address[:1] in ("/", "\0"):
            with contextlib.suppress(OSError):
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | getattr(socket, "SOCK_CLOEXEC", 0))
        for_us = watchdog_pid in ("", str(os.getpid() if pid is None else pid))
        wanted = self._socket is not None and for_us and watchdog_us.isdecimal() and int(watchdog_us) > 0
        # sd_watchdog_enabled(3) recommends half of the time
        self.ping_s: float | None = int(watchdog_us) / 2e6 if wanted else None

    def ready(self, status: str) -> None:
        """Started, or done with reloading."""
        self._send(f"READY=1\nSTATUS={_line(status)}")

    def status(self, status: str) -> None:
        """One line for `systemctl status`."""
        self._send(f"STATUS={_line(status)}")

    def reloading(self, monotonic_us: int) -> None:
        """Reading the configuration again; Type=notify-reload needs the time (CLOCK_MONOTONIC)."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={monotonic_us}")

    def stopping(self) -> None:
        """About to end."""
        self._send("STOPPING=1\nSTATUS=stopping")

    def ping(self) -> None:
        """Still making progress."""
        self._send("WATCHDOG=1")

    def close(self) -> None:
        """Send nothing any more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, message: str) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendto(message.encode("utf-8", "replace"), self._address)


def _line(text: str) -> str:
    return " ".join(text.split())[:MAX_STATUS]
