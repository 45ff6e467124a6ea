"""Our choice beside the engine's fit: the recorded choices come out, the better one is named by its figures."""

from __future__ import annotations

import re

import pytest

from advisor.host import with_devices
from advisor.recommend.beside_fit import BesideFit, beside_fit, fit_by_rules
from advisor.recommend.cards import recommend_on
from advisor.recommend.engine_fit import MARGIN_BYTES, Fitted
from advisor.recommend.search import Search, Wishes
from advisor.settings import RequestedSettings
from tests.tools.choice_cases import draw
from tests.tools.explained_cases import unexplained_digits
from tests.tools.fit_cases import fit_cases, fit_evaluator, fit_machine
from tests.tools.machines import GIB, evaluator, machine, policy

CASES = [case for case in draw(60, 77) if case.host.devices][:14]
RECORDED = [case for case in fit_cases() if len(case["free_mib"]) == 1][3::11]


def beside(model, host, **pinned) -> tuple[BesideFit, Search]:
    intent, wishes = policy().intent("balanced"), Wishes(RequestedSettings(**pinned))
    answer, used = recommend_on(host, lambda some: evaluator(model, some), policy(), intent, wishes)
    whole, search = (
        Search(evaluator(model, one), policy(), intent, wishes) for one in (host, with_devices(host, used.devices))
    )
    return beside_fit(whole, answer, search, fit_by_rules(whole)), whole


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: f"{case['model']}-{case['free_mib'][0]}")
def test_the_rules_come_to_what_the_engine_chose(case):
    """`free_mib` is what the engine itself found free."""
    judge = fit_evaluator(case["model"], fit_machine(tuple(case["free_mib"])))
    search = Search(judge, policy(), policy().intent("balanced"), Wishes(RequestedSettings()))
    fitted = fit_by_rules(search, [mib << 20 for mib in case["free_mib"]])
    assert fitted.request.n_ctx == case.get("n_ctx", judge.spec.n_ctx_train)
    assert [share.n_layer for share in fitted.shares] == [layers for layers, _, _ in case["shares"]]
    pinned = Search(judge, policy(), policy().intent("balanced"), Wishes(RequestedSettings(n_ctx=fitted.request.n_ctx)))
    again = fit_by_rules(pinned, [mib << 20 for mib in case["free_mib"]])
    assert again == fitted  # a context that the user has set is left alone, and the rest comes out as before


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.text)
def test_the_better_one_is_so_by_its_figures(case):
    both, whole = beside(case.model, case.host)
    fit, ours = both.fit, both.ours
    over = [short for short in fit.judged.shorts if short.device == "host"]
    if both.leave:
        assert fit.cost <= ours.cost * 1.005
        assert both.better in ("equal", "fit")
    if both.better == "ours":
        assert ours.judged.fits
        assert ours.cost < fit.cost or over
        assert ours.n_ctx > fit.n_ctx or ours.turn_s < fit.turn_s or over
    if both.better == "neither":
        assert over
        assert not ours.judged.fits
    for said in both.said:
        assert said.figures
        assert not re.search(r"\d", unexplained_digits(said, whole.spec.name)), said


def test_all_cards_in_its_own_margin():
    both, whole = beside("llama3-8b", machine(12))
    (device,) = both.fit.judged.plan.devices
    assert device.planned_bytes <= 12 * GIB - MARGIN_BYTES
    longer = whole.evaluator.judge(both.fitted.request._replace(n_ctx=both.fit.n_ctx + 512))
    assert longer.plan.devices[0].planned_bytes > 12 * GIB - MARGIN_BYTES
    assert both.ours.n_ctx > both.fit.n_ctx > 32768  # what is longer than anybody needs is worth nothing
    assert (both.better, both.leave) == ("equal", True)
    assert both.said[0].text.startswith("Leaving it to the engine is fine")


def test_a_context_that_matters_in_the_larger_margin():
    """512 MiB hold 4,096 tokens of 128 KiB; handed the smaller margin fit does as well."""
    both, _ = beside("llama3-8b", machine(7.5), cache_type_k="f16", cache_type_v="f16")
    assert both.better == "ours"
    assert 3584 <= both.ours.n_ctx - both.fit.n_ctx <= 4096 + 512
    safe = next(said for said in both.said if "--mode safe" in said.text)
    assert safe.figures["safe_n_ctx"] >= both.ours.n_ctx


def test_leaving_it_to_the_engine_is_fine_where_everything_fits():
    both, _ = beside("llama3-1b", machine(24))
    assert (both.leave, both.better) == (True, "equal")
    assert both.said[0].text.startswith("Leaving it to the engine is fine: 131,072 tokens")


def test_a_small_card():
    """Fit is down at 4,096 tokens in f16 with layers on the CPU; the cache in q8_0 takes 34 bytes for 32 values."""
    both, _ = beside("llama3-8b", machine(6))
    settings = both.fit.judged.plan.settings
    assert (settings.n_ctx, settings.cache_type_k) == (4096, "f16")
    assert settings.n_gpu_layers < 33
    assert both.better == "ours"
    cache = next(said for said in both.said if "cache's types" in said.text)
    turn = next(said for said in both.said if "do not hold" in said.text)
    assert turn.figures == {"turn_tokens": 1000 + 4000 + 400, "fit_n_ctx": 4096}  # policy.toml, balanced
    assert cache.figures == {"our_token_bytes": 2 * 32 * 8 * 128 * 34 // 32, "fit_token_bytes": 2 * 32 * 8 * 128 * 2}


def test_system_memory_is_no_limit_to_fit():
    both, _ = beside("llama33-70b-q4_k_m", machine(12, ram_gib=16))
    assert both.better == "neither"
    assert both.said[0].figures["over_bytes"] == next(
        s.over_bytes for s in both.fit.judged.shorts if s.device == "host"
    )


def test_the_same_context_is_said_once():
    both, _ = beside("llama3-8b", machine(6), n_ctx=8192)
    assert both.said[0].text.startswith("With the same 8,192 tokens of context")
    assert isinstance(both.fitted, Fitted)


@pytest.mark.parametrize("n_ctx", [0, 131072, 20000])
def test_a_context_that_was_asked_for_is_left_alone(n_ctx):
    """All of it too, which -c 0 asks for: fit then only moves layers (llama.cpp common/fit.cpp, "no change")."""
    both, _ = beside("llama3-8b", machine(8), n_ctx=n_ctx, n_parallel=1)
    assert both.fit.n_ctx == {0: 131072, 131072: 131072, 20000: 20224}[n_ctx]
    assert both.fit.judged.plan.settings.n_gpu_layers < 33
    assert both.ours.n_ctx == both.fit.n_ctx
