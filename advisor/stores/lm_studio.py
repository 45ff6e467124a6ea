"""LM Studio: <models>/<publisher>/<repo>/*.gguf.

Its home is what ~/.lmstudio-home-pointer says, else ~/.cache/lm-studio where that exists, else ~/.lmstudio; the models
are in `downloadsFolder` of <home>/settings.json, else in <home>/models. Read from notes of its users and its published
schema; tested against files written by hand.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from advisor.errors import ModelError
from advisor.stores.collect import report_folder
from advisor.stores.files import read_small
from advisor.stores.types import StoreReport

_POINTER = ".lmstudio-home-pointer"
_MAX_POINTER_BYTES = 8192
_MAX_SETTINGS_BYTES = 1 << 20


def default_folders(environ: Mapping[str, str], home: str) -> list[str]:  # noqa: ARG001
    """Return the folders that may hold LM Studio's models, the one it uses now first."""
    places = [_pointed_to(home), os.path.join(home, ".cache", "lm-studio"), os.path.join(home, ".lmstudio")]
    folders = []
    for place in places:
        if place is not None:
            downloads = _downloads_folder(place)
            folders += [downloads] if downloads else []
            folders.append(os.path.join(place, "models"))
    return list(dict.fromkeys(folders))


def list_models(folder: str) -> StoreReport:
    """The models in `folder`, called publisher/repo/file as LM Studio does."""
    return report_folder("lmstudio", folder)


def _pointed_to(home: str) -> str | None:
    try:
        text = read_small(os.path.join(home, _POINTER), _MAX_POINTER_BYTES).decode("utf-8", "replace").strip()
    except ModelError:
        return None
    return text if os.path.isabs(text) and "\0" not in text else None


def _downloads_folder(place: str) -> str | None:
    try:
        document = json.loads(read_small(os.path.join(place, "settings.json"), _MAX_SETTINGS_BYTES))
    except (ModelError, ValueError, RecursionError):
        return None
    folder = document.get("downloadsFolder") if isinstance(document, dict) else None
    return folder if isinstance(folder, str) and os.path.isabs(folder) and "\0" not in folder else None
