"""Planning together is never worse than one model after the other, in whatever order they would be loaded."""

from __future__ import annotations

from itertools import permutations

import pytest

from advisor.together.whole import resident
from tests.tools.machines import machine
from tests.tools.together import answers_of, drawn, one_after_the_other, together, worth


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


def test_who_must_share_does_so_where_the_main_model_has_most():
    """Three models on two cards: the small one goes to the second's card."""
    answer = together(machine(16, 16), "llama3-8b", "qwen3-8b", "llama3-1b")
    assert [seat.host.devices[0].id for seat in answer.seats if seat is not None] == ["CUDA0", "CUDA1", "CUDA1"]


def test_one_card_is_shared_where_the_other_is_too_small():
    answer = together(machine(2, 24), "llama3-8b", "qwen3-8b")
    assert [[card.id for card in seat.host.devices] for seat in answer.seats if seat is not None] == [["CUDA1"]] * 2
    assert [note.code for note in answer.notes][:1] == ["gpu_shared"]
