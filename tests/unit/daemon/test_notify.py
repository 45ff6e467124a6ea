from __future__ import annotations

import os
import socket

import pytest

from advisor.daemon.notify import Notifier


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    """A socket as systemd listens on it, and its address as systemd writes it."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    address = str(tmp_path / "notify") if request.param == "path" else f"@advisor-test-{os.getpid()}"
    listening.bind("\0" + address[1:] if address.startswith("@") else address)
    listening.settimeout(2)
    with listening:
        yield listening, address


def test_messages(manager):
    listening, address = manager
    notifier = Notifier({"NOTIFY_SOCKET": address})
    notifier.ready("watching 3 folders\nX_EVIL=1")
    notifier.status("41 models")
    notifier.reloading(123456)
    notifier.stopping()
    notifier.ping()
    assert [listening.recv(4096).decode() for _ in range(5)] == [
        "READY=1\nSTATUS=watching 3 folders X_EVIL=1",
        "STATUS=41 models",
        "RELOADING=1\nMONOTONIC_USEC=123456",
        "STOPPING=1\nSTATUS=stopping",
        "WATCHDOG=1",
    ]
    notifier.close()
    notifier.ping()  # after the end nothing happens


def test_the_variables_do_not_reach_our_children(manager):
    environ = {"NOTIFY_SOCKET": manager[1], "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7", "PATH": "/bin"}
    Notifier(environ, pid=7).close()
    assert environ == {"PATH": "/bin"}


@pytest.mark.parametrize(
    ("variables", "ping_s"),
    [
        ({"WATCHDOG_USEC": "120000000", "WATCHDOG_PID": "7"}, 60.0),
        ({"WATCHDOG_USEC": "120000000"}, 60.0),
        ({"WATCHDOG_USEC": "120000000", "WATCHDOG_PID": "8"}, None),  # meant for another process
        ({"WATCHDOG_USEC": "0", "WATCHDOG_PID": "7"}, None),
        ({"WATCHDOG_USEC": "soon", "WATCHDOG_PID": "7"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_pinged_at_half_its_time_if_it_is_ours(manager, variables, ping_s):
    notifier = Notifier({"NOTIFY_SOCKET": manager[1], **variables}, pid=7)
    assert notifier.ping_s == ping_s
    notifier.close()


@pytest.mark.parametrize("address", ["", "relative", "vsock:2:1234", "/no/such/socket"])
def test_without_systemd_nothing_happens(address):
    notifier = Notifier({"NOTIFY_SOCKET": address})
    notifier.ready("x")
    notifier.ping()
    notifier.close()
    assert Notifier({"WATCHDOG_USEC": "1000000"}).ping_s is None
