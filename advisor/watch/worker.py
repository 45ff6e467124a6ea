"""What the daemon and the worker that does its work tell one another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from advisor.records import NamedTuple

# why a pass is made, the weightiest last: requests that meet become one, under the weightiest reason
FILES, ENGINE, HARDWARE, RESCAN, RELOAD, START = REASONS = (
    "files", "engine", "hardware", "rescan", "reload", "start",
)  # fmt: skip

ERROR, WARNING, NOTICE, INFO, DEBUG = 3, 4, 5, 6, 7  # priorities as syslog(3) numbers them


class Watched(NamedTuple):
    """What is to be watched: absolute paths that need not exist."""

    folders: tuple[str, ...] = ()  # of models, with everything below
    settings: tuple[str, ...] = ()  # files whose change means `Worker.reload`: the configuration
    settings_folders: tuple[str, ...] = ()  # the same for whole folders: rules
    engines: tuple[str, ...] = ()  # binaries whose change means an upgrade
    # config files of targets, each with the sha256 that it had when the last pass looked at it or wrote it, None for no
    # file: only other contents are news, so that what the worker writes itself leads to no pass
    own: Mapping[str, str | None] = {}
    rescan_s: float | None = None  # how often everything is looked at without an event; None: as the daemon has it
    quiet_s: float | None = None  # how long a file must have been quiet; None: the same


class Change(NamedTuple):
    """One line for the journal: the file and old -> new values."""

    text: str
    priority: int = NOTICE  # NOTICE: a file was changed


class Summary(NamedTuple):
    """The outcome of one pass. Lists are the whole present state, except `changes`: what this pass did."""

    status_text: str  # "41 models, 2 targets"
    changes: tuple[Change, ...] = ()
    pending: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # to be known and no failure: models left out, folders that are away
    again: bool = False  # something that could not be written or told may go well in a while


class Worker(Protocol):
    """Does the work. Called from one thread only.

    An AdvisorError is logged and the pass is tried again later; any other exception is logged as a bug. Neither ends
    the daemon, so every method must leave the worker usable when it raises.
    """

    def refresh(self, reason: str, changed: frozenset[str] | None, should_stop: Callable[[], bool]) -> Summary:
        """Bring everything up to date.

        FILES: look at `changed` only: files that came, changed or went, and folders, each for all in it. ENGINE: as
        FILES, and `changed` holds binaries too. HARDWARE: also probe GPUs and drivers again. RESCAN, RELOAD, START:
        `changed` is None, look at everything. Between models, at least twice a second, call `should_stop`; when it
        says True, return what there is: the rest is asked for again. A pass that never calls it counts as hung.
        """
        ...

    def reload(self) -> None:
        """Read the configuration and the rules again. Raises AdvisorError, and then keeps those it had."""
        ...

    def watched(self) -> Watched:
        """What to watch now; asked for after every pass. Holds the configuration file also when that is broken."""
        ...
