"""What the ways of watching share: a root, what was noticed below it, and which names count."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

# how a root is watched
EVENTS, BOTH, POLLING, MISSING, UNREADABLE = "events", "events and polling", "polling", "missing", "unreadable"

MAX_DEPTH = 8  # folders below a root; no store that we know nests deeper than 6
MAX_FOLDERS = 20_000  # below one root with events
MAX_ENTRIES = 100_000  # below one root with polling
MAX_NOTED = 20_000


@dataclass(eq=False)
class Root:
    """A folder to watch: everything below it, or with `names` only those entries of it, reported under other paths."""

    path: str
    names: Mapping[str, str] | None = None  # entry -> the path that stands for it
    how: str = MISSING
    identity: tuple[int, int] | None = None  # device and inode while it is there

    def reported(self, folder: str, name: str) -> str | None:
        """The path under which an entry of `folder` is reported, None when it does not count."""
        if self.names is not None:
            return self.names.get(name)
        return None if is_hidden(name) else os.path.join(folder, name)


class Noticed:
    """What happened. Bounded: beyond MAX_NOTED paths it only says that everything must be looked at."""

    def __init__(self) -> None:
        self.paths: dict[str, bool] = {}  # -> whether it is gone
        self.everything = False
        self.warnings: list[str] = []

    def note(self, path: str, *, gone: bool = False) -> None:
        """Something happened to `path`; the last word counts."""
        if self.everything:
            return
        self.paths[path] = gone
        if len(self.paths) > MAX_NOTED:
            self.lost()

    def lost(self) -> None:
        """More happened than is known."""
        self.everything = True
        self.paths.clear()


def is_hidden(name: str) -> bool:
    """Hidden entries are never models: locks and unfinished downloads of stores, and our own .advisor-* files."""
    return name.startswith(".")


def identity(path: str) -> tuple[int, int] | None:
    """Device and inode of a folder, None when there is none. Raises PermissionError when that cannot be known."""
    try:
        status = os.stat(path)
    except PermissionError:
        raise
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else None


def entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """Visible entries of a folder; ends early when it cannot be read (any further)."""
    try:
        with os.scandir(folder) as found:
            for entry in found:
                if not is_hidden(entry.name):
                    yield entry
    except OSError:
        return


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder or leads to one."""
    try:
        return entry.is_dir()
    except OSError:
        return False


Snapshot = dict[str, tuple[int, int, int]]


def snapshot(root: Root, should_stop: Callable[[], bool]) -> Snapshot:
    """Path -> (time of change in ns, size, inode) of what counts below a root, at most MAX_ENTRIES."""
    found: Snapshot = {}
    if root.names is not None:
        for name, reported in root.names.items():
            _look(os.path.join(root.path, name), reported, found)
        return found
    pending, visited = [(root.path, 0)], set()
    while pending and not should_stop():
        folder, depth = pending.pop()
        try:
            if (here := identity(folder)) in visited:  # links between folders can form a ring
                continue
        except PermissionError:
            continue
        visited.add(here)
        for entry in entries(folder):
            if is_folder(entry):
                if depth < MAX_DEPTH:
                    pending.append((entry.path, depth + 1))
            elif len(found) < MAX_ENTRIES:
                _look(entry.path, entry.path, found)
    return found


def differences(before: Snapshot, after: Snapshot, noticed: Noticed) -> None:
    """Note what is new, other or gone in `after`."""
    for path, facts in after.items():
        if before.get(path) != facts:
            noticed.note(path)
    for path in before.keys() - after.keys():
        noticed.note(path, gone=True)


def _look(path: str, reported: str, found: Snapshot) -> None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return
    found[reported] = (status.st_mtime_ns, status.st_size, status.st_ino)
