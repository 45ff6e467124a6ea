"""A folder and everything below it, looked at once: GGUF files, downloads that go on, and what could not be seen."""

from __future__ import annotations

import os

from advisor.records import NamedTuple
from advisor.stores.files import leads_to, unreadable
from advisor.stores.types import FileIdentity
from advisor.stores.unfinished import CONTROL_ENDING, is_unfinished, mentions_gguf

MAX_DEPTH = 8  # folders below the one that is listed
MAX_ENTRIES = 100_000
MAX_MODELS = 20_000


class Found(NamedTuple):
    """A regular file, or a link to one."""

    path: str
    identity: FileIdentity


class Walk(NamedTuple):
    """What was found; paths are sorted. `remark` says what was left out, "" when nothing was."""

    files: tuple[Found, ...]  # GGUF by name
    unfinished: tuple[str, ...]  # downloads of GGUFs that go on
    dangling: tuple[str, ...]  # links called .gguf to files that are not there
    linked: tuple[str, ...]  # folders elsewhere that links lead to
    remark: str


def walk(folder: str, *, below: bool = True) -> Walk:
    """Look through `folder`, and what is below it if `below`.

    Hidden files and folders are passed over, rings of links are walked once.
    Raises a ModelError when `folder` itself cannot be listed.
    """
    state = _State()
    pending = [(folder, 0)]
    while pending:
        place, depth = pending.pop()
        try:
            status = os.stat(place)
            if (status.st_dev, status.st_ino) in state.visited:
                continue
            state.visited.add((status.st_dev, status.st_ino))
            with os.scandir(place) as listing:
                entries: list[os.DirEntry[str]] = []
                for entry in listing:  # never more of a folder in memory than is looked at
                    if len(entries) > MAX_ENTRIES - state.n_entries:
                        break
                    entries.append(entry)
        except OSError as error:
            if depth == 0:
                raise unreadable(folder, error) from None
            state.refused += 1
            continue
        folders = state.take(entries)
        if below and depth < MAX_DEPTH:
            pending += [(path, depth + 1) for path in folders]
        elif below:
            state.too_deep += len(folders)
        if state.full:
            break
    return state.result()


class _State:
    """What a walk has found so far."""

    def __init__(self) -> None:
        self.visited: set[tuple[int, int]] = set()
        self.files: list[Found] = []
        self.unfinished: list[str] = []
        self.dangling: list[str] = []
        self.linked: list[str] = []
        self.n_entries, self.refused, self.too_deep = 0, 0, 0

    @property
    def full(self) -> bool:
        return self.n_entries > MAX_ENTRIES or len(self.files) > MAX_MODELS

    def take(self, entries: list[os.DirEntry[str]]) -> list[str]:
        """Sort one folder's entries; returns the folders to look into."""
        names = {entry.name for entry in entries}
        folders = []
        for entry in entries:
            self.n_entries += 1
            if self.full:
                break
            name = entry.name
            if is_unfinished(name, names):
                if mentions_gguf(name) and not name.endswith(CONTROL_ENDING):
                    self.unfinished.append(entry.path)
            elif name.startswith("."):
                continue
            elif name.endswith(".gguf"):
                if leads_to(entry.is_file):
                    self._add(entry)
                elif entry.is_symlink() and not os.path.exists(entry.path):
                    self.dangling.append(entry.path)
            elif leads_to(entry.is_dir):
                if entry.is_symlink():
                    self.linked.append(os.path.realpath(entry.path))
                folders.append(entry.path)
        return folders

    def _add(self, entry: os.DirEntry[str]) -> None:
        try:
            self.files.append(Found(entry.path, identity_of(entry.stat())))
        except OSError:  # gone since it was listed
            return

    def result(self) -> Walk:
        parts = []
        if self.full:
            parts.append(f"only the first {MAX_ENTRIES:,} entries or {MAX_MODELS:,} files were looked at")
        if self.refused:
            parts.append(f"{self.refused} folder{'s' if self.refused > 1 else ''} below cannot be read")
        if self.too_deep:
            parts.append(f"folders more than {MAX_DEPTH} levels down were not looked into")
        return Walk(
            tuple(sorted(self.files)),
            tuple(sorted(self.unfinished)),
            tuple(sorted(self.dangling)),
            tuple(self.linked),
            "; ".join(parts),
        )


def identity_of(status: os.stat_result) -> FileIdentity:
    """The identity in what stat says."""
    return FileIdentity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
