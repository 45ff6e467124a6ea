"""Every model on this machine: all stores listed, headers read (or remembered), companions with their models."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from advisor.records import NamedTuple
from advisor.stores import folder as plain_folder
from advisor.stores import gpt4all, hugging_face, jan, llama_cache, lm_studio, ollama
from advisor.stores.attach import attach
from advisor.stores.cache import Cache, cache_folder
from advisor.stores.collect import linked_folders, report_folder
from advisor.stores.facts import read_facts
from advisor.stores.types import SeenAs, StoredModel, StoreReport

Progress = Callable[[int, int], None]  # models read, models in all


class Store(Protocol):
    """What a module in this room does to be a store that is looked into by itself."""

    def default_folders(self, environ: Mapping[str, str], home: str) -> list[str]:
        """Where its models may be on this machine, the most specific first; none of them need exist."""

    def list_models(self, folder: str, /) -> StoreReport:
        """What is in one of these folders, headers not read. Never raises."""


class _Place(NamedTuple):
    folder: str
    store: str
    list_models: Callable[[str], StoreReport]


# a file that is in several belongs to the first
_STORES: tuple[tuple[str, Store], ...] = (
    ("ollama", ollama),
    ("huggingface", hugging_face),
    ("lmstudio", lm_studio),
    ("jan", jan),
    ("gpt4all", gpt4all),
    ("llama-cache", llama_cache),
)


def scan_stores(
    environ: Mapping[str, str],
    folders: Sequence[str] = (),
    include_defaults: bool | Collection[str] = True,
    *,
    cache: Cache | None = None,
    progress: Progress | None = None,
) -> tuple[StoreReport, ...]:
    """Every model of the plain `folders` and, with `include_defaults`, of every store or those named.

    There is one report per folder. A file that is in several places is listed once, under the first; `also` names the
    others. Headers are read once and remembered in `cache` (default: the user's own); `progress` is called after each
    model. Nothing is raised for a folder or a file that cannot be read: the report's status and the model's problem
    say so.
    """
    if cache is None:
        with Cache(cache_folder(environ)) as own:
            return scan_stores(environ, folders, include_defaults, cache=own, progress=progress)
    reports = _once([place.list_models(place.folder) for place in _places(environ, folders, include_defaults)])
    n_models, n_read = sum(len(report.models) for report in reports), 0
    result = []
    for report in reports:
        models = []
        for model in report.models:
            models.append(_with_facts(model, cache))
            n_read += 1
            if progress is not None:
                progress(n_read, n_models)
        result.append(report._replace(models=attach(models)))
    return tuple(result)


def scan_around(
    environ: Mapping[str, str], path: str, *, cache: Cache | None = None, progress: Progress | None = None
) -> tuple[StoredModel, ...]:
    """Every model of the store that holds the file `path`, else of its folder, not below. Headers as in `scan_stores`.

    Nothing is raised; what cannot be read is left out or has a problem.
    """
    if cache is None:
        with Cache(cache_folder(environ)) as own:
            return scan_around(environ, path, cache=own, progress=progress)
    home, places = _home(environ), {os.path.abspath(path), os.path.realpath(path)}
    for _, store in _STORES:
        for folder in store.default_folders(environ, home):
            root = os.path.join(os.path.realpath(_absolute(folder, home)), "")
            if any(os.path.join(os.path.realpath(os.path.dirname(place)), "").startswith(root) for place in places):
                return _read_all(store.list_models(_absolute(folder, home)), cache, progress)
    folder = os.path.dirname(os.path.abspath(path))
    return _read_all(report_folder("folder", folder, below=False), cache, progress)


def _read_all(report: StoreReport, cache: Cache, progress: Progress | None) -> tuple[StoredModel, ...]:
    models = []
    for model in report.models:
        models.append(_with_facts(model, cache))
        if progress is not None:
            progress(len(models), len(report.models))
    return tuple(models)


def watched_folders(
    environ: Mapping[str, str], folders: Sequence[str] = (), include_defaults: bool | Collection[str] = True
) -> tuple[str, ...]:
    """Every folder where a change, there or anywhere below, can change what `scan_stores` finds; none need exist.

    Folders that links lead to are in it too, and none is within another. Two changes show at the next full look only:
    of a file that a link to a file leads to, and of a program's settings that move its models.
    """
    places = []
    for folder, store, _ in _places(environ, folders, include_defaults):
        places += [jan.model_folder(folder), *jan.outside_folders(folder)] if store == "jan" else [folder]
        if store == "folder":
            places += plain_folder.outside_folders(folder)
        if store not in ("ollama", "huggingface"):
            places += linked_folders(folder)
    kept: list[str] = []
    for folder in sorted(set(places), key=lambda place: (place.count(os.sep), place)):
        if not any(folder == other or folder.startswith(os.path.join(other, "")) for other in kept):
            kept.append(folder)
    return tuple(kept)


def _places(
    environ: Mapping[str, str], folders: Sequence[str], include_defaults: bool | Collection[str]
) -> list[_Place]:
    """Where to look, each folder once per store."""
    home = _home(environ)
    given = [_Place(_absolute(folder, home), "folder", plain_folder.list_models) for folder in folders]
    names = {name for name, _ in _STORES} if include_defaults is True else include_defaults or ()
    defaults = [
        _Place(_absolute(folder, home), name, store.list_models)
        for name, store in _STORES
        if name in names
        for folder in store.default_folders(environ, home)
    ]
    seen: set[tuple[str, str]] = set()
    kept = []
    for place in (*given, *defaults):
        key = (place.store, os.path.realpath(place.folder))
        if key not in seen:
            seen.add(key)
            kept.append(place)
    return kept


def _home(environ: Mapping[str, str]) -> str:
    return environ.get("HOME") or os.path.expanduser("~")


def _absolute(folder: str, home: str) -> str:
    if folder == "~" or folder.startswith("~/"):
        folder = home + folder[1:]
    return os.path.abspath(folder)


def _once(reports: Iterable[StoreReport]) -> list[StoreReport]:
    """The reports with each file in the first that has it; `also` of that one names the others."""
    first: dict[object, tuple[int, int]] = {}
    result: list[list[StoredModel]] = []
    reports = list(reports)
    for index, report in enumerate(reports):
        result.append([])
        for model in sorted(report.models, key=_order):
            key = _key(model)
            known = first.get(key) if key is not None else None
            if known is None:
                if key is not None:
                    first[key] = (index, len(result[index]))
                result[index].append(model)
                continue
            before = result[known[0]][known[1]]
            also = (*before.also, SeenAs(model.store, model.name, model.path))
            result[known[0]][known[1]] = before._replace(also=also)
    return [report._replace(models=tuple(models)) for report, models in zip(reports, result, strict=True)]


def _key(model: StoredModel) -> object:
    """What makes two entries the same model: the file, and in Ollama the adapters on top of it."""
    if not model.identity:
        return None
    return model.identity[0][:2], tuple(each.path for each in model.companions if each.kind == "adapter")


def _order(model: StoredModel) -> list[tuple[int, int | str]]:
    """Names as people sort them: 8b before 70b, capitals among the others."""
    parts = re.split(r"(\d+)", model.name.casefold())
    return [(0, int(part[:18])) if part.isdecimal() and part.isascii() else (1, part) for part in parts]


def _with_facts(model: StoredModel, cache: Cache) -> StoredModel:
    if model.problem is not None:
        return model
    known = cache.facts(model)
    if known is None:
        facts, problem, lasting = read_facts(model.paths)
        if lasting:
            cache.remember_facts(model, facts, problem)
    else:
        facts, problem = known
    return model._replace(facts=facts, problem=problem)
