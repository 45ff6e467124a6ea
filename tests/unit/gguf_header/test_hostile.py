"""Files made to hurt: only HeaderErrors, in little memory and time."""

from __future__ import annotations

import contextlib
import io
import struct
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.errors import HeaderError
from advisor.gguf_header import GgufHeader, read_header, read_snapshot
from tests.tools.gguf_files import F16, F32, Q4_0, array, assemble, honest, kv, raw_kv, table, tensor, text
from tests.tools.headers import read

MEMORY_CAP_BYTES = 64 * 2**20
COUNTS = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1)
ENTRIES = [
    kv("general.architecture", "string", "llama"),
    kv("general.alignment", "uint32", 32),
    array("llama.attention.head_count_kv", "int32", [8] * 32),
    array("general.tags", "string", ["a", "bc", "def"]),
    array("tokenizer.ggml.tokens", "string", [f"t{i}" for i in range(1100)]),
    kv("tokenizer.ggml.bos_token_id", "uint32", 1),
    kv("x.f", "float64", 0.5),
]
TENSORS = [("token_embd.weight", (32, 4), F32), ("blk.0.a", (64, 2), Q4_0), ("blk.0.b", (3, 2, 2), F16)]
VALID = honest(ENTRIES, TENSORS)
ROWS, BODY_BYTES = table(TENSORS)


def outcome(data: bytes) -> GgufHeader | HeaderError:
    """What reading `data` gives; fails for any exception but a HeaderError."""
    try:
        result: GgufHeader | HeaderError = read(data)
    except HeaderError as error:
        result = error
    assert isinstance(result, GgufHeader) or str(result).isprintable()
    return result


def test_every_prefix_is_refused_as_cut_off() -> None:
    start_of_data = len(VALID) - BODY_BYTES
    for length in [*range(1, 400), *range(400, start_of_data - 300, 97), *range(start_of_data - 300, len(VALID) - 31)]:
        error = outcome(VALID[:length])
        assert type(error).__name__ in ("TruncatedHeaderError", "TruncatedDataError"), (length, error)


@pytest.mark.parametrize("count", COUNTS)
def test_every_count_at_its_edges(count: int) -> None:
    u32 = count % 2**32
    signed = count - 2**64 if count >= 2**63 else count
    files = {
        "n_kv": assemble(ENTRIES, ROWS, BODY_BYTES, n_kv=count),
        "n_tensors": assemble(ENTRIES, ROWS, BODY_BYTES, n_tensors=count),
        "key length": assemble([text("key", count) + struct.pack("<IB", 0, 1)], ROWS, BODY_BYTES),
        "text length": assemble([raw_kv("key", 8, text("xyz", count))], ROWS, BODY_BYTES),
        "numbers": assemble([array("key", "uint16", [1, 2, 3], length=count)], ROWS, BODY_BYTES),
        "texts": assemble([array("key", "string", ["a", "b", "c"], length=count)], ROWS, BODY_BYTES),
        "tokens": assemble([array("tokenizer.t", "string", ["a"] * 3, length=count)], ROWS, BODY_BYTES),
        "a token's length": assemble(
            [raw_kv("tokenizer.t", 9, struct.pack("<IQ", 8, 2) + text("x", count) + text("y"))], ROWS, BODY_BYTES
        ),
        "value type": assemble([raw_kv("key", u32, bytes(16))], ROWS, BODY_BYTES),
        "element type": assemble([array("key", "uint16", [1, 2], type_id=u32)], ROWS, BODY_BYTES),
        "name length": assemble(ENTRIES, [text("t", count) + ROWS[0][25:]], BODY_BYTES),
        "n_dims": assemble(ENTRIES, [tensor("t", (4, 4), F32, 0, n_dims=u32)], BODY_BYTES),
        "ne0": assemble(ENTRIES, [tensor("t", (signed, 4), F32, 0)], BODY_BYTES),
        "ne1": assemble(ENTRIES, [tensor("t", (4, signed), F32, 0)], BODY_BYTES),
        "ne3": assemble(ENTRIES, [tensor("t", (4, 2, 2, signed), F32, 0)], BODY_BYTES),
        "tensor type": assemble(ENTRIES, [tensor("t", (4, 4), u32, 0)], BODY_BYTES),
        "offset": assemble(ENTRIES, [tensor("t", (4, 4), F32, count)], BODY_BYTES),
        "alignment": assemble([kv("general.alignment", "uint32", u32)], ROWS, BODY_BYTES),
    }
    # what is no lie at that value; 32-bit fields see the low half of the count
    true_at_0 = {"ne0", "ne1", "ne3", "offset", "n_tensors"}
    true_at_1 = {"ne0", "ne1", "ne3", "n_tensors", "a token's length", "name length"}
    true = {0: true_at_0, 1: true_at_1}.get(count, set()) | ({"tensor type"} if u32 in (F32, F16) else set())
    for name, data in files.items():
        result = outcome(data)
        if name in true:
            assert isinstance(result, GgufHeader), (name, result)
        else:
            assert isinstance(result, HeaderError), name


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_random_damage_raises_nothing_else(data: st.DataObject) -> None:
    damaged = bytearray(VALID)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        kind = data.draw(st.sampled_from(("flip", "number", "cut", "insert", "repeat")))
        if kind == "flip":
            damaged[at] ^= data.draw(st.integers(1, 255))
        elif kind == "number":
            damaged[at : at + 8] = struct.pack("<Q", data.draw(st.sampled_from(COUNTS)))
        elif kind == "cut":
            del damaged[at : at + data.draw(st.integers(1, 64))]
        elif kind == "insert":
            damaged[at:at] = data.draw(st.binary(min_size=1, max_size=16))
        else:
            damaged[at:at] = damaged[at : at + data.draw(st.integers(1, 64))]
        if not damaged:
            break
    tracemalloc.start()
    try:
        outcome(bytes(damaged))
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=400))
@settings(max_examples=200, deadline=None)
def test_random_bytes_behind_an_honest_start(tail: bytes) -> None:
    outcome(VALID[:24] + tail)


class Sparse(io.BytesIO):
    """A file of any size: its beginning, and zero bytes after it."""

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        n = super().readinto(buffer)
        buffer[n:] = bytes(len(buffer) - n)
        self.seek(len(buffer) - n, io.SEEK_CUR)
        return len(buffer)


def heavy_files(n_texts: int = 2**21) -> dict[str, tuple[bytes, int]]:
    """Name, beginning, apparent size of files that cost a careless reader minutes or gigabytes."""
    tb = 2**40
    long_texts = b"".join(text(b"", 2**20 + 9) + bytes(2**20 + 9) for _ in range(40))
    return {
        "empty texts without end": (assemble([array("t", "string", [], length=n_texts)], n_kv=2), tb),
        "texts of a megabyte, and no end": (
            assemble([array("tokenizer.t", "string", [], length=n_texts)], n_kv=2) + long_texts,
            tb,
        ),
        "a gigabyte of numbers": (assemble([array("t", "float64", [], length=2**30)], n_kv=2), tb),
        "most tensors": (
            assemble([], [tensor(f"t{i}", (32, 1, 1, 1), F32, 128 * i) for i in range(65536)]),
            tb,
        ),
        "most entries": (assemble([kv(f"key.{i}", "uint64", 2**63 + i) for i in range(16384)]), tb),
        "long keys": (assemble([kv(f"{i:05d}" + "k" * 65000, "uint8", 1) for i in range(700)]), tb),
        "long texts": (assemble([kv(f"k{i}", "string", "\U0001f600" * 2**18) for i in range(40)]), tb),
        "arrays of 16-bit numbers": (
            assemble([array(f"a{i}", "uint16", range(65536)) for i in range(40)]),
            tb,
        ),
        "many string arrays": (
            assemble([array(f"a{i}", "string", [""] * 1024) for i in range(n_texts // 1050)]),
            tb,
        ),
    }


@pytest.mark.parametrize("name", heavy_files())
def test_heavy_files_cost_little(name: str) -> None:
    data, size = heavy_files(n_texts=2**17)[name]  # tracing makes each text cost ten times as much
    file = Sparse(data)
    tracemalloc.start()
    try:
        with contextlib.suppress(HeaderError):
            read_header(file, "m.gguf", size)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_CAP_BYTES
    data, size = heavy_files()[name]
    start = time.process_time()
    with contextlib.suppress(HeaderError):
        read_header(Sparse(data), "m.gguf", size)
    # a second on an idle machine; the rest is for slow and busy ones
    assert time.process_time() - start < 3


def test_arrays_nested_without_end() -> None:
    body = struct.pack("<IQ", 9, 1) * 200_000
    error = outcome(assemble([raw_kv("deep", 9, body)]))
    assert type(error).__name__ == "NestedArrayError"


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 1_000_000,
        b'{"a":' * 60_000,
        b'{"metadata":{},"tensors":[' + b"[]," * 3_000_000,
        b'{"metadata":{},"tensors":[' + b"0," * 4_000_000,
        b'{"metadata":{},"tensors":[],"n_vocab":' + b"9" * 8_000_000 + b"}",
        b'"' + b"\\u00e4" * 1_300_000 + b'"',
        b" " * (9 * 2**20),
    ],
)
def test_heavy_snapshots_cost_little(data: bytes) -> None:
    tracemalloc.start()
    start = time.process_time()
    try:
        with pytest.raises(HeaderError):
            read_snapshot(data, "s.json")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_CAP_BYTES
    assert time.process_time() - start < 3
