"""Mixtures of experts with a large cache: layers leave the GPU with their experts where that is cheaper."""

from __future__ import annotations

import pytest

from advisor.recommend.search import Search, Wishes
from advisor.settings import RequestedSettings
from tests.tools.machines import advise, evaluator, machine, policy

CASES = [
    ("mixtral", 8, "parallel"), ("mixtral", 12, "parallel"), ("mixtral", 24, "parallel"), ("phimoe", 6, "parallel"),
    ("mixtral", 12, "balanced"), ("mixtral", 12, "quality"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "gib", "wish"), CASES)
def test_no_number_of_whole_layers_is_cheaper(model, gib, wish):
    """Every number of layers x contexts in steps of a sixteenth x cache types; the usual micro-batch."""
    host = machine(gib, ram_gib=128)
    answer = advise(model, host, intent=wish)
    search = Search(evaluator(model, host), policy(), policy().intent(wish), Wishes(RequestedSettings()))
    n_ctx, cheaper = float(search.floor), []
    while n_ctx < search.ceiling:
        for pair in search.cache_pairs():
            asked = search.base._replace(n_ctx=int(n_ctx), cache_type_k=pair[0], cache_type_v=pair[1])
            for layers in range(2, search.spec.n_layer_all + 1):
                request = asked._replace(n_gpu_layers=layers)
                if search.cost(search.evaluator.least(request)) < 0.99 * answer.cost and search.may_fit(request):
                    judged = search.judge(request)
                    if judged.fits and search.cost(judged) < 0.99 * answer.cost:
                        cheaper.append((layers, judged.plan.settings.n_ctx, pair))
        n_ctx *= 17 / 16
    assert not cheaper


def test_it_is_what_is_chosen_where_the_cache_is_large():
    """Mixtral reads a quarter of its experts for a token, and of 100,352 cells of cache what four turns fill."""
    settings = advise("mixtral", machine(8, ram_gib=128), intent="parallel").chosen.plan.settings
    assert 1 < settings.n_gpu_layers < 32
    assert not settings.n_cpu_moe
    assert settings.n_ctx >= 4 * policy().intent("parallel").comfortable_n_ctx
