"""Roots under the package watchdog: FSEvents on macOS, kqueue on BSD. Where inotify is there, `tree` does it better.

Tested on Linux only, with watchdog's own inotify below it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any

from advisor.watch.roots import EVENTS, MISSING, POLLING, UNREADABLE, Noticed, Root, identity, is_hidden

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent

_IDLE_EVENTS = frozenset(("opened", "closed_no_write"))


class Observed:
    """The same as `tree.Tree`, with threads of watchdog's below it. A missing root is not waited for, only polled."""

    def __init__(self) -> None:
        from watchdog.events import FileSystemEventHandler
        from watchdog.observers import Observer

        class Handler(FileSystemEventHandler):
            """Hands everything on, with the root it belongs to."""

            def __init__(self, owner: Observed, root: Root) -> None:
                self.owner, self.root = owner, root

            def on_any_event(self, event: FileSystemEvent) -> None:
                self.owner._happened(self.root, event)

        self._handler = Handler
        self._observer = Observer()
        self._watches: dict[Root, Any] = {}
        self._lock = threading.Lock()
        self._noticed, self._again = Noticed(), set[Root]()
        self.fileno, self._wake = os.pipe()
        os.set_blocking(self.fileno, False)
        os.set_blocking(self._wake, False)
        self._observer.start()

    def arm(self, root: Root, noticed: Noticed | None = None) -> str:
        """Watch a root anew; how it is watched."""
        self.forget(root)
        try:
            root.identity = identity(root.path)
            if root.identity is None:
                return MISSING
            handler = self._handler(self, root)
            self._watches[root] = self._observer.schedule(handler, root.path, recursive=root.names is None)
        except PermissionError:
            return UNREADABLE
        except OSError:
            return POLLING
        if noticed is not None:
            noticed.lost()  # what came before the watch is not known
        return EVENTS

    def forget(self, root: Root) -> None:
        """Watch a root no more."""
        watch = self._watches.pop(root, None)
        if watch is not None:
            with contextlib.suppress(KeyError, OSError):
                self._observer.unschedule(watch)

    def read(self, noticed: Noticed) -> set[Root]:
        """Note what has happened; the roots that went and must be armed again."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fileno, 1 << 16)
        with self._lock:
            news, self._noticed = self._noticed, Noticed()
            again, self._again = self._again, set()
        for path, gone in news.paths.items():
            noticed.note(path, gone=gone)
        if news.everything:
            noticed.lost()
        return again

    def close(self) -> None:
        """Stop watchdog's threads."""
        self._observer.stop()
        self._observer.join(timeout=0.5)
        os.close(self.fileno)
        os.close(self._wake)

    def _happened(self, root: Root, event: FileSystemEvent) -> None:
        """Called in watchdog's thread."""
        if event.event_type in _IDLE_EVENTS or (event.is_directory and event.event_type == "modified"):
            return
        with self._lock:
            went = event.event_type in ("deleted", "moved")
            for place, gone in ((event.src_path, went), (event.dest_path, False)):
                path = os.fsdecode(place)
                if gone and path == root.path:
                    self._again.add(root)
                    continue
                below = os.path.relpath(path, root.path) if path else ".."
                if below.startswith("..") or any(is_hidden(part) for part in below.split(os.sep)[:-1]):
                    continue
                reported = root.reported(os.path.dirname(path), os.path.basename(path))
                if reported is not None:
                    self._noticed.note(reported, gone=gone)
        with contextlib.suppress(BlockingIOError):  # full: it is awake already
            os.write(self._wake, b"!")
