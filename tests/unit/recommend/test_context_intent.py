"""What `--for context` says of a speed that it takes and a person may not."""

from __future__ import annotations

from tests.tools.machines import advise, machine


def slow(answer):
    return next((note.text for note in answer.warnings if note.code == "slow"), "")


def test_a_speed_at_the_intents_own_floor_is_said_with_it():
    answer = advise("llama33-70b-q4_k_m", machine(24), "context")
    rate = answer.speed.decode_tokens_per_s.value
    assert 1 <= rate < 3
    told = "is slower than people read. For context all counts from 1 token/s on; --min-tps asks for more."
    assert slow(answer).endswith(told)
    balanced = advise("llama33-70b-q4_k_m", machine(24), n_ctx=answer.chosen.plan.settings.n_ctx)
    assert slow(balanced).endswith("is slower than people read.")
