"""Partial offload is never advised where a smaller quantization would be more than twice as fast without saying so."""

from __future__ import annotations

import functools
import re

import pytest

from advisor.host import HostSnapshot, with_devices
from advisor.memory.plan import plan_memory
from advisor.memory.resolve import resolve_settings
from advisor.quants.requantize import requantized, weights_bytes
from advisor.recommend.budget import make_budget
from advisor.recommend.cards import recommend_on
from advisor.recommend.evaluate import Evaluator
from advisor.recommend.recommendation import Recommendation
from advisor.recommend.search import Search, Wishes
from advisor.settings import RequestedSettings
from advisor.speed import SpeedModel
from tests.tools.cells import engine, spec
from tests.tools.machines import advise, evaluator, machine, policy, quant_rules, speed_rules

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
    judge = Evaluator(
        smaller, host, engine(), answer.budget, SpeedModel(smaller, host, speed_rules()), "server"
    )  # fmt: skip
    pinned = RequestedSettings(cache_type_k=settings.cache_type_k, cache_type_v=settings.cache_type_v)
    search = Search(judge, policy(), policy().intent("balanced"), Wishes(pinned))
    judged = search.judge(search.base._replace(n_ctx=settings.n_ctx, n_gpu_layers=smaller.n_layer_all + 1))
    if not judged.fits:
        border = search.split((settings.cache_type_k, settings.cache_type_v), settings.n_ctx, None)
        if border is None or not border.judged.fits:
            return 0.0
        judged = border.judged
    return judge.speed(judged, search.intent).decode_tokens_per_s.value


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


TINY = machine(1, ram_gib=29.72)  # nothing of Mixtral's 28 GiB fits, and the card has not even room for its buffers


def test_the_cpu_alone_may_hold_a_smaller_one() -> None:
    answer = advise("mixtral", TINY)
    assert answer.verdict == "does_not_fit"
    (said,) = [note.text for note in answer.warnings if note.code == FITS]
    found = re.match(r"As (\w+) \(.*\) it would fit: the CPU alone, about ([\d.]+) tokens/s", said)
    assert found is not None
    smaller = requantized(spec("mixtral"), found[1], quant_rules(), imatrix=True)

    def judge(host: HostSnapshot) -> Evaluator:
        speed = SpeedModel(smaller, host, speed_rules())
        return Evaluator(smaller, host, engine(), make_budget(host, policy()), speed, "server")

    anew, host = recommend_on(TINY, judge, policy(), policy().intent("balanced"), Wishes(RequestedSettings()))
    assert anew.verdict == "cpu"
    assert host.devices == ()
    assert anew.speed.decode_tokens_per_s.value == pytest.approx(float(found[2]), rel=0.1)
    fix = next(fix for fix in answer.fixes if fix.change.startswith(f"a file in {found[1]} "))
    assert fix.enough


def test_of_those_that_the_cpu_alone_holds_the_largest_is_named() -> None:
    answer = advise("mixtral", TINY)
    (said,) = [note.text for note in answer.warnings if note.code == FITS]
    asked = answer.chosen.request._replace(n_gpu_layers=0)
    room = TINY.ram.available_bytes - policy().host["margin_bytes"]
    fitting = {}
    for name in policy().search["smaller_quantizations"]:
        smaller = requantized(spec("mixtral"), name, quant_rules(), imatrix=True)
        settings = resolve_settings(asked, smaller, engine(), tool="server", n_devices=0)
        if plan_memory(smaller, settings, engine(), ()).host.planned_bytes <= room:
            fitting[weights_bytes(smaller)] = name
    now = weights_bytes(spec("mixtral"))
    assert said.startswith(f"As {fitting[max(size for size in fitting if size < now)]} ")


@pytest.mark.parametrize(
    ("host", "pins"),
    [
        (TINY, {"n_gpu_layers": 99}),
        (machine(1, 1, ram_gib=29.72), {"tensor_split": (1.0, 1.0)}),
        (machine(1, ram_gib=6), {}),
    ],
    ids=["layers are asked for", "cards are spoken of by number", "system memory is too small too"],
)
def test_the_cpu_alone_is_no_way_out_everywhere(host: HostSnapshot, pins: dict[str, object]) -> None:
    codes = {note.code for note in advise("mixtral", host, **pins).warnings}
    assert FITS not in codes
    assert "no_quantization_fits" in codes


def test_an_engine_told_to_use_no_gpu_is_judged_as_on_a_machine_without() -> None:
    search = Search(
        evaluator("llama3-8b", machine(8, 8)), policy(), policy().intent("balanced"), Wishes(RequestedSettings())
    )
    alone = search.evaluator.of(spec("llama3-8b"), alone=True)
    other = evaluator("llama3-8b", with_devices(machine(8, 8), ()))
    request = search.base._replace(n_ctx=8192, n_gpu_layers=0)
    assert alone.judge(request).plan == other.judge(request).plan
    assert alone.speed(alone.judge(request), search.intent) == other.speed(other.judge(request), search.intent)
