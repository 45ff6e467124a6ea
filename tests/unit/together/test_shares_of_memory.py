"""Who gets the memory where not all can be wholly on GPUs: policy.toml's [together], held against every other share."""

from __future__ import annotations

import pytest

from advisor.together.whole import weighed
from tests.tools.machines import machine
from tests.tools.together import answers_of, member, named, one_after_the_other, over_budget, together, unified, worth


@pytest.mark.parametrize("intent", ["balanced", "context"])
def test_the_first_models_cache_is_weighed_against_the_layers_of_the_second(intent):
    """Qwen3 8B with a long f16 cache left 32B on the CPU; in q8_0, 4 % of a turn by policy.toml, half of it fits."""
    host = machine(24, ram_gib=32, bandwidth=936 * 10**9)
    members = (member("qwen3-8b", intent), member("exaone4-32b"))
    answer = together(host, *members)
    first, second = answers_of(answer)
    assert first.verdict == "full"
    assert first.chosen.plan.settings.cache_type_k == "q8_0"
    assert first.chosen.plan.settings.n_ctx_seq >= {"balanced": 32768, "context": 131072}[intent]
    assert second.verdict == "partial"
    apart = one_after_the_other(members, host, (0, 1))
    assert apart is not None
    assert second.speed.decode_tokens_per_s.value > 1.3 * apart[1].speed.decode_tokens_per_s.value
    assert worth(answer.members, [first, second]) < worth(answer.members, apart)
    assert over_budget(answer, host) == []


def test_the_main_model_is_the_one_that_is_whole():
    """Command R needs both cards; EXAONE 32B would fit the larger one alone and leave the main model on the CPU."""
    host = machine(24, 16, ram_gib=32, bandwidth=936 * 10**9)
    first, second = answers_of(together(host, member("command-r"), member("exaone4-32b")))
    assert first.verdict == "full"
    assert second.verdict != "full"


def test_the_main_model_is_not_left_out_where_it_fits_alone():
    """128 GiB hold gpt-oss 120B, or the two smaller ones: two are more, but the first is what the machine is for."""
    host = unified(machine(128, ram_gib=128, bandwidth=360 * 10**9), 0)
    main = member("gpt-oss-120b", "parallel:4", n_ctx=16384)
    answer = together(host, main, member("gpt-oss-20b"), member("granite-h-small"))
    assert answer.verdict == "does_not_fit"
    assert [named(answer, who) for who in answer.subsets] == [("gpt-oss-120b",), ("gpt-oss-20b", "granite-h-small")]
    assert [seat is not None for seat in answer.seats] == [True, False, False]


def test_costs_of_those_that_are_whole_count_with_the_next_that_is_not():
    assert weighed([2.0, 3.0, 5.0], [False, False, False]) == [2.0, 3.0, 5.0]
    assert weighed([2.0, 3.0, 5.0], [False, True, False]) == [6.0, 5.0]
    assert weighed([2.0, 3.0, 5.0], [True, False, True]) == [2.0, 15.0]


def test_everyone_whose_prompt_cache_is_limited_is_named():
    """Checkpoints are limited before saved prompts are: 32 of them leave nothing, as many as fit do."""
    host = machine(24, ram_gib=32, bandwidth=936 * 10**9)
    answer = together(host, member("qwen3-8b", "context"), member("exaone4-32b"))
    (said,) = [note.text for note in answer.notes if note.code == "prompt_caches_fill_ram"]
    assert "--cache-ram keeps qwen3-8b and exaone4-32b within" in said
