"""Ollama's store: `name:tag` to the GGUF blob behind it.

Layout (Ollama 0.33): manifests/<host>/<namespace>/<model>/<tag> is JSON whose layers point to blobs/sha256-<hex>; the
first layer of type `application/vnd.ollama.image.model` is the language model.
"""

from __future__ import annotations

import os
from typing import Any

from advisor.gguf_header.errors import excerpt, printable
from advisor.stores.errors import IncompleteModelError, NoModelError, UnreadableModelError
from advisor.stores.files import read_small

_DEFAULT_HOST = "registry.ollama.ai"
_DEFAULT_NAMESPACE = "library"
_DEFAULT_TAG = "latest"
_MODEL_LAYER = "application/vnd.ollama.image.model"
_MAX_MANIFEST_BYTES = 1 << 20
_SYSTEM_STORE = "/usr/share/ollama/.ollama/models"
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


def stores() -> list[str]:
    """Return the folders that may be Ollama stores, the most specific first."""
    named = os.environ.get("OLLAMA_MODELS")
    return [
        *([named] if named else []),
        os.path.join(os.path.expanduser("~"), ".ollama", "models"),
        _SYSTEM_STORE,
    ]


def is_plain_name(part: str) -> bool:
    """Whether `part` can be one component of a path below a store: never empty, hidden, absolute or `..`."""
    return 0 < len(part) <= 255 and not part.startswith(".") and _NAME_CHARACTERS.issuperset(part)


def find(name: str) -> str | None:
    """Return the path of the GGUF of Ollama's model `name` ([host/][namespace/]model[:tag]), None if there is none.

    Raises a ModelError if the model is there but cannot be used.
    """
    before, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        before, tag = name, _DEFAULT_TAG
    parts = before.split("/")
    parts = [_DEFAULT_HOST, _DEFAULT_NAMESPACE][: 3 - len(parts)] + parts
    if len(parts) != 3 or not all(is_plain_name(part) for part in (*parts, tag)):
        return None
    refused: str | None = None
    for store in stores():
        manifest = os.path.join(store, "manifests", *parts, tag)
        try:
            os.stat(manifest)
        except PermissionError:
            refused = store
        except OSError:
            continue
        else:
            return _model_blob(store, manifest, name)
    if refused is not None:
        raise UnreadableModelError(
            f"The Ollama store {printable(refused)}, where {excerpt(name)} may be, is not readable for you; "
            f"join the group ollama and log in again."
        )
    return None


def _model_blob(store: str, manifest: str, name: str) -> str:
    import json

    shown = excerpt(name)
    again = f"run 'ollama pull {shown}' again"
    try:
        document = json.loads(read_small(manifest, _MAX_MANIFEST_BYTES))
        layers = [layer for layer in document["layers"] if layer["mediaType"] == _MODEL_LAYER]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise IncompleteModelError(f"Ollama's manifest {printable(manifest)} is damaged; {again}.") from None
    if not layers:
        raise NoModelError(
            f"Ollama's {shown} has no GGUF on this machine (a cloud or safetensors model); choose another."
        )
    layer: dict[str, Any] = layers[0]
    digest, size = layer.get("digest"), layer.get("size")
    digits = digest[len("sha256:") :] if isinstance(digest, str) and digest.startswith("sha256:") else ""
    if len(digits) != 64 or not frozenset("0123456789abcdef").issuperset(digits):
        raise IncompleteModelError(f"Ollama's manifest {printable(manifest)} names no usable blob; {again}.")
    blob = os.path.join(store, "blobs", f"sha256-{digits}")
    try:
        blob_bytes = os.stat(blob).st_size
    except PermissionError:
        raise UnreadableModelError(
            f"{printable(blob)} is not readable for you; join the group ollama and log in again."
        ) from None
    except OSError:
        blob_bytes = -1
    if blob_bytes != size:
        raise IncompleteModelError(f"Ollama's {shown} is not completely downloaded ({printable(blob)}); {again}.")
    return blob
