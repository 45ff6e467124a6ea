"""Lies in the tensor table, and the lists of inputs that others have published."""

from __future__ import annotations

from pathlib import Path

from advisor.ggml_types import GGML_TYPES
from tests.hostile.headers import EDGES, ONE, case
from tests.hostile.lies import READ, Group, Lie, Made
from tests.tools.gguf_files import F32, Q4_K, Q8_0, array, assemble, honest, kv, raw_kv, tensor, text

REMOVED = (4, 5, 31, 32, 33, 36, 37, 38)
FORKS = (137, 138, 139, 150, 155, 200, 337, 1000)


def extents(_: Path) -> Made:
    """Numbers of dimensions and elements."""
    for n_dims in (5, 8, 255, 2**31, 2**32 - 1):
        yield case(
            f"{n_dims} dimensions", assemble([], [tensor("t", (1, 1), F32, 0, n_dims)], 64), "TooManyDimensionsError"
        )
    yield case("none", assemble([], [tensor("t", (), F32, 0)], 32), READ)
    for edge in EDGES:
        for place in range(4):
            shape = [1, 1, 1, 1]
            shape[place] = edge
            if edge >= 2**61:
                answer = "BadExtentError"
            elif edge <= 1:
                answer = READ
            else:
                answer = "TruncatedDataError"
            yield case(f"ne{place} {edge}", assemble([], [tensor("t", shape, F32, 0)], 64), answer)
    for shape in (
        (2**64 - 1, 2, 1, 1),
        (2**32, 2**32),
        (2**31, 2**31, 2),
        (2**63, 2),
        (2**21, 2**21, 2**21, 2**21),
        (-32, 2),
    ):
        yield case(f"product {shape}", assemble([], [tensor("t", shape, F32, 0)], 64), "BadExtentError")
    for shape in ((32, 0), (0, 32), (0,), (0, 0, 0, 0), (32, 0, 2**62)):
        yield case(f"zero {shape}", assemble([], [tensor("t", shape, F32, 0)], 64), READ)
    yield case("0 x 2^63", assemble([], [tensor("t", (0, 2**63), F32, 0)], 64), "BadExtentError")
    for kind in (Q4_K, Q8_0):
        yield case(
            f"rows of 255 in type {kind}", assemble([], [tensor("t", (255, 2), kind, 0)], 999), "RowNotDivisibleError"
        )


def types(_: Path) -> Made:
    """Types that were removed, belong to forks, or never were."""
    for kind in (*REMOVED, *FORKS, 2**31 - 1, 2**31, 2**32 - 1):
        yield case(f"type {kind}", assemble([], [tensor("t", (256, 1), kind, 0)], 999), "UnknownTensorTypeError")
    for kind, (_, _, block, n_bytes) in GGML_TYPES.items():
        yield case(f"type {kind}", assemble([], [tensor("t", (block, 1), kind, 0)], n_bytes + 32), READ)


def names(_: Path) -> Made:
    """Names of tensors."""
    for length in (0, 64, 65, 2**31, 2**63, 2**64 - 1):
        row = text("n" * min(length, 70), length) + tensor("", (32,), F32, 0)[8:]
        yield case(f"{length} bytes", assemble([], [row], 256), "BadTensorNameError")
    yield case("63 bytes", honest([], [("n" * 63, (32,), F32)]), READ)
    yield case("twice", honest([], [("n", (32,), F32), ("n", (32,), F32)]), "DuplicateTensorError")
    yield case("escape codes", assemble([], [tensor("\x1b[2J\n", (32,), 999, 0)], 256), "UnknownTensorTypeError")


def offsets(_: Path) -> Made:
    """Where the data lie."""
    for edge in EDGES[1:]:
        yield case(f"first at {edge}", assemble([], [tensor("t", (32,), F32, edge)], 256), "BadOffsetError")
        yield case(f"second at {edge}", assemble([], [ONE, tensor("t", (32,), F32, edge)], 256), "BadOffsetError")
    for label, offset in (("overlap", 96), ("the same place", 0), ("gap", 160), ("not aligned", 129)):
        yield case(label, assemble([], [ONE, tensor("t", (32,), F32, offset)], 512), "BadOffsetError")
    two = assemble([], [ONE, tensor("t", (32,), F32, 128)], 256)
    yield case("just whole", two, READ)
    yield case("one byte beyond the file", two[:-1], "TruncatedDataError")
    huge = [tensor("a", (2**60,), F32, 0), tensor("b", (2**60,), F32, 2**62), tensor("c", (2**60,), F32, 2**63),
            tensor("d", (2**60,), F32, 3 * 2**62)]  # fmt: skip
    yield case("sizes whose sum wraps", assemble([], huge, 64), "TruncatedDataError")


def published(_: Path) -> Made:
    """What others have published as bytes, one by one, by the report."""
    llama = kv("general.architecture", "string", "llama")
    for label, data, answer in (
        ("ferrox#24", b"GGUF\3\0\0\0" + bytes(8) + (500_000_000).to_bytes(8, "little"), "CountTooLargeError"),
        ("ferrox#25", assemble([array("k", "uint8", [], length=(2**64 - 1) // 64)]), "CountTooLargeError"),
        ("ferrox#26", assemble([array("k", "uint8", [], length=500_000_000)]), "TruncatedHeaderError"),
        ("llama.cpp#27188 array", assemble([array("k", "uint8", [], length=2**63)]), "CountTooLargeError"),
        ("llama.cpp#27188 string", assemble([raw_kv("k", 8, text(b"", 2**63))]), "BadStringLengthError"),
        ("llama.cpp#27188 nested", assemble([array("k", "uint8", [], 2**62, 9)]), "NestedArrayError"),
        ("imp#532 type of no bytes", assemble([array("k", "uint8", [], 2**60, 99)]), "BadValueTypeError"),
        ("llama.cpp#25596 ne1 = 0", assemble([], [tensor("t", (1, 0), F32, 0)]), READ),
        ("llama.cpp#24263 empty key", assemble([kv("", "uint64", 1)]), "EmptyKeyError"),
        ("sparkinfer#24 alignment 0", honest([kv("general.alignment", "uint32", 0)]), "BadAlignmentError"),
        ("ggml#1516 alignment 2^30", honest([llama, kv("general.alignment", "uint32", 2**30)]), "TruncatedDataError"),
        ("gguf-tools#25 n_dims", assemble([], [tensor("t", (1,) * 9, F32, 0)], 64), "TooManyDimensionsError"),
        ("zackshen/gguf#15 wraps", assemble([], [tensor("t", (2**64 - 1, 2, 1, 1), F32, 0)], 64), "BadExtentError"),
        ("ggml#709 type", assemble([], [tensor("t", (1,), 2**31, 0)], 64), "UnknownTensorTypeError"),
        ("ggml#1516 1 GiB string", assemble([raw_kv("k", 8, text(b"", 2**30))]) + bytes(99), "TruncatedHeaderError"),
        ("CVE-2026-33298 exabytes", assemble([], [tensor("t", (2**24, 2**40), F32, 0)], 4 << 20), "BadExtentError"),
        ("CVE-2026-7482 beyond the end", assemble([], [tensor("t", (2**20,), F32, 0)], 64), "TruncatedDataError"),
        ("llama.cpp#13943 big-endian", b"GGUF\0\0\0\3" + bytes(16), "BigEndianError"),
        ("aprender#310 version 1", b"GGUF\1\0\0\0" + bytes(8), "VersionOneError"),
        ("zackshen/gguf#22 65 entries", honest([array("k", "uint32", range(65))]), READ),
    ):  # fmt: skip
        yield case(label, data, answer)


def handcrafted(_: Path) -> Made:
    """The list of tests/test-gguf.cpp of llama.cpp (b11549), by its names."""
    at_64, two = [kv("general.alignment", "uint32", 64)], [("a", (32,), F32), ("b", (32,), F32)]
    for label, data, answer in (
        ("HEADER_BAD_MAGIC", b"NOPE" + bytes(99), "NotGgufError"),
        ("HEADER_BAD_VERSION_1", assemble(version=1), "VersionOneError"),
        ("HEADER_BAD_VERSION_FUTURE", assemble(version=4), "FutureVersionError"),
        ("HEADER_BAD_N_TENSORS", assemble(n_tensors=2**64 - 1), "CountTooLargeError"),
        ("HEADER_BAD_N_KV", assemble(n_kv=2**64 - 1), "CountTooLargeError"),
        ("HEADER_EMPTY", assemble(), READ),
        ("KV_BAD_KEY_SIZE", assemble([text(b"k", 2**64 - 1) + bytes(9)], n_kv=1), "KeyTooLongError"),
        ("KV_BAD_TYPE", assemble([raw_kv("k", 2**32 - 1)]), "TruncatedHeaderError"),
        ("KV_BAD_TYPE, padded", assemble([raw_kv("k", 2**32 - 1, bytes(9))]), "BadValueTypeError"),
        ("KV_DUPLICATE_KEY", assemble([kv("k", "uint8", 1)] * 2), "DuplicateKeyError"),
        ("KV_BAD_ALIGN", honest([kv("general.alignment", "uint32", 13)]), "BadAlignmentError"),
        ("KV_EMPTY_KEY", assemble([kv("", "uint64", 1)]), "EmptyKeyError"),
        ("KV_WRONG_TYPE_ALIGN", honest([kv("general.alignment", "int32", 32)]), "BadAlignmentError"),
        ("KV_SUCCESS", honest([kv("k", "uint8", 1)]), READ),
        ("TENSORS_BAD_NAME_SIZE", honest([], [("n" * 64, (32,), F32)]), "BadTensorNameError"),
        ("TENSORS_BAD_N_DIMS", assemble([], [tensor("t", (1,) * 5, F32, 0)], 64), "TooManyDimensionsError"),
        ("TENSORS_BAD_SHAPE", assemble([], [tensor("t", (-1, 1), F32, 0)], 64), "BadExtentError"),
        ("TENSORS_NE_TOO_BIG", assemble([], [tensor("t", (2**63 - 1, 2**63 - 1), F32, 0)], 64), "BadExtentError"),
        ("TENSORS_BAD_TYPE", assemble([], [tensor("t", (32,), 2**32 - 1, 0)], 256), "UnknownTensorTypeError"),
        ("TENSORS_BAD_OFFSET", assemble([], [tensor("t", (32,), F32, 1)], 256), "BadOffsetError"),
        ("TENSORS_DUPLICATE_NAME", honest([], [two[0], two[0]]), "DuplicateTensorError"),
        ("TENSORS_BAD_ALIGN", honest([kv("general.alignment", "uint32", 3)], two), "BadAlignmentError"),
        ("TENSORS_INCONSISTENT_ALIGN", honest(at_64, [("a", (8,), F32), ("b", (8,), F32)]), "BadOffsetError"),
        ("TENSORS_ZERO_DIM", assemble([], [tensor("t", (32, 0), F32, 0)], 64), READ),
        ("TENSORS_SUCCESS", honest([], two), READ),
        ("TENSORS_CUSTOM_ALIGN", honest(at_64, two, alignment=64), READ),
        ("DATA_NOT_ENOUGH_DATA", honest([], two)[:-1], "TruncatedDataError"),
        ("DATA_BAD_ALIGN", honest([kv("general.alignment", "uint32", 13)], two), "BadAlignmentError"),
        ("DATA_INCONSISTENT_ALIGN", honest(at_64, [("a", (8,), F32), ("b", (8,), F32)]), "BadOffsetError"),
        ("DATA_SUCCESS", honest([], two), READ),
        ("DATA_CUSTOM_ALIGN", honest(at_64, two, alignment=64), READ),
    ):  # fmt: skip
        yield case(label, data, answer)


GROUP = Group("GGUF tensor tables", (
    Lie("dimensions and extents", "size wraps to 4 bytes (zackshen/gguf#15, CVE-2026-33298); SIGFPE at ne1 = 0", extents),
    Lie("types of tensors", "table read out of range (ggml#709, llama.cpp#19856)", types),
    Lie("names of tensors", "refused upstream from 64 bytes on (TENSORS_BAD_NAME_SIZE)", names),
    Lie("places of data", "heap read beyond the file (CVE-2026-7482), sums that wrap (CVE-2025-53630)", offsets),
    Lie("published inputs", "each as reported", published),
    Lie("llama.cpp's own list", "tests/test-gguf.cpp, HANDCRAFTED_*", handcrafted),
))  # fmt: skip
