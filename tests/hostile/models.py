"""Lies in what a header says of the model, header snapshots, and parts of split models."""

from __future__ import annotations

import copy
import functools
import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from advisor.app import App
from advisor.gguf_header import merge, read_snapshot, shard_paths
from advisor.host import Cpu, Device, HostSnapshot, Ram
from advisor.planner import Planner
from advisor.recommend.search import Wishes
from advisor.settings import RequestedSettings
from advisor.stores.resolve import load_header
from tests.hostile.lies import MARK, READ, Case, Group, Lie, Made
from tests.tools.gguf_files import F32, array, honest, kv
from tests.tools.headers import read

ZOO = Path(__file__).resolve().parents[1] / "data/zoo"
GIB = 1 << 30
PLANNED = "planned"


@functools.cache
def _document(name: str) -> bytes:
    return gzip.decompress((ZOO / f"{name}.json.gz").read_bytes())


@functools.cache
def _planner() -> tuple[App, Planner]:
    app = App(None)
    card = Device("CUDA0", "cuda", "card", 8 * GIB, 8 * GIB)
    host = HostSnapshot((card,), Ram(32 * GIB, 32 * GIB), Cpu("cpu", 8, 16), "linux")
    return app, Planner(app, host, app.engine(None))


def _recommend(text: bytes) -> str:
    app, planner = _planner()
    spec = app.model(read_snapshot(text, "m.json"))
    wishes = Wishes(RequestedSettings(n_ctx=2048))
    planner.recommend(spec, planner.intent("balanced"), wishes)
    return PLANNED


def changed(label: str, change: Callable[[dict[str, Any], list[Any]], object], answer: str, model: str = "small-llama") -> Case:
    """A real model's header with a change, planned for."""
    document = json.loads(_document(model))
    change(document["metadata"], document["tensors"])
    text = json.dumps(document).encode()
    return Case(label, lambda: _recommend(text), answer)


def valued(key: str, kind: str, value: Any, answer: str, model: str = "small-llama") -> Case:
    """A value of one key; KEY without its architecture."""
    prefix = {"small-llama": "llama", "small-qwen3moe": "qwen3moe", "small-gemma3": "gemma3", "mamba-2.8b": "mamba"}[model]
    full = key if key.startswith("general.") else f"{prefix}.{key}"
    shown = str(value)[:30]
    return changed(f"{key} {kind} {shown}", lambda m, _: m.update({full: {"type": kind, "value": value}}), answer, model)


def architectures(_: Path) -> Made:
    """general.architecture."""
    yield changed("missing", lambda m, _: m.pop("general.architecture"), "ModelError")
    for label, value in (("empty", ""), ("unknown", "nosuch"), ("very long", "x" * 100_000), ("a path", f"../../{MARK}"),
                         ("absolute", f"/etc/{MARK}"), ("NUL", f"a\0{MARK}"), ("escape codes", "\x1b[2J"),
                         ("shell", "$(id)"), ("newline", "llama\n")):  # fmt: skip
        yield changed(label, lambda m, _, v=value: m.update({"general.architecture": {"type": "string", "value": v}}), "ModelError")
    yield changed("a number", lambda m, _: m.update({"general.architecture": {"type": "uint32", "value": 7}}), "ModelError")


def blocks(_: Path) -> Made:
    """block_count."""
    for kind, value, answer in (
        ("uint32", 0, "ModelError"), ("int32", -1, "ModelError"), ("float32", 0.5, "ModelError"),
        ("float32", float("nan"), "ModelError"), ("string", "4", "ModelError"), ("bool", True, "ExtraBlockError"),
        ("array", {"array": "uint32", "values": []}, "ModelError"), ("uint64", 2**40, "ModelError"),
        ("uint64", 2**63, "ModelError"), ("uint32", 1, "ExtraBlockError"), ("uint32", 513, "ModelError"),
        ("uint32", 512, "MissingBlockError"),
    ):  # fmt: skip
        yield valued("block_count", kind, value, answer)
    yield changed("missing", lambda m, _: m.pop("llama.block_count"), "ModelError")
    yield changed("no tensors", lambda _, t: t.clear(), "ModelError")
    yield changed("no blk.*", lambda _, t: t.__setitem__(slice(0, None), [row for row in t if "blk" not in row[0]]), "MissingBlockError")
    for name in ("blk.9999.ffn_up.weight", "blk.4294967296.ffn_up.weight"):
        yield changed(name, lambda _, t, n=name: _named(t, "ffn_up").__setitem__(0, n), "ExtraBlockError")


PLAIN_COUNTS = ("attention.head_count_kv", "feed_forward_length", "attention.key_length", "attention.value_length", "context_length")
UNUSED = ("rope.dimension_count", "vocab_size")  # what is not read where the tensors say it
NOT_COUNTS: tuple[tuple[str, Any], ...] = (
    ("int32", -1), ("uint64", 2**63), ("float32", float("nan")), ("float32", float("inf")), ("string", "x"),
    ("array", {"array": "string", "values": ["a"]}), ("array", {"array": "int32", "values": []}),
    ("array", {"array": "int32", "values": [-1] * 99}),
)  # fmt: skip


def counts(_: Path) -> Made:
    """Counts that are divided by, or that size something."""
    for key in (*PLAIN_COUNTS, "attention.head_count", "embedding_length"):
        for kind, value in NOT_COUNTS:
            yield valued(key, kind, value, "ModelError")
    for key in PLAIN_COUNTS:
        for value in (0, 1, 2**31, 2**39):
            yield valued(key, "uint64", value, PLANNED)
        short = "ModelError" if key in PLAIN_COUNTS[:2] else PLANNED  # one for each block
        yield valued(key, "array", {"array": "int32", "values": [0]}, short)
        yield valued(key, "array", {"array": "int32", "values": [0] * 99}, PLANNED)
    for key in UNUSED:
        for kind, value in NOT_COUNTS:
            broken = kind == "float32" and key == UNUSED[0]
            yield valued(key, kind, value, "ImpossibleModelError" if broken else PLANNED)
    for value, answer in ((0, "ContradictionError"), (1, PLANNED), (2**31, PLANNED), (2**39, PLANNED)):
        yield valued("attention.head_count", "uint64", value, answer)
    yield valued("attention.head_count", "array", {"array": "int32", "values": [0] * 99}, "ContradictionError")
    for value, answer in ((0, "ModelError"), (1, "ContradictionError"), (2**39, "ContradictionError")):
        yield valued("embedding_length", "uint64", value, answer)


def experts(_: Path) -> Made:
    """Experts and windows."""
    model = "small-qwen3moe"
    for key in ("expert_count", "expert_used_count", "expert_feed_forward_length"):
        for value in (0, 1, 2**31, 2**39):
            yield valued(key, "uint64", value, PLANNED, model)
        unused = key == "expert_feed_forward_length"
        yield valued(key, "float32", float("nan"), PLANNED if unused else "ModelError", model)
        yield valued(key, "bool", True, PLANNED, model)
    for value in (0, 1, 2**31, 2**39):
        yield valued("attention.sliding_window", "uint64", value, PLANNED, "small-gemma3")
    for key in ("ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank"):
        full = f"mamba.{key}"
        yield changed(f"{key} missing", lambda m, _, k=full: m.pop(k), PLANNED, "mamba-2.8b")
        for value in (0, 1, 2**39):
            yield valued(key, "uint64", value, PLANNED, "mamba-2.8b")
        broken = "ImpossibleModelError" if key == "ssm.time_step_rank" else "ModelError"
        yield valued(key, "float32", float("nan"), broken, "mamba-2.8b")
    for value in (41, 1024, 2**31, 2**63):
        yield valued("general.file_type", "uint64", value, PLANNED)


def matrices(_: Path) -> Made:
    """Shapes that go with nothing."""
    for name in ("token_embd.weight", "blk.0.attn_q.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight"):
        for shape, answer in (([], "RowNotDivisibleError"), ([256], "NoMatrixError")):
            yield changed(f"{name} {shape}", lambda _, t, n=name, s=shape: _shape(t, n, s), answer)
        for shape in ([0, 0], [256, 0], [256, 2**40], [256, 1, 1, 1]):
            answer = "ContradictionError" if name == "token_embd.weight" else PLANNED
            yield changed(f"{name} {shape}", lambda _, t, n=name, s=shape: _shape(t, n, s), answer)


def _named(tensors: list[Any], part: str) -> list[Any]:
    found: list[Any] = next(row for row in tensors if part in row[0])
    return found


def _shape(tensors: list[Any], name: str, shape: list[int]) -> None:
    next(row for row in tensors if row[0] == name)[1] = shape


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
        ("cut", gzip.compress(_document("small-llama"))[:-20], "BadSnapshotError"),
        ("two members", gzip.compress(_document("small-llama")) + gzip.compress(b"x"), READ),
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
    yield Case("count 65535", lambda p=put("c/m-00001-of-65535.gguf", _part(0, 65535)): load_header(p), "MissingShardError")
    yield Case("count 2^31", lambda p=put("d/m-00001-of-00002.gguf", _part(0, 2**31 - 1, "int32")): load_header(p), "InconsistentShardsError")
    yield Case("count -1", lambda p=put("e/m.gguf", _part(0, -1, "int32")): load_header(p), "InconsistentShardsError")
    yield Case("number too large", lambda p=put("f/m-00001-of-00002.gguf", _part(7, 2)): load_header(p), "InconsistentShardsError")
    yield Case("count a text", lambda p=put("g/m.gguf", honest([kv("split.count", "string", f"../{MARK}")])): load_header(p), "InconsistentShardsError")
    yield Case("count a list", lambda p=put("h/m.gguf", honest([array("split.count", "uint16", [2])])): load_header(p), "InconsistentShardsError")
    yield Case("not named so", lambda p=put("i/m.gguf", _part(0, 2)): load_header(p), "BadShardNameError")
    put("j/m-00001-of-00002.gguf", _part(0, 2))
    yield Case("second given, alone counted", lambda p=put("j/m-00002-of-00002.gguf", _part(1, 2, tensor="u")): load_header(p), READ)
    yield Case("missing", lambda p=put("k/m-00001-of-00002.gguf", _part(0, 2)): load_header(p), "MissingShardError")
    put("l/m-00002-of-00002.gguf", _part(1, 3, tensor="u"))
    yield Case("counts differ", lambda p=put("l/m-00001-of-00002.gguf", _part(0, 2)): load_header(p), "InconsistentShardsError")
    put("n/m-00002-of-00002.gguf", honest([kv("general.architecture", "string", "gemma"), kv("split.no", "uint16", 1), kv("split.count", "uint16", 2)], [("u", (32,), F32)]))
    yield Case("of another model", lambda p=put("n/m-00001-of-00002.gguf", _part(0, 2)): load_header(p), "InconsistentShardsError")
    put("o/m-00002-of-00002.gguf", _part(1, 2))
    yield Case("one tensor in both", lambda p=put("o/m-00001-of-00002.gguf", _part(0, 2)): load_header(p), "InconsistentShardsError")
    put("p/m-00002-of-00002.gguf", b"<html>")
    yield Case("a page for a part", lambda p=put("p/m-00001-of-00002.gguf", _part(0, 2)): load_header(p), "HtmlPageError")
    total = (kv("split.tensors.count", "int32", -5),)
    put("q/m-00002-of-00002.gguf", _part(1, 2, tensor="u"))
    yield Case("tensors in all -5", lambda p=put("q/m-00001-of-00002.gguf", _part(0, 2, extra=total)): load_header(p), "InconsistentShardsError")
    parts = [_part(n, 1148, tensor=f"t{n}") for n in range(1148)]
    yield Case("1148 parts", lambda: len(merge([read(data, f"m-{n + 1:05d}-of-01148.gguf") for n, data in enumerate(parts)]).tensors) and None, READ)
    for name in (f"../../{MARK}-00001-of-00002.gguf", "-00001-of-00002.gguf", "x-00003-of-00002.gguf", "x-²²²²²-of-00002.gguf"):
        answer = READ if name.split("-0")[0] in (f"../../{MARK}", "") else "BadShardNameError"
        yield Case(f"named {name}", lambda n=name: shard_paths(read(_part(0, 2), n)) and None, answer)


MODELS = Group("models", (
    Lie("the architecture", "unknown names; names that are paths", architectures),
    Lie("the number of blocks", "CVE-2024-8063; division by zero without blk.0 (ollama#7802); allocation per block", blocks),
    Lie("counts that are divided by", "1bit-MONSTER#455 (head_count 0), ollama#9984 (a list), #9716 (0)", counts),
    Lie("experts, windows, states, file types", "used > there, window 0 or beyond the context, keys in part", experts),
    Lie("matrices that are none", "out-of-bounds read (CVE-2024-12055)", matrices),
))  # fmt: skip
SNAPSHOTS = Group("header snapshots", (
    Lie("as JSON", "a snapshot comes with bug reports, from strangers", snapshots),
    Lie("in gzip", "a bomb of 200 MB in 200 KB", packed),
))  # fmt: skip
SHARDS = Group("shards", (Lie("parts of a split model", "names built from metadata; 1148 parts", shards),))
