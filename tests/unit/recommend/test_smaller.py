"""Partial offload is never advised where a smaller quantization would be more than twice as fast without saying so."""

from __future__ import annotations

import functools
import re

import pytest

from advisor.host import HostSnapshot
from advisor.quants.requantize import requantized, weights_bytes
from advisor.recommend.evaluate import Evaluator
from advisor.recommend.recommendation import Recommendation
from advisor.recommend.search import Search, Wishes
from advisor.settings import RequestedSettings
from advisor.speed import SpeedModel
from tests.tools.cells import engine, spec
from tests.tools.machines import advise, machine, policy, quant_rules, speed_rules

CARDS = {
    "4 GiB, 112 GB/s": machine(4, ram_gib=32, bandwidth=112 * 10**9),
    "8 GiB, 448 GB/s": machine(8, ram_gib=64, bandwidth=448 * 10**9),
    "24 GiB, 936 GB/s": machine(24, ram_gib=96, bandwidth=936 * 10**9),
    "2 x 12 GiB": machine(12, 12, ram_gib=64),
}
MODELS = (
    "llama3-8b", "llama33-70b-q4_k_m", "qwen3moe-30b", "qwen35-27b", "gpt-oss-20b", "ds2-lite", "mixtral",
)  # fmt: skip
FASTER, FITS = "smaller_quantization_faster", "smaller_quantization_fits"


@functools.cache
def advised(model: str, card: str) -> Recommendation:
    return advise(model, CARDS[card])


def rate_as(answer: Recommendation, model: str, host: HostSnapshot, name: str) -> float:
    """Tokens/s of the model as `name` with the context and the cache of an answer, 0 where it does not fit."""
    settings = answer.chosen.plan.settings
    smaller = requantized(spec(model), name, quant_rules(), imatrix=True)
    evaluator = Evaluator(
        smaller, host, engine(), answer.budget, SpeedModel(smaller, host, speed_rules()), "server"
    )  # fmt: skip
    pinned = RequestedSettings(cache_type_k=settings.cache_type_k, cache_type_v=settings.cache_type_v)
    search = Search(evaluator, policy(), policy().intent("balanced"), Wishes(pinned))
    judged = search.judge(search.base._replace(n_ctx=settings.n_ctx, n_gpu_layers=smaller.n_layer_all + 1))
    if not judged.fits:
        border = search.split((settings.cache_type_k, settings.cache_type_v), settings.n_ctx, None)
        if border is None or not border.judged.fits:
            return 0.0
        judged = border.judged
    return evaluator.speed(judged, search.intent).decode_tokens_per_s.value


@functools.cache
def smaller_names(model: str) -> tuple[str, ...]:
    """Some quantizations of a model that are smaller than its file, the smallest first."""
    sizes = {
        name: weights_bytes(requantized(spec(model), name, quant_rules(), imatrix=True))
        for name in ("IQ1_S", "IQ1_M", "IQ2_XXS", "Q2_K", "IQ3_XXS", "Q3_K_M")
    }
    now = weights_bytes(spec(model))
    return tuple(name for name, size in sorted(sizes.items(), key=lambda item: item[1]) if size < now)


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("model", MODELS)
def test_a_much_faster_quantization_is_named(model: str, card: str) -> None:
    host = CARDS[card]
    answer = advised(model, card)
    if answer.verdict == "full":
        return
    now = answer.speed.decode_tokens_per_s.value
    said = [note.text for note in answer.warnings if note.code == FASTER]
    if answer.verdict == "does_not_fit":
        codes = {note.code for note in answer.warnings}
        assert codes & {FITS, "no_quantization_fits"}
        return
    names = smaller_names(model)
    if names and rate_as(answer, model, host, names[0]) > 2.1 * now:
        assert said, names[0]
    for text in said:
        name = re.match(r"As (\w+) ", text)
        assert name is not None
        assert rate_as(answer, model, host, name[1]) > 1.9 * now, text


def test_cases_of_all_kinds_are_among_them() -> None:
    verdicts = {advised(model, card).verdict for model in MODELS for card in CARDS}
    assert {"full", "partial", "does_not_fit"} <= verdicts


def test_the_largest_that_fits_and_the_largest_that_is_wholly_on_the_card() -> None:
    answer = advise("llama33-70b-q4_k_m", machine(24, ram_gib=64, bandwidth=10**12))
    texts = [note.text for note in answer.warnings if note.code == FASTER]
    assert len(texts) == 2
    assert re.search(r"^As \w+ \(.*\): \d+ of 81 layers on the GPU, about [\d.]+ tokens/s, \d+ times as fast", texts[0])
    assert re.search(r"^As \w+ \(.*\): all 81 layers on the GPU, about [\d.]+ tokens/s, \d+ times as fast", texts[1])
    assert texts[1].endswith("Below 3 bits a weight much quality is lost.")
    fix = next(fix for fix in answer.fixes if fix.change.startswith("a file in"))
    assert fix.enough
    assert fix.tokens_per_s > 2 * answer.speed.decode_tokens_per_s.value


def test_where_nothing_fits_what_would_is_told() -> None:
    answer = advise("ds3", machine(24, ram_gib=64, bandwidth=936 * 10**9))
    note = next(note for note in answer.warnings if note.code == "no_quantization_fits")
    found = re.search(r"up to (\d+) billion parameters on the GPU .* or (\d+) billion parameters in system", note.text)
    assert found is not None
    assert 25 <= int(found[1]) <= 40
    assert 70 <= int(found[2]) <= 100


def test_a_card_too_small_for_the_file_may_hold_a_smaller_one() -> None:
    answer = advise("llama3-8b", machine(2, ram_gib=32), n_ctx=8192)
    assert answer.verdict in ("partial", "cpu")
    assert any(note.code == FASTER for note in answer.warnings)


def test_nothing_is_said_where_everything_fits() -> None:
    answer = advise("llama3-8b", machine(12, ram_gib=32))
    assert answer.verdict == "full"
    assert not any(note.code.startswith("smaller") for note in answer.warnings)
