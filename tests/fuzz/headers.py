"""Targets: GGUF headers, as bytes and as files built from lies; header snapshots; shards; models to plan for."""

from __future__ import annotations

import copy
import functools
import gzip
import io
import json
import struct
from pathlib import Path
from typing import Any

from advisor.app import App
from advisor.gguf_header import merge, parse_shard_name, read_header, read_snapshot, shard_paths, write_snapshot
from advisor.gguf_header.limits import MAX_SHARDS
from advisor.gguf_header.types import GgufHeader
from advisor.host import Cpu, Device, HostSnapshot, Ram
from advisor.memory.plan import plan_memory
from advisor.memory.resolve import resolve_settings
from advisor.planner import Planner
from advisor.recommend.search import Wishes
from advisor.settings import RequestedSettings
from tests.fuzz.laws import Choices, hold, judged, plain
from tests.tools import gguf_files as files

ZOO = Path(__file__).resolve().parents[1] / "data/zoo"
MODELS = (
    "small-llama", "small-qwen3moe", "small-gemma3", "small-gptoss", "small-qwen3next", "small-ds2", "small-falconh1",
    "mamba-2.8b", "rwkv7-2.9b", "lfm2-1.2b", "gemma3n-e4b", "minicpm3-4b",
)  # fmt: skip
EDGES = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2, 3, 5, 31, 64, 65535)
KEYS = (
    "general.architecture", "general.alignment", "general.name", "split.no", "split.count", "split.tensors.count",
    "tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.chat_template", "llama.block_count",
    "llama.attention.head_count", "llama.context_length", "general.file_type", "",
)  # fmt: skip
GIB = 1 << 30


def gguf(data: bytes) -> None:
    """Bytes as a file."""
    header = plain(lambda: read_header(io.BytesIO(data), "m.gguf", len(data)))
    if header is not None:
        _held(header)


def gguf_short(data: bytes) -> None:
    """A file that ends before or after the size that was taken of it."""
    if len(data) > 2:
        plain(lambda: read_header(io.BytesIO(data[2:]), "m.gguf", len(data) + int.from_bytes(data[:2], "little")))


def _held(header: GgufHeader) -> None:
    hold(len(header.tensors) <= 65536 and len(header.metadata) <= 16384, "counts", header.path)
    hold(list(header.metadata) == list(header.value_types), "a type for every value", header.value_types)
    snapshot = write_snapshot(header, "m")
    if len(snapshot) < 1 << 20:
        plain(lambda: read_snapshot(snapshot, "m.json"))
    paths = plain(lambda: shard_paths(header))
    hold(paths is None or len(paths) <= MAX_SHARDS, "shards", len(paths or ()))
    hold(paths is None or all("/" not in path for path in paths), "a path out of the file", paths)


def gguf_built(data: bytes) -> None:
    """A file written from decisions, every number of which may lie."""
    choices = Choices(data)
    entries = [_entry(choices) for _ in range(choices.number(8))]
    rows = [_row(choices, index) for index in range(choices.number(6))]
    counts: dict[str, Any] = {}
    if choices.number(4) == 1:
        counts["n_kv"] = choices.pick(EDGES)
    if choices.number(4) == 1:
        counts["n_tensors"] = choices.pick(EDGES)
    file = files.assemble(entries, rows, choices.number(1024), version=choices.pick((3, 2, 3, 1, 4, 0)), **counts)
    gguf(file[: len(file) - choices.number(64) if choices.number(5) == 1 else None])


def _key(choices: Choices, index: int = 0) -> bytes:
    return choices.some(70) if choices.number(4) == 1 else f"{choices.pick(KEYS)}{index or ''}".encode()


def _text(choices: Choices) -> bytes:
    return files.text(choices.some(40), choices.pick(EDGES) if choices.number(6) == 1 else None)


def _entry(choices: Choices) -> bytes:
    kind = choices.pick((*files.IDS.values(), 13, 255, 2**32 - 1))
    if kind == files.IDS["string"]:
        return files.raw_kv(_key(choices), kind, _text(choices))
    if kind != files.IDS["array"]:
        return files.raw_kv(_key(choices), kind, choices.some(8).ljust(8 if choices.number(8) else 1, b"\0"))
    element = choices.pick((*files.IDS.values(), 13))
    n_items = choices.number(80)
    length = choices.pick(EDGES) if choices.number(6) == 1 else n_items
    items = b"".join(_text(choices) for _ in range(n_items)) if element == 8 else choices.some(250).ljust(n_items * 8)
    return files.raw_kv(_key(choices), kind, struct.pack("<IQ", element, length) + items)


def _row(choices: Choices, index: int) -> bytes:
    shape = [choices.pick((32, 256, 1, 0, *EDGES)) for _ in range(choices.number(5))]
    n_dims = choices.pick((5, 2**32 - 1, 0)) if choices.number(8) == 1 else None
    kind = choices.pick((0, 1, 2, 8, 12, 14, 30, 39, 4, 31, 137, 2**31, 2**32 - 1))
    offset = choices.pick((0, 128, *EDGES)) if choices.number(3) else 0
    name = choices.some(70) if choices.number(4) == 1 else f"blk.{index}.w".encode()
    return files.tensor(name, shape, kind, offset, n_dims)


def snapshot(data: bytes) -> None:
    """Bytes as a header snapshot; what was read is written and read the same."""
    header = plain(lambda: read_snapshot(data, "s.json"))
    if header is None:
        return
    again = read_snapshot(write_snapshot(header, header.name), "s.json")
    hold(again.tensors == header.tensors and repr(again.metadata) == repr(header.metadata), "written and read", header)


def shards(data: bytes) -> None:
    """Parts that say of themselves what they like, under names that say the same or not."""
    choices = Choices(data)
    numbers = (0, 1, 2, 3, 4, 65535, 65536, -1, 2**31 - 1)
    kinds = ("uint16", "int32", "uint32", "int64")
    headers = []
    for index in range(choices.number(6)):
        entries = []
        for key in ("split.no", "split.count", "split.tensors.count"):
            if choices.number(8) == 1:
                entries.append(files.kv(key, "string", choices.some(9)))
            elif choices.number(8):
                value, kind = choices.pick(numbers) if choices.number(3) == 1 else index, choices.pick(kinds)
                low, high = {"uint16": (0, 65535), "int32": (-(2**31), 2**31 - 1), "uint32": (0, 2**32 - 1)}.get(
                    kind, (-(2**63), 2**63 - 1)
                )
                entries.append(files.kv(key, kind, min(max(3 if key == "split.count" else value, low), high)))
        name = choices.pick((f"a-{index + 1:05d}-of-00003.gguf", "a-00002-of-00003.gguf", "x.gguf"))
        if choices.number(6) == 1:
            name = choices.some(40).decode("utf-8", "surrogateescape")
            parse_shard_name(name)
        file = files.honest(entries, [(f"t{choices.pick((index, 0))}", (32,), 0)])
        header = plain(lambda file=file, name=name: read_header(io.BytesIO(file), name, len(file)))
        if header is not None:
            headers.append(header)
            paths = plain(lambda header=header: shard_paths(header))
            folder = name.rpartition("/")[0]
            hold(paths is None or all(p.rpartition("/")[0] == folder for p in paths), "another folder", paths)
    if headers:
        judged(lambda: merge(headers))


@functools.cache
def _documents() -> tuple[bytes, ...]:
    return tuple(gzip.decompress((ZOO / f"{name}.json.gz").read_bytes()) for name in MODELS)


@functools.cache
def _machine() -> tuple[App, HostSnapshot]:
    card = Device("CUDA0", "cuda", "card", 8 * GIB, 8 * GIB, "dedicated", False)
    return App(None), HostSnapshot((card,), Ram(32 * GIB, 32 * GIB), Cpu("cpu", 8, 16, ()), "linux")


VALUES: tuple[tuple[str, Any], ...] = (
    *(("uint64", edge) for edge in EDGES), ("int32", -1), ("int32", -(2**31)), ("int64", -(2**63)), ("float32", 0.5),
    ("float32", float("nan")), ("float32", float("inf")), ("float32", -1e38), ("string", ""), ("string", "x" * 300),
    ("string", "\x1b[31m\n\u202e"), ("bool", True), ("bool", False),
    ("array", {"array": "int32", "values": []}), ("array", {"array": "int32", "values": [-1, 0, 7]}),
    ("array", {"array": "uint32", "values": [1] * 12}), ("array", {"array": "bool", "values": [True, False] * 6}),
    ("array", {"array": "float32", "values": [float("nan")] * 12}), ("array", {"array": "string", "values": ["a"]}),
    ("array", {"array": "uint32", "values": [2**32 - 1] * 12}),
)  # fmt: skip


def planned(data: bytes) -> None:
    """A real model's header with some values, shapes and tensors changed: described and planned for, or refused."""
    choices = Choices(data)
    document = json.loads(choices.pick(_documents()))
    for _ in range(1 + choices.number(4)):
        _change(document, choices)
    text = json.dumps(document).encode()
    header = plain(lambda: read_snapshot(text, "m.json"))
    if header is None:
        return
    app, host = _machine()
    spec = judged(lambda: app.model(header))
    if spec is None:
        return
    engine = app.engine(None)
    asked = RequestedSettings(n_ctx=choices.pick((None, 512, 4096, 1)), n_gpu_layers=choices.pick((None, 5, 0)))

    def plan() -> None:
        settings = resolve_settings(asked, spec, engine, tool="server", n_devices=1)
        plan = plan_memory(spec, settings, engine, host.devices)
        hold(all(read >= 0 for read in (*plan.read_device_bytes, plan.read_host_bytes)), "negative bytes", plan)

    judged(plan)
    if choices.number(32) == 1:  # seconds with every branch counted
        planner = Planner(app, host, engine)
        judged(lambda: planner.recommend(spec, planner.intent("balanced"), Wishes(asked, None, None, None)))


def _change(document: dict[str, Any], choices: Choices) -> None:
    metadata, tensors = document["metadata"], document["tensors"]
    act = choices.number(8)
    if act < 4 and metadata:
        kind, value = choices.pick(VALUES)
        metadata[choices.pick(list(metadata))] = {"type": kind, "value": copy.deepcopy(value)}
    elif act == 4 and metadata:
        del metadata[choices.pick(list(metadata))]
    elif act == 5 and tensors:
        row = choices.pick(tensors)
        row[1] = [choices.pick((256, 0, 1, 32, 4096, 2**40, 2**63 - 1, 7)) for _ in range(choices.number(5))]
    elif act == 6 and tensors:
        tensors.remove(choices.pick(tensors))
    elif tensors:
        choices.pick(tensors)[choices.pick((0, 2))] = choices.pick(
            (0, 12, "blk.9999999999.ffn_up.weight", "blk.x.w", 4)
        )
