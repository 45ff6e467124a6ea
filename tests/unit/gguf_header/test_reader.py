"""Honest files: the same result as the gguf package's reader, whatever way the texts are skipped."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import pytest

from advisor.gguf_header import ArraySummary, read_header
from advisor.gguf_header.metadata import MetadataReader
from tests.tools.gguf_files import (
    F16,
    F32,
    Q4_0,
    Q6_K,
    array,
    assemble,
    honest,
    kv,
    llama3_entries,
    llama3_tensors,
    raw_kv,
    table,
    tensor,
    text,
    write_sparse,
)
from tests.tools.headers import assert_same_as_package, read

EXTREMES = {
    "uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767),
    "uint32": (0, 2**32 - 1), "int32": (-(2**31), 2**31 - 1), "float32": (-0.5, 1.0000000031710769e-30),
    "bool": (False, True), "uint64": (0, 2**64 - 1), "int64": (-(2**63), 2**63 - 1), "float64": (-1e300, 1e-300),
}  # fmt: skip
ALL_TYPES = [
    *(kv(f"low.{kind}", kind, low) for kind, (low, _) in EXTREMES.items()),
    *(kv(f"high.{kind}", kind, high) for kind, (_, high) in EXTREMES.items()),
    *(array(f"array.{kind}", kind, [low, high, low]) for kind, (low, high) in EXTREMES.items()),
    *(array(f"empty.{kind}", kind, []) for kind in EXTREMES),
    kv("text", "string", "naïve ✓ \x1b[31m"),
    kv("text.empty", "string", ""),
    array("texts", "string", ["a", "", "ü"]),
    array("texts.empty", "string", []),
]
PER_LAYER = [
    kv("general.architecture", "string", "deci"),
    array("deci.attention.head_count", "uint32", [32] * 80),
    array("deci.attention.head_count_kv", "int32", [8, 0, 8, 4] * 20),
    array("deci.attention.sliding_window_pattern", "bool", [True, False] * 40),
    array("deci.rope.scaling", "float32", [1.0, 0.25]),
]
SMALL = [("token_embd.weight", (64, 5), F16), ("blk.0.a", (256,), Q6_K), ("blk.0.b", (32, 3, 2), Q4_0),
         ("blk.0.c", (2, 3, 4, 5), F32), ("one", (1,), F32)]  # fmt: skip
ALIGNED = [kv("general.alignment", "uint32", 256), kv("general.architecture", "string", "llama")]

HONEST = {
    "no entries, no tensors": honest([], []),
    "version 3": honest([kv("general.architecture", "string", "llama")], SMALL),
    "version 2": honest([kv("general.architecture", "string", "llama")], SMALL, version=2),
    "every value type": honest(ALL_TYPES, SMALL),
    "per-layer arrays": honest(PER_LAYER, SMALL),
    "alignment 256": honest(ALIGNED, SMALL, alignment=256),
    "alignment 1": honest([kv("general.alignment", "uint32", 1)], SMALL, alignment=1),
    "no tensors": honest(ALL_TYPES, []),
    "entries after the tokens": honest(llama3_entries(3000, 5000)[::-1], SMALL),
    "tokens as last entry": honest([array("tokenizer.ggml.tokens", "string", ["ab"] * 5000)], SMALL),
    "65,536 numbers": honest([array("x", "uint16", range(65536)), kv("after", "bool", True)], SMALL),
    "65,537 numbers": honest([array("x", "int8", [1] * 65537), kv("after", "bool", True)], SMALL),
}


@pytest.mark.parametrize("name", HONEST)
def test_agrees_with_the_gguf_package(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(HONEST[name])
    if name == "no tensors" or name == "no entries, no tensors":
        path.write_bytes(HONEST[name] + bytes(32))  # the package cannot map a file that ends with its header
    assert_same_as_package(read(path.read_bytes()), path)


def test_agrees_with_the_gguf_package_on_tokens_and_merges(tmp_path: Path) -> None:
    # an eighth of Llama 3: the package needs 10 s for the whole
    path = tmp_path / "model.gguf"
    size = write_sparse(str(path), llama3_entries(16_032, 35_018), llama3_tensors(4))
    with path.open("rb") as file:
        header = read_header(file, str(path), size)
    assert_same_as_package(header, path)
    assert header.file_bytes == size
    assert header.metadata["general.tags"] == ("facebook", "meta", "llama-3", "text-generation")


def test_both_ways_of_skipping_texts_agree_at_full_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.gguf"
    size = write_sparse(str(path), llama3_entries(), llama3_tensors())
    search = MetadataReader._find_next_key
    found: list[bool] = []

    def recorded(self: MetadataReader, n_texts: int) -> bool:
        found.append(search(self, n_texts))
        return found[-1]

    monkeypatch.setattr(MetadataReader, "_find_next_key", recorded)
    with path.open("rb") as file:
        quick = read_header(file, "m.gguf", size)
    assert found == [True, True]  # tokens and merges, and no second pass
    monkeypatch.setattr(MetadataReader, "_find_next_key", lambda self, n_texts: False)
    with path.open("rb") as file:
        slow = read_header(file, "m.gguf", size)
    assert quick == slow
    assert quick.n_vocab == 128_256
    assert quick.metadata["tokenizer.ggml.merges"] == ArraySummary("string", 280_147)
    assert quick.metadata["tokenizer.ggml.token_type"] == ArraySummary("int32", 128_256)
    assert quick.metadata["tokenizer.ggml.eos_token_id"] == 128_009


@pytest.mark.parametrize("at", [0, 1, 700, 1499])
@pytest.mark.parametrize(
    "bait",
    [
        b"tokenizer.ggml.merges",
        text("tokenizer.ggml.merges") + struct.pack("<I", 4),
        kv("tokenizer.ggml.bos_token_id", "uint32", 7),
        kv("tokenizer.ggml.bos_token_id", "uint32", 7) + kv("general.file_type", "uint32", 7),
        # a whole false tail with the right number of entries: its tensors do not end where the file ends
        kv("tokenizer.ggml.bos_token_id", "uint32", 7)
        + kv("general.file_type", "uint32", 7)
        + b"".join(table(SMALL)[0]),
    ],
)
def test_a_key_inside_a_token_deceives_nobody(bait: bytes, at: int, tmp_path: Path) -> None:
    tokens: list[str | bytes] = ["ab"] * 1500
    tokens[at] = bait
    path = tmp_path / "model.gguf"
    path.write_bytes(
        honest(
            [
                array("tokenizer.ggml.tokens", "string", tokens),
                kv("tokenizer.ggml.bos_token_id", "uint32", 1),
                kv("general.file_type", "uint32", 15),
            ],
            SMALL,
        )
    )
    header = read(path.read_bytes())
    assert header.metadata["tokenizer.ggml.bos_token_id"] == 1
    assert_same_as_package(header, path)


@pytest.mark.parametrize("window", [141, 150, 200, 1024])
def test_the_window_may_end_anywhere(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = honest([*ALL_TYPES, *llama3_entries(1100, 1200)], SMALL)
    expected = read(data)
    monkeypatch.setattr("advisor.gguf_header.window.WINDOW_BYTES", window)
    monkeypatch.setattr("advisor.gguf_header.window.FIRST_READ_BYTES", window)
    assert read(data) == expected


class Dribble(io.BytesIO):
    """Gives one to three bytes at a time, as a network file system may."""

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return super().readinto(memoryview(buffer)[: 1 + self.tell() % 3])


def test_short_reads_are_continued() -> None:
    data = honest(ALL_TYPES, SMALL)
    assert read_header(Dribble(data), "m", len(data)) == read_header(io.BytesIO(data), "m", len(data))


def test_a_bool_byte_other_than_0_and_1_is_true() -> None:
    assert read(honest([raw_kv("flag", 7, b"\x05")])).metadata["flag"] is True


def test_not_a_number_and_infinity_are_kept() -> None:
    data = honest([raw_kv("nan", 6, struct.pack("<f", float("nan"))), kv("inf", "float32", float("inf"))])
    metadata = read(data).metadata
    assert metadata["nan"] != metadata["nan"]
    assert metadata["inf"] == float("inf")


def test_broken_utf8_is_readable_and_keys_stay_apart() -> None:
    metadata = read(honest([raw_kv(b"a\xff", 4, bytes(4)), raw_kv(b"a\xfe", 8, text(b"x\xffy"))])).metadata
    assert list(metadata) == ["a\\xff", "a\\xfe"]
    assert metadata["a\\xfe"] == "x\ufffdy"


def test_a_long_text_is_cut_and_what_follows_is_read() -> None:
    data = honest([kv("tokenizer.huggingface.json", "string", "x" * 3_000_000), kv("after", "uint8", 9)])
    metadata = read(data).metadata
    assert metadata["tokenizer.huggingface.json"] == "x" * 2**20
    assert metadata["after"] == 9


def test_a_tensor_without_dimensions_has_one_element_and_one_with_a_zero_has_none() -> None:
    rows = [tensor("scalar", (), F32, 0), tensor("nothing", (32, 0), F32, 32), tensor("next", (1,), F32, 32)]
    assert [t.shape for t in read(assemble([], rows, 64)).tensors] == [(), (32, 0), (1,)]


def test_the_last_tensor_needs_no_padding() -> None:
    data = honest([], [("a", (3,), F32)])
    header = read(data[: -(32 - 12)])
    assert header.tensors[0].shape == (3,)
    assert header.file_bytes == len(data) - 20
