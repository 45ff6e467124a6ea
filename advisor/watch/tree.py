"""Roots under inotify: a watch on every folder, kept up while folders come, move and go."""

from __future__ import annotations

import errno
import os

from advisor.records import NamedTuple
from advisor.watch import inotify
from advisor.watch.inotify import Inotify, RawEvent
from advisor.watch.roots import (
    EVENTS,
    MAX_DEPTH,
    MAX_FOLDERS,
    MISSING,
    POLLING,
    UNREADABLE,
    Noticed,
    Root,
    entries,
    identity,
    is_folder,
)  # fmt: skip

_GONE = inotify.DELETE | inotify.MOVED_FROM
_CAME = inotify.CREATE | inotify.MOVED_TO
_SELF_GONE = inotify.DELETE_SELF | inotify.MOVE_SELF | inotify.UNMOUNT
_MAX_READS = 64  # a folder that never rests must not keep the main loop here


class _Armed(NamedTuple):
    """Why a folder is watched. With `waits_for` it is only the nearest existing one above a root that is missing."""

    folder: str
    root: Root
    waits_for: str = ""


class Tree:
    """Arms roots and turns raw events into noticed paths. Raises OSError where there is no inotify, EMFILE included."""

    def __init__(self) -> None:
        self._inotify = Inotify()
        self.fileno = self._inotify.fileno
        self._armed: dict[int, list[_Armed]] = {}  # one folder can belong to several roots

    def arm(self, root: Root, noticed: Noticed | None = None) -> str:
        """Watch a root anew; how it is watched: EVENTS, MISSING, UNREADABLE, or POLLING when a limit is reached.

        What lies in it is noted in `noticed`: it may have come before the watch.
        """
        self.forget(root)
        try:
            root.identity = identity(root.path)
            if root.identity is None and self._wait_for(root):  # it came while we looked
                root.identity = identity(root.path)
            if root.identity is None:
                return MISSING
            self.forget(root)
            return self._descend(root, root.path, 0, noticed)
        except PermissionError:
            return UNREADABLE
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.ENOMEM):
                return POLLING
            return MISSING

    def forget(self, root: Root, below: str | None = None) -> None:
        """Watch a root no more, or only nothing at and below one folder of it."""
        for wd, armed in list(self._armed.items()):
            kept = [
                one
                for one in armed
                if one.root is not root or (below is not None and not f"{one.folder}/".startswith(f"{below}/"))
            ]
            if not kept:
                del self._armed[wd]
                self._inotify.remove(wd)
            elif len(kept) < len(armed):
                self._armed[wd] = kept

    def read(self, noticed: Noticed) -> set[Root]:
        """Note what has happened; the roots that came or went and must be armed again."""
        again: set[Root] = set()
        for _ in range(_MAX_READS):
            events = self._inotify.read()
            if not events:
                break
            for event in events:
                if event.mask & inotify.Q_OVERFLOW:  # folders may have come unseen, too
                    noticed.lost()
                    again |= {one.root for armed in self._armed.values() for one in armed}
                    continue
                for armed in self._armed.get(event.wd, ()):
                    if self._happened(event, armed, noticed):
                        again.add(armed.root)
                if event.mask & inotify.IGNORED:  # the folder is gone, and the watch with it
                    self._armed.pop(event.wd, None)
        return again

    def close(self) -> None:
        """Watch nothing any more."""
        self._inotify.close()

    def _happened(self, event: RawEvent, armed: _Armed, noticed: Noticed) -> bool:
        """Note one event; whether the root must be armed again."""
        root, mask = armed.root, event.mask
        if armed.waits_for:
            return event.name == armed.waits_for or bool(mask & _SELF_GONE)
        if not event.name:
            return armed.folder == root.path and bool(mask & _SELF_GONE)
        path = root.reported(armed.folder, event.name)
        if path is None:
            return False
        gone = bool(mask & _GONE)
        if root.names is None and not gone and (mask & inotify.ISDIR or (mask & _CAME and os.path.isdir(path))):
            try:
                self._descend(root, path, _depth(root, path), noticed)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.ENOMEM):
                    return True  # arming it again finds the limit
            return False
        if mask & inotify.ISDIR and mask & inotify.MOVED_FROM:  # its watches would report under the old path
            self.forget(root, path)
        noticed.note(path, gone=gone)
        return False

    def _descend(self, root: Root, top: str, depth: int, noticed: Noticed | None) -> str:
        """Watch `top` and what is below it; scanned after the watch is there, so that nothing is missed between.

        Raises OSError for `top`, and at the limit.
        """
        pending, count = [(top, depth)], 0
        while pending:
            folder, depth = pending.pop()
            try:
                wd = self._inotify.add(folder)
            except OSError as error:
                if folder == top or error.errno in (errno.ENOSPC, errno.ENOMEM):
                    raise
                continue
            armed = self._armed.setdefault(wd, [])
            if any(one.root is root and not one.waits_for for one in armed):
                continue  # known under another path: a link, perhaps one that leads back up
            armed.append(_Armed(folder, root))
            count += 1
            if count > MAX_FOLDERS:
                return POLLING
            if root.names is not None:
                if noticed is not None:
                    for name, path in root.names.items():
                        if os.path.lexists(os.path.join(folder, name)):
                            noticed.note(path)
                continue
            for entry in entries(folder):
                if is_folder(entry):
                    if depth < MAX_DEPTH:
                        pending.append((entry.path, depth + 1))
                elif noticed is not None:
                    noticed.note(entry.path)
        return EVENTS

    def _wait_for(self, root: Root) -> bool:
        """Watch the nearest folder above a missing root for the next step down to it; whether the root is there now."""
        step = root.path
        while (above := os.path.dirname(step)) != step:
            if not os.path.isdir(above):
                step = above
                continue
            self._armed.setdefault(self._inotify.add(above), []).append(_Armed(above, root, os.path.basename(step)))
            if not os.path.isdir(step):
                break
            self.forget(root)
            if step == root.path:
                return True
            step = root.path
        return False


def _depth(root: Root, path: str) -> int:
    return os.path.relpath(path, root.path).count(os.sep) + 1
