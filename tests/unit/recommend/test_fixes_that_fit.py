"""Where nothing fits, what is called enough is, what is not called so is not; small machines are promised nothing."""

from __future__ import annotations

import pytest

from tests.tools.machines import advise, machine

QUESTIONS = [
    ("command-r", machine(20, ram_gib=32), "quality", {"n_ctx": 32768}),  # f16 keys of 64 heads: 40 GiB of cache
    ("command-r", machine(8, ram_gib=24), "quality", {"n_ctx": 32768}),
    ("llama33-70b-q4_k_m", machine(4, ram_gib=32), "balanced", {}),
    ("mistral-small-24b", machine(12, ram_gib=32), "balanced", {"n_gpu_layers": 41}),
]
KEYS = {"-c": "n_ctx", "-ub": "n_ubatch", "-ctk": "cache_type_k", "-ctv": "cache_type_v"}


@pytest.mark.parametrize(("model", "host", "intent", "pinned"), QUESTIONS)
def test_what_is_enough_fits_when_it_is_asked_for(model, host, intent, pinned):
    answer = advise(model, host, intent, **pinned)
    assert answer.verdict == "does_not_fit"
    settings = [fix for fix in answer.fixes if fix.change.startswith("-")]
    assert settings
    for fix in settings:
        words = fix.change.split()
        asked = {KEYS[name]: value for name, value in zip(words[::2], words[1::2], strict=True)}
        numbers = {key: int(value) if value.isdigit() else value for key, value in asked.items()}
        again = advise(model, host, intent, **{**pinned, **numbers})
        assert (again.verdict != "does_not_fit") == fix.enough, fix


def test_a_smaller_cache_is_enough_where_the_table_says_that_it_fits():
    answer = advise("command-r", machine(20, ram_gib=32), "quality", n_ctx=32768)
    (cache,) = [fix for fix in answer.fixes if fix.change.startswith("-ctk")]
    row = next(row for row in answer.contexts.rows if row.cache_type == "q8_0")
    assert row.max_n_ctx
    assert row.max_n_ctx >= 32768
    assert cache.enough
    assert cache.device == "host"


def test_memory_of_one_kind_is_not_enough_where_both_lack():
    answer = advise("mixtral", machine(1, ram_gib=1))
    assert {short.device for short in answer.chosen.shorts} == {"CUDA0", "host"}
    money = [fix for fix in answer.fixes if fix.costs == "money"]
    assert len(money) == 2
    assert not any(fix.enough for fix in money)


def test_no_model_is_promised_to_a_machine_that_holds_none():
    """0.3 billion parameters do not fit either."""
    assert advise("ernie45-0.3b", machine(1, ram_gib=1)).verdict == "does_not_fit"
    for model in ("mixtral", "ernie45-0.3b"):
        (said,) = [n.text for n in advise(model, machine(1, ram_gib=1)).warnings if n.code == "no_quantization_fits"]
        assert "billion" not in said


def test_small_models_from_disk_are_not_told_of_streaming_by_layers():
    notes = {note.code: note.text for note in advise("ernie45-0.3b", machine(1, ram_gib=1)).warnings}
    assert "layer_streaming" not in notes
    assert "0.0 seconds" not in notes["streams_from_disk"]
    assert "layer_streaming" in {note.code for note in advise("mixtral", machine(1, ram_gib=1)).warnings}


def test_shorter_contexts_are_of_every_slot():
    answer = advise("qwen3moe-30b", machine(12, ram_gib=32), "parallel", n_ctx=65536, n_parallel=8)
    shorter = [int(fix.change.split()[1]) for fix in answer.fixes if fix.change.startswith("-c ")]
    assert shorter == [4096 * 8]
