"""Which models each config file was last made for, so that a store that is away for a while loses nothing.

A model that is gone is taken out of the configs; one whose folder cannot be looked into just now (an unmounted disk, a
share that does not answer) stays as it was written. An empty folder on another file system than before is an unmounted
one, and so is a place that was a mount point and is none any more. Kept as seen.json in the state folder, with what
engines have not been told yet; a broken one is forgotten.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence

from advisor.errors import OutputError
from advisor.managed.atomic import replace_file
from advisor.records import NamedTuple
from advisor.regular import read_regular
from advisor.slots import Slot
from advisor.stores.types import StoreReport

FILE = "seen.json"
# 10,000 models in three configs; each value takes up to 200 bytes of memory
_MAX_BYTES, _MAX_VALUES = 12 << 20, 150_000


class SeenModel(NamedTuple):
    """One model in one config file: the model's file, the slots it has there, the file system that it lies on."""

    path: str
    prefix: Slot = ()  # of all its slots
    mount: str = ""  # the mount point


class Seen(NamedTuple):
    """File systems of model folders, the models of each config file, and what engines could not be told.

    `owed`: target -> config file -> "" for one to be read (again), or the tag that is to be removed from Ollama.
    """

    devices: Mapping[str, int] = {}
    models: Mapping[str, Mapping[str, SeenModel]] = {}  # config file -> model id -> model
    owed: Mapping[str, Mapping[str, str]] = {}


def read_seen(state_folder: str) -> Seen:
    """What was written last; nothing where there is nothing usable."""
    try:
        data, _ = read_regular(os.path.join(state_folder, FILE), _MAX_BYTES)
        if len(data) > _MAX_BYTES or sum(map(data.count, (b",", b"[", b"{"))) > _MAX_VALUES:
            return Seen()
        document = json.loads(data)
        return Seen(
            {str(folder): int(number) for folder, number in document["devices"].items()},
            {
                str(path): {str(name): _model(*m) for name, m in each.items()}
                for path, each in document["models"].items()
            },
            {str(name): {str(p): str(tag) for p, tag in each.items()} for name, each in document["owed"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Seen()


def _model(path: object, prefix: Iterable[object], mount: object) -> SeenModel:
    return SeenModel(str(path), tuple(map(str, prefix)), str(mount))


def write_seen(state_folder: str, seen: Seen) -> None:
    """Keep it. Raises OutputError when the state folder cannot be written."""
    try:
        os.makedirs(state_folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{state_folder} cannot be made ({error.strerror}); make it a folder you may write."
        ) from None
    document = {**seen._asdict(), "models": {path: dict(each) for path, each in seen.models.items()}}
    replace_file(os.path.join(state_folder, FILE), json.dumps(document).encode() + b"\n", new_mode=0o600)


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


def is_away(model: SeenModel, away: Iterable[str]) -> bool:
    """Whether a model that was not found may well be there again: nothing says that it was taken away."""
    if is_below(model.path, away):
        return True
    try:
        os.stat(model.path)
    except (FileNotFoundError, NotADirectoryError):
        return bool(model.mount) and not os.path.ismount(model.mount)
    except OSError:  # no permission, a share that does not answer
        return True
    return not os.access(model.path, os.R_OK)


def mount_point(path: str) -> str:
    """Where the file system that holds `path` is mounted."""
    place = os.path.realpath(path)
    while place != os.path.dirname(place) and not os.path.ismount(place):
        place = os.path.dirname(place)
    return place


def is_below(path: str, folders: Iterable[str]) -> bool:
    """Whether a path lies in one of the folders."""
    return any(path == folder or path.startswith(os.path.join(folder, "")) for folder in folders)


def device_of(folder: str) -> int | None:
    """The number of the file system, None for a folder that is not there."""
    try:
        return os.stat(folder).st_dev
    except OSError:
        return None
