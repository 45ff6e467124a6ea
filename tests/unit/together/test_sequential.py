"""Planning together is never worse than one model after the other, in whatever order they would be loaded."""

from __future__ import annotations

from itertools import permutations

import pytest

from advisor.recommend.budget import make_budget
from advisor.recommend.cards import recommend_on
from advisor.recommend.evaluate import lack
from advisor.recommend.recommendation import Recommendation
from advisor.together.shares import Load, less, load_of, only, total
from advisor.together.types import Member, Together
from advisor.together.whole import resident
from tests.tools.machines import machine, policy
from tests.tools.together import evaluator_for, together
from tests.unit.together.test_sums import drawn


def one_after_the_other(members, host, order) -> list[Recommendation] | None:
    """Each with the best that it finds in what those before it left; None where one finds nothing."""
    answers: dict[int, Recommendation] = {}
    loads: list[Load] = []
    for index in order:
        one = members[index]
        limits = less(make_budget(host, policy()), total(loads))

        def judge(some, one=one, limits=limits):
            return evaluator_for(one, some, only(limits, some.devices), None)

        answer, _ = recommend_on(host, judge, policy(), one.intent, one.wishes)
        if answer.verdict == "does_not_fit":
            return None
        answers[index] = answer
        loads.append(load_of(answer.chosen.plan))
    return [answers[index] for index in range(len(members))]


def worth(members: tuple[Member, ...], answers: list[Recommendation]) -> tuple[float, ...]:
    """What policy.toml orders sets by: members not wholly on GPUs, then each member's cost, a longer than comfortable
    context counting for no more than a comfortable one."""
    costs = []
    for one, answer in zip(members, answers, strict=True):
        settings = answer.chosen.plan.settings
        n_ctx = min(settings.n_ctx_seq, one.intent.comfortable_n_ctx)
        lossy = max(policy().cache_factor[kind] for kind in (settings.cache_type_k, settings.cache_type_v))
        usual = min(512, settings.n_ctx)
        unusual = 1.0 if settings.n_ubatch == usual else policy().search["unusual_n_ubatch_factor"]
        missing = lack(n_ctx, one.intent, policy(), one.spec.n_ctx_train)
        costs.append(answer.speed.turn_seconds.value * missing * lossy * unusual)
    return (sum(answer.verdict != "full" for answer in answers), *costs)


def answers_of(answer: Together) -> list[Recommendation]:
    return [seat.answer for seat in answer.seats if seat is not None]


@pytest.mark.parametrize("seed", range(100, 116))
def test_never_worse_than_one_after_the_other(seed):
    host, names = drawn(seed)
    answer = together(host, *names)
    members = tuple(map(resident, answer.members))
    for order in permutations(range(len(members))):
        others = one_after_the_other(members, host, order)
        if others is None:
            continue
        assert answer.verdict != "does_not_fit"
        assert worth(members, answers_of(answer)) <= worth(members, others)


def test_what_one_after_the_other_cannot_do():
    """Alone, the first takes all; together both are wholly on the GPU."""
    host = machine(12, ram_gib=32)
    answer = together(host, "qwen3-8b", "llama32-3b")
    others = one_after_the_other(answer.members, host, (0, 1))
    assert answer.verdict == "full"
    assert others is None or others[1].verdict != "full"


def test_who_is_named_first_gets_what_is_left():
    host = machine(24)
    for names in (("llama3-8b", "qwen3-8b"), ("qwen3-8b", "llama3-8b")):
        first, second = (each.chosen.plan.settings.n_ctx for each in answers_of(together(host, *names)))
        assert first > second >= 32768


def test_different_cards_where_both_have_what_they_want_there():
    """Of equally good ways that in which no two share a card, whose bandwidth they would share."""
    answer = together(machine(24, 24), "llama3-8b", "qwen3-8b")
    assert sorted(seat.host.devices[0].id for seat in answer.seats if seat is not None) == ["CUDA0", "CUDA1"]
    assert all(len(seat.host.devices) == 1 for seat in answer.seats if seat is not None)


def test_one_card_is_shared_where_the_other_is_too_small():
    answer = together(machine(2, 24), "llama3-8b", "qwen3-8b")
    assert [[card.id for card in seat.host.devices] for seat in answer.seats if seat is not None] == [["CUDA1"]] * 2
    assert [note.code for note in answer.notes][:1] == ["gpu_shared"]
