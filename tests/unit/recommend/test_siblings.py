"""The quantization as a knob: its loss, what that is worth to each intent, and which file is chosen."""

from __future__ import annotations

import functools

import pytest

from advisor.quants.quality import weights_loss
from advisor.quants.requantize import requantized
from advisor.recommend.budget import make_budget
from advisor.recommend.cards import recommend_on
from advisor.recommend.evaluate import Evaluator
from advisor.recommend.search import Wishes
from advisor.recommend.siblings import (
    Sibling,
    best_of,
    better_note,
    chosen_notes,
    dearer_text,
    loss_factor,
    lost_why,
    sibling_of,
)
from advisor.settings import RequestedSettings
from advisor.speed import SpeedModel
from tests.tools.cells import engine, spec
from tests.tools.machines import machine, policy, quant_rules, speed_rules

KLD = {"Q8_0": 0.001355, "Q6_K": 0.005452, "Q4_K_M": 0.031273, "Q2_K": 0.445132}  # llama.cpp's scoreboard


@functools.cache
def judged(model: str, name: str, vram_gib: float, intent: str, ram_gib: float = 64) -> Sibling:
    """A zoo model made `name`, on a machine with one card of 936 GB/s."""
    made = requantized(spec(model), name, quant_rules())
    goal = policy().intent(intent)

    def evaluator(host):
        speed = SpeedModel(made, host, speed_rules())
        return Evaluator(made, host, engine(), make_budget(host, policy()), speed, "server")

    host = machine(vram_gib, ram_gib=ram_gib, bandwidth=936 * 10**9)
    answer, used = recommend_on(host, evaluator, policy(), goal, Wishes(RequestedSettings()))
    return sibling_of(f"m-{name}.gguf", made, answer, used, goal, policy(), quant_rules())


def choice(model: str, vram_gib: float, intent: str, *names: str) -> str:
    return best_of([judged(model, name, vram_gib, intent) for name in names]).spec.quantization


@pytest.mark.parametrize("name", KLD)
def test_the_published_loss_of_a_file(name):
    loss = weights_loss(quant_rules(), requantized(spec("llama3-8b"), name, quant_rules()))
    assert (loss.of, loss.stands_in, loss.kld, loss.imatrix) == (name, False, KLD[name], False)


def test_a_file_that_says_it_was_made_with_an_importance_matrix():
    made = requantized(spec("llama3-8b"), "Q4_K_M", quant_rules())
    with_matrix = made._replace(metadata={**made.metadata, "quantize.imatrix.entries_count": 224})
    assert weights_loss(quant_rules(), with_matrix)[2:5] == (0.028152, 0.151303, True)
    assert weights_loss(quant_rules(), made, imatrix=True).kld == 0.028152
    small = requantized(spec("llama3-8b"), "IQ4_XS", quant_rules(), imatrix=True)  # none is published without one
    assert weights_loss(quant_rules(), small)[2:5] == (0.036334, 0.228071, True)


def test_of_what_is_not_published_the_best_with_no_more_bits_stands_for_it():
    """Q4_K has 4.5 bits a weight and is what Q4_K_M is of; BF16 is the reference of F16."""
    assert spec("llama3-8b").quantization == "Q4_K"
    assert weights_loss(quant_rules(), spec("llama3-8b"))[:2] == ("Q4_K_M", True)
    assert weights_loss(quant_rules(), requantized(spec("llama3-8b"), "BF16", quant_rules()))[:2] == ("F16", True)
    # gpt-oss: rows of 2,880 do not divide into blocks of 256, so that its Q4_K_M is of other types
    made = requantized(spec("gpt-oss-20b"), "Q4_K_M", quant_rules())
    loss = weights_loss(quant_rules(), made)
    assert loss.stands_in
    assert loss.kld <= KLD["Q4_K_M"]


def test_what_a_loss_is_worth():
    """The same price for the same loss: 8-bit weights lose what an 8-bit cache does, and cost as much."""
    eight = weights_loss(quant_rules(), requantized(spec("llama3-8b"), "Q8_0", quant_rules()))
    four = weights_loss(quant_rules(), requantized(spec("llama3-8b"), "Q4_K_M", quant_rules()))
    factors = {
        name: [loss_factor(loss, policy().intent(name), policy()) for loss in (eight, four)]
        for name in ("balanced", "context", "speed", "quality", "parallel")
    }
    assert factors["balanced"][0] == pytest.approx(policy().cache_factor["q8_0"], abs=0.001)
    assert factors["speed"][1] < factors["balanced"][1] == factors["context"][1] < factors["quality"][1]
    assert factors["quality"][1] == pytest.approx((1 + 30 * 0.031273) ** 3)


# 32B: Q4_K_M has 18.1 GiB, Q8_0 31.7; on 24 GiB the second leaves ten GiB to the CPU, on 80 both are whole
@pytest.mark.parametrize("intent", ["balanced", "speed", "context", "parallel:2"])
def test_on_24_gib_what_is_whole_on_the_gpu(intent):
    assert choice("exaone4-32b", 24, intent, "Q4_K_M", "Q8_0") == "Q4_K_M"
    assert judged("exaone4-32b", "Q4_K_M", 24, intent).answer.verdict == "full"
    assert judged("exaone4-32b", "Q8_0", 24, intent).answer.verdict == "partial"


def test_on_80_gib_quality_takes_what_loses_least_and_speed_what_is_read_fastest():
    assert choice("exaone4-32b", 80, "quality", "Q4_K_M", "Q8_0") == "Q8_0"
    assert choice("exaone4-32b", 80, "quality", "Q4_K_M", "Q6_K", "Q8_0") == "Q8_0"
    assert choice("exaone4-32b", 80, "speed", "Q4_K_M", "Q8_0") == "Q4_K_M"
    assert choice("exaone4-32b", 80, "quality", "Q8_0", "F16") == "Q8_0"  # twice the bytes for 0.001 of loss


def test_two_bits_are_taken_only_where_they_are_several_times_as_fast():
    assert choice("llama3-8b", 24, "balanced", "Q2_K", "Q4_K_M") == "Q4_K_M"
    assert choice("llama3-8b", 24, "speed", "Q2_K", "Q4_K_M") == "Q4_K_M"


def test_what_fits_goes_before_what_does_not():
    files = [judged("exaone4-32b", name, 8, "balanced", 16) for name in ("Q8_0", "Q2_K")]
    assert [file.fits for file in files] == [False, True]
    assert best_of(files) is files[1]
    found = better_note(files[0], files[1:])
    assert found is not None
    assert found[0] is files[1]
    assert found[1].text.startswith("m-Q2_K.gguf beside it fits, which this does not: ")
    assert better_note(files[1], files[:1]) is None
    (_, lost) = chosen_notes(files[1], files[:1])
    assert lost.text.startswith("m-Q8_0.gguf: does not fit: ")


def test_where_nothing_fits_what_lacks_least():
    files = [judged("exaone4-32b", name, 4, "balanced", 8) for name in ("F16", "Q4_K_M", "Q8_0")]
    assert not any(file.fits for file in files)
    assert best_of(files) is files[1]
    assert better_note(files[0], files[1:]) is None


def test_the_note_carries_both_answers_and_the_difference_of_the_losses():
    asked, other = (judged("exaone4-32b", name, 24, "balanced") for name in ("Q8_0", "Q4_K_M"))
    found = better_note(asked, [other])
    assert found is not None
    text = found[1].text
    assert "m-Q4_K_M.gguf beside it is the better choice for balanced: all 65 layers on the GPU" in text
    assert f"{other.answer.chosen.plan.settings.n_ctx:,} tokens" in text
    assert f"about {other.answer.speed.decode_tokens_per_s.value:.0f} tokens/s" in text
    assert f"instead of {asked.answer.speed.decode_tokens_per_s.value:.1f}" in text
    assert "published perplexity 0.173 more than Q8_0 on Llama 3 8B" in text  # 0.175482 - 0.002650
    assert better_note(other, [asked]) is None


def test_equal_files_are_no_better():
    one = judged("exaone4-32b", "Q4_K_M", 24, "balanced")
    assert lost_why(one._replace(name="again.gguf"), one) == "again.gguf: as good; of equals the first is taken."
    assert lost_why(one._replace(cost=one.cost * 1.004), one) == "m-Q4_K_M.gguf: as good; of equals the first is taken."
    assert lost_why(one._replace(cost=one.cost * 1.03), one) == "m-Q4_K_M.gguf: 3 % dearer."
    assert better_note(one, [one._replace(name="again.gguf", cost=one.cost * 0.995)]) is None


@pytest.mark.parametrize(
    ("ratio", "text"), [(1.236, "24 % dearer"), (2.25, "2.2 times as dear"), (1239.2, "more than ten times as dear")]
)
def test_a_cost_beside_another(ratio, text):
    assert dearer_text(ratio) == text


def test_a_speed_asked_for_is_the_reason_and_no_multiple():
    """The cost of what is too slow is multiplied to make it last: that is no figure for a person."""
    best, other = (judged("exaone4-32b", name, 24, "balanced") for name in ("Q4_K_M", "Q8_0"))
    slow = other._replace(least_tokens_per_s=30.0, asked=True, cost=other.cost * 1000)
    best = best._replace(least_tokens_per_s=30.0, asked=True)
    text = lost_why(slow, best)
    assert f"about {slow.answer.speed.decode_tokens_per_s.value:.1f} tokens/s, below the 30 tokens/s asked for" in text
    assert "dear" not in text
    assert "dear" in lost_why(other, judged("exaone4-32b", "Q4_K_M", 24, "balanced"))


def test_a_context_is_told_with_its_cache_where_that_is_another():
    best, other = (judged("exaone4-32b", name, 24, "balanced") for name in ("Q4_K_M", "Q8_0"))
    settings = best.answer.chosen.plan.settings
    mine = best.answer.chosen._replace(plan=best.answer.chosen.plan._replace(
        settings=settings._replace(cache_type_k="f16", cache_type_v="f16", n_ctx_seq=131072)))  # fmt: skip
    smaller = other.answer.chosen._replace(plan=other.answer.chosen.plan._replace(
        settings=settings._replace(cache_type_k="q8_0", cache_type_v="q8_0", n_ctx=8192, n_ctx_seq=8192)))  # fmt: skip
    pair = [one._replace(answer=one.answer._replace(chosen=chosen)) for one, chosen in ((best, mine), (other, smaller))]
    assert "8,192 tokens in q8_0" in lost_why(pair[1], pair[0])
    assert "8,192 tokens in" not in lost_why(pair[1], pair[0]._replace(answer=pair[1].answer))
