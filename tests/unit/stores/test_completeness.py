"""Full size and still not there: holes, zeros, and the zeros that real models have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from advisor.errors import ModelError
from advisor.gguf_header import errors
from advisor.stores.completeness import HOLE, SPARSE, ZEROS, find_gap, read_complete
from advisor.stores.resolve import load_header
from advisor.stores.unfinished import is_unfinished
from tests.tools.gguf_files import F32, Q8_0, assemble, honest, kv, table
from tests.tools.tiny_models import tiny_model

MIB = 1 << 20
ROWS = [
    ("token_embd.weight", (1024, 8192), F32),
    ("output.weight", (1024, 4096), F32),
    ("output_norm.weight", (8,), F32),
]
SIZES = (32 * MIB, 16 * MIB, 32)


def laid_out(path: Path, written: list[tuple[int, int]]) -> Path:
    """A file with the tensors of ROWS at full size in which only these ranges of the data section were written."""
    rows, body = table(ROWS)
    header = assemble([kv("general.architecture", "string", "llama")], rows)
    header += b"\0" * (-len(header) % 32)
    with path.open("wb") as out:
        out.write(header)
        out.truncate(len(header) + body)
        for begin, end in written:
            out.seek(len(header) + begin)
            out.write(b"\x11" * (end - begin))
    return path


def gap(path: Path) -> str | None:
    with path.open("rb", buffering=0) as file:
        found = find_gap(file, load_header(str(path)))
    return None if found is None else found[0]


WHOLE = sum(SIZES)


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ([], SPARSE),
        ([(0, WHOLE)], None),
        ([(0, 20 * MIB)], HOLE),  # from front to back, stopped
        ([(0, WHOLE - MIB // 2)], HOLE),  # the last tensor is missing
        ([(0, 4 * MIB), (24 * MIB, WHOLE)], HOLE),  # one of several connections has not begun
        ([(0, 32 * MIB), (48 * MIB, WHOLE)], HOLE),  # a whole tensor of 16 MiB
        ([(0, 8 * MIB), (13 * MIB, WHOLE)], None),  # 5 MiB of zero rows, as cp --sparse=always leaves them
    ],
)
def test_holes(written: list[tuple[int, int]], reason: str | None, tmp_path: Path) -> None:
    assert gap(laid_out(tmp_path / "m.gguf", written)) == reason


def test_blocks_that_are_reserved_and_not_written(tmp_path: Path) -> None:
    path = laid_out(tmp_path / "m.gguf", [(0, 20 * MIB)])
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    assert path.stat().st_blocks * 512 >= path.stat().st_size  # which is why blocks are no evidence
    assert gap(path) == HOLE


def test_the_problem_is_one_sentence_with_the_cure(tmp_path: Path) -> None:
    path = laid_out(tmp_path / "m.gguf", [(0, 20 * MIB)])
    header, problem = read_complete([str(path)])
    assert header.tensors[0].name == "token_embd.weight"
    words = "has its full size, but 28 MiB of its data are missing; finish the download or start it again."
    assert problem == f"{path} {words}"


def test_a_file_without_data_is_still_a_model_argument(tmp_path: Path) -> None:
    path = laid_out(tmp_path / "m.gguf", [])
    assert load_header(str(path)).file_bytes == path.stat().st_size


@pytest.mark.parametrize("missing", ["SEEK_DATA", "SEEK_HOLE"])
def test_zeros_where_the_system_knows_no_holes(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = laid_out(tmp_path / "empty.gguf", [])
    monkeypatch.delattr(os, missing)
    assert gap(empty) == ZEROS
    assert gap(laid_out(tmp_path / "half.gguf", [(0, 20 * MIB)])) == ZEROS
    assert gap(laid_out(tmp_path / "whole.gguf", [(0, WHOLE)])) is None
    # rows of zeros at the end of the last large tensor, as a padded vocabulary has them
    assert gap(laid_out(tmp_path / "padded.gguf", [(0, 40 * MIB), (48 * MIB, WHOLE)])) is None


def test_zeros_where_the_file_system_knows_no_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = laid_out(tmp_path / "m.gguf", [])

    def unsupported(*_: object) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "lseek", unsupported)
    assert gap(path) == ZEROS


def test_small_tensors_may_be_zero(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(honest([], [("a", (32, 64), F32), ("b", (32,), F32)]))
    assert gap(path) is None


def test_what_ends_too_early_is_an_error_as_ever(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny_model()[:-100])
    with pytest.raises(errors.TruncatedDataError, match="incomplete"):
        read_complete([str(path)])


def test_a_part_alone_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "m-00001-of-00002.gguf"
    path.write_bytes(tiny_model(part=(0, 2)))
    with pytest.raises(ModelError, match="missing"):
        read_complete([str(path)])


def test_a_hole_in_the_second_part(tmp_path: Path) -> None:
    first, second = tmp_path / "m-00001-of-00002.gguf", tmp_path / "m-00002-of-00002.gguf"
    first.write_bytes(tiny_model(part=(0, 2)))
    rows, body = table([("blk.1.attn_q.weight", (4096, 1024), Q8_0)])
    header = assemble([kv("split.no", "uint16", 1), kv("split.count", "uint16", 2)], rows)
    with second.open("wb") as out:
        out.write(header)
        out.truncate(len(header) + -len(header) % 32 + body)
    _, problem = read_complete([str(first), str(second)])
    assert problem is not None
    assert str(second) in problem
    assert "none of its data" in problem


@pytest.mark.parametrize(
    "name",
    [
        "m.gguf.downloadInProgress", "abc123.incomplete", "m.gguf.part", "downloading_m.gguf.part",
        "downloading_m.gguf", "incomplete-m.gguf", "sha256-0123-partial", "sha256-0123-partial-0",
        "sha256-0123-partial-15", "m.gguf.partial",
        "m.gguf.aria2", "m.gguf.crdownload", "m.gguf.tmp", "m.gguf.lock", ".~m.gguf", "M.GGUF.PART",
    ],
)  # fmt: skip
def test_names_of_downloads_that_go_on(name: str) -> None:
    assert is_unfinished(name)


@pytest.mark.parametrize(
    "name", ["m.gguf", "sha256-0123", "partial-m.gguf", "m-partial.gguf", "party.gguf", "lock.gguf"]
)
def test_names_of_whole_files(name: str) -> None:
    assert not is_unfinished(name, {"other.gguf.aria2"})


def test_a_control_file_beside_a_file_of_full_size() -> None:
    assert is_unfinished("m.gguf", {"m.gguf.aria2"})
