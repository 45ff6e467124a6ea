"""What is away from the GPUs by wish: it stays away, nothing is called lacking, and nothing is promised without it."""

from __future__ import annotations

import pytest

from tests.tools.machines import advise, machine


def codes(notes):
    return {note.code for note in notes}


@pytest.mark.parametrize(("model", "n_cpu_moe"), [("smallthinker-21b", 3), ("qwen3moe-30b", 10), ("ling-mini", 3)])
def test_experts_that_are_to_stay_on_the_cpu_stay_there_with_two_cards(model, n_cpu_moe):
    answer = advise(model, machine(16, 16, ram_gib=32), n_cpu_moe=n_cpu_moe)
    assert answer.chosen.plan.settings.n_cpu_moe == n_cpu_moe
    assert not answer.chosen.plan.settings.tensor_overrides


@pytest.mark.parametrize(
    "wish", [{"n_gpu_layers": 10}, {"n_cpu_moe": 3}, {"cpu_moe": True}, {"kv_offload": False}]
)  # fmt: skip
def test_nothing_would_help_where_nothing_is_lacking(wish):
    answer = advise("gpt-oss-20b", machine(32, ram_gib=32), **wish)
    assert answer.verdict == "partial"
    assert not answer.fixes


def test_a_smaller_quantization_is_not_praised_for_layers_that_are_to_stay_on_the_cpu():
    answer = advise("gpt-oss-20b", machine(32, ram_gib=32), n_gpu_layers=10)
    assert not any("25 layers" in note.text for note in answer.warnings)


def test_a_quantization_does_not_fit_by_leaving_the_gpu_that_is_asked_for():
    """13.34 GiB of Q4_K_M are more than 11.5 GiB, wherever else they would go."""
    answer = advise("mistral-small-24b", machine(12, ram_gib=32), n_gpu_layers=999)
    assert answer.verdict == "does_not_fit"
    (fits,) = [note.text for note in answer.warnings if note.code == "smaller_quantization_fits"]
    assert "all 41 layers on the GPU" in fits
    assert all(note.text.count("system memory") == 0 for note in answer.warnings if "As Q" in note.text)


def test_more_memory_is_that_for_what_goes_to_the_gpu():
    """With the experts of 20 blocks away the rest of 24 blocks fits in far less than all of it."""
    some = advise("gpt-oss-20b", machine(4, ram_gib=32), n_cpu_moe=20)
    every = advise("gpt-oss-20b", machine(4, ram_gib=32))
    more = {
        name: max((fix.saves_bytes for fix in answer.fixes if fix.costs == "money"), default=0)
        for name, answer in (("some", some), ("every", every))
    }
    assert 0 < more["some"] < more["every"] / 2
