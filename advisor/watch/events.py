"""Watching folders and files: events where they arrive, polling where they do not, and both picked up when they come.

One thread, no locks: the caller polls `descriptors` and calls `collect`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from advisor.records import NamedTuple
from advisor.watch.mounts import MOUNTINFO, Mount, around, is_silent, read_mounts
from advisor.watch.roots import (
    BOTH,
    EVENTS,
    MISSING,
    POLLING,
    UNREADABLE,
    Noticed,
    Root,
    Snapshot,
    differences,
    identity,
    snapshot,
)  # fmt: skip
from advisor.watch.worker import Watched

POLL_S = 60.0


class Place(NamedTuple):
    """One watched folder, for people."""

    path: str
    how: str  # "events", "events and polling", "polling", "missing", "unreadable"


class _Source(Protocol):
    fileno: int

    def arm(self, root: Root, noticed: Noticed | None = None) -> str: ...
    def forget(self, root: Root) -> None: ...
    def read(self, noticed: Noticed) -> set[Root]: ...
    def close(self) -> None: ...


def open_source() -> _Source:
    """Inotify, or watchdog's observer where there is none. Raises OSError: EMFILE at the limit of instances."""
    from advisor.watch.tree import Tree

    try:
        return Tree()
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
    from advisor.watch.observed import Observed

    return Observed()


class Watcher:
    """Watches what `update` was given last. `mountinfo` is the file to read mounts from, `source` opens the events."""

    def __init__(
        self, poll_s: float = POLL_S, mountinfo: str = MOUNTINFO, source: Callable[[], _Source] = open_source
    ) -> None:
        self._poll_s, self._mountinfo = poll_s, mountinfo
        self._roots: dict[object, Root] = {}
        self._early = Noticed()  # until the next `collect`, as the warnings
        self._snapshots: dict[Root, Snapshot] = {}
        self._mounts: dict[Root, frozenset[Mount]] = {}
        self._warnings: list[str] = []  # until the next `collect`
        self._limit_told = False
        self._poll_due = 0.0
        self._source: _Source | None = None
        try:
            self._source = source()
        except OSError as error:
            self._warn_of_limit(f"no events ({error.strerror})", "fs.inotify.max_user_instances=1024")
        self._mount_events: int | None = None
        with contextlib.suppress(OSError):
            self._mount_events = os.open(mountinfo, os.O_RDONLY | os.O_CLOEXEC)

    def descriptors(self) -> list[tuple[int, int]]:
        """(descriptor, events) for select.poll: `collect` when one of them is ready."""
        source = [] if self._source is None else [(self._source.fileno, select.POLLIN)]
        # proc_pid_mounts(5): an exceptional condition when a file system is mounted or unmounted
        return source if self._mount_events is None else [*source, (self._mount_events, select.POLLPRI)]

    def update(self, watched: Watched, should_stop: Callable[[], bool], now: float) -> bool:
        """Watch exactly this; whether something is watched that was not before: what lies there already is not told.

        Config files of targets are told at the next `collect` instead: looked at, most of them are no news.
        """
        wanted = dict(_roots(watched))
        for key in self._roots.keys() - wanted.keys():
            root = self._roots.pop(key)
            self._snapshots.pop(root, None)
            self._mounts.pop(root, None)
            if self._source is not None:
                self._source.forget(root)
        own = dict(_own_roots(watched))
        added = wanted.keys() - self._roots.keys()
        for key in sorted(added, key=str):
            self._roots[key] = wanted[key]
            self._arm(wanted[key], self._early if key in own else None, should_stop)
        for key, root in own.items():
            self._roots[key].names = root.names
        if added:
            self._poll_due = now + self._poll_s
        return bool(added - own.keys())

    def collect(self, now: float, should_stop: Callable[[], bool], ready: Collection[int] = ()) -> Noticed:
        """What has happened since the last call; `ready` are the descriptors that poll named."""
        noticed, self._early = self._early, Noticed()
        noticed.warnings, self._warnings = self._warnings, []
        again = self._source.read(noticed) if self._source is not None else set()
        if self._mount_events in ready:  # poll tells it once
            again |= {root for root in self._roots.values() if self._mounts_around(root) != self._mounts.get(root)}
        if now >= self._poll_due:
            self._poll_due = now + self._poll_s
            again |= self._poll(noticed, should_stop)
        for root in again & set(self._roots.values()):
            self._arm(root, noticed, should_stop)
        return noticed

    def recheck(self, noticed: Noticed, should_stop: Callable[[], bool]) -> None:
        """Whether every root is still the folder it was: for what no event tells, a link that leads elsewhere now."""
        for root in self._roots.values():
            if self._is_other(root):
                self._arm(root, noticed, should_stop)

    def next_due(self) -> float | None:
        """When `collect` has something to do without an event; None while events tell everything."""
        if self._early.paths or self._early.everything:
            return 0.0
        quiet = all(root.how == EVENTS or (root.how == MISSING and self._source) for root in self._roots.values())
        return None if quiet else self._poll_due

    def places(self) -> list[Place]:
        """The folders of models and how each is watched, and every other place that is not watched by events."""
        return [
            Place(root.path, root.how)
            for root in self._roots.values()
            if root.names is None or root.how not in (EVENTS, MISSING)
        ]

    def close(self) -> None:
        """Watch nothing any more."""
        if self._source is not None:
            self._source.close()
        if self._mount_events is not None:
            os.close(self._mount_events)

    def _arm(self, root: Root, noticed: Noticed | None, should_stop: Callable[[], bool]) -> None:
        was_there, root.identity = root.identity is not None, None
        mounts = self._mounts[root] = self._mounts_around(root)
        silent = any(is_silent(mount.fs_type) for mount in mounts)
        if self._source is None:
            root.how = _look_at(root)
        else:
            root.how = self._source.arm(root, noticed)
            if root.how == POLLING:
                self._warn_of_limit(f"too few watches for {root.path}", "fs.inotify.max_user_watches=1048576")
        if root.how == EVENTS and silent:
            root.how = BOTH
        if noticed is not None and was_there:  # gone, or another folder: what was in it may be gone without an event
            for path in (root.path,) if root.names is None else root.names.values():
                noticed.note(path, gone=root.identity is None)
        if root.how in (BOTH, POLLING):
            before = self._snapshots.get(root, {})
            after = self._snapshots[root] = snapshot(root, should_stop)
            if noticed is not None:
                differences(before, after, noticed)
        else:
            self._snapshots.pop(root, None)

    def _poll(self, noticed: Noticed, should_stop: Callable[[], bool]) -> set[Root]:
        """Look at the polled roots; those that have come, gone or been replaced."""
        again = set()
        for root in self._roots.values():
            if root.how == EVENTS:
                continue
            if self._is_other(root):
                again.add(root)
            elif root in self._snapshots:
                after = snapshot(root, should_stop)
                if should_stop():  # half a look
                    break
                differences(self._snapshots[root], after, noticed)
                self._snapshots[root] = after
        return again

    def _is_other(self, root: Root) -> bool:
        try:
            return identity(root.path) != root.identity or root.how == UNREADABLE
        except PermissionError:
            return root.how != UNREADABLE

    def _mounts_around(self, root: Root) -> frozenset[Mount]:
        return around(os.path.realpath(root.path), read_mounts(self._mountinfo))

    def _warn_of_limit(self, what: str, cure: str) -> None:
        if not self._limit_told:
            self._limit_told = True
            self._warnings.append(
                f"{what}: looked at every {self._poll_s:.0f} s instead; raise the limit with: sysctl {cure}"
            )


def _roots(watched: Watched) -> Iterator[tuple[object, Root]]:
    for folder in dict.fromkeys((*watched.folders, *watched.settings_folders)):
        yield (folder, None), Root(folder)
    names: dict[str, dict[str, str]] = {}
    for path in (*watched.settings, *watched.engines):
        for place in (path, os.path.realpath(path)):  # the link and what it leads to can both change
            names.setdefault(os.path.dirname(place), {})[os.path.basename(place)] = path
    for folder, entries in names.items():
        yield (folder, tuple(sorted(entries.items()))), Root(folder, entries)
    yield from _own_roots(watched)


def _own_roots(watched: Watched) -> Iterator[tuple[object, Root]]:
    """One for each folder of config files, the same one whichever files these are: they come and go with models."""
    names: dict[str, dict[str, str]] = {}
    for path in watched.own:
        for place in {path, os.path.realpath(path)}:
            names.setdefault(os.path.dirname(place), {})[os.path.basename(place)] = path
    for folder, entries in names.items():
        yield (folder, "own"), Root(folder, entries)


def _look_at(root: Root) -> str:
    """How a root stands where there are no events at all."""
    try:
        root.identity = identity(root.path)
    except PermissionError:
        return UNREADABLE
    return MISSING if root.identity is None else POLLING


def look(path: str) -> tuple[int, int, int] | None:
    """Size, time of change in ns and inode of what a path leads to, None when it leads nowhere: for `Settler.take`."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return (status.st_size, status.st_mtime_ns, status.st_ino)
