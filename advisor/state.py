"""What advisor remembers between runs: by how much engines differed from the prediction.

One small JSON file in the state folder, written whole and renamed into place; a broken one is set aside.
"""

import contextlib
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from advisor.records import NamedTuple
from advisor.regular import read_regular

SCHEMA = "advisor.residuals/1"
FILE = "residuals.json"
MAX_FILE_BYTES = 4 << 20
MAX_RECORDS = 2000
KEPT = 20  # values from which the median is made


class Residual(NamedTuple):
    """Engine minus prediction, in bytes; 0 where the engine's figure lies in the stated interval."""

    architecture: str
    build: int | None  # None: the engine does not know its own
    backend: str  # "cuda", "vulkan", ... or "cpu" for system memory
    component: str  # "weights" | "cache" | "compute" | "output"
    source: str  # "engine" (a dry run) | "observed" (the log of a load)
    n_bytes: int


class Record(NamedTuple):
    """All that is known for one key."""

    architecture: str
    build: int | None
    backend: str
    component: str
    source: str
    last_bytes: int
    median_bytes: int
    n_seen: int
    recent_bytes: tuple[int, ...]


def state_folder(environ: Mapping[str, str]) -> str:
    """$XDG_STATE_HOME/advisor, and the platform's own place elsewhere than on Linux."""
    given = environ.get("XDG_STATE_HOME")
    if given and os.path.isabs(given):
        return os.path.join(given, "advisor")
    if sys.platform.startswith("linux"):
        home = environ.get("HOME") or os.path.expanduser("~")
        return os.path.join(home, ".local", "state", "advisor")
    from platformdirs import user_state_dir

    return user_state_dir("advisor", appauthor=False)


def load_residuals(folder: str) -> tuple[tuple[Record, ...], str | None]:
    """(records, a sentence when the file was broken). A broken file is renamed to residuals.json.broken."""
    path = os.path.join(folder, FILE)
    try:
        data, _ = read_regular(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        return (), None
    except OSError as error:
        return (), f"{path} cannot be read ({error.strerror}); it is left as it is."
    import json  # only where there is something to read

    try:
        if len(data) > MAX_FILE_BYTES:
            raise ValueError("too large")
        document = json.loads(data)
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise ValueError("another schema")
        return tuple(_record(entry) for entry in document["records"][:MAX_RECORDS]), None
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        aside = f"{path}.broken"
        with contextlib.suppress(OSError):
            os.replace(path, aside)
        return (), f"{path} was broken and is now {aside}; remembered differences start anew."


def remember(folder: str, residuals: Iterable[Residual]) -> tuple[str, str | None]:
    """Add residuals to the file; (its path, a sentence when something went wrong)."""
    records, note = load_residuals(folder)
    if note is not None and "left as it is" in note:
        return os.path.join(folder, FILE), note
    known = {record[:5]: record for record in records}
    for residual in residuals:
        key = residual[:5]
        before = known.pop(key, None)
        recent = (*(before.recent_bytes if before else ()), residual.n_bytes)[-KEPT:]
        n_seen = (before.n_seen if before else 0) + 1
        known[key] = Record(*key, residual.n_bytes, _median(recent), n_seen, recent)
    path = os.path.join(folder, FILE)
    try:
        _write(folder, path, list(known.values())[-MAX_RECORDS:])
    except OSError as error:
        return path, f"{path} cannot be written ({error.strerror}); the difference is not remembered."
    return path, note


def _record(entry: Any) -> Record:
    recent = tuple(_integer(value) for value in entry["recent_bytes"])[-KEPT:]
    build = entry["build"]
    texts = [entry[name] for name in ("architecture", "backend", "component", "source")]
    if not all(isinstance(text, str) and len(text) < 200 for text in texts) or not recent:
        raise ValueError("no record")
    return Record(
        architecture=texts[0], build=None if build is None else _integer(build), backend=texts[1], component=texts[2],
        source=texts[3], last_bytes=recent[-1], median_bytes=_median(recent), n_seen=max(_integer(entry["n_seen"]), 1),
        recent_bytes=recent,
    )  # fmt: skip


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 62:
        raise ValueError("no integer")
    return value


def _median(values: tuple[int, ...]) -> int:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


def _write(folder: str, path: str, records: list[Record]) -> None:
    import json

    os.makedirs(folder, mode=0o700, exist_ok=True)
    document = {"schema": SCHEMA, "records": [record._asdict() for record in records]}
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
            file.write("\n")
        os.replace(part, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)
