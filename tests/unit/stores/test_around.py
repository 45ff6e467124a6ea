"""What lies around a model: its whole store, else its folder alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from advisor.stores import ollama_service
from advisor.stores.cache import Cache
from advisor.stores.scan import scan_around
from tests.tools.stores import LIBRARY, as_nobody, download, pull
from tests.tools.tiny_models import tiny_model, write


@pytest.fixture(autouse=True)
def no_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ollama_service, "_FOLDERS", ())
    monkeypatch.setattr("advisor.stores.ollama._SYSTEM_STORE", str(tmp_path / "no-system-store"))


def names(path: Path) -> list[str]:
    return sorted(model.name for model in scan_around(os.environ, str(path), cache=Cache(None)))


def test_a_folder_without_what_is_below(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf", "below/c.gguf"):
        write(tmp_path / name, tiny_model(name))
    assert names(tmp_path / "a.gguf") == ["a", "b"]


def test_the_hugging_face_cache_from_a_link_and_from_a_blob(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))
    folder = download(hub, "one/a-GGUF", {"a-Q8_0.gguf": tiny_model("a")})
    download(hub, "two/b-GGUF", {"b-Q8_0.gguf": tiny_model("b")})
    link = folder / "a-Q8_0.gguf"
    assert names(link) == names(link.resolve()) == ["one/a-GGUF:Q8_0", "two/b-GGUF:Q8_0"]


def test_ollama_from_a_blob(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = tmp_path / "models"
    monkeypatch.setenv("OLLAMA_MODELS", str(store))
    blob = pull(store, f"{LIBRARY}/a/latest", tiny_model("a"))
    pull(store, f"{LIBRARY}/b/7b", tiny_model("b"))
    assert names(blob) == ["a:latest", "b:7b"]


def test_facts_are_read_and_progress_told(tmp_path: Path) -> None:
    write(tmp_path / "a.gguf", tiny_model("A"))
    write(tmp_path / "b.gguf", b"GGUF")
    told: list[tuple[int, int]] = []
    found = scan_around(
        os.environ, str(tmp_path / "a.gguf"), cache=Cache(None), progress=lambda *counts: told.append(counts)
    )
    by_name = {model.name: model for model in found}
    assert by_name["a"].facts is not None
    assert by_name["a"].facts.title == "A"
    assert by_name["b"].problem is not None
    assert told == [(1, 2), (2, 2)]


def test_nothing_is_raised_for_a_folder_that_cannot_be_listed(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    write(folder / "a.gguf", tiny_model("a"))
    folder.chmod(0o111)
    try:
        with as_nobody():
            assert names(folder / "a.gguf") == []
    finally:
        folder.chmod(0o755)
