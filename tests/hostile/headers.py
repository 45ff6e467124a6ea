"""Lies in the bytes of a GGUF header: sizes, counts, lengths, types."""

from __future__ import annotations

import struct
from pathlib import Path

from advisor.gguf_header.limits import MAX_KEY_BYTES, MAX_KV, MAX_TENSORS
from tests.hostile.lies import MARK, READ, Case, Group, Lie, Made
from tests.tools.gguf_files import CODES, F32, IDS, array, assemble, honest, kv, raw_kv, tensor, text
from tests.tools.headers import read

EDGES = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1)
GIB = 1 << 30
ONE = tensor("a", (32,), F32, 0)
WHOLE = honest(
    [kv("general.architecture", "string", "llama"), array("tokenizer.ggml.tokens", "string", ["t"] * 60),
     kv("tokenizer.chat_template", "string", "x" * 600), *(kv(f"a.{name}", name, 1) for name in CODES)],
    [(f"blk.{index}.w", (32,), F32) for index in range(4)],
)  # fmt: skip


def case(label: str, data: bytes, answer: str) -> Case:
    """A header given to the reader."""
    return Case(label, lambda: read(data, "m.gguf"), answer)


def sizes(_: Path) -> Made:
    """Files of a few bytes."""
    start = assemble()
    for n_bytes in (0, 1, 3, 4, 8, 12, 16, 20, 23, 24):
        answer = "EmptyFileError" if not n_bytes else READ if n_bytes == 24 else "TruncatedHeaderError"
        yield case(f"{n_bytes} bytes", start[:n_bytes], answer)


def prefixes(_: Path) -> Made:
    """Every beginning of a good file of 2 KB."""
    data_start = len(WHOLE) - 4 * 128
    for n_bytes in range(1, len(WHOLE)):
        cut = "TruncatedDataError" if n_bytes >= data_start - 31 else "TruncatedHeaderError"
        if n_bytes < data_start and n_bytes >= data_start - 31:
            continue  # padding between the table and the data: either
        yield case(f"the first {n_bytes}", WHOLE[:n_bytes], cut)
    yield case("all", WHOLE, READ)


def magics(_: Path) -> Made:
    """Other files under the name of a model."""
    lfs = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4920734272\n"
    for label, data, answer in (
        ("HTML", b"<!DOCTYPE html><html>" + bytes(99), "HtmlPageError"), ("git-lfs", lfs, "LfsPointerError"),
        ("zip", b"PK\3\4" + bytes(99), "NotGgufError"), ("safetensors", b"\x90\0\0\0\0\0\0\0{\"a\"", "NotGgufError"),
        ("pickle", b"\x80\2cos\nsystem\n(S'true'\ntR.", "NotGgufError"), ("zeros", bytes(4096), "NotGgufError"),
        ("GGML", b"lmgg" + bytes(99), "OldGgmlError"), ("GGJT", b"tjgg" + bytes(99), "OldGgmlError"),
        ("GGMF", b"fmgg" + bytes(99), "OldGgmlError"), ("reversed", b"FUGG" + bytes(99), "BigEndianError"),
        ("big-endian", assemble([kv("a", "uint32", 1, order=">")], order=">"), "BigEndianError"),
        ("version 0", assemble(version=0), "BadVersionError"), ("version 1", assemble(version=1), "VersionOneError"),
        ("version 2", honest(version=2), READ), ("version 4", assemble(version=4), "FutureVersionError"),
        ("version 2^31", assemble(version=2**31 + 1), "FutureVersionError"),
    ):  # fmt: skip
        yield case(label, data, answer)


def counts(_: Path) -> Made:
    """n_kv and n_tensors."""
    for edge in EDGES:
        for name, limit in (("n_kv", MAX_KV), ("n_tensors", MAX_TENSORS)):
            answer = "CountTooLargeError" if edge > limit else "TruncatedHeaderError" if edge else READ
            yield case(f"{name} {edge}", assemble(**{name: edge}), answer)
    size_max = 2**64 - 1
    for count in (500_000_000, size_max // 80, size_max // 376, size_max // 64):
        yield case(f"n_kv {count}", assemble(n_kv=count), "CountTooLargeError")
        yield case(f"n_tensors {count}", assemble(n_tensors=count), "CountTooLargeError")
    yield case("most that is believed, not there", assemble(n_kv=MAX_KV, n_tensors=MAX_TENSORS), "TruncatedHeaderError")


def lengths(_: Path) -> Made:
    """Lengths of keys, strings and arrays."""
    for edge in EDGES:
        key = "EmptyKeyError" if not edge else "KeyTooLongError" if edge > MAX_KEY_BYTES else READ
        yield case(f"key {edge}", assemble([text(b"k" if edge else b"", edge) + bytes(9)], n_kv=1), key)
        string = "BadStringLengthError" if edge > GIB else "TruncatedHeaderError" if edge > 1 else READ
        yield case(f"string {edge}", assemble([raw_kv("k", 8, text(b"x" * min(edge, 1), edge))]), string)
        for kind in (*CODES, "string"):
            many = "CountTooLargeError" if edge > GIB else "TruncatedHeaderError" if edge > 1 else READ
            yield case(f"{edge} of {kind}", assemble([array("k", kind, [0 if kind != "string" else ""] * min(edge, 1),
                                                            length=edge)]), many)  # fmt: skip
        inner = raw_kv("tokenizer.k", 9, struct.pack("<IQ", 8, 1) + text(b"", edge))
        yield case(f"token {edge}", assemble([inner]), string if edge != 1 else "TruncatedHeaderError")
    for near in range(1, 33):  # position + length wraps round
        for kind in (8, 9):
            body = struct.pack("<Q", 2**64 - near) if kind == 8 else struct.pack("<IQ", 0, 2**64 - near)
            answer = "BadStringLengthError" if kind == 8 else "CountTooLargeError"
            yield case(f"2^64 - {near} of {kind}", assemble([raw_kv("k", kind, body)]), answer)
    yield case("1 GiB in 160 bytes", assemble([raw_kv("k", 8, text(b"x" * 99, GIB))]), "TruncatedHeaderError")


def kinds(_: Path) -> Made:
    """Value types: all, in arrays too; those that do not exist; odd values of those that do."""
    for name in CODES:
        yield case(f"scalar {name}", honest([kv("k", name, 1)]), READ)
        yield case(f"array of {name}", honest([array("k", name, [1] * 9)]), READ)
    for unknown in (13, 14, 255, 2**31, 2**32 - 1):
        yield case(f"scalar {unknown}", assemble([raw_kv("k", unknown, bytes(8))]), "BadValueTypeError")
        yield case(f"array of {unknown}", assemble([array("k", "uint8", [1], 2**60, unknown)]), "BadValueTypeError")
    for byte in (2, 127, 255):
        yield case(f"bool {byte}", honest([raw_kv("k", IDS["bool"], bytes([byte]))]), READ)
        yield case(f"bools {byte}", honest([raw_kv("k", 9, struct.pack("<IQ", 7, 3) + bytes([byte] * 3))]), READ)
    for value in (float("nan"), float("inf"), float("-inf"), 3.4e38):
        yield case(f"rope {value}", honest([kv("llama.rope.freq_base", "float32", value)]), READ)


def nesting(_: Path) -> Made:
    """Arrays of arrays, as deep as it goes."""
    for depth in (1, 2, 4, 5, 3000, 200_000):
        body = struct.pack("<IQ", 9, 1) * depth
        yield case(f"{depth} deep", assemble([raw_kv("k", 9, body)]), "NestedArrayError")
    yield case("2^62 arrays", assemble([raw_kv("k", 9, struct.pack("<IQ", 9, 2**62))]), "NestedArrayError")


def keys(_: Path) -> Made:
    """Keys and strings as texts."""
    yield case("twice", honest([kv("k", "uint8", 1), kv("k", "uint8", 2)]), "DuplicateKeyError")
    yield case("twice, broken UTF-8", honest([kv(b"\xff", "uint8", 1), kv(b"\xff", "uint8", 2)]), "DuplicateKeyError")
    for label, raw in (
        ("broken UTF-8", b"\xff\xfe\x80"), ("NUL inside", b"a\0b"), ("escape codes", b"\x1b[2J\x1b]0;x\x07"),
        ("overlong", b"\xc0\xaf"), ("surrogate", b"\xed\xa0\x80"), ("bidi", "\u202e\u2066x".encode()),
        ("a path", f"../../{MARK}".encode()),
    ):  # fmt: skip
        yield case(f"string: {label}", honest([kv("general.name", "string", raw)]), READ)
        yield case(f"key: {label}", honest([kv(raw, "uint8", 1)]), READ)
    much = 10_000_000
    yield case("string: 10 MB", assemble([raw_kv("general.name", 8, struct.pack("<Q", much))]) + bytes(much), READ)
    yield case("key: 10 MB", assemble([struct.pack("<Q", much)]) + bytes(much), "KeyTooLongError")
    yield case("a template that does things", honest([kv("tokenizer.chat_template", "string",
               "{{ ''.__class__.__mro__[1].__subclasses__() }}{% for x in range(10**9) %}{% endfor %}")]), READ)  # fmt: skip


def alignments(_: Path) -> Made:
    """general.alignment."""
    for value in (0, 3, 24, 2**32 - 1):
        yield case(str(value), honest([kv("general.alignment", "uint32", value)]), "BadAlignmentError")
    yield case("2^30", honest([kv("general.alignment", "uint32", GIB)]), "TruncatedDataError")
    for kind, wrong in (
        ("int32", 32),
        ("int32", -32),
        ("uint64", 32),
        ("float32", 32.0),
        ("bool", 1),
        ("string", "32"),
    ):
        yield case(f"{kind} {wrong}", honest([kv("general.alignment", kind, wrong)]), "BadAlignmentError")
    yield case("64, and so it is", honest([kv("general.alignment", "uint32", 64)], alignment=64), READ)
    yield case("an array", honest([array("general.alignment", "uint32", [32])]), "BadAlignmentError")
    two = [("a", (1,), F32), ("b", (1,), F32)]
    yield case("64, and it is 32", honest([kv("general.alignment", "uint32", 64)], two), "BadOffsetError")


GROUP = Group("GGUF headers", (
    Lie("a file of a few bytes", "4 bytes crash Ollama (CVE-2024-39720)", sizes),
    Lie("a file that ends anywhere", "accepted by converters, zero pages on mmap (1bit-MONSTER#1606)", prefixes),
    Lie("another kind of file", "'magic invalid' for a web page (ComfyUI-GGUF#43), big-endian (llama.cpp#13943)", magics),
    Lie("counts of entries and tensors", "61 GB asked for by 24 bytes (ferrox#24); CVE-2026-27940; llama.cpp#15711", counts),
    Lie("lengths of keys, texts and lists", "9.2 EB (ferrox#25), never returns (llama.cpp#27188), wraps (imp#532)", lengths),
    Lie("types that do not exist, odd values", "2^60 turns at 0 bytes each (imp#532); table overrun (ggml#709)", kinds),
    Lie("lists in lists", "RecursionError or stack overflow (llama.cpp#28880, ferrox#25)", nesting),
    Lie("keys and texts", "assert for an empty key (llama.cpp#24263); templates run as code (CVE-2026-5760)", keys),
    Lie("the alignment", "division by zero (CVE-2025-0317), abort for a wrong type (llama.cpp#25596)", alignments),
))  # fmt: skip
