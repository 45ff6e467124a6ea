"""The calibration in the state folder: one JSON file, written whole and renamed into place; a broken one is not used.

`advisor recommend` reads it at every start, so it does that in a fraction of a millisecond.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from advisor.calibration import BROKEN, Calibration, from_json, is_newer, to_json
from advisor.errors import OutputError
from advisor.regular import NotRegularError, read_regular

FILE = "calibration.json"
MAX_FILE_BYTES = 1 << 20
_IS_NEWER = (
    "was written by a newer advisor and is left alone; install that again, or 'advisor calibrate --forget' removes it."
)


def load_calibration(folder: str) -> tuple[Calibration | None, str | None]:
    """(what the file holds, a sentence when there is one that cannot be used). Never raises."""
    path = os.path.join(folder, FILE)
    try:
        data, _ = read_regular(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        return None, None
    except NotRegularError:
        return None, f"{path} is not a regular file and not used; remove it."
    except OSError as error:
        return None, f"{path} cannot be read ({error.strerror}); speeds are not calibrated."
    try:
        if len(data) > MAX_FILE_BYTES:
            raise ValueError("too large")
        document = _parsed(data.decode())
        if is_newer(document):
            return None, f"{path} {_IS_NEWER}"
        return from_json(document), None
    except BROKEN:
        return None, f"{path} is broken and not used; 'advisor calibrate' makes it anew."


def refuse_newer(folder: str) -> None:
    """Raises OutputError for a file that is not to be written over: before minutes are spent on what cannot be kept."""
    _, problem = load_calibration(folder)
    if problem is not None and problem.endswith(_IS_NEWER):
        raise OutputError(problem)


def save_calibration(folder: str, calibration: Calibration) -> str | None:
    """Write the file; a sentence when that is not possible."""
    import json

    path = os.path.join(folder, FILE)
    if (load_calibration(folder)[1] or "").endswith(_IS_NEWER):
        return f"{path} {_IS_NEWER}"
    part = f"{path}.{os.getpid()}.part"
    text = json.dumps(to_json(calibration), indent=1)
    try:
        if len(text) >= MAX_FILE_BYTES:
            raise ValueError("too large")
        from_json(json.loads(text))
    except BROKEN:  # what is there is better than what nobody can read
        return f"{path} is left as it was: some of what was measured now cannot be true; run it again."
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        try:
            with open(part, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(f"{text}\n")
            os.replace(part, path)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(part)
    except OSError as error:
        return f"{path} cannot be written ({error.strerror}); what was measured is not kept."
    return None


def forget_calibration(folder: str) -> bool:
    """Remove the file; whether there was one. Raises OSError when it stays."""
    try:
        os.unlink(os.path.join(folder, FILE))
    except FileNotFoundError:
        return False
    return True


class _Scan:
    """What json's scanner in C wants to know."""

    strict, object_hook, object_pairs_hook, memo = True, None, None, None
    parse_float, parse_int, parse_constant = float, int, float


def _parsed(text: str) -> Any:
    """json.loads, without the 1.3 ms that importing json takes where nothing else has."""
    if "json" not in sys.modules:
        try:
            from _json import make_scanner
        except ImportError:  # another Python's json has no scanner in C
            pass
        else:
            text = text.strip()
            try:
                value, end = make_scanner(_Scan)(text, 0)  # type: ignore[arg-type]
            except (StopIteration, SystemError):  # it cannot find json's own error when json is not imported
                end = -1
            if end == len(text):
                return value
    import json

    return json.loads(text)
