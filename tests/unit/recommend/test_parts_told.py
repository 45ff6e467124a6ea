"""What is told of parts: experts by block, places that lack memory, slots, and figures beside each other."""

from __future__ import annotations

import re

import pytest

from advisor.recommend.siblings import dearer_text, turns_text
from advisor.recommend.words import experts_away
from advisor.settings import TensorOverride
from tests.tools.cells import spec
from tests.tools.explained_cases import tell
from tests.tools.machines import advise, machine


def away(model, n_cpu_moe, *patterns):
    overrides = tuple(TensorOverride(pattern, "CPU") for pattern in patterns)
    pins = {"n_cpu_moe": n_cpu_moe} if n_cpu_moe else {}
    answer = advise(model, machine(80), tensor_overrides=overrides, n_ctx=4096, **pins)
    return experts_away(spec(model), answer.chosen)


@pytest.mark.parametrize(
    ("n_cpu_moe", "patterns", "whole", "in_part"),
    [
        (0, ["blk.[0-3].ffn_.*_exps"], 4, 0),
        (0, ["blk.7.ffn_up_exps"], 0, 1),
        (0, ["blk.7.ffn_up_exps", "blk.7.ffn_gate_exps", "blk.7.ffn_down_exps"], 1, 0),
        (3, ["blk.3.ffn_up_exps", "blk.9.ffn_(up|gate|down)_exps"], 4, 1),
        (3, [r"ffn_down_exps"], 3, 45),
    ],
)
def test_experts_are_counted_by_block_however_they_are_named(n_cpu_moe, patterns, whole, in_part):
    assert away("qwen3moe-30b", n_cpu_moe, *patterns) == (whole, in_part)  # 48 blocks


def test_blocks_without_experts_are_not_counted():
    """DeepSeek V3's first three of 61 blocks have none: --n-cpu-moe 5 moves two."""
    overrides = (TensorOverride("blk.5.ffn_up_exps", "CPU"),)
    answer = advise("ds3", machine(640), tensor_overrides=overrides, n_ctx=4096, n_cpu_moe=5)
    assert experts_away(spec("ds3"), answer.chosen) == (2, 1)
    assert "experts of 2 blocks and some of 1 more on the CPU" in answer.summary


def test_the_line_for_a_friend_names_every_place_that_lacks():
    _, _, why = tell("llama33-70b-q4_k_m", machine(24, 12, 12))
    wish = why.rungs[0]
    short = [place for place in wish.places if place.over_bytes > 0]
    assert len(short) == 3
    said = why.friend.text
    assert len(re.findall(r"GiB on CUDA", said)) == 3
    assert {place.over_bytes for place in short} <= set(why.friend.figures.values())


def test_texts_of_several_slots_are_not_read_at_once():
    answer = advise("gemma-embedding", machine(8), "parallel", n_parallel=8)
    assert "8 slots of 2,048 tokens" in answer.summary
    assert "at a time" not in answer.summary
    (said,) = [note.text for note in answer.warnings if note.code == "context_divided"]
    assert "-np 1" not in said  # one text is no longer than the model was trained for
    state = advise("mamba2-7b", machine(24), "parallel", n_parallel=8)  # every slot has what it was trained for
    divided = next(note.text for note in state.warnings if note.code == "context_divided")
    assert divided.endswith("; -kvu makes them one pool.")
    chat = advise("llama3-8b", machine(24), "parallel", n_parallel=8, n_ctx=65536)
    assert "-np 1 leaves all" in next(note.text for note in chat.warnings if note.code == "context_divided")


def test_a_pace_that_cannot_be_had_is_told_without_a_cache_that_is_not_there():
    answer = advise("bert-large", machine(8), min_tokens_per_s=1e6)
    (said,) = [note.text for note in answer.warnings if note.code == "below_min_tps"]
    assert "1,000,000 tokens/s" in said
    assert "cache" not in said


def test_two_times_that_differ_are_told_apart():
    assert turns_text(90.0, 40.0) == "90 seconds instead of 40 seconds"
    assert turns_text(193.0, 160.0) == "3.2 minutes instead of 2.7 minutes"
    assert turns_text(12.4, 12.1) == "12.4 seconds instead of 12.1 seconds"
    assert dearer_text(1.004) == "hardly dearer"
    assert dearer_text(1.04) == "4 % dearer"


@pytest.mark.parametrize("wish", [{"n_gpu_layers": 0}, {"kv_offload": False}])
def test_a_context_in_system_memory_is_enough_and_not_faster(wish):
    _, _, why = tell("gpt-oss-20b", machine(32, ram_gib=48), **wish)
    said = [rung.said.text for rung in why.rungs]
    assert not [text for text in said if text.startswith("Or 131,072 tokens")]  # that is the first already
    (shorter,) = [text for text in said if text.startswith("32,768 tokens instead of 131,072")]
    assert "32,768 tokens are enough for balanced; saves" in shorter
    assert "instead of" not in shorter.partition(":")[2]
