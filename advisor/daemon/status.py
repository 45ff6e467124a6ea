"""What the daemon tells `advisor status`: one small JSON file, replaced when something changed."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from typing import Any

from advisor.cli.terminal import clean
from advisor.daemon.lock import is_running
from advisor.records import NamedTuple
from advisor.regular import read_regular
from advisor.watch.events import Place

SCHEMA = "advisor.status/1"
FILE = "status.json"
MAX_BYTES = 4 << 20
MAX_ITEMS = 200  # of each list
MAX_TEXT = 500


class Said(NamedTuple):
    """A line of the journal that changed something."""

    time: str  # ISO 8601 with the zone
    priority: int
    text: str


class Status(NamedTuple):
    """How the daemon stands. Times are ISO 8601 with the zone."""

    pid: int
    since: str
    version: str
    state: str  # "starting", "idle", "working", "reloading", "stopping"
    status_text: str
    watching: tuple[Place, ...] = ()
    last_pass: str | None = None  # when the last pass ended
    last_changes: tuple[Said, ...] = ()  # the newest last
    pending: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unexpected_errors: int = 0


def document(status: Status | None, running: bool) -> dict[str, Any]:
    """The shape of `advisor status --json`; without a daemon everything but `running` is null."""
    fields: dict[str, Any] = dict.fromkeys(Status._fields)
    if status is not None:
        fields = status._asdict()
        fields["status_text"] = clean(status.status_text, MAX_TEXT)
        fields["watching"] = [
            {"path": clean(place.path, MAX_TEXT), "how": place.how} for place in status.watching[:MAX_ITEMS]
        ]
        fields["last_changes"] = [
            {**said._asdict(), "text": clean(said.text, MAX_TEXT)} for said in status.last_changes[-MAX_ITEMS:]
        ]
        for name in ("pending", "pinned", "failures", "notes"):
            fields[name] = _texts(fields[name])
    return {"schema": SCHEMA, "running": running, **fields}


def once_document(status: Status) -> dict[str, Any]:
    """The shape of `advisor daemon --once --json`."""
    fields = document(status, False)
    names = ("status_text", "pending", "pinned", "failures", "notes")
    changes = {"changes": [said["text"] for said in fields["last_changes"]]}
    return {"schema": "advisor.daemon/1", **changes, **{name: fields[name] for name in names}}


def write_status(folder: str, status: Status) -> None:
    """Replace the file as a whole. Raises OSError."""
    path = os.path.join(folder, FILE)
    part = f"{path}.{os.getpid()}.part"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(document(status, True), file)
        os.replace(part, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)


def remove_status(folder: str) -> None:
    """The daemon ends: what it said holds no longer."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder, FILE))


def read_status(folder: str) -> dict[str, Any]:
    """The document of the daemon that runs, or the empty one. A file that a killed daemon left does not count."""
    if not is_running(folder):
        return document(None, False)
    try:
        data, _ = read_regular(os.path.join(folder, FILE), MAX_BYTES)
        read = json.loads(data)
        if len(data) <= MAX_BYTES and isinstance(read, dict) and read.get("schema") == SCHEMA:
            return {**document(None, True), **read, "running": True}
    except (OSError, ValueError, RecursionError):
        pass
    return document(None, True)


def _texts(texts: Iterable[str]) -> list[str]:
    return [clean(text, MAX_TEXT) for text in list(texts)[:MAX_ITEMS]]
