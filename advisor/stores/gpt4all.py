"""GPT4All: GGUF files in one folder, which GPT4All.ini's modelPath may move; its Python binding has another.

Places and format (an INI file of QSettings) as in GPT4All 3.10; tested against files written by hand.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from advisor.errors import ModelError
from advisor.stores.collect import report_folder
from advisor.stores.files import read_small
from advisor.stores.types import StoreReport

_MAX_INI_BYTES = 1 << 20


def _settings_file(environ: Mapping[str, str], home: str) -> str:
    """Where GPT4All keeps its settings."""
    if sys.platform == "win32":
        base = environ.get("APPDATA") or os.path.join(home, "AppData/Roaming")
    else:
        base = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    return os.path.join(base, "nomic.ai", "GPT4All.ini")


def default_folders(environ: Mapping[str, str], home: str) -> list[str]:
    """Return the folders that may hold GPT4All's models, the one it uses now first."""
    if sys.platform == "darwin":
        data = os.path.join(home, "Library", "Application Support")
    elif sys.platform == "win32":
        data = environ.get("LOCALAPPDATA") or os.path.join(home, "AppData/Local")
    else:
        data = environ.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share")
    named = _model_path(_settings_file(environ, home))
    places = [os.path.join(data, "nomic.ai", "GPT4All"), os.path.join(home, ".cache", "gpt4all")]
    return [*([named] if named else []), *places]


def list_models(folder: str) -> StoreReport:
    """The models in `folder`; GPT4All itself looks one level deep and no further."""
    return report_folder("gpt4all", folder)


def _model_path(path: str) -> str | None:
    """`modelPath` of the [General] section; values with special characters are quoted and have backslash escapes."""
    try:
        text = read_small(path, _MAX_INI_BYTES).decode("utf-8", "replace")
    except ModelError:
        return None
    section = ""
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("["):
            section = line.strip("[]")
        key, equals, value = line.partition("=")
        if section == "General" and equals and key.strip() == "modelPath":
            value = value.strip()
            if value.startswith('"') and value.endswith('"') and len(value) > 1:
                value = value[1:-1].replace('\\"', '"').replace("\\\\", "\\")
            return value if os.path.isabs(value) and "\0" not in value else None
    return None
