"""The table of published shapes: sizes that are public knowledge, and the refusal of what is not understood."""

from __future__ import annotations

import pytest

from advisor.ggml_types import GGML_TYPES, tensor_bytes
from tests.tools.cells import spec
from tests.truth.shapes import fresh, fresh_snapshot
from tests.truth.shapes.build import build, row
from tests.truth.wide import drawn_wide

# parameters as the vendors publish them (model cards), embeddings included, in billions
PARAMETERS = {
    "llama31-70b": 70.6, "qwen25-72b": 72.7, "qwen3-32b": 32.8, "mixtral-8x22b": 140.6, "qwen3-235b-a22b": 235.1,
    "deepseek-v2-236b": 235.7, "kimi-k2": 1026.0, "gemma2-27b": 27.2, "command-r-plus": 103.8, "phi-4": 14.7,
    "smollm2-135m": 0.135, "falcon-40b": 41.8, "jamba-mini-52b": 51.6, "olmoe-1b-7b": 6.92, "glm45-355b": 352.8,
    "minimax-m2": 228.7, "nemotron-nano2-12b": 12.3, "falcon-h1-34b": 33.6, "starcoder2-15b": 15.96,
    "llama4-maverick": 400.7, "granite4-tiny": 6.94, "mamba-130m": 0.129, "bge-m3": 0.567,
}  # fmt: skip


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_shape_has_its_published_size(name: str) -> None:
    elements = 0
    for _, shape, _ in fresh_snapshot(name)["tensors"]:
        count = 1
        for extent in shape:
            count *= extent
        elements += count
    assert elements / 1e9 == pytest.approx(PARAMETERS[name], rel=0.02)


def test_every_shape_is_one_that_a_file_can_hold() -> None:
    assert len(fresh()) > 150
    for name in fresh():
        for tensor, shape, kind in fresh_snapshot(name)["tensors"]:
            assert min(shape) > 0, tensor
            assert shape[0] % GGML_TYPES[kind].block_elements == 0, tensor
            assert tensor_bytes(GGML_TYPES[kind], tuple(shape)) > 0


def test_a_shape_that_the_formulas_do_not_give_is_refused() -> None:
    template = fresh_snapshot("smollm2-135m")
    template["tensors"][5][1] = [7, 7]
    with pytest.raises(ValueError, match="no formula fits"):
        build(row("other", "smollm2-135m", 1000, "Q8_0", L=2), template)


def test_wide_settings_are_the_same_for_a_seed_and_differ_between_seeds() -> None:
    model = spec("small-llama")
    assert drawn_wide("small-llama", model, 7, 6) == drawn_wide("small-llama", model, 7, 6)
    assert drawn_wide("small-llama", model, 7, 6) != drawn_wide("small-llama", model, 8, 6)
