"""Lies in what a header says of the model, header snapshots, and parts of split models."""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from advisor.app import App
from advisor.gguf_header import read_snapshot
from advisor.host import Cpu, Device, HostSnapshot, Ram
from advisor.model.errors import ImpossibleModelError
from advisor.planner import Planner
from advisor.recommend.search import Wishes
from advisor.settings import RequestedSettings
from tests.hostile.lies import MARK, Case, Group, Lie, Made

ZOO = Path(__file__).resolve().parents[1] / "data/zoo"
GIB = 1 << 30
PLANNED = "planned"
EITHER = "planned or too large"  # more heads than a buffer can hold: a search may or may not come to them


@functools.cache
def document(name: str) -> bytes:
    """A header of the zoo, as JSON."""
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


def changed(
    label: str, change: Callable[[dict[str, Any], list[Any]], object], answer: str, model: str = "small-llama"
) -> Case:
    """A real model's header with a change, planned for."""
    header = json.loads(document(model))
    change(header["metadata"], header["tensors"])
    text = json.dumps(header).encode()
    return Case(label, lambda: _either(text) if answer == EITHER else _recommend(text), answer)


def _either(text: bytes) -> str:
    with contextlib.suppress(ImpossibleModelError):
        _recommend(text)
    return EITHER


def valued(key: str, kind: str, value: Any, answer: str, model: str = "small-llama") -> Case:
    """A value of one key; KEY without its architecture."""
    prefix = {"small-llama": "llama", "small-qwen3moe": "qwen3moe", "small-gemma3": "gemma3", "mamba-2.8b": "mamba"}[
        model
    ]
    full = key if key.startswith("general.") else f"{prefix}.{key}"
    shown = str(value)[:30]
    return changed(
        f"{key} {kind} {shown}", lambda m, _: m.update({full: {"type": kind, "value": value}}), answer, model
    )


def architectures(_: Path) -> Made:
    """general.architecture."""
    yield changed("missing", lambda m, _: m.pop("general.architecture"), "ModelError")
    for label, value in (("empty", ""), ("unknown", "nosuch"), ("very long", "x" * 100_000), ("a path", f"../../{MARK}"),
                         ("absolute", f"/etc/{MARK}"), ("NUL", f"a\0{MARK}"), ("escape codes", "\x1b[2J"),
                         ("shell", "$(id)"), ("newline", "llama\n")):  # fmt: skip
        yield changed(
            label,
            lambda m, _, v=value: m.update({"general.architecture": {"type": "string", "value": v}}),
            "ModelError",
        )
    yield changed(
        "a number", lambda m, _: m.update({"general.architecture": {"type": "uint32", "value": 7}}), "ModelError"
    )


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
    yield changed(
        "no blk.*",
        lambda _, t: t.__setitem__(slice(0, None), [row for row in t if "blk" not in row[0]]),
        "MissingBlockError",
    )
    for name in ("blk.9999.ffn_up.weight", "blk.4294967296.ffn_up.weight"):
        yield changed(name, lambda _, t, n=name: _named(t, "ffn_up").__setitem__(0, n), "ExtraBlockError")


PLAIN_COUNTS = (
    "attention.head_count_kv",
    "feed_forward_length",
    "attention.key_length",
    "attention.value_length",
    "context_length",
)
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
            beyond = value == 2**39 and key == PLAIN_COUNTS[0]
            yield valued(key, "uint64", value, EITHER if beyond else PLANNED)
        short = "ModelError" if key in PLAIN_COUNTS[:2] else PLANNED  # one for each block
        yield valued(key, "array", {"array": "int32", "values": [0]}, short)
        yield valued(key, "array", {"array": "int32", "values": [0] * 99}, PLANNED)
    for key in UNUSED:
        for kind, value in NOT_COUNTS:
            broken = kind == "float32" and key == UNUSED[0]
            yield valued(key, kind, value, "ImpossibleModelError" if broken else PLANNED)
    for value, answer in ((0, "ContradictionError"), (1, PLANNED), (2**31, PLANNED), (2**39, EITHER)):
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


MODELS = Group("models", (
    Lie("the architecture", "unknown names; names that are paths", architectures),
    Lie("the number of blocks", "CVE-2024-8063; division by zero without blk.0 (ollama#7802); allocation per block", blocks),
    Lie("counts that are divided by", "1bit-MONSTER#455 (head_count 0), ollama#9984 (a list), #9716 (0)", counts),
    Lie("experts, windows, states, file types", "used > there, window 0 or beyond the context, keys in part", experts),
    Lie("matrices that are none", "out-of-bounds read (CVE-2024-12055)", matrices),
))  # fmt: skip
