"""What lies beside a model: it takes room of one card only, and nobody else counts it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.situations.faces import ask, document, zoo
from tests.tools.projectors import width_of, write_projector


@pytest.mark.parametrize("name", ["qwen3moe-30b", "mistral-small-24b"])
def test_other_cards_are_used_beside_a_projector(name: str, tmp_path: Path) -> None:
    """What the first card holds beside the model leaves room on the others, and they are as good as without it."""
    projector = write_projector(tmp_path / "mmproj.gguf", "gemma3", out=width_of(zoo(name)))
    cards = ("--gpu", "RTX 3060", "--gpu", "cuda:8GiB", "--ram", "64GiB")
    model = (
        "recommend",
        zoo(name),
        "-c",
        32768,
        "-ctk",
        "f16",
        "-ctv",
        "f16",
        "--mmproj",
        projector,
        "--mmproj-offload",
    )
    both, one = document(*model, *cards), document(*model, "--gpu", "RTX 3060", "--ram", "64GiB")
    assert [device["id"] for device in both["devices"]] == ["CUDA0", "CUDA1"]
    assert both["host"]["weights_bytes"] < one["host"]["weights_bytes"]
    rates = [found["speed"]["decode_tokens_per_s"]["value"] for found in (both, one)]
    assert rates[0] > 1.3 * rates[1]


def test_what_is_loaded_beside_is_not_left_to_the_engines_fit(tmp_path: Path) -> None:
    projector = write_projector(tmp_path / "mmproj.gguf", "gemma3", out=3840)
    words = (zoo("gemma3-12b"), "--gpu", "RTX 3060", "--ram", "32GiB")
    assert "engine_fit_as_good" in str(document("recommend", *words)["reasons"])
    assert "engine_fit_as_good" not in str(document("recommend", *words, "--mmproj", projector)["reasons"])
    said = ask("verify", *words, "--fit", "--mmproj", projector)
    assert said.status == 2
    assert "--mmproj" in said.err


@pytest.mark.parametrize(("words", "named"), [(("--min-ctx", 50000), "--min-ctx"), (("--max-ctx", 2048), "--max-ctx")])
def test_a_context_beyond_its_own_limits_is_refused(words: tuple[object, ...], named: str) -> None:
    said = ask("recommend", zoo("llama3-8b"), "--gpu", "RTX 3060", "-c", 4096, *words)
    assert said.status == 2
    assert named in said.err
