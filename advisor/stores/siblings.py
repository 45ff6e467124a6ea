"""Files that may be other quantizations of a model: what lies beside it under the same name. No header is read."""

from __future__ import annotations

import os
from collections.abc import Iterable

from advisor.records import NamedTuple

MOST = 12  # files whose headers are read
_MAX_ENTRIES = 10_000  # of one folder
_ENDING = ".gguf"


class Near(NamedTuple):
    """(what a person calls it, path) of each candidate, by size; of split models the first part."""

    files: tuple[tuple[str, str], ...]
    n_left_out: int  # there were more


def beside(path: str, asked: str = "") -> Near:
    """Candidates beside the model file `path`; `asked`: what the user called it.

    Of its folder, of its snapshot in the Hugging Face cache, its publisher in LM Studio, its family in Ollama's store.
    Only names are looked at: what they say apart from the quantization must be the same. Nothing is raised.
    """
    folder, name = os.path.split(os.path.abspath(path))
    if name.startswith("sha256-") and os.path.basename(folder) == "blobs":
        from advisor.stores import ollama

        own = os.path.realpath(path)
        return _at_most([one for one in ollama.family(path, asked) if os.path.realpath(one[1]) != own])
    found: list[str] = []
    for place in _places(folder):
        found += _models_of(place)
    if len(found) < 2:
        return Near((), 0)
    return _at_most(_alike(path, found))


def inside(folder: str) -> tuple[str, ...]:
    """Every model of a folder and below it, by `expand`; companions left out. Raises a ModelError."""
    from advisor.stores.files import expand, is_companion

    return tuple(path for path in expand(folder) if not is_companion(path))


def one_name(paths: Iterable[str]) -> bool:
    """Whether these files are called the same, apart from the quantization."""
    from advisor.stores.attach import words_of

    return len({words_of(path) for path in paths}) == 1


def spread(paths: Iterable[str]) -> Near:
    """At most so many of these files, spread over their sizes."""
    return _at_most([(os.path.basename(path), path) for path in paths])


def _places(folder: str) -> list[str]:
    """The folders in which other quantizations of a model in `folder` may lie."""
    parts = folder.split(os.sep)
    if "snapshots" in parts:
        at = len(parts) - 1 - parts[::-1].index("snapshots")
        if len(parts) > at + 1 and parts[at - 1].startswith("models--"):
            root = os.sep.join(parts[: at + 2])
            return [root, *_folders_of(root)]
    home = os.path.expanduser("~")
    if "lmstudio" in folder or "lm-studio" in folder or os.path.exists(os.path.join(home, ".lmstudio-home-pointer")):
        from advisor.stores.lm_studio import default_folders

        for place in default_folders(os.environ, home):
            publisher = os.path.dirname(folder)
            if os.path.dirname(publisher) == os.path.abspath(place):
                return _folders_of(publisher)
    return [folder]


def _folders_of(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.path for entry in entries if not entry.name.startswith(".") and _is_folder(entry))
    except OSError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _models_of(folder: str) -> list[str]:
    """Paths of everything called .gguf in a folder, of split models the first part."""
    names: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if len(names) >= _MAX_ENTRIES:
                    break
                names.append(entry.name)
    except OSError:
        return []
    found = [name for name in names if name.endswith(_ENDING) and not name.startswith(".")]
    return [os.path.join(folder, name) for name in sorted(found)] if found else []


def _alike(path: str, found: list[str]) -> list[tuple[str, str]]:
    """Those of `found` that are called like `path`, apart from the quantization, and are another file."""
    from advisor.gguf_header.shards import parse_shard_name
    from advisor.stores.attach import words_of
    from advisor.stores.collect import stem_of
    from advisor.stores.files import is_companion
    from advisor.stores.unfinished import is_unfinished

    own, real, stem = words_of(path), os.path.realpath(path), stem_of(path)
    alike = []
    for other in found:
        shard = parse_shard_name(other)
        if (shard is not None and shard[1] != 1) or is_companion(other) or words_of(other) != own:
            continue
        if is_unfinished(os.path.basename(other)) or os.path.exists(f"{other}.aria2"):
            continue
        if os.path.realpath(other) != real and (shard is None or stem_of(other) != stem):
            alike.append((os.path.basename(other), other))
    return alike


def _at_most(files: list[tuple[str, str]]) -> Near:
    """At most MOST of them, spread over their sizes, the smallest and the largest among them."""
    sizes = {}
    for _, path in files:
        try:
            sizes[path] = os.stat(path).st_size
        except OSError:
            continue
    kept = sorted((one for one in files if one[1] in sizes), key=lambda one: (sizes[one[1]], one))
    if len(kept) <= MOST:
        return Near(tuple(kept), 0)
    picked = [kept[index * (len(kept) - 1) // (MOST - 1)] for index in range(MOST)]
    return Near(tuple(picked), len(kept) - MOST)
