"""Where nothing fits: the nearest thing is near, both lacks are said beside fit's, and one sentence has one unit."""

from __future__ import annotations

import pytest

from advisor.recommend.recommend import nearest_miss
from advisor.recommend.said import say, sentence
from advisor.recommend.search import Search, Wishes
from advisor.settings import RequestedSettings
from tests.tools.machines import evaluator, machine, policy
from tests.unit.recommend.test_beside_fit import beside


def over(judged):
    return sum(short.over_bytes for short in judged.shorts)


@pytest.mark.parametrize(
    ("model", "gib", "ram_gib"),
    [("gpt-oss-120b", (12,), 32), ("gpt-oss-120b", (8, 8), 32), ("qwen3moe-30b", (4,), 8), ("mixtral", (8,), 8)],
)
def test_no_number_of_experts_and_layers_lacks_less(model, gib, ram_gib):
    """Of all settings that fit the GPUs with whole blocks: layers alone, or all layers and experts of some blocks."""
    search = Search(
        evaluator(model, machine(*gib, ram_gib=ram_gib)), policy(), policy().intent("balanced"),
        Wishes(RequestedSettings()),
    )  # fmt: skip
    nearest = nearest_miss(search)
    assert nearest.fits_devices
    assert not nearest.fits
    every, least = search.spec.n_layer_all + 1, over(nearest)
    for pair in search.cache_pairs():
        base = search.base._replace(n_ctx=search.floor, cache_type_k=pair[0], cache_type_v=pair[1])
        requests = [base._replace(n_gpu_layers=layers) for layers in range(1, every + 1, 3)]
        requests += [base._replace(n_gpu_layers=every, n_cpu_moe=count) for count in range(0, every, 2)]
        for request in requests:
            judged = search.judge(request)
            assert not judged.fits_devices or over(judged) >= least


def test_both_lacks_are_said_beside_fits_choice():
    both, _ = beside("gpt-oss-120b", machine(12, ram_gib=32))
    assert both.better == "neither"
    second, first = both.said[:2]
    assert first.figures["our_over_bytes"] == both.ours.judged.shorts[0].over_bytes
    assert first.figures["our_turn_s"] == both.ours.turn_s
    assert first.figures["fit_turn_s"] == both.fit.turn_s
    assert "too much in system memory" in first.text
    assert second.figures["over_bytes"] == both.fit.judged.shorts[0].over_bytes
    assert over(both.ours.judged) < over(both.fit.judged)


def test_speeds_of_one_sentence_have_one_unit():
    told = sentence(
        say("{tokens_per_s} instead of {before_tokens_per_s}", tokens_per_s=0.96, before_tokens_per_s=1.04),
        say("else {other_tokens_per_s}", other_tokens_per_s=0.125),
    )
    assert told.text == "about 0.96 tokens/s instead of about 1.0 tokens/s; else about 0.12 tokens/s."
    slow = say("{tokens_per_s} instead of {before_tokens_per_s}", tokens_per_s=0.5, before_tokens_per_s=0.25)
    assert sentence(slow).text == "about 2.0 seconds a token instead of about 4.0 seconds a token."
