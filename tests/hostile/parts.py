"""Lies in header snapshots, and in parts of split models."""

from __future__ import annotations

import copy
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from advisor.gguf_header import merge, read_snapshot, shard_paths
from advisor.stores.resolve import load_header
from tests.hostile.lies import MARK, READ, Case, Group, Lie, Made
from tests.hostile.models import document
from tests.tools.gguf_files import F32, array, honest, kv
from tests.tools.headers import read


def snapshots(_: Path) -> Made:
    """Header snapshots."""
    good: dict[str, Any] = {"metadata": {"a": {"type": "uint8", "value": 1}}, "tensors": [["t", [32], 0]]}
    entry, row = good["metadata"]["a"], good["tensors"][0]

    def made(**more: Any) -> bytes:
        return json.dumps({**copy.deepcopy(good), **more}).encode()

    def entered(**more: Any) -> bytes:
        return made(metadata={"a": {**entry, **more}})

    def rowed(*cells: Any) -> bytes:
        return made(tensors=[list(cells)])

    bad = "BadSnapshotError"
    for label, text, answer in (
        ("good", made(), READ), ("nothing", b"", bad), ("not text", b"\xff\xfe\x80", bad), ("deep", b"[" * 100_000, bad),
        ("deep objects", b'{"a":' * 50_000, bad), ("a list", b"[]", bad), ("null", b"null", bad), ("NaN", b"NaN", bad),
        ("no tensors", b'{"metadata":{}}', bad), ("metadata a list", made(metadata=[]), bad),
        ("many digits", b'{"metadata":{},"tensors":[],"n_vocab":' + b"9" * 100_000 + b"}", bad),
        ("many brackets", b'{"metadata":{},"tensors":[' + b"[]," * 1_000_000, bad),
        ("entry a number", made(metadata={"a": 1}), bad), ("type unknown", entered(type="uint9"), bad),
        ("type a list", entered(type=[]), bad), ("too large", entered(value=256), bad), ("negative", entered(value=-1), bad),
        ("bool for int", entered(value=True), bad), ("text for int", entered(value="1"), bad), ("null", entered(value=None), bad),
        ("empty key", made(metadata={"": entry}), "EmptyKeyError"), ("long key", made(metadata={"k" * 70_000: entry}), "KeyTooLongError"),
        ("row a number", made(tensors=[1]), bad), ("row short", rowed("t", [32]), bad), ("name a number", rowed(1, [32], 0), bad),
        ("name long", rowed("n" * 64, [32], 0), "BadTensorNameError"), ("name empty", rowed("", [32], 0), "BadTensorNameError"),
        ("twice", made(tensors=[row, row]), "DuplicateTensorError"), ("dims", rowed("t", [1] * 5, 0), "TooManyDimensionsError"),
        ("negative ne", rowed("t", [-32, 1], 0), "BadExtentError"), ("huge ne", rowed("t", [2**63], 0), "BadExtentError"),
        ("float ne", rowed("t", [1.5], 0), bad), ("type text", rowed("t", [32], "q"), bad),
        ("type unknown", rowed("t", [32], 137), "UnknownTensorTypeError"), ("type removed", rowed("t", [32], 4), "UnknownTensorTypeError"),
        ("row", rowed("t", [255], 12), "RowNotDivisibleError"), ("n_vocab", made(n_vocab=-1), bad), ("n_vocab text", made(n_vocab="9"), bad),
        ("file_bytes", made(file_bytes=2**70), bad), ("name a list", made(name=[]), READ), ("a name that is a path", made(name=f"../{MARK}"), READ),
        ("alignment", made(metadata={"general.alignment": {"type": "uint32", "value": 3}}), "BadAlignmentError"),
        ("larger than 8 MiB", b" " * (9 << 20), bad),
    ):  # fmt: skip
        yield Case(label, lambda t=text: read_snapshot(t, "s.json"), answer)


def _bomb() -> bytes:
    packer = zlib.compressobj(1, wbits=31)
    return b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(200)), packer.flush()])


def packed(folder: Path) -> Made:
    """Snapshots in gzip, from disk."""
    for label, data, answer in (
        ("a bomb", _bomb(), "BadSnapshotError"), ("damaged", b"\x1f\x8b\x08junk", "BadSnapshotError"),
        ("cut", gzip.compress(document("small-llama"))[:-20], "BadSnapshotError"),
        ("two members", gzip.compress(document("small-llama")) + gzip.compress(b"x"), READ),
        ("empty", b"", "EmptyFileError"),
    ):  # fmt: skip
        path = folder / f"{label}.json.gz"
        path.write_bytes(data)
        yield Case(label, lambda p=str(path): load_header(p), answer)


def _part(number: Any, count: Any, kind: str = "uint16", tensor: str = "t", extra: tuple[bytes, ...] = ()) -> bytes:
    entries = [kv("general.architecture", "string", "llama"), *extra]
    entries += [kv("split.no", kind, number), kv("split.count", kind, count)]
    return honest(entries, [(tensor, (32,), F32)])


def shards(folder: Path) -> Made:
    """Parts of split models, from disk."""

    def put(name: str, data: bytes) -> str:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        return str(folder / name)

    yield Case("count 0", lambda p=put("a/m.gguf", _part(0, 0)): load_header(p), READ)
    yield Case("count 1", lambda p=put("b/m.gguf", _part(0, 1)): load_header(p), READ)
    yield Case(
        "count 65535", lambda p=put("c/m-00001-of-65535.gguf", _part(0, 65535)): load_header(p), "MissingShardError"
    )
    yield Case(
        "count 2^31",
        lambda p=put("d/m-00001-of-00002.gguf", _part(0, 2**31 - 1, "int32")): load_header(p),
        "InconsistentShardsError",
    )
    yield Case("count -1", lambda p=put("e/m.gguf", _part(0, -1, "int32")): load_header(p), "InconsistentShardsError")
    yield Case(
        "number too large",
        lambda p=put("f/m-00001-of-00002.gguf", _part(7, 2)): load_header(p),
        "InconsistentShardsError",
    )
    yield Case(
        "count a text",
        lambda p=put("g/m.gguf", honest([kv("split.count", "string", f"../{MARK}")])): load_header(p),
        "InconsistentShardsError",
    )
    yield Case(
        "count a list",
        lambda p=put("h/m.gguf", honest([array("split.count", "uint16", [2])])): load_header(p),
        "InconsistentShardsError",
    )
    yield Case("not named so", lambda p=put("i/m.gguf", _part(0, 2)): load_header(p), "BadShardNameError")
    put("j/m-00001-of-00002.gguf", _part(0, 2))
    yield Case(
        "second given, alone counted",
        lambda p=put("j/m-00002-of-00002.gguf", _part(1, 2, tensor="u")): load_header(p),
        READ,
    )
    yield Case("missing", lambda p=put("k/m-00001-of-00002.gguf", _part(0, 2)): load_header(p), "MissingShardError")
    put("l/m-00002-of-00002.gguf", _part(1, 3, tensor="u"))
    yield Case(
        "counts differ", lambda p=put("l/m-00001-of-00002.gguf", _part(0, 2)): load_header(p), "InconsistentShardsError"
    )
    put(
        "n/m-00002-of-00002.gguf",
        honest(
            [
                kv("general.architecture", "string", "gemma"),
                kv("split.no", "uint16", 1),
                kv("split.count", "uint16", 2),
            ],
            [("u", (32,), F32)],
        ),
    )
    yield Case(
        "of another model",
        lambda p=put("n/m-00001-of-00002.gguf", _part(0, 2)): load_header(p),
        "InconsistentShardsError",
    )
    put("o/m-00002-of-00002.gguf", _part(1, 2))
    yield Case(
        "one tensor in both",
        lambda p=put("o/m-00001-of-00002.gguf", _part(0, 2)): load_header(p),
        "InconsistentShardsError",
    )
    put("p/m-00002-of-00002.gguf", b"<html>")
    yield Case(
        "a page for a part", lambda p=put("p/m-00001-of-00002.gguf", _part(0, 2)): load_header(p), "HtmlPageError"
    )
    total = (kv("split.tensors.count", "int32", -5),)
    put("q/m-00002-of-00002.gguf", _part(1, 2, tensor="u"))
    yield Case(
        "tensors in all -5",
        lambda p=put("q/m-00001-of-00002.gguf", _part(0, 2, extra=total)): load_header(p),
        "InconsistentShardsError",
    )
    parts = [_part(n, 1148, tensor=f"t{n}") for n in range(1148)]
    yield Case(
        "1148 parts",
        lambda: (
            len(merge([read(data, f"m-{n + 1:05d}-of-01148.gguf") for n, data in enumerate(parts)]).tensors) and None
        ),
        READ,
    )
    for name in (
        f"../../{MARK}-00001-of-00002.gguf",
        "-00001-of-00002.gguf",
        "x-00003-of-00002.gguf",
        "x-²²²²²-of-00002.gguf",
    ):
        answer = READ if name.split("-0")[0] in (f"../../{MARK}", "") else "BadShardNameError"
        yield Case(f"named {name}", lambda n=name: shard_paths(read(_part(0, 2), n)) and None, answer)


SNAPSHOTS = Group("header snapshots", (
    Lie("as JSON", "a snapshot comes with bug reports, from strangers", snapshots),
    Lie("in gzip", "a bomb of 200 MB in 200 KB", packed),
))  # fmt: skip
SHARDS = Group("shards", (Lie("parts of a split model", "names built from metadata; 1148 parts", shards),))
