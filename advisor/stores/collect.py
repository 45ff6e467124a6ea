"""From the files of a folder to models: the parts of a split model together, each with its name and its problem."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from advisor.errors import ModelError
from advisor.gguf_header.errors import excerpt, printable
from advisor.gguf_header.shards import parse_shard_name
from advisor.stores.errors import ModelNotFoundError, UnreadableModelError
from advisor.stores.files import unreadable
from advisor.stores.types import FileIdentity, StoredModel, StoreReport
from advisor.stores.unfinished import CONTROL_ENDING, is_unfinished
from advisor.stores.walk import Found, Walk, identity_of, walk

_SUFFIX = ".gguf"


def report_folder(store: str, folder: str, *, below: bool = True) -> StoreReport:
    """Everything in `folder`, and below it if `below`, as models of `store`, named by their path. Never raises."""
    try:
        seen = walk(folder, below=below)
    except ModelError as error:
        return failed_report(store, folder, error)
    return StoreReport(
        store, folder, "ok", seen.remark, tuple(models_of(store, seen, lambda p: _path_below(p, folder)))
    )


def models_of(store: str, seen: Walk, name_of: Callable[[str], str]) -> list[StoredModel]:
    """The models of a walk, and a row with a problem for what is not there yet or not any more."""
    models = group(store, seen.files, name_of)
    models += [unfinished_model(store, path, name_of(path)) for path in seen.unfinished]
    for path in seen.dangling:
        problem = f"{printable(path)} is a link to a file that does not exist; download the model again."
        models.append(StoredModel(store, name_of(path), path, (path,), 0, (), problem=problem))
    return models


def linked_folders(folder: str) -> list[str]:
    """Folders elsewhere that links in `folder` lead to."""
    try:
        return list(walk(folder).linked)
    except ModelError:
        return []


def failed_report(store: str, folder: str, error: ModelError) -> StoreReport:
    """The report for a folder that cannot be listed."""
    status = "failed"
    if isinstance(error, ModelNotFoundError):
        status = "absent"
    elif isinstance(error, UnreadableModelError):
        status = "unreadable"
    return StoreReport(store, folder, status, str(error), ())


def group(store: str, files: Sequence[Found], name_of: Callable[[str], str]) -> list[StoredModel]:
    """One model per file, and one per split model; `name_of` turns the path of a model (first part) into its name."""
    split: dict[tuple[str, int], dict[int, FileIdentity]] = {}
    models = []
    for path, identity in files:
        shard = parse_shard_name(path)
        if shard is None or shard[2] == 1:
            models.append(StoredModel(store, name_of(path), path, (path,), identity.size_bytes, (identity,)))
        else:
            split.setdefault((shard[0], shard[2]), {})[shard[1]] = identity
    for (stem, count), parts in split.items():
        paths = tuple(part_name(stem, number, count) for number in sorted(parts))
        missing = next((number for number in range(1, count + 1) if number not in parts), None)
        problem = None
        if missing is not None:
            name = excerpt(part_name(os.path.basename(stem), missing, count))
            problem = f"{name} is missing ({count - len(parts)} of {count} parts are); download it again."
        identities = tuple(parts[number] for number in sorted(parts))
        size = sum(identity.size_bytes for identity in identities)
        models.append(StoredModel(store, name_of(paths[0]), paths[0], paths, size, identities, problem=problem))
    return models


def model_at(store: str, name: str, path: str) -> StoredModel:
    """The model that has its file, or any of its parts, at `path`."""
    shard = parse_shard_name(path)
    paths = [path] if shard is None else [part_name(shard[0], n, shard[2]) for n in range(1, shard[2] + 1)]
    files, problem = [], None
    for each in paths:
        if is_unfinished(os.path.basename(each)) or os.path.exists(each + CONTROL_ENDING):
            return unfinished_model(store, each, name)
        try:
            files.append(Found(each, identity_of(os.stat(each))))
        except OSError as error:
            problem = str(unreadable(each, error))
    if not files:
        return StoredModel(store, name, path, (path,), 0, (), problem=problem)
    return group(store, files, lambda _: name)[0]


def part_name(stem: str, number: int, count: int) -> str:
    """The name that llama.cpp gives a part of a split model."""
    return f"{stem}-{number:05d}-of-{count:05d}{_SUFFIX}"


def unfinished_model(store: str, path: str, name: str) -> StoredModel:
    """A download that goes on, which nobody must read."""
    try:
        n_bytes = os.stat(path).st_size
    except OSError:
        n_bytes = 0
    problem = f"{printable(path)} is still being downloaded; wait until it is complete, or start it again."
    return StoredModel(store, name, path, (path,), n_bytes, (), problem=problem)


def stem_of(path: str) -> str:
    """A model file's name without `.gguf` and without its number as a part."""
    shard = parse_shard_name(path)
    return os.path.basename(shard[0] if shard else path.removesuffix(_SUFFIX))


def _path_below(path: str, folder: str) -> str:
    """The model's path below `folder`, without what `stem_of` leaves out."""
    place = os.path.dirname(os.path.relpath(path, folder))
    return os.path.join(place, stem_of(path)) if place else stem_of(path)
