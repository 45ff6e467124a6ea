"""Reading a file that is to be changed, and replacing it so that a crash leaves the old or the new one, never half.

Links are followed first: the file that a link leads to is replaced, the link stays. The new file is written beside
the old one under a name that starts with `.advisor-`, gets its mode, owner and extended attributes, and takes its place
only if the old one is still what was read. Temporary files are locked while in use, so those of a crash are known.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from hashlib import sha256

from advisor.errors import OutputError
from advisor.gguf_header.errors import printable
from advisor.records import NamedTuple

MAX_FILE_BYTES = 4 << 20  # larger ones are no config files
_PREFIX, _SUFFIX = ".advisor-", ".part"


class ChangedMeanwhileError(OutputError):
    """Somebody else changed the file between reading and writing; nothing was written."""


class Standing(NamedTuple):
    """What stood at `path` when it was looked at; `data` and `status` are None where there was no file."""

    path: str
    target: str  # the file itself, links followed
    data: bytes | None
    status: os.stat_result | None


def digest(data: bytes | None) -> str | None:
    """The sha256 of a file's bytes, None for no file."""
    return None if data is None else sha256(data).hexdigest()


def look(path: str, limit_bytes: int = MAX_FILE_BYTES) -> Standing:
    """Read `path`. Raises OutputError for anything but a readable regular file of at most `limit_bytes`, or none."""
    try:
        target = os.path.realpath(path)
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):  # before opening: to open a device can have effects
                raise OutputError(f"{printable(path)} is not a regular file; give the path of a config file.")
            descriptor = os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return Standing(path, target, None, None)
        with open(descriptor, "rb", buffering=0) as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OutputError(f"{printable(path)} is not a regular file; give the path of a config file.")
            data = bytearray()
            while len(data) <= limit_bytes and (part := file.read(min(limit_bytes + 1 - len(data), 1 << 20))):
                data += part
    except (OSError, ValueError) as error:
        raise _sentence(path, error, "read") from None
    if len(data) > limit_bytes:
        raise OutputError(
            f"{printable(path)} is larger than {limit_bytes >> 20} MiB, which no config file is; check the path."
        )
    return Standing(path, target, bytes(data), status)


class Staged:
    """A new file that lies beside the old one, safe on the disk."""

    def __init__(self, standing: Standing, temporary: str) -> None:
        self.standing = standing
        self.temporary = temporary

    def commit(self, *, checked: bool = True) -> None:
        """Put it in its place; if `checked`, ChangedMeanwhileError when the old file is no longer as it was read."""
        status = _unchanged(self.standing) if checked else None
        target = self.standing.target
        try:
            if checked and status is None:
                _link_new(self.temporary, target)
            else:
                if status is not None and _identity(os.stat(target)) != _identity(status):
                    raise _changed(self.standing.path)
                os.replace(self.temporary, target)
        except OSError as error:
            raise _sentence(self.standing.path, error) from None
        sync_folder(os.path.dirname(target))


@contextlib.contextmanager
def staged(standing: Standing, data: bytes, new_mode: int = 0o666) -> Iterator[Staged]:
    """Write `data` beside the file; it is removed again unless it was committed.

    `new_mode`, less the umask, is for a file that was not there. Raises OutputError: write-protected, another owner,
    no folder, no permission, no space.
    """
    status = standing.status
    if status is not None:
        _check_ours(standing.path, status)
    folder = os.path.dirname(standing.target)
    temporary = os.path.join(folder, f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}{_SUFFIX}")
    descriptor = -1
    try:
        try:
            # a file that may hold keys is closed to others from the start
            mode = new_mode if status is None else 0o600
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if status is not None:
                _copy_metadata(standing.target, status, descriptor)
            os.fsync(descriptor)
        except (OSError, ValueError) as error:
            raise _sentence(standing.path, error) from None
        yield Staged(standing, temporary)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if descriptor >= 0:
            os.close(descriptor)


def replace_file(path: str, data: bytes, expected: Standing | None = None, new_mode: int = 0o666) -> None:
    """Write `data` to `path` in one step; without `expected`, what was read before, over whatever stands there now.

    Raises OutputError as `staged` and `Staged.commit` do.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        status = None
    except (OSError, ValueError) as error:
        raise _sentence(path, error) from None
    with staged(expected or Standing(path, os.path.realpath(path), None, status), data, new_mode) as new:
        new.commit(checked=expected is not None)


def remove_file(standing: Standing) -> None:
    """Remove the file (of a link: what it leads to) if it is as it was read. Raises OutputError."""
    if _unchanged(standing) is not None:
        try:
            os.unlink(standing.target)
        except OSError as error:
            raise _sentence(standing.path, error, "removed") from None
        sync_folder(os.path.dirname(standing.target))


def remove_stale(folder: str) -> None:
    """Remove temporary files that a crash left in `folder`; those that a running advisor holds stay."""
    try:
        names = [name for name in os.listdir(folder) if name.startswith(_PREFIX) and name.endswith(_SUFFIX)]
    except (OSError, ValueError):  # ValueError: a zero byte in a name, which may come out of a broken file
        return
    for name in names:
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                status = os.fstat(descriptor)
                if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(path)
            finally:
                os.close(descriptor)


def sync_folder(folder: str) -> None:
    """Make a rename in `folder` last through a power cut, where the file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder or ".", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unchanged(standing: Standing) -> os.stat_result | None:
    now = look(standing.path)
    if now.target != standing.target or now.data != standing.data:
        raise _changed(standing.path)
    return now.status


def _changed(path: str) -> ChangedMeanwhileError:
    return ChangedMeanwhileError(
        f"{printable(path)} was changed by somebody else just now and is left alone; try again."
    )


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _link_new(temporary: str, target: str) -> None:
    """A hard link fails where a file has appeared meanwhile; file systems without links get a rename."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise _changed(target) from None
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        if os.path.lexists(target):
            raise _changed(target) from None
        os.replace(temporary, target)


def _check_ours(path: str, status: os.stat_result) -> None:
    """What a rename would do in a folder of ours although the file itself says no."""
    if not status.st_mode & 0o222:
        raise OutputError(
            f"{printable(path)} is write-protected; allow writing (chmod u+w) if advisor shall change it."
        )
    if os.geteuid() not in (0, status.st_uid):
        raise OutputError(f"{printable(path)} belongs to another user, who would lose it; change it as that user.")


def _copy_metadata(target: str, status: os.stat_result, descriptor: int) -> None:
    if os.geteuid() == 0:
        os.fchown(descriptor, status.st_uid, status.st_gid)
    else:
        with contextlib.suppress(OSError):  # of a group that the user has left
            os.fchown(descriptor, -1, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
    if hasattr(os, "listxattr"):
        with contextlib.suppress(OSError):
            for name in os.listxattr(target):
                with contextlib.suppress(OSError):  # such as security.* without the right to set it
                    os.setxattr(descriptor, name, os.getxattr(target, name))


def _sentence(path: str, error: OSError | ValueError, verb: str = "written") -> OutputError:
    name = printable(path)
    if isinstance(error, ValueError):  # a zero byte inside
        return OutputError(f"{name} is not a possible file name; check the path.")
    reason = os.strerror(error.errno) if error.errno else str(error)
    cures = {
        errno.ENOENT: "its folder does not exist; make the folder or correct the path",
        errno.ENOTDIR: "a part of its path is a file; correct the path",
        errno.ELOOP: "it is a link that leads back to itself; remove the link",
        errno.ENOSPC: "the disk is full, the old file stands; free some space",
        errno.EDQUOT: "the disk quota is used up, the old file stands; free some space",
        errno.EROFS: "the file system is read-only; print the change with 'advisor diff' and make it where it is kept",
        errno.EACCES: "permission denied; ask the owner of its folder for permission",
        errno.EPERM: "the system forbids it; the file may be immutable (lsattr shows an i)",
        errno.ENAMETOOLONG: "its name is too long; correct the path",
    }
    return OutputError(f"{name} cannot be {verb}: {cures.get(error.errno or 0, f'{reason}; check the disk')}.")
