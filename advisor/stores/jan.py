"""Jan: <data>/llamacpp/models/<id>/model.yml names the model's file, which may lie anywhere, and its projector.

Format as in Jan's llamacpp extension; the places of its data folder are from its documentation and its users. Tested
against files written by hand.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from advisor.errors import ModelError
from advisor.gguf_header.errors import printable
from advisor.stores.collect import model_at, report_folder
from advisor.stores.files import read_small
from advisor.stores.types import Companion, StoredModel, StoreReport

_MODEL_FILE = "model.yml"
_MAX_YAML_BYTES = 16 * 1024  # Jan's own take 1 KB; ruamel takes its time
_MAX_BRACKETS = 500  # nested ones cost ruamel seconds
_ALIAS = re.compile(rb"(?:^|[\s\[{,:?-])\*\w")  # a few merged aliases can stand for billions of entries
_MAX_DEPTH = 4  # an id may have slashes
_MAX_MODEL_FILES = 10_000


def default_folders(environ: Mapping[str, str], home: str) -> list[str]:
    """Return the folders that may be Jan's data folder."""
    if sys.platform == "darwin":
        return [os.path.join(home, "Library", "Application Support", "Jan", "data"), os.path.join(home, "jan")]
    if sys.platform == "win32":
        roaming = environ.get("APPDATA") or os.path.join(home, "AppData/Roaming")
        return [os.path.join(roaming, "Jan", "data"), os.path.join(home, "jan")]
    data = environ.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share")
    config = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    return [os.path.join(data, "Jan", "data"), os.path.join(home, "jan"), os.path.join(config, "Jan", "data")]


def list_models(folder: str) -> StoreReport:
    """The models of the data folder `folder`: those that a model.yml names, by its id, then other files there."""
    below = report_folder("jan", model_folder(folder))
    named = [model for path, name in _model_files(folder) if (model := _named(folder, path, name)) is not None]
    taken = {path for model in named for path in model.paths}
    taken.update(companion.path for model in named for companion in model.companions)
    others = [model for model in below.models if taken.isdisjoint(model.paths)]
    return below._replace(folder=folder, models=(*named, *others))


def model_folder(folder: str) -> str:
    """Where the data folder `folder` has its model.yml files, and most models."""
    return os.path.join(folder, "llamacpp", "models")


def outside_folders(folder: str) -> list[str]:
    """Folders of models that a model.yml of the data folder `folder` names and that are not below it."""
    models = [_named(folder, path, name) for path, name in _model_files(folder)]
    places = {os.path.dirname(path) for model in models if model is not None for path in model.paths}
    return sorted(place for place in places if not place.startswith(os.path.join(folder, "")))


def _model_files(folder: str) -> list[tuple[str, str]]:
    """(path, id) of every model.yml."""
    root = model_folder(folder)
    found = []
    for place, folders, files in os.walk(root):
        name = os.path.relpath(place, root)
        folders[:] = [] if name.count(os.sep) >= _MAX_DEPTH else sorted(folders)
        if _MODEL_FILE in files:
            found.append((os.path.join(place, _MODEL_FILE), name))
        if len(found) >= _MAX_MODEL_FILES:
            break
    return found


def _named(folder: str, path: str, name: str) -> StoredModel | None:
    """The model that the model.yml at `path` describes; None if it names no GGUF on this machine."""
    try:
        document = _read_yaml(path)
    except ModelError as error:
        return StoredModel("jan", name, "", (), 0, (), problem=str(error))
    if not isinstance(document, dict):
        problem = f"{printable(path)} is not valid YAML; open the model's settings in Jan and save them again."
        return StoredModel("jan", name, "", (), 0, (), problem=problem)
    model, projector = (_place(folder, document.get(key)) for key in ("model_path", "mmproj_path"))
    if model is None or not model.endswith(".gguf"):
        return None
    listed = model_at("jan", name, model)
    companions = (Companion("mmproj", projector),) if projector and os.path.isfile(projector) else ()
    return listed._replace(companions=companions)


def _place(folder: str, value: Any) -> str | None:
    """A path in a model.yml: absolute, or below the data folder."""
    if not isinstance(value, str) or not value or "\0" in value:
        return None
    return os.path.normpath(os.path.join(folder, value))


def _read_yaml(path: str) -> Any:
    from ruamel.yaml import YAML

    data = read_small(path, _MAX_YAML_BYTES)
    if len(data) > _MAX_YAML_BYTES or data.count(b"[") + data.count(b"{") > _MAX_BRACKETS or _ALIAS.search(data):
        return None
    try:
        return YAML(typ="safe", pure=True).load(data)
    except Exception:  # ruamel raises errors of many kinds on broken text, TypeError for a map as a key
        return None
