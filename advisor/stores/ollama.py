"""Ollama's store: `name:tag` to the GGUF blob behind it, and all that is in it.

Layout (Ollama 0.33): manifests/<host>/<namespace>/<model>/<tag> is JSON whose layers point to blobs/sha256-<hex>; the
first layer of type `application/vnd.ollama.image.model` is the language model. Other layers are projector, adapter and
draft (GGUF blobs), params (JSON); tensor layers belong to safetensors models, and models in the cloud have no weights.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.errors import ModelError
from advisor.gguf_header.errors import excerpt, printable
from advisor.stores.collect import failed_report
from advisor.stores.errors import IncompleteModelError, NoModelError, UnreadableModelError
from advisor.stores.files import leads_to, read_small, unreadable
from advisor.stores.types import Companion, StoredModel, StoreReport
from advisor.stores.walk import identity_of

_DEFAULT_HOST = "registry.ollama.ai"
_DEFAULT_NAMESPACE = "library"
_DEFAULT_TAG = "latest"
_LAYER = "application/vnd.ollama.image."
_MODEL_LAYER = _LAYER + "model"
_COMPANIONS = {_LAYER + "projector": "mmproj", _LAYER + "adapter": "adapter", _LAYER + "draft": "draft"}
_MAX_MANIFEST_BYTES = 1 << 20
_MAX_MANIFESTS = 20_000
_MAX_SEARCHED = 1000  # manifests that are read to find whose a blob is
_SYSTEM_STORE = "/usr/share/ollama/.ollama/models"
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


def default_folders(environ: Mapping[str, str], home: str) -> list[str]:
    """Return the folders that may be Ollama stores, the most specific first."""
    from advisor.stores.ollama_service import service_models

    named = (environ.get("OLLAMA_MODELS"), service_models())
    folders = [*(folder for folder in named if folder), os.path.join(home, ".ollama", "models")]
    return [*folders, _SYSTEM_STORE] if os.name == "posix" else folders


def stores() -> list[str]:
    """Return the folders that may be Ollama stores for this process."""
    return default_folders(os.environ, os.path.expanduser("~"))


def is_plain_name(part: str) -> bool:
    """Whether `part` can be one component of a path below a store: never empty, hidden, absolute or `..`."""
    return 0 < len(part) <= 255 and not part.startswith(".") and _NAME_CHARACTERS.issuperset(part)


def find(name: str) -> str | None:
    """Return the path of the GGUF of Ollama's model `name` ([host/][namespace/]model[:tag]), None if there is none.

    Raises a ModelError if the model is there but cannot be used.
    """
    parts = _parts_of(name)
    if parts is None:
        return None
    refused: str | None = None
    for store in stores():
        manifest = os.path.join(store, "manifests", *parts)
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


def _parts_of(name: str) -> tuple[str, str, str, str] | None:
    """(host, namespace, model, tag) of [host/][namespace/]model[:tag], None for what cannot be such a name."""
    before, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        before, tag = name, _DEFAULT_TAG
    parts = before.split("/")
    parts = [_DEFAULT_HOST, _DEFAULT_NAMESPACE][: 3 - len(parts)] + parts
    if len(parts) != 3 or not all(is_plain_name(part) for part in (*parts, tag)):
        return None
    return parts[0], parts[1], parts[2], tag


def _model_blob(store: str, manifest: str, name: str) -> str:
    shown = excerpt(name)
    layers = read_layers(manifest, shown)
    models = [layer for layer in layers if layer["mediaType"] == _MODEL_LAYER]
    if not models:
        raise NoModelError(
            f"Ollama's {shown} has no GGUF on this machine (a cloud or safetensors model); choose another."
        )
    return blob_of(store, manifest, models[0], shown)


def read_layers(manifest: str, shown: str) -> list[dict[str, Any]]:
    """The layers of the manifest of the model called `shown`, each with its mediaType. Raises a ModelError."""
    try:
        document = json.loads(read_small(manifest, _MAX_MANIFEST_BYTES))
        return [layer for layer in document["layers"] if isinstance(layer["mediaType"], str)]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise IncompleteModelError(
            f"Ollama's manifest {printable(manifest)} is damaged; run 'ollama pull {shown}' again."
        ) from None


def blob_of(store: str, manifest: str, layer: Mapping[str, Any], shown: str) -> str:
    """The path of a layer's blob, which is there and has its size. Raises IncompleteModelError."""
    again = f"run 'ollama pull {shown}' again"
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


def list_models(store: str) -> StoreReport:
    """Every model that `store` has a manifest of, with what is loaded beside it; a store that is closed to us says so.

    Models without a GGUF (in the cloud, safetensors) are listed with that as their problem.
    """
    root = os.path.join(store, "manifests")
    try:
        manifests = _manifests(root)
    except OSError as error:
        return failed_report("ollama", store, unreadable(root if os.path.isdir(store) else store, error))
    models = [_listed(store, os.path.join(root, *parts), name_of(parts)) for parts in manifests]
    n_waiting = _count_partial(os.path.join(store, "blobs"))
    detail = f"{n_waiting} download{'s' if n_waiting > 1 else ''} of blobs not finished" if n_waiting else ""
    return StoreReport("ollama", store, "ok", detail, tuple(models))


def family(blob: str, name: str = "") -> list[tuple[str, str]]:
    """(name, blob) of every tag of the model that `blob` belongs to, what cannot be used left out. Never raises.

    `name`: what the user called it; where that is not one of Ollama's names, manifests are searched for the blob.
    """
    root = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(blob))), "manifests")
    parts = _parts_of(name)
    try:
        if parts is None or not os.path.exists(os.path.join(root, *parts)):
            digest = os.path.basename(blob).replace("-", ":", 1).encode()
            known = _manifests(root)[:_MAX_SEARCHED]
            parts = next((one for one in known if _mentions(os.path.join(root, *one), digest)), None)
            if parts is None:
                return []
        tags = _manifests(root, parts[:3])
    except OSError:
        return []
    listed = [_listed(os.path.dirname(root), os.path.join(root, *one), name_of(one)) for one in tags]
    return [(model.name, model.path) for model in listed if model.problem is None]


def _mentions(manifest: str, digest: bytes) -> bool:
    try:
        return digest in read_small(manifest, _MAX_MANIFEST_BYTES)
    except ModelError:
        return False


def name_of(parts: Sequence[str]) -> str:
    """What Ollama calls the model of the manifest at host/namespace/model/tag."""
    host, namespace, model, tag = parts
    place = [] if host == _DEFAULT_HOST else [host]
    if place or namespace != _DEFAULT_NAMESPACE:
        place.append(namespace)
    return "/".join([*place, f"{model}:{tag}"])


def _manifests(root: str, below: tuple[str, ...] = ()) -> list[tuple[str, str, str, str]]:
    """(host, namespace, model, tag) of every manifest `below`. Raises OSError when `root` cannot be listed."""
    level: list[tuple[str, ...]] = [below]
    for depth in range(len(below), 4):
        found: list[tuple[str, ...]] = []
        for parts in level:
            try:
                with os.scandir(os.path.join(root, *parts)) as entries:
                    names = [e.name for e in entries if leads_to(e.is_file if depth == 3 else e.is_dir)]
            except OSError:
                if depth == 0:
                    raise
                continue
            found += [(*parts, name) for name in sorted(names) if not name.startswith(".")]
        level = found[:_MAX_MANIFESTS]
    return [(host, namespace, model, tag) for host, namespace, model, tag in level]


def _listed(store: str, manifest: str, name: str) -> StoredModel:
    shown = excerpt(name)
    try:
        layers = read_layers(manifest, shown)
        weights = [layer for layer in layers if layer["mediaType"] == _MODEL_LAYER]
        if not weights:
            return StoredModel("ollama", name, "", (), 0, (), problem=_why_no_gguf(layers, shown))
        path = blob_of(store, manifest, weights[0], shown)
        identity = identity_of(os.stat(path))
        companions = [  # older models have their projector as a second model layer
            Companion(_COMPANIONS.get(layer["mediaType"], "mmproj"), blob_of(store, manifest, layer, shown))
            for layer in [*weights[1:], *(layer for layer in layers if layer["mediaType"] in _COMPANIONS)]
        ]
        params = _params(store, manifest, layers, shown)
    except ModelError as error:
        return StoredModel("ollama", name, "", (), 0, (), problem=str(error))
    except OSError as error:
        return StoredModel("ollama", name, "", (), 0, (), problem=str(unreadable(manifest, error)))
    return StoredModel(
        "ollama", name, path, (path,), identity.size_bytes, (identity,), tuple(dict.fromkeys(companions)), params
    )


def _why_no_gguf(layers: list[dict[str, Any]], shown: str) -> str:
    if any(layer["mediaType"] == _LAYER + "tensor" for layer in layers):
        return f"Ollama's {shown} is a safetensors model, not a GGUF; pull another tag to use it with llama.cpp."
    return f"Ollama's {shown} runs in the cloud: none of its weights are on this machine."


def _params(store: str, manifest: str, layers: list[dict[str, Any]], shown: str) -> Mapping[str, Any]:
    """The PARAMETERs of the model; damaged ones are as good as none."""
    for layer in layers:
        if layer["mediaType"] == _LAYER + "params":
            try:
                document = json.loads(read_small(blob_of(store, manifest, layer, shown), _MAX_MANIFEST_BYTES))
            except (ValueError, RecursionError):
                return {}
            return document if isinstance(document, dict) else {}
    return {}


def _count_partial(blobs: str) -> int:
    """Blobs that are still being pulled; each has one file without a number, besides those of its pieces."""
    try:
        with os.scandir(blobs) as entries:
            return sum(1 for entry in entries if entry.name.startswith("sha256-") and entry.name.endswith("-partial"))
    except OSError:
        return 0
