"""One daemon per user: a lock on a file that holds its pid."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Mapping
from types import TracebackType

from advisor.errors import AdvisorError
from advisor.state import state_folder

FILE = "daemon.lock"
PATIENCE_S = 0.5  # `advisor status` holds the lock for a moment when it asks


class AlreadyRunningError(AdvisorError):
    """Another daemon of this user holds the lock."""


def runtime_folder(environ: Mapping[str, str]) -> str:
    """$XDG_RUNTIME_DIR/advisor, else advisor's state folder. It need not exist."""
    given = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(given) and os.path.isdir(given):
        return os.path.join(given, "advisor")
    return state_folder(environ)


class DaemonLock:
    """Holds the lock as long as the `with` block runs; the kernel gives it back whatever happens to the process.

    Entering raises AlreadyRunningError, or AdvisorError when the file cannot be made.
    """

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, FILE)
        self._descriptor: int | None = None

    def __enter__(self) -> DaemonLock:
        deadline = time.monotonic() + PATIENCE_S
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            while True:
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                try:
                    locked = _locked(descriptor, fcntl.LOCK_EX)
                    if locked and _is_at(descriptor, self._path):
                        os.ftruncate(descriptor, 0)
                        os.write(descriptor, f"{os.getpid()}\n".encode())
                        self._descriptor = descriptor
                        return self
                finally:
                    if self._descriptor is None:
                        os.close(descriptor)
                # locked, but somebody tidied the folder meanwhile: at once again with the file that is there now
                if not locked and time.monotonic() >= deadline:
                    raise AlreadyRunningError(
                        f"advisor's daemon runs already{_as_pid(self._path)}; see: advisor status. "
                        "To stop it: systemctl --user stop advisor, or end that process."
                    )
                time.sleep(0.05)
        except OSError as error:
            raise AdvisorError(
                f"{self._path} cannot be locked ({error.strerror}); make its folder writable for you, or set "
                "XDG_RUNTIME_DIR to one that is."
            ) from None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)  # the file stays: to remove it would race with the next one
            self._descriptor = None


def is_running(folder: str) -> bool:
    """Whether a daemon holds the lock in `folder`."""
    try:
        descriptor = os.open(os.path.join(folder, FILE), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _locked(descriptor, fcntl.LOCK_SH)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _locked(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def _is_at(descriptor: int, path: str) -> bool:
    try:
        there = os.stat(path)
    except OSError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)


def _as_pid(path: str) -> str:
    try:
        with open(path, "rb") as file:
            pid = file.read(20).strip()
    except OSError:
        return ""
    return f" as process {pid.decode()}" if pid.isdigit() else ""
