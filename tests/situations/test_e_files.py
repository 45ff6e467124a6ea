"""E. Files that are no model or only look broken, sizes that a name does not tell, speeds that nobody waits for."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.situations.faces import DATA, GIB, ask, changed, codes, document, warned, zoo
from tests.tools.cells import snapshot
from tests.tools.empty_gguf import write_empty_gguf
from tests.tools.gguf_files import assemble, honest, kv

CARD = ("--gpu", "cuda:24GiB", "--ram", "64GiB")
ZIP = b"PK\x03\x04\x14\x00\x00\x00archive/data.pkl"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4920734272\n"
HTML = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n"
# what lies under the name of a model -> what is said of it, and the cure
NO_MODELS = [
    (HTML, "is a web page, not the model itself", "log in"),
    (b"\n  <html lang=en>", "is a web page", "download it from the link of the file"),
    (LFS, "is a git-lfs pointer", "git lfs pull"),
    (ZIP, "it is a zip archive", "download the file again"),
    (gzip.compress(b"x" * 64, mtime=0), "compressed with gzip", "download the file again"),
    (b'{"error": "Invalid username or password."}', "a server's error message", "download the file again"),
    (b"Entry not found", "a server's error message", "download the file again"),
    (b"\x80\x02ctorch", "a Python pickle", "download the file again"),
    (b"", "is empty", "download the file again"),
    (b"\0" * 4096, "starts with zero bytes, as an unfinished download does", "download the file again"),
    (b"tjgg" + b"\0" * 64, "the old GGJT format", "convert it again"),
]


@pytest.mark.parametrize(("content", "what", "cure"), NO_MODELS)
def test_46_what_is_no_model_is_named(tmp_path: Path, content: bytes, what: str, cure: str) -> None:
    file = tmp_path / "Llama-3-8B.Q4_K_M.gguf"
    file.write_bytes(content)
    for verb in ("recommend", "inspect"):
        said = ask(verb, file, *(CARD if verb == "recommend" else ()))
        assert (said.status, said.out) == (1, "")
        assert said.err.startswith(f"advisor: {file}")
        assert what in said.err
        assert cure in said.err


@pytest.mark.parametrize("missing", [1, 40_000, 1 << 29, 1 << 30])
def test_46_a_cut_off_download_is_held_against_its_own_table(tmp_path: Path, missing: int) -> None:
    """max(offset + size) of the tensors against the size of the file."""
    file = tmp_path / "model.gguf"
    n_bytes = write_empty_gguf(zoo("llama32-3b"), file)
    with file.open("r+b") as out:
        out.truncate(n_bytes - missing)
    for verb in ("recommend", "inspect"):
        said = ask(verb, file, *(CARD if verb == "recommend" else ()))
        assert (said.status, said.out) == (1, "")
        assert f"({missing:,} of {n_bytes:,} bytes)" in said.err
        assert "is incomplete" in said.err
        assert "finish the download or start it again" in said.err


@pytest.mark.parametrize("kept", [5, 20, 1000])
def test_46_a_header_that_ends_early_is_an_incomplete_download(tmp_path: Path, kept: int) -> None:
    file = tmp_path / "model.gguf"
    write_empty_gguf(zoo("llama32-3b"), tmp_path / "whole.gguf")
    with (tmp_path / "whole.gguf").open("rb") as whole:
        file.write_bytes(whole.read(kept))
    said = ask("recommend", file, *CARD)
    assert (said.status, said.out) == (1, "")
    assert f"ends inside its header, after {kept:,} bytes: the download is incomplete" in said.err


def test_46_no_tensors_are_no_model(tmp_path: Path) -> None:
    """One checker said "VALID: 0 tensors"."""
    file = tmp_path / "model.gguf"
    file.write_bytes(assemble([kv("general.architecture", "string", "llama")]))
    said = ask("recommend", file, *CARD)
    assert (said.status, said.out) == (1, "")
    assert "a vocabulary without weights, not a model" in said.err
    file.write_bytes(honest([]))
    said = ask("recommend", file, *CARD)
    assert said.status == 1
    assert "names no architecture" in said.err


def test_46_a_file_of_full_size_without_data_is_not_offered(tmp_path: Path) -> None:
    """Downloaders that set the size first."""
    write_empty_gguf(zoo("llama32-3b"), tmp_path / "model.gguf")
    said = ask("scan", tmp_path).flat
    assert "has its full size, but none of its data is there yet; finish the download" in said
    assert "0 models" in said


def renamed(header: dict[str, Any], name: str) -> None:
    """The same model under an architecture that nobody knows."""
    old = header["metadata"]["general.architecture"]["value"]
    entries = {key.replace(f"{old}.", f"{name}.", 1): entry for key, entry in header["metadata"].items()}
    header["metadata"] = {**entries, "general.architecture": {"type": "string", "value": name}}


MOES = ["qwen3moe-30b", "gpt-oss-20b", "granitemoe-3b", "mixtral", "ds2-lite", "qwen35moe-35b"]


@pytest.mark.parametrize("name", MOES)
def test_48_a_moe_file_is_a_whole_model(name: str, tmp_path: Path) -> None:
    """A checker wanted ffn_up.weight in every block, and called a qwen3moe file corrupt."""
    shapes = {row[0] for row in snapshot(name)["tensors"]}
    assert any("_exps." in tensor for tensor in shapes)
    file = tmp_path / "moe.gguf"
    write_empty_gguf(zoo(name), file)
    found = document("recommend", file, *CARD)
    assert found["model"]["confidence"] == "verified"
    inspected = ask("inspect", file)
    assert inspected.status == 0
    assert "experts" in inspected.out
    assert "damaged" not in inspected.out


@pytest.mark.parametrize("name", ["qwen3moe-30b", "llama3-8b", "gemma3-12b"])
def test_48_an_unknown_architecture_is_not_a_corrupt_file(name: str, tmp_path: Path) -> None:
    model = changed(tmp_path, name, lambda header: renamed(header, "novel9"))
    found = document("estimate", model, "-c", 8192, "-np", 1, *CARD)
    assert found["model"]["confidence"] == "assumed"
    said = warned(found, "assumed_architecture")
    assert "The architecture 'novel9' is not measured" in said
    assert "plain full attention in every block is assumed" in said
    device = found["devices"][0]
    assert device["compute_low_bytes"] < device["compute_high_bytes"]  # unknown is an interval, not a figure
    for word in ("damaged", "corrupt", "download"):
        assert word not in ask("estimate", model, "-c", 8192, *CARD).out


def without(header: dict[str, Any], part: str) -> None:
    header["tensors"] = [row for row in header["tensors"] if part not in row[0]]


BROKEN = [
    ("qwen3moe-30b", "blk.7.", "has no tensors of block 7"), ("llama3-8b", "blk.31.", "has no tensors of block 31"),
    ("qwen3moe-30b", "_exps.", "has no tensor 'blk.0.ffn_up_exps.weight'"),
    ("ds2-lite", "_exps.", "has no tensor 'blk.1.ffn_up_exps.weight'"),
    ("llama3-8b", "token_embd", "has no tensor 'token_embd.weight'"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "part", "what"), BROKEN)
def test_48_a_corrupt_file_of_a_known_one_is(name: str, part: str, what: str, tmp_path: Path) -> None:
    said = ask("recommend", changed(tmp_path, name, lambda header: without(header, part)), *CARD)
    assert (said.status, said.out) == (1, "")
    assert what in said.err
    assert "which llama.cpp refuses; download the file again or convert the model again" in said.err


def rows() -> dict[str, dict[str, Any]]:
    found = document("quants", zoo("nemotron-h-moe-30b"), "--gpu", "cuda:48GiB", "--ram", "64GiB", status=0)
    return {row["quantization"]: row for row in found["rows"]}


def test_49_rows_that_blocks_of_256_do_not_divide() -> None:
    """nemotron_h_moe: 2688, 1856 and 3712 columns, so that Q6_K becomes q8_0 (~32 GB) and Q5_K_M q5_1."""
    sizes = rows()
    assert all(columns % 256 for columns in (2688, 1856, 3712))
    assert 32e9 < sizes["Q6_K"]["weights_bytes"] < 34e9
    assert sizes["Q6_K"]["weights_bytes"] > 0.99 * sizes["Q8_0"]["weights_bytes"]
    assert sizes["Q5_K_M"]["weights_bytes"] >= sizes["Q5_1"]["weights_bytes"]
    # bits of the name would promise 26 GB and 22 GB
    parameters = document("estimate", zoo("nemotron-h-moe-30b"), *CARD)["model"]["parameters"]
    assert sizes["Q6_K"]["weights_bytes"] > 1.25 * parameters * 6.5625 / 8
    said = ask("quants", zoo("nemotron-h-moe-30b"), "--gpu", "cuda:48GiB", "--ram", "64GiB").flat
    assert "rows of this model do not divide into their blocks, so other types stand in for much of it" in said


@pytest.mark.parametrize("quantization", ["Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "IQ4_XS", "Q8_0", "Q5_1"])
def test_49_sizes_are_those_that_llama_quantize_makes(quantization: str) -> None:
    """Measured: the total of a dry run over the same model's F16 file."""
    cases = gzip.decompress((DATA / "cases" / "quantized.jsonl.gz").read_bytes()).decode().splitlines()
    measured = next(case for case in map(json.loads, cases) if case["model"] == "zoo/nemotron-h-moe-30b")
    assert rows()[quantization]["weights_bytes"] == measured["bytes"][quantization]


def test_49_the_name_of_a_file_decides_nothing(tmp_path: Path) -> None:
    """Weights are the sum of the tensors, whatever file_type says, and inspect names the difference."""

    def lie(header: dict[str, Any]) -> None:
        header["metadata"]["general.file_type"] = {"type": "uint32", "value": 18}  # Q6_K

    model = changed(tmp_path, "nemotron-h-moe-30b", lie)
    words = ("-c", 8192, "-np", 1, "--gpu", "cuda:48GiB", "--ram", "64GiB")
    told, true = document("estimate", model, *words), document("estimate", zoo("nemotron-h-moe-30b"), *words)
    assert told["devices"][0]["weights_bytes"] == true["devices"][0]["weights_bytes"] > 30 * GIB
    assert told["model"]["quantization"] == "Q6_K"
    oddities = ask("inspect", model).flat
    assert "rows of 1,856, 2,688, 3,712, which blocks of 256 do not divide" in oddities
    assert "they are stored as q4_K, q8_0" in oddities or "they are stored as q8_0" in oddities


STREAMED = [
    ("llama33-70b-q4_k_m", "cuda:4GiB", "16GiB", 131.42), ("llama33-70b-q4_k_m", "cuda:4GiB", "32GiB", 131.42),
    ("glm4moe-mtp0", "cuda:8GiB", "64GiB", 199.03), ("qwen3moe-30b", "cuda:4GiB", "16GiB", 56.87),
]  # fmt: skip


@pytest.mark.parametrize(("name", "card", "ram", "gib"), STREAMED)
def test_50_layer_streaming_has_its_price_before_anybody_waits(name: str, card: str, ram: str, gib: float) -> None:
    """13 seconds to 28 minutes a token were reported for programs that stream layers."""
    found = document("recommend", zoo(name), "--gpu", card, "--ram", ram)
    assert found["verdict"] == "does_not_fit"
    said = warned(found, "layer_streaming")
    assert f"read all {gib:.2f} GiB of the 16-bit weights for every token" in said  # two bytes a parameter
    assert abs(2 * found["model"]["parameters"] / GIB - gib) < 0.01
    seconds = float(said.partition("for every token: ")[2].split()[0])
    assert 13 <= seconds <= 28 * 60
    rate = found["speed"]["decode_tokens_per_s"]["value"]
    assert rate * seconds > 3  # what llama.cpp itself reads from disk is quantised
    assert "GB/s" in warned(found, "streams_from_disk")
    assert "it would fit" in warned(found, "smaller_quantization_fits")


@pytest.mark.parametrize(
    ("name", "card", "ram"), [("qwen3moe-30b", "cuda:4GiB", "24GiB"), ("glm4moe-mtp0", "cuda:12GiB", "80GiB")]
)
def test_50_experts_on_the_cpu_are_far_faster(name: str, card: str, ram: str) -> None:
    """For a model that nearly fits: everything but the experts on the card."""
    found = document("recommend", zoo(name), "--gpu", card, "--ram", ram)
    assert found["verdict"] == "partial"
    assert found["settings"]["n_cpu_moe"] > 0
    assert "moe" in found["command"]
    assert found["speed"]["decode_tokens_per_s"]["value"] > 5
    assert "layer_streaming" not in codes(found)
    assert "tokens/s" in found["summary"]
