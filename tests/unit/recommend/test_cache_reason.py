"""Why the cache is f16: what is said is true of the contexts beside it, and a slow kernel is never offered unwarned."""

from __future__ import annotations

import re

import pytest

from advisor.recommend.recommend import recommend
from advisor.recommend.search import Search, Wishes
from advisor.settings import RequestedSettings
from tests.tools.explained_cases import tell
from tests.tools.machines import advise, evaluator, machine, policy

SLOW = "builds of that time have no kernel for heads of 256, so attention runs on the CPU"


def of(notes, code):
    return next((note.text for note in notes if note.code == code), "")


@pytest.fixture(scope="module")
def old():
    return recommend(
        evaluator("gemma3-12b", machine(12), build=10000), policy(), policy().intent("context"),
        Wishes(RequestedSettings()),
    )  # fmt: skip


def test_an_old_builds_slow_kernel_is_the_reason_for_f16(old):
    (row,) = [row for row in old.contexts.rows if row.cache_type == "q8_0"]
    settings = old.chosen.plan.settings
    assert settings.n_ctx < row.max_n_ctx
    told = f"f16 cache: q8_0 would hold {row.max_n_ctx:,} tokens, but is about 5.4 times slower: {SLOW}."
    assert of(old.reasons, "cache_f16") == told


def test_what_stands_in_the_table_is_warned_of(old):
    assert SLOW in of(old.warnings, "cache_type_offered_on_cpu")
    points = {row.cache_type: {p.n_ctx: p.tokens_per_s for p in row.points} for row in old.contexts.rows}
    assert points["f16"][8192] > 4 * points["q8_0"][8192]


def test_where_fit_takes_more_context_the_doubt_is_said():
    given = evaluator("gemma3-12b", machine(12), build=10000)
    old = recommend(given, policy(), policy().intent("balanced"), Wishes(RequestedSettings()))
    text = of(old.reasons, "engine_fit_as_good")
    fits = int(re.search(r"with ([\d,]+) tokens", text).group(1).replace(",", ""))
    assert fits > old.chosen.plan.settings.n_ctx
    assert "compute buffers may take" in text
    assert "as --mode safe does" in text


def test_the_settings_that_would_help_say_it_too():
    given = evaluator("gemma3-12b", machine(6), build=10000)
    answer = recommend(given, policy(), policy().intent("balanced"), Wishes(RequestedSettings()))
    (fix,) = [fix for fix in answer.fixes if fix.change == "-ctk q8_0 -ctv q8_0"]
    assert fix.costs == "near lossless, but about 5.4 times slower here"


@pytest.mark.parametrize(
    ("model", "gib", "intent"),
    [("gemma3-12b", 12, "balanced"), ("llama3-8b", 24, "quality"), ("qwen3-8b", 10, "quality")],
)
def test_no_smaller_cache_is_needed_only_where_none_holds_more(model, gib, intent):
    answer = advise(model, machine(gib), intent)
    told = of(answer.reasons, "cache_f16")
    assert told
    settings, search = answer.chosen.plan.settings, Search(
        evaluator(model, machine(gib)), policy(), policy().intent(intent), Wishes(RequestedSettings())
    )  # fmt: skip
    longest = {row.cache_type: row.max_n_ctx for row in answer.contexts.rows}
    longer = [kind for kind, n_ctx in longest.items() if n_ctx > max(settings.n_ctx, longest["f16"])]
    if settings.n_ctx < search.ceiling and longer:
        assert f"{longer[0]} would hold" in told
    else:
        assert told.endswith("does not need a smaller one.")
    assert not of(answer.warnings, "cache_type_offered_on_cpu")


def test_a_cure_of_a_new_build_has_no_such_warning():
    assert not any("times slower, as" in cure.said.text for cure in tell("gemma3-12b", machine(6)).why.cures)
