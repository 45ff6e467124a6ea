"""How much more memory would hold all of it is true of several cards: planned anew on cards with just so much more."""

from __future__ import annotations

import re

import pytest

from tests.tools.explained_cases import tell
from tests.tools.machines import advise, evaluator, machine

CASES = [
    ("mistral-small-24b", (8, 8)), ("mistral-small-24b", (6, 10)), ("mistral-small-24b", (10, 6)),
    ("gemma3-12b", (4, 4)), ("qwen3moe-30b", (8, 8)), ("gpt-oss-20b", (6, 6)), ("llama33-70b-q4_k_m", (12, 12, 12)),
]  # fmt: skip


def of_cards(answer):
    (fix,) = [fix for fix in answer.fixes if fix.costs == "money" and "system" not in fix.change]
    return fix


@pytest.mark.parametrize(("model", "cards"), CASES, ids=str)
def test_the_first_card_with_so_much_more_holds_everything(model, cards):
    answer, search, why = tell(model, machine(*cards))
    assert answer.verdict == "partial"
    fix = of_cards(answer)
    assert fix.enough
    figure = float(re.fullmatch(r"CUDA0 with ([\d.]+) GiB more memory", fix.change).group(1)) + 1e-6
    settings = answer.chosen.plan.settings
    again = advise(
        model, machine(cards[0] + figure, *cards[1:]), n_ctx=settings.n_ctx, cache_type_k=settings.cache_type_k,
        cache_type_v=settings.cache_type_v, n_gpu_layers=search.spec.n_layer_all + 1,
        n_ubatch=min(settings.n_ubatch, 512),
    )  # fmt: skip
    assert again.verdict == "full"
    assert again.chosen.plan.settings.n_ctx >= settings.n_ctx
    less = machine(cards[0] + figure - 0.05, *cards[1:])
    lacking = evaluator(model, less).share_out(again.chosen.request._replace(tensor_split=None))
    assert evaluator(model, less).judge(lacking).shorts  # nor is it much too much
    (told,) = [cure.said for cure in why.cures if cure.change == fix.change]
    assert told.text == f"{fix.change} would hold all of it."
    if "run whole" in why.friend.text:
        assert f"with {figure:.2f} GiB more on CUDA0 it would run whole" in why.friend.text


def test_where_the_user_dealt_the_layers_each_card_is_given_what_it_lacks():
    cards, split = (8, 8), (20.0, 21.0)
    answer, search, _ = tell("mistral-small-24b", machine(*cards), n_ctx=16384, tensor_split=split)
    fix = of_cards(answer)
    both = re.fullmatch(r"CUDA0 with ([\d.]+) (.iB) and CUDA1 with ([\d.]+) (.iB) more memory", fix.change)
    more = [float(both[n]) / (1024 if both[n + 1] == "MiB" else 1) for n in (1, 3)]
    richer = machine(*(size + extra for size, extra in zip(cards, more, strict=True)))
    request = answer.chosen.request._replace(n_gpu_layers=search.spec.n_layer_all + 1)
    request = request._replace(n_ubatch=min(answer.chosen.plan.settings.n_ubatch, 512))
    assert evaluator("mistral-small-24b", richer).judge(request).fits
    assert fix.enough
    assert abs(fix.saves_bytes - sum(more) * 1024**3) < 2 * 1024**2
