"""What its unit tells the system's Ollama service, such as where its models are; asking systemctl would cost 30 ms.

Source: systemd.exec(5), Environment= and EnvironmentFile=; Ollama's FAQ tells people to set OLLAMA_MODELS in a drop-in.
"""

from __future__ import annotations

import os
import shlex

from advisor.errors import ModelError
from advisor.stores.files import read_small

_FOLDERS = ("/usr/lib/systemd/system", "/etc/systemd/system")  # later wins
_UNIT = "ollama.service"
_MAX_BYTES = 64 * 1024
_MAX_DROP_INS = 100


def service_models() -> str | None:
    """The absolute path in the unit's OLLAMA_MODELS; None without one, and where the files cannot be read."""
    found = service_variable("OLLAMA_MODELS")
    return found if found is not None and os.path.isabs(found) else None


def service_variable(name: str) -> str | None:
    """What the unit sets this variable to; None where it does not, and where the files cannot be read."""
    found = None
    for path in _unit_files():
        for line in _lines(path):
            key, _, value = line.partition("=")
            if key == "Environment":
                found = _assigned(value, name) or found
            elif key == "EnvironmentFile":
                for inner in _lines(value.strip().removeprefix("-")):
                    found = _assigned(inner, name) or found
    return found


def _unit_files() -> list[str]:
    files = []
    for folder in _FOLDERS:
        files.append(os.path.join(folder, _UNIT))
        drop_ins = os.path.join(folder, f"{_UNIT}.d")
        try:
            names = sorted(name for name in os.listdir(drop_ins) if name.endswith(".conf"))
        except OSError:
            continue
        files += [os.path.join(drop_ins, name) for name in names[:_MAX_DROP_INS]]
    return [path for path in files if os.path.exists(path)]


def _lines(path: str) -> list[str]:
    if not os.path.isabs(path):
        return []
    try:
        text = read_small(path, _MAX_BYTES).decode("utf-8", "replace")
    except ModelError:
        return []
    return [line.strip() for line in text.splitlines() if not line.lstrip().startswith(("#", ";"))]


def _assigned(text: str, name: str) -> str | None:
    """What the words of an assignment line give the variable."""
    try:
        words = shlex.split(text)
    except ValueError:  # an open quotation mark
        return None
    return next((word.partition("=")[2] for word in reversed(words) if word.startswith(f"{name}=")), None)
