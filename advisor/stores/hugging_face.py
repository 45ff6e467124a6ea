"""The Hugging Face cache, which llama.cpp's `-hf` uses too: `org/repo[:QUANT]` to a GGUF in it, and all that is in it.

Layout: <hub>/models--org--repo/{refs/main, snapshots/<commit>/<file>}; files are links to ../../blobs/<digest>, or the
files themselves where links are not possible. The order of the variables is llama.cpp's (b11434).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from advisor.errors import ModelError
from advisor.gguf_header.errors import excerpt
from advisor.gguf_header.shards import parse_shard_name
from advisor.quants.names import QUANT
from advisor.stores.collect import failed_report, models_of, stem_of, unfinished_model
from advisor.stores.errors import IncompleteModelError, NoModelError, SeveralModelsError
from advisor.stores.files import expand, is_companion, leads_to, read_small, unreadable
from advisor.stores.ollama import is_plain_name
from advisor.stores.types import StoredModel, StoreReport
from advisor.stores.unfinished import is_unfinished
from advisor.stores.walk import walk

_PREFERRED = ("Q4_K_M", "Q8_0")  # what llama.cpp's -hf takes if no quant is named
_MAX_REF_BYTES = 200
_MAX_COMPARED = 1000  # files of one repository whose names are compared
_MAX_SNAPSHOTS = 100  # of one repository


def default_folders(environ: Mapping[str, str], home: str) -> list[str]:
    """Return the folders that may be Hugging Face caches, the most specific first."""
    places = []
    for variable, below in (
        ("LLAMA_CACHE", ""),
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
    ):
        value = environ.get(variable)
        if value:
            places.append(os.path.join(value, below) if below else value)
    return [*places, os.path.join(home, ".cache", "huggingface", "hub")]


def find(name: str) -> str | None:
    """Return the path of the GGUF that `name` (org/repo or org/repo:QUANT) means, None if the cache has no such repo.

    Raises a ModelError if the repository is there but not the file, or if several fit.
    """
    repository, _, quant = name.partition(":")
    parts = repository.split("/")
    if len(parts) != 2 or not all(is_plain_name(part) for part in parts) or (quant and not is_plain_name(quant)):
        return None
    for hub in default_folders(os.environ, os.path.expanduser("~")):
        folder = os.path.join(hub, f"models--{parts[0]}--{parts[1]}")
        snapshot = _current_snapshot(folder)
        if snapshot is not None:
            return _choose(snapshot, repository, quant)
    return None


def _current_snapshot(folder: str) -> str | None:
    snapshots = os.path.join(folder, "snapshots")
    try:
        commits = sorted(entry.path for entry in os.scandir(snapshots) if leads_to(entry.is_dir))
    except OSError:
        return None
    if not commits:
        return None
    reference = os.path.join(folder, "refs", "main")
    if os.path.isfile(reference):
        commit = read_small(reference, _MAX_REF_BYTES).decode("utf-8", "replace").strip()
        current = os.path.join(snapshots, commit)
        if is_plain_name(commit) and current in commits:
            return current
    return max(commits, key=lambda path: os.stat(path).st_mtime)


def _choose(snapshot: str, repository: str, quant: str) -> str:
    files = [path for path in expand(snapshot) if not is_companion(path)]
    if not files:
        unfinished = any(name.endswith(".gguf") for _, _, names in os.walk(snapshot) for name in names)
        if unfinished:
            raise IncompleteModelError(f"{excerpt(repository)} is not completely in the cache; download it again.")
        raise NoModelError(f"{excerpt(repository)} has no GGUF in the Hugging Face cache; download one of its files.")
    if len(files) == 1 and not quant:
        return files[0]
    for wanted in [quant] if quant else _PREFERRED:
        fitting = [path for path in files if has_quant(path, wanted)]
        if fitting:
            return min(fitting, key=lambda path: (len(os.path.basename(path)), path))
    shown = ", ".join(excerpt(os.path.basename(path)) for path in files[:8]) + (", …" if len(files) > 8 else "")
    if quant:
        raise NoModelError(
            f"{excerpt(repository)} has no {excerpt(quant)} in the cache, but {shown}; name one of these."
        )
    raise SeveralModelsError(f"{excerpt(repository)} has {len(files)} models in the cache ({shown}); add :QUANT.")


def has_quant(path: str, quant: str) -> bool:
    """Whether the file's name has `quant` as whole words: Q4_K is not in `x-Q4_K_M.gguf`, and is in `x_Q4_K.gguf`."""
    shard = parse_shard_name(path)
    stem = os.path.basename(shard[0] if shard else path.removesuffix(".gguf")).lower()
    wanted = quant.lower()
    words = stem.replace(".", "-")
    return f"-{wanted}-".replace(".", "-") in f"-{words}-" or stem.endswith("_" + wanted)


def is_hub(folder: str) -> bool:
    """Whether `folder` is laid out as such a cache."""
    try:
        with os.scandir(folder) as entries:
            return any(e.name.startswith("models--") and leads_to(e.is_dir) for e in entries)
    except OSError:
        return False


def list_models(hub: str) -> StoreReport:
    """Every GGUF of every repository in the cache `hub`: of several snapshots the current one's before the others'.

    A model's name is org/repo:QUANT where `find` takes that for this file, else org/repo/file.
    """
    try:
        with os.scandir(hub) as entries:
            folders = sorted(e.path for e in entries if e.name.startswith("models--") and leads_to(e.is_dir))
    except OSError as error:
        return failed_report("huggingface", hub, unreadable(hub, error))
    models: list[StoredModel] = []
    refused = 0
    for folder in folders:
        try:
            models += _list_repository(folder)
        except (OSError, ModelError):
            refused += 1
    detail = f"{refused} of {len(folders)} repositories cannot be read" if refused else ""
    return StoreReport("huggingface", hub, "ok", detail, tuple(models))


def _list_repository(folder: str) -> list[StoredModel]:
    repository = os.path.basename(folder)[len("models--") :].replace("--", "/", 1)
    current = _current_snapshot(folder)
    if current is None and not os.path.isdir(os.path.join(folder, "blobs")):
        return []
    models: list[StoredModel] = []
    known: set[tuple[int, int]] = set()
    for snapshot in _snapshots(folder, current):
        seen = walk(snapshot)
        paths = [path for path, _ in seen.files]
        if snapshot == current:
            names = _names(repository, snapshot, paths)
        else:  # only what the current one does not have; what is broken in an old one is of no interest
            seen = seen._replace(dangling=(), unfinished=())
            commit = excerpt(os.path.basename(snapshot)[:8])
            names = {path: f"{repository}:{stem_of(path)}@{commit}" for path in paths}
        listed = models_of("huggingface", seen, lambda path, names=names: names.get(path, repository))  # type: ignore[misc]
        models += [model for model in listed if known.isdisjoint(each[:2] for each in model.identity)]
        known.update(found.identity[:2] for found in seen.files)
    if models or "gguf" in repository.lower():
        models += [unfinished_model("huggingface", path, repository) for path in _waiting(folder)]
    return models


def _waiting(folder: str) -> list[str]:
    """Downloads that go on; their names do not tell what they will be."""
    try:
        with os.scandir(os.path.join(folder, "blobs")) as entries:
            return sorted(entry.path for entry in entries if is_unfinished(entry.name))
    except FileNotFoundError:  # where links are not possible there are no blobs
        return []


def _snapshots(folder: str, current: str | None) -> list[str]:
    if current is None:
        return []
    with os.scandir(os.path.join(folder, "snapshots")) as entries:
        others = sorted(entry.path for entry in entries if entry.path != current and leads_to(entry.is_dir))
    return [current, *others[:_MAX_SNAPSHOTS]]


def _names(repository: str, snapshot: str, paths: Sequence[str]) -> dict[str, str]:
    """What `find` and llama.cpp's -hf call each of `paths`: org/repo:QUANT, else org/repo/path without .gguf."""
    firsts = [path for path in paths if (shard := parse_shard_name(path)) is None or shard[1] == 1]
    firsts = [path for path in firsts if not is_companion(path)][:_MAX_COMPARED]
    names = {}
    for path in paths:
        found = QUANT.search(stem_of(path))
        quant = found.group(1).upper() if found else ""
        same = [other for other in firsts if quant and has_quant(other, quant)]
        if path == min(same, key=lambda other: (len(os.path.basename(other)), other), default=None):
            names[path] = f"{repository}:{quant}"
        else:
            place = os.path.dirname(os.path.relpath(path, snapshot))
            names[path] = "/".join(part for part in (repository, place, stem_of(path)) if part)
    return names
