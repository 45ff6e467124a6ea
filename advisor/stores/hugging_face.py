"""The Hugging Face cache, which llama.cpp's `-hf` uses too: `org/repo[:QUANT]` to a GGUF in it.

Layout: <hub>/models--org--repo/{refs/main, snapshots/<commit>/<file>}; files are links to ../../blobs/<digest>.
The order of the variables is llama.cpp's (b11434).
"""

from __future__ import annotations

import os

from advisor.gguf_header.errors import excerpt
from advisor.gguf_header.shards import parse_shard_name
from advisor.stores.errors import IncompleteModelError, NoModelError, SeveralModelsError
from advisor.stores.files import expand, is_companion, leads_to, read_small
from advisor.stores.ollama import is_plain_name

_PREFERRED = ("Q4_K_M", "Q8_0")  # what llama.cpp's -hf takes if no quant is named
_MAX_REF_BYTES = 200


def hubs() -> list[str]:
    """Return the folders that may be Hugging Face caches, the most specific first."""
    home = os.path.expanduser("~")
    places = []
    for variable, below in (
        ("LLAMA_CACHE", ""),
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
    ):
        value = os.environ.get(variable)
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
    for hub in hubs():
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
