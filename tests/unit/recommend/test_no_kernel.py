"""Heads that flash attention has no kernel for: where it is forced all the same, attention runs on the CPU."""

from __future__ import annotations

import pytest

from advisor.recommend.cache_safety import rows_for
from tests.tools.cells import engine, spec
from tests.tools.machines import advise, machine, policy

QUANTISED = {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}
FACTOR = 5.4  # measured with heads of 256 while they had no kernel: 29.9 and 5.5 tokens/s


def told(answer):
    return [note.text for note in answer.warnings if note.code == "attention_on_cpu"]


@pytest.mark.parametrize("model", ["minicpm3-4b", "stablelm2-12b"])  # heads of 96 and 64, and of 160
@pytest.mark.parametrize("wish", [QUANTISED, {"flash_attn": "on"}])
def test_forced_flash_attention_is_slow_and_says_so(model, wish):
    free, forced = advise(model, machine(24), n_ctx=4096), advise(model, machine(24), n_ctx=4096, **wish)
    assert not free.chosen.plan.flash_attn
    assert forced.chosen.plan.flash_attn
    assert not told(free)
    (said,) = told(forced)
    assert "attention runs on the CPU" in said
    assert forced.speed.decode_tokens_per_s.value < free.speed.decode_tokens_per_s.value / 2


@pytest.mark.parametrize("wish", [{}, {"cache_type_k": "q8_0"}, {"flash_attn": "off"}])
def test_where_it_turns_itself_off_nothing_is_divided(wish):
    answer = advise("minicpm3-4b", machine(24), n_ctx=4096, **wish)
    assert not answer.chosen.plan.flash_attn
    assert not told(answer)


def test_heads_with_a_kernel_are_not_concerned():
    answer = advise("llama3-8b", machine(24), flash_attn="on", **QUANTISED)
    assert not told(answer)
    names = {row.name for row in rows_for(policy().cache_safety, spec("llama3-8b"), engine(), ["cuda"])}
    assert "no_kernel_for_heads" not in names
    (row,) = [
        row for row in rows_for(policy().cache_safety, spec("minicpm3-4b"), engine(), ["cuda"]) if row.heads
    ]  # fmt: skip
    assert row.factor == FACTOR
    assert not [row for row in rows_for(policy().cache_safety, spec("minicpm3-4b"), engine(), []) if row.heads]
