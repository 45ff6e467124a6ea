"""A lie, what it broke elsewhere, and the one answer it gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

READ = "read"  # the answer for what is no lie, or harmless: it is taken as it stands
MARK = "EVIL"  # stands in names inside files; no path that is opened may hold it


class Case(NamedTuple):
    """One input. `call` gives it to advisor; `answer` is an error's class, READ, or the text that `call` returns."""

    label: str
    call: Callable[[], Any]
    answer: str


Made = Iterator[Case]


class Lie(NamedTuple):
    """A kind of lie with all its cases; `make` may write files into the folder it gets."""

    name: str
    elsewhere: str  # what it broke in other programs, with its source
    make: Callable[[Path], Made]


class Group(NamedTuple):
    """The lies about one kind of source. `may` names what its code is allowed besides reading: "run", "connect"."""

    name: str
    lies: tuple[Lie, ...]
    may: tuple[str, ...] = ()
