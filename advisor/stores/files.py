"""Opening files that may be anything, and listing the models of a folder."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from io import FileIO

from advisor.gguf_header.errors import excerpt, printable
from advisor.gguf_header.shards import parse_shard_name
from advisor.stores.errors import ModelNotFoundError, NotAFileError, UnreadableModelError

_OPEN_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)  # a pipe without a writer would block for ever
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a folder"),
)
_MAX_SHOWN_PATH = 4096


def open_regular(path: str) -> tuple[FileIO, int]:
    """Open `path` for reading, never blocking; the file object (to be closed by the caller) and its size in bytes.

    Raises a ModelError that says why it cannot be read.
    """
    try:
        _refuse_special(path, os.stat(path).st_mode)  # before opening: to open a device can have effects
        file = FileIO(os.open(path, _OPEN_FLAGS))
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    try:
        status = os.fstat(file.fileno())
        _refuse_special(path, status.st_mode)
    except BaseException:
        file.close()
        raise
    return file, status.st_size


def read_small(path: str, limit_bytes: int) -> bytes:
    """Read the whole regular file `path`, but at most `limit_bytes` + 1 bytes of it."""
    file, _ = open_regular(path)
    with file:
        parts: list[bytes] = []
        left = limit_bytes + 1
        try:
            while left > 0 and (part := file.read(min(left, 1 << 20))):
                parts.append(part)
                left -= len(part)
        except OSError as error:
            raise unreadable(path, error) from None
    return b"".join(parts)


def unreadable(path: str, error: OSError | ValueError) -> ModelNotFoundError | UnreadableModelError:
    """Make the error for a path that the system refuses."""
    shown = printable(path) if len(path) <= _MAX_SHOWN_PATH else excerpt(path)
    if isinstance(error, ValueError):  # a zero byte inside
        return ModelNotFoundError(f"{shown} is not a possible file name; check the spelling.")
    if isinstance(error, NotADirectoryError) and os.path.isfile(path):
        return ModelNotFoundError(f"{shown} is a file, not a folder; give the folder that it lies in.")
    if isinstance(error, FileNotFoundError) or error.errno in (errno.ENOTDIR, errno.ENAMETOOLONG):
        if os.path.islink(path):
            return ModelNotFoundError(f"{shown} is a link to a file that does not exist; download the model again.")
        return ModelNotFoundError(f"{shown} does not exist; check the path.")
    if isinstance(error, PermissionError):
        if "/ollama/" in path or "/.ollama/" in path:
            return UnreadableModelError(f"{shown} is not readable for you; join the group ollama and log in again.")
        return UnreadableModelError(f"{shown} is not readable for you; ask its owner for permission to read it.")
    if error.errno == errno.ELOOP:
        return UnreadableModelError(f"{shown} is a link that leads back to itself; remove it and link the file again.")
    return UnreadableModelError(f"{shown} cannot be read ({error.strerror}); check the disk and the path.")


def _refuse_special(path: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = next((name for test, name in _KINDS if test(mode)), "not a regular file")
        raise NotAFileError(f"{printable(path)} is {kind}, not a model file; give the path of a GGUF file.")


def expand(folder: str) -> list[str]:
    """List the GGUF models in `folder` and below, sorted, one path each: of a split model its first part there.

    Companions (mmproj, adapters, imatrix) are listed too; hidden folders and unfinished downloads are not. A folder
    below `folder` that cannot be read is passed over; for `folder` itself a ModelError is raised.
    """
    from advisor.stores.walk import walk  # most runs name a file

    models: dict[tuple[str, int], str] = {}
    for path, _ in walk(folder).files:
        shard = parse_shard_name(path)
        models.setdefault((path, 1) if shard is None else (shard[0], shard[2]), path)
    return list(models.values())


def is_companion(path: str) -> bool:
    """Whether the name says that the file is a part beside a model (mmproj, imatrix, draft head), not a model."""
    name = os.path.basename(path).lower()
    return "mmproj" in name or "imatrix" in name or name.startswith(("mtp-", "dflash-", "dspark-", "eagle"))


def leads_to(kind: Callable[[], bool]) -> bool:
    """Whether an entry is of a kind; a link that leads nowhere (to itself, into a closed folder) is of none."""
    try:
        return kind()
    except OSError:
        return False
