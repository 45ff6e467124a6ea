"""Stores as the programs leave them on disk, written by hand: Ollama 0.33's and huggingface_hub's layout."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.tools.tiny_models import tiny_model, write

LIBRARY = "registry.ollama.ai/library"
_MEDIA = "application/vnd.ollama.image."


def pull(store: Path, manifest: str, data: bytes | None = None, beside: Sequence[tuple[str, bytes]] = ()) -> Path:
    """Put a model (default: a tiny one) into an Ollama store, with more layers (type, bytes); returns its blob."""
    data = tiny_model(manifest) if data is None else data
    layers = []
    for kind, content in (("model", data), *beside):
        digest = hashlib.sha256(content).hexdigest()
        write(store / "blobs" / f"sha256-{digest}", content)
        layers.append({"mediaType": _MEDIA + kind, "digest": f"sha256:{digest}", "size": len(content)})
    write(store / "manifests" / manifest, json.dumps({"schemaVersion": 2, "layers": layers}).encode())
    return store / "blobs" / f"sha256-{hashlib.sha256(data).hexdigest()}"


def download(
    hub: Path, repository: str, files: dict[str, bytes], commit: str = "aaaa1111", current: bool = True
) -> Path:
    """Put files of a repository into a Hugging Face cache; returns the snapshot's folder."""
    folder = hub / f"models--{repository.replace('/', '--')}"
    for name, data in files.items():
        blob = write(folder / "blobs" / hashlib.sha256(data).hexdigest(), data)
        link = folder / "snapshots" / commit / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    if current:
        write(folder / "refs" / "main", commit.encode())
    return folder / "snapshots" / commit


@contextmanager
def as_nobody() -> Iterator[None]:
    """Permissions mean nothing to root, so give root up for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
