"""Whatever set on whatever machine: the sum of what its members need is never over what may be used."""

from __future__ import annotations

import random

import pytest

from advisor.host import HostSnapshot
from tests.tools.machines import machine
from tests.tools.together import member, over_budget, planned_anew, together

MODELS = (
    "bert-large", "gemma-embedding", "llama3-1b", "llama32-3b", "llama3-8b", "qwen3-8b", "gemma3-12b", "granite33-8b",
    "mistral-small-24b", "qwen3moe-30b", "gpt-oss-20b", "gpt-oss-120b", "mamba-2.8b", "ds2-lite", "llama33-70b-q4_k_m",
)  # fmt: skip
CARDS = ((), (4,), (8,), (12,), (24,), (8, 12), (24, 12), (24, 24), (6, 8, 12))


def unified(host: HostSnapshot, own_gib: int) -> HostSnapshot:
    """The cards of `host` as GPUs that work in system memory, but for a carve-out."""
    devices = tuple(
        card._replace(
            memory_kind="unified", integrated=True, total_bytes=host.ram.total_bytes, free_bytes=host.ram.total_bytes,
            shared_bytes=host.ram.total_bytes - (own_gib << 30),
        )
        for card in host.devices[:1]
    )  # fmt: skip
    return host._replace(devices=devices)


def drawn(seed: int) -> tuple[HostSnapshot, list[str]]:
    """A machine and two or three models."""
    dice = random.Random(seed)
    host = machine(
        *dice.choice(CARDS), ram_gib=dice.choice((16, 32, 64, 96)), bandwidth=dice.choice((360, 936)) * 10**9
    )
    if host.devices and dice.random() < 0.2:
        host = unified(host, dice.choice((0, 2)))
    return host, dice.sample(MODELS, dice.choice((2, 2, 3)))


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
