"""Files that may be other quantizations of a model: by name alone, in each kind of store, bounded, nothing raised."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from advisor.stores import ollama_service
from advisor.stores.siblings import MOST, beside, one_name
from tests.tools.gguf_files import Q4_0, Q8_0
from tests.tools.quantized import model_file
from tests.tools.stores import LIBRARY, as_nobody, download, pull
from tests.tools.tiny_models import tiny_model, write


@pytest.fixture(autouse=True)
def no_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ollama_service, "_FOLDERS", ())
    monkeypatch.setattr("advisor.stores.ollama._SYSTEM_STORE", str(tmp_path / "no-system-store"))


def found(path: Path, asked: str = "") -> list[str]:
    return sorted(name for name, _ in beside(str(path), asked).files)


def put(folder: Path, *names: str) -> None:
    for name in names:
        write(folder / name, b"GGUF")


def test_only_what_is_called_the_same_apart_from_the_quantization(tmp_path: Path) -> None:
    put(
        tmp_path, "M-7B-Q4_K_M.gguf", "M-7B-Q8_0.gguf", "m-7b.IQ4_XS.gguf", "M-7B-UD-Q4_K_XL.gguf", "M-7B.i1-Q2_K.gguf",
        "M-7B-BF16.gguf", "M-7B-Instruct-Q8_0.gguf", "M-8B-Q8_0.gguf", "mmproj-M-7B-F16.gguf", "M-7B-imatrix.gguf",
        "M-7B-Q6_K.gguf.part", ".M-7B-Q6_K.gguf", "incomplete-M-7B-Q6_K.gguf", "M-7B-Q3_K_M.gguf",
        "M-7B-Q3_K_M.gguf.aria2", "mtp-M-7B-Q8_0.gguf", "M-7B-Q5_K_M.txt",
    )  # fmt: skip
    (tmp_path / "below").mkdir()
    put(tmp_path / "below", "M-7B-Q5_0.gguf")
    expected = ["M-7B-BF16.gguf", "M-7B-Q8_0.gguf", "M-7B-UD-Q4_K_XL.gguf", "M-7B.i1-Q2_K.gguf", "m-7b.IQ4_XS.gguf"]
    assert found(tmp_path / "M-7B-Q4_K_M.gguf") == expected
    assert found(tmp_path / "M-7B-Instruct-Q8_0.gguf") == []


def test_other_names_of_the_file_itself_are_none(tmp_path: Path) -> None:
    put(tmp_path, "M-Q8_0.gguf")
    (tmp_path / "M-F16.gguf").symlink_to("M-Q8_0.gguf")
    assert found(tmp_path / "M-Q8_0.gguf") == []


def test_a_split_model_is_one_candidate_and_no_candidate_of_itself(tmp_path: Path) -> None:
    put(
        tmp_path,
        *(f"M-Q8_0-0000{n}-of-00002.gguf" for n in (1, 2)),
        *(f"M-F16-0000{n}-of-00003.gguf" for n in (1, 2, 3)),
    )
    put(tmp_path, "M-Q4_K_M.gguf")
    assert found(tmp_path / "M-Q8_0-00001-of-00002.gguf") == ["M-F16-00001-of-00003.gguf", "M-Q4_K_M.gguf"]
    assert found(tmp_path / "M-Q4_K_M.gguf") == ["M-F16-00001-of-00003.gguf", "M-Q8_0-00001-of-00002.gguf"]


def test_a_repository_of_the_hugging_face_cache_with_a_folder_for_each(tmp_path: Path) -> None:
    files = {"a-Q4_0.gguf": tiny_model("a"), "Q8_0/a-Q8_0.gguf": tiny_model("b"), "mmproj-a-F16.gguf": tiny_model("c")}
    snapshot = download(tmp_path / "hub", "one/a-GGUF", files)
    download(tmp_path / "hub", "two/a-GGUF", {"a-F16.gguf": tiny_model("d")})
    assert found(snapshot / "a-Q4_0.gguf") == ["a-Q8_0.gguf"]
    assert found(snapshot / "Q8_0" / "a-Q8_0.gguf") == ["a-Q4_0.gguf"]


def test_a_publisher_in_lm_studio(tmp_path: Path) -> None:
    models = Path(os.environ["HOME"]) / ".lmstudio" / "models"
    put(models / "one" / "a-GGUF", "a-Q4_0.gguf")
    put(models / "one" / "a-big-GGUF", "a-F16.gguf")
    put(models / "two" / "a-GGUF", "a-Q8_0.gguf")
    assert found(models / "one" / "a-GGUF" / "a-Q4_0.gguf") == ["a-F16.gguf"]


@pytest.mark.parametrize("asked", ["a:7b-q8_0", ""])
def test_a_family_in_ollamas_store(tmp_path: Path, asked: str) -> None:
    store = tmp_path / "models"
    blob = pull(store, f"{LIBRARY}/a/7b-q8_0", model_file(Q8_0, 7))
    pull(store, f"{LIBRARY}/a/latest", model_file(Q8_0, 7))
    pull(store, f"{LIBRARY}/a/7b-q4_0", model_file(Q4_0, 2))
    pull(store, f"{LIBRARY}/b/7b-q4_0", model_file(Q4_0, 2, name="Other"))
    write(store / "manifests" / LIBRARY / "a" / "broken", b"{")
    assert found(blob, asked) == ["a:7b-q4_0"]
    assert dict(beside(str(blob), asked).files)["a:7b-q4_0"].startswith(str(store / "blobs"))


def test_a_blob_without_manifests(tmp_path: Path) -> None:
    assert beside(str(write(tmp_path / "blobs" / "sha256-aa", b"GGUF"))) == ((), 0)


def test_of_many_files_some_are_looked_at_spread_over_their_sizes(tmp_path: Path) -> None:
    for size in range(1, 31):
        write(tmp_path / f"M-Q{size}_0.gguf", b"x" * size)
    near = beside(str(tmp_path / "M-Q15_0.gguf"))
    sizes = [os.stat(path).st_size for _, path in near.files]
    assert len(near.files) == MOST == 12
    assert near.n_left_out == 29 - 12
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (1, 30)
    assert max(b - a for a, b in pairwise(sizes)) <= 4


def test_nothing_is_raised(tmp_path: Path) -> None:
    assert beside(str(tmp_path / "gone" / "a-Q8_0.gguf")) == ((), 0)
    put(tmp_path / "closed", "a-Q8_0.gguf", "a-Q4_0.gguf")
    (tmp_path / "closed").chmod(0o111)
    try:
        with as_nobody():
            assert beside(str(tmp_path / "closed" / "a-Q8_0.gguf")) == ((), 0)
    finally:
        (tmp_path / "closed").chmod(0o755)
    put(tmp_path / "loop", "a-Q8_0.gguf")
    (tmp_path / "loop" / "a-Q4_0.gguf").symlink_to("a-Q4_0.gguf")
    os.mkfifo(tmp_path / "loop" / "a-F16.gguf")
    assert found(tmp_path / "loop" / "a-Q8_0.gguf") == ["a-F16.gguf"]


def test_one_name() -> None:
    assert one_name(["x/M-7B-Q4_0.gguf", "y/m-7b.Q8_0.gguf"])
    assert not one_name(["M-7B-Q4_0.gguf", "M-7B-it-Q8_0.gguf"])
