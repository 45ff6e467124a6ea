"""From what the user calls a MODEL to its header: a path, any shard, a folder, a snapshot, or a model of a store."""

from __future__ import annotations

import os

from advisor.gguf_header import GgufHeader, merge, read_header, read_snapshot, shard_paths
from advisor.gguf_header.errors import BadSnapshotError, EmptyFileError, excerpt, printable
from advisor.gguf_header.limits import MAX_SNAPSHOT_BYTES
from advisor.gguf_header.shards import missing_shard
from advisor.stores.errors import ModelNotFoundError, NoModelError, SeveralModelsError
from advisor.stores.files import expand, is_companion, open_regular, read_small, unreadable

__all__ = ["expand", "find_model", "load_header"]

_SNAPSHOT_ENDINGS = (".json", ".json.gz")
_FILE_ENDINGS = (".gguf", ".bin", ".safetensors", *_SNAPSHOT_ENDINGS)
_GZIP_MAGIC = b"\x1f\x8b"


def load_header(model_argument: str, most_bytes: int | None = None) -> GgufHeader:
    """Return the header of the MODEL: all shards of a split model together.

    Accepts the path of a GGUF, of any part of a split model, of a folder with exactly one model, of a header snapshot
    (.json or .json.gz), an Ollama `name:tag`, or `org/repo:QUANT` of the Hugging Face cache. A path that exists goes
    before a store's name. Raises a ModelError with one sentence for anything else; never blocks on a pipe.
    `most_bytes`: what a file's header may keep in memory, if less than any other.
    """
    path = find_model(model_argument)
    if path.endswith(_SNAPSHOT_ENDINGS):
        return _load_snapshot(path)
    header = _load_file(path, most_bytes)
    paths = shard_paths(header)
    if len(paths) == 1:
        return header
    missing = [shard for shard in paths if not os.path.exists(shard)]
    if missing:
        raise missing_shard(missing, len(paths))
    return merge([header if shard == path else _load_file(shard, most_bytes) for shard in paths])


def find_model(model_argument: str) -> str:
    """Return the path of the file that the MODEL means (of a split model: one of its parts)."""
    if not model_argument:
        raise ModelNotFoundError("The name of the model is empty; give the path of a GGUF file.")
    path: str = os.path.expanduser(model_argument)
    try:
        os.lstat(path)
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) or not isinstance(error, FileNotFoundError) or _is_path(model_argument):
            raise unreadable(path, error) from None
        return _find_in_stores(model_argument)
    return _only_model(path) if os.path.isdir(path) else path


def _is_path(argument: str) -> bool:
    return argument.startswith(("/", "./", "../", "~")) or argument.endswith(_FILE_ENDINGS) or os.sep * 2 in argument


def _find_in_stores(name: str) -> str:
    from advisor.stores import hugging_face, ollama  # most runs name a file

    # the Hugging Face cache knows names with one slash; Ollama knows none, one and two
    found = hugging_face.find(name) or ollama.find(name)
    if found:
        return found
    raise ModelNotFoundError(
        f"No file, Ollama model or Hugging Face cache entry is called {excerpt(name)}; "
        f"check the spelling, or download it first."
    )


def _only_model(folder: str) -> str:
    found = expand(folder)
    models = [path for path in found if not is_companion(path)] or found
    if not models:
        raise NoModelError(f"{printable(folder)} has no GGUF model in it; give a folder with one, or a file.")
    if len(models) > 1:
        names = [excerpt(os.path.relpath(path, folder)) for path in models[:8]]
        more = f" and {len(models) - 8} more" if len(models) > 8 else ""
        raise SeveralModelsError(
            f"{printable(folder)} has {len(models)} models in it ({', '.join(names)}{more}); give the path of one."
        )
    return models[0]


def _load_file(path: str, most_bytes: int | None) -> GgufHeader:
    file, file_bytes = open_regular(path)
    with file:
        try:
            return read_header(file, path, file_bytes, most_bytes)
        except OSError as error:
            raise unreadable(path, error) from None


def _load_snapshot(path: str) -> GgufHeader:
    data = read_small(path, MAX_SNAPSHOT_BYTES)
    if not data:
        raise EmptyFileError(path)
    if data.startswith(_GZIP_MAGIC):
        data = _gunzip(data, path)
    return read_snapshot(data, path)


def _gunzip(data: bytes, path: str) -> bytes:
    import zlib

    unpacker = zlib.decompressobj(wbits=31)
    try:
        text = unpacker.decompress(data, MAX_SNAPSHOT_BYTES + 1)  # a bomb is cut off here, and refused for its size
    except zlib.error:
        raise BadSnapshotError(path, why="its gzip data is damaged") from None
    if not unpacker.eof and len(text) <= MAX_SNAPSHOT_BYTES:
        raise BadSnapshotError(path, why="its gzip data ends too early")
    return text
