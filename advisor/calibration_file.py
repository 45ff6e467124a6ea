"""The calibration in the state folder: one JSON file, written whole and renamed into place; a broken one is not used.

`advisor recommend` reads it at every start, so it does that in a fraction of a millisecond.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from advisor.calibration import BROKEN, Calibration, from_json, to_json
from advisor.regular import NotRegularError, read_regular

FILE = "calibration.json"
MAX_FILE_BYTES = 1 << 20


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
        return from_json(_parsed(data.decode())), None
    except BROKEN:
        return None, f"{path} is broken and not used; 'advisor calibrate' makes it anew."


def save_calibration(folder: str, calibration: Calibration) -> str | None:
    """Write the file; a sentence when that is not possible."""
    import json

    path = os.path.join(folder, FILE)
    part = f"{path}.{os.getpid()}.part"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        try:
            with open(part, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                json.dump(to_json(calibration), file, indent=1)
                file.write("\n")
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
