"""Whatever set on whatever machine: the sum of what its members need is never over what may be used."""

from __future__ import annotations

import pytest

from tests.tools.machines import machine
from tests.tools.together import drawn, member, over_budget, planned_anew, together


@pytest.mark.parametrize("seed", range(24))
def test_the_sum_is_never_over_what_may_be_used(seed):
    host, names = drawn(seed)
    answer = together(host, *names)
    assert over_budget(answer, host) == []
    assert (answer.verdict == "does_not_fit") == (None in answer.seats)
    for one, seat in zip(answer.members, answer.seats, strict=True):
        if seat is not None:
            assert planned_anew(one, seat) == seat.answer.chosen.plan
            assert seat.answer.chosen.fits
            empty = [plan.id for plan in seat.answer.chosen.plan.devices if not plan.planned_bytes]
            assert empty == [] or len(empty) == len(seat.host.devices)


def test_each_process_has_a_backend_context_of_its_own():
    host = machine(24)
    answer = together(host, "llama3-8b", "bert-large")
    overheads = [plan.overhead_bytes for seat in answer.seats for plan in seat.answer.chosen.plan.devices]  # type: ignore[union-attr]
    assert len(overheads) == 2
    assert all(overheads)


def test_no_memory_of_a_gpu_is_left_that_the_main_model_could_use():
    """One more step of context for the main model is over, or it has all that it was trained for."""
    host = machine(12, ram_gib=32)
    answer = together(host, "llama3-8b", "gemma-embedding")
    first = answer.seats[0]
    assert first is not None
    longer = first.answer.chosen.request._replace(n_ctx=first.answer.chosen.plan.settings.n_ctx + 512)
    chosen = first.answer.chosen._replace(request=longer)
    answer = answer._replace(seats=(first._replace(answer=first.answer._replace(chosen=chosen)), *answer.seats[1:]))
    assert over_budget(answer, host) == ["CUDA0"]


def test_an_embedding_model_takes_texts_as_long_as_it_was_trained_for():
    answer = together(machine(12), "llama3-8b", "gemma-embedding")
    seat = answer.seats[1]
    assert seat is not None
    settings = seat.answer.chosen.plan.settings
    assert (settings.n_ctx, settings.n_batch, settings.n_ubatch) == (2048, 2048, 2048)
    assert seat.answer.verdict == "full"


def test_what_is_pinned_for_the_main_model_stays():
    answer = together(
        machine(24), member("llama3-8b", n_ctx=16384, cache_type_k="q8_0", cache_type_v="q8_0"), "qwen3-8b"
    )
    seat = answer.seats[0]
    assert seat is not None
    assert seat.answer.chosen.plan.settings.n_ctx == 16384
    assert seat.answer.chosen.plan.settings.cache_type_k == "q8_0"
