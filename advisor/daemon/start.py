"""Starting the daemon: the lock, the signals, and the parts of the loop put together."""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections.abc import Callable
from types import FrameType

from advisor.daemon.journal import to_stderr
from advisor.daemon.lock import DaemonLock, runtime_folder
from advisor.daemon.loop import Daemon
from advisor.daemon.notify import Notifier
from advisor.daemon.status import Status, remove_status
from advisor.watch.events import Watcher
from advisor.watch.worker import INFO, Worker


def run(
    worker_factory: Callable[[], Worker], *, once: bool = False, show: Callable[[Status], object] = lambda _: None
) -> int:
    """Run the daemon in the main thread until SIGTERM or SIGINT, or with `once` make one pass; the exit status.

    `show` gets what the one pass came to.

    Raises AdvisorError when another daemon runs, and what `worker_factory` raises: a broken configuration is to be
    raised by `Worker.reload`, where the daemon survives it.
    """
    gc.enable()  # the command line turns it off for short runs
    folder = runtime_folder(os.environ)
    with DaemonLock(folder):
        journal, notifier = to_stderr(), Notifier(os.environ)
        worker, watcher = worker_factory(), Watcher()
        daemon = Daemon(worker, watcher, notifier, journal, folder)
        try:
            if once:
                status = daemon.make_pass()
                show(status)
                return 1 if status.failures else 0
            _loop(daemon)
            journal.log(INFO, "stopped")
            return 0
        finally:
            remove_status(folder)
            watcher.close()
            notifier.close()


def _loop(daemon: Daemon) -> None:
    """Run with signals: SIGTERM and SIGINT stop, once more ends at once; SIGHUP reloads."""
    had_terminal = os.isatty(2)

    def on_stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        daemon.stop()
        signal.signal(number, signal.SIG_DFL)

    def on_hangup(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if had_terminal and not os.isatty(2):  # the terminal was closed, nobody asked for a reload
            daemon.stop()
        else:
            daemon.reload()

    wake, waker = socket.socketpair()
    with wake, waker:
        wake.setblocking(False)
        waker.setblocking(False)
        handlers = {signal.SIGTERM: on_stop, signal.SIGINT: on_stop, signal.SIGHUP: on_hangup}
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        old_wakeup = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        try:
            daemon.run(wake.fileno())
        finally:
            signal.set_wakeup_fd(old_wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
