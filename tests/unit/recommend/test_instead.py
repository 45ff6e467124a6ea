"""What is offered instead is what it is called, keeps the wish or says that it does not, and agrees with the table."""

from __future__ import annotations

import pytest

from advisor.recommend.search import Search, Wishes
from advisor.settings import RequestedSettings
from tests.tools.choice_cases import exactly
from tests.tools.machines import advise, evaluator, machine, policy

TRAINED = {"qwen3-8b": 131072, "qwen3moe-30b": 131072, "llama3-8b": 131072, "qwen35-27b": 262144, "gpt-oss-20b": 131072}


@pytest.mark.parametrize("model", TRAINED)
@pytest.mark.parametrize("vram_gib", [(12,), (16, 8)])
def test_nothing_is_longer_than_what_is_called_the_longest(model, vram_gib):
    answer = advise(model, machine(*vram_gib, ram_gib=32))
    for other in answer.alternatives:
        if other.label == "longest context":
            assert other.judged.plan.settings.n_ctx == TRAINED[model]
        assert other.judged.fits


def test_all_of_the_context_is_offered_where_it_fits():
    answer = advise("qwen3moe-30b", machine(12, ram_gib=32), cpu_moe=True)
    assert answer.chosen.plan.settings.n_ctx < 131072
    (other,) = [other for other in answer.alternatives if "context" in other.label]
    assert (other.label, other.judged.plan.settings.n_ctx) == ("longest context", 131072)


def test_an_alternative_slower_than_the_wish_says_so():
    answer = advise("qwen3-8b", machine(12, ram_gib=32), "context", min_tokens_per_s=40.0)
    assert answer.speed.decode_tokens_per_s.value >= 40
    slower = [other for other in answer.alternatives if other.speed.decode_tokens_per_s.value < 40]
    assert slower
    for other in answer.alternatives:
        assert ("below the 40 tokens/s you asked for" in other.why) == (other in slower)


@pytest.mark.parametrize("wishes", [{"cpu_moe": True}, {"n_cpu_moe": 40}, {"n_cpu_moe": 30}, {"n_ubatch": 2048}, {}])
def test_the_table_is_of_the_answers_own_micro_batch(wishes):
    """The longest context of its row fits with the answer's own settings, and 256 tokens more do not."""
    host = machine(12, ram_gib=64)
    answer = advise("qwen3moe-30b", host, **wishes)
    pinned = RequestedSettings(**wishes)
    search = Search(evaluator("qwen3moe-30b", host), policy(), policy().intent("balanced"), Wishes(pinned))
    settings, request = answer.chosen.plan.settings, answer.chosen.request
    assert ("-ub" in answer.contexts.basis) == (settings.n_ubatch != 512)
    for row in answer.contexts.rows:
        asked = request._replace(cache_type_k=row.cache_type, cache_type_v=row.cache_type)
        assert exactly(search, asked._replace(n_ctx=row.max_n_ctx)).fits
        if not row.at_least:
            assert not exactly(search, asked._replace(n_ctx=row.max_n_ctx + 256)).fits


def test_half_a_micro_batch_with_more_on_the_gpu_is_looked_at():
    """-c 131072 -ngl 27 -ub 256 fits, which is faster than 26 layers with 512, the most that fit with these."""
    host = machine(12, ram_gib=32)
    answer = advise("qwen3-8b", host, min_n_ctx=131072)
    search = Search(evaluator("qwen3-8b", host), policy(), policy().intent("balanced"), Wishes(RequestedSettings()))
    ways = {
        (layers, n_ubatch): search.base._replace(
            n_ctx=131072, n_gpu_layers=layers, n_ubatch=n_ubatch, cache_type_k="q8_0", cache_type_v="q8_0"
        )
        for layers in range(20, 34)
        for n_ubatch in (256, 512)
    }
    costs = {way: search.cost(judged) for way, request in ways.items() if (judged := exactly(search, request)).fits}
    assert search.cost(answer.chosen) <= min(costs.values()) * 1.0001
    assert min(costs, key=lambda way: costs[way])[1] == answer.chosen.plan.settings.n_ubatch == 256


def test_a_micro_batch_that_the_answer_has_is_no_help():
    answer = advise("qwen3-8b", machine(12, ram_gib=32), min_n_ctx=131072)
    assert answer.chosen.plan.settings.n_ubatch == 256
    assert answer.fixes
    assert "-ub 256" not in [fix.change for fix in answer.fixes]
