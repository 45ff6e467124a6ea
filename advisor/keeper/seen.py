"""Which models each config file was last made for, so that a store that is away for a while loses nothing.

A model that is gone is taken out of the configs; one whose folder cannot be looked into just now (an unmounted disk, a
share that does not answer) stays as it was written. An empty folder on another file system than before is an unmounted
one. Kept as seen.json in the state folder; a broken one is forgotten.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from advisor.errors import OutputError
from advisor.managed.atomic import replace_file
from advisor.stores.types import StoreReport

_FILE = "seen.json"
_MAX_BYTES = 16 << 20


class Seen(NamedTuple):
    """File systems of model folders, and for each config file the path of each of its models."""

    devices: Mapping[str, int] = {}
    models: Mapping[str, Mapping[str, str]] = {}  # config file -> model id -> model's path


def read_seen(state_folder: str) -> Seen:
    """What was written last; nothing where there is nothing usable."""
    try:
        with open(os.path.join(state_folder, _FILE), "rb") as file:
            document = json.loads(file.read(_MAX_BYTES))
        devices = {str(folder): int(number) for folder, number in document["devices"].items()}
        models = {
            str(path): {str(name): str(model) for name, model in each.items()}
            for path, each in document["models"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Seen()
    return Seen(devices, models)


def write_seen(state_folder: str, seen: Seen) -> None:
    """Keep it. Raises OutputError when the state folder cannot be written."""
    try:
        os.makedirs(state_folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{state_folder} cannot be made ({error.strerror}); make it a folder you may write."
        ) from None
    text = json.dumps({"devices": dict(seen.devices), "models": {k: dict(v) for k, v in seen.models.items()}}, indent=1)
    replace_file(os.path.join(state_folder, _FILE), text.encode() + b"\n", new_mode=0o600)


def unreachable(reports: Sequence[StoreReport], seen: Seen) -> tuple[str, ...]:
    """Folders of models that cannot be looked into now although they should be."""
    away = []
    for report in reports:
        known = seen.devices.get(report.folder)  # only of folders that held models
        still_there = report.status == "ok" and (report.models or device_of(report.folder) == known)
        if known is not None and not still_there:
            away.append(report.folder)
    return tuple(away)


def devices(reports: Sequence[StoreReport], before: Seen, away: Iterable[str]) -> dict[str, int]:
    """The file system of each folder that holds models; of those away the one they had."""
    found = {folder: before.devices[folder] for folder in away if folder in before.devices}
    for report in reports:
        number = device_of(report.folder) if report.models and report.folder not in found else None
        if number is not None:
            found[report.folder] = number
    return found


def is_below(path: str, folders: Iterable[str]) -> bool:
    """Whether a path lies in one of the folders."""
    return any(path == folder or path.startswith(os.path.join(folder, "")) for folder in folders)


def device_of(folder: str) -> int | None:
    """The number of the file system, None for a folder that is not there."""
    try:
        return os.stat(folder).st_dev
    except OSError:
        return None
