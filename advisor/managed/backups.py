"""Copies of files as they stood before each change, named by their sha256, readable by the user alone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from advisor.errors import OutputError
from advisor.gguf_header.errors import printable
from advisor.managed.atomic import digest, look, replace_file


class Backups:
    """The copies in one folder, which is made when it is needed."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def path(self, name: str) -> str:
        """Where the copy `name` lies."""
        return os.path.join(self.folder, name)

    def keep(self, data: bytes | None) -> str | None:
        """Store a copy, durably; its name, or None for no file. Raises OutputError."""
        name = digest(data)
        if data is None or name is None:
            return None
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"{printable(self.folder)} cannot be made ({error.strerror}), and nothing is changed without a backup; "
                f"make it a folder that you may write."
            ) from None
        standing = look(self.path(name))
        if standing.data != data:
            replace_file(self.path(name), data, standing, new_mode=0o600)
        return name

    def read(self, name: str | None) -> bytes | None:
        """A copy's bytes. Raises OutputError when it is gone or not what was stored."""
        if name is None:
            return None
        data = look(self.path(name)).data
        if digest(data) != name:
            raise OutputError(f"{printable(self.path(name))} is lost or damaged; this backup cannot be used.")
        return data

    def drop(self, names: Iterable[str]) -> None:
        """Remove copies that nothing refers to any more."""
        for name in names:
            with contextlib.suppress(OSError):
                os.unlink(self.path(name))
