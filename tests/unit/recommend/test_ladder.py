"""`recommend --explain`: every figure re-derived, no sentence without one, the last rung the answer."""

from __future__ import annotations

import functools
import itertools
import re

import pytest

from advisor.recommend.said import capital, say, sentence
from advisor.units import GIB
from tests.tools.choice_cases import draw, exactly
from tests.tools.explained_cases import Told, sentences, tell, unexplained_digits
from tests.tools.machines import machine

CASES = draw(28, 611)
KNOBS = {
    "cache": {"cache_type_k", "cache_type_v"}, "context": {"n_ctx"}, "experts": {"n_cpu_moe"},
    "layers": {"n_gpu_layers"}, "parts": {"tensor_overrides"}, "micro_batch": {"n_ubatch"},
}  # fmt: skip


@functools.cache
def told(index: int) -> Told:
    case = CASES[index]
    return tell(case.model, case.host, case.intent)


def cases(function):
    return pytest.mark.parametrize("index", range(len(CASES)), ids=[case.text for case in CASES])(function)


@cases
def test_the_last_rung_is_the_answer(index):
    answer, _, why = told(index)
    assert why.rungs[-1].judged is answer.chosen
    assert why.rungs[-1].taken
    assert why.rungs[0].taken
    assert [rung.judged is answer.chosen for rung in why.rungs].count(True) == 1
    assert why.rungs[-1].judged.fits == (answer.verdict != "does_not_fit")


@cases
def test_every_need_is_what_an_estimate_says(index):
    """Of the candidates on the answer's own cards; the arithmetic anew, nothing remembered from the search."""
    _, search, why = told(index)
    ids = {device.id for device in search.evaluator.host.devices}
    seen = 0
    for entry in (*why.rungs, *why.steps):
        if {plan.id for plan in entry.judged.plan.devices} != ids:
            continue
        plan = exactly(search, entry.judged.request).plan
        truth = {device.id: device.planned_bytes for device in plan.devices} | {"host": plan.host.planned_bytes}
        for place in entry.places if hasattr(entry, "places") else (entry.place,):
            assert place.need_bytes == truth[place.device]
            seen += 1
    assert seen
    limits = {limit.id: limit.usable_bytes for limit in search.evaluator.budget.devices}
    for place in why.rungs[-1].places:
        assert place.usable_bytes == limits.get(place.device, search.evaluator.budget.ram_usable_bytes)
        if why.rungs[-1].judged.fits:
            assert place.over_bytes <= 0


@cases
def test_no_sentence_without_a_number_and_no_number_without_a_figure(index):
    _, search, why = told(index)
    names = [device.name for device in CASES[index].host.devices]
    for said in sentences(why):
        assert said.figures, said.text
        left = unexplained_digits(said, search.spec.name, *names)
        assert not re.search(r"\d", left), (left, said)
        assert "{" not in said.text


@cases
def test_each_step_on_the_way_changes_one_thing_and_says_what_it_saves(index):
    _, _, why = told(index)
    way = [rung for rung in why.rungs if rung.taken]
    for before, rung in itertools.pairwise(way):
        if rung.code in ("cards", "wish"):
            continue
        one, two = before.judged.request._asdict(), rung.judged.request._asdict()
        changed = {name for name in one if (one[name] or None) != (two[name] or None)} - {"tensor_split"}
        assert changed
        assert changed <= KNOBS[rung.code]
        then = before.tightest
        now = next((place.need_bytes for place in rung.places if place.device == then.device), 0)
        figures = rung.said.figures
        if rung.code == "context" and before.judged.fits:  # given up for speed, not for memory
            assert figures["turn_s"] < figures["before_turn_s"]
            continue
        assert figures.get("saves_bytes", 0) - figures.get("more_bytes", 0) == then.need_bytes - now


@cases
def test_the_next_step_does_not_fit(index):
    answer, search, why = told(index)
    chosen = answer.chosen.plan.settings
    for step in why.steps:
        assert answer.chosen.fits
        assert step.place.over_bytes > 0
        assert not exactly(search, step.judged.request).fits
        settings = step.judged.plan.settings
        more = {
            "context": settings.n_ctx > chosen.n_ctx, "cache": settings.cache_type_k == "f16",
            "experts": step.judged.plan.host.weights_bytes < answer.chosen.plan.host.weights_bytes,
            "layers": settings.n_gpu_layers > chosen.n_gpu_layers,
        }  # fmt: skip
        assert more[step.code]
    if answer.chosen.fits and why.rungs[0].judged is not answer.chosen and not why.steps:
        longer = exactly(search, search.shared(search.open_split(answer.chosen.request)._replace(n_ctx=search.ceiling)))
        slower = search.unequal and longer.fits and search.cost(longer) > search.cost(answer.chosen)
        assert chosen.n_ctx >= search.ceiling or answer.verdict == "cpu" or slower


@cases
def test_cures_do_what_they_say(index):
    answer, _, why = told(index)
    for cure in why.cures:
        assert cure.saves_bytes > 0
        if cure.judged is not None and cure.enough:
            assert cure.judged.fits
        if answer.verdict == "does_not_fit" and cure.judged is not None:
            assert cure.judged.fits or not cure.enough


def test_llama3_8b_on_12_gib_by_hand():
    """32 blocks, 8 key heads of 128: 131,072 tokens of f16 cache are 16 GiB, of q8_0 (34 bytes for 32) 8.5 GiB."""
    answer, _, why = tell("llama3-8b", machine(12))
    wish, cache = why.rungs[0], next(rung for rung in why.rungs if rung.code == "cache")
    assert [rung.code for rung in why.rungs if rung.taken] == ["wish", "context"]
    assert not cache.taken
    assert wish.judged.plan.devices[0].cache_bytes == 16 * GIB
    assert cache.judged.plan.devices[0].cache_bytes == 8.5 * GIB
    assert wish.said.figures["n_ctx"] == 131072
    assert wish.said.figures["usable_bytes"] == 11.5 * GIB
    assert wish.said.figures["over_bytes"] == wish.judged.plan.devices[0].planned_bytes - 11.5 * GIB
    assert cache.said.figures["cache_loss"] == 0.0018  # llama.cpp pull request 21551, Gemma 3 4B
    (step,) = why.steps
    assert step.judged.plan.settings.n_ctx == answer.chosen.plan.settings.n_ctx + 256
    # 256 tokens more are 32 MiB of cache
    grown = step.judged.plan.devices[0].cache_bytes - answer.chosen.plan.devices[0].cache_bytes
    assert grown == 256 * 32 * 2 * 8 * 128 * 2
    assert why.friend.text.startswith("llama3-8b runs whole on the card 0, ")
    assert f"{answer.chosen.plan.settings.n_ctx:,} tokens" in why.friend.text


def test_experts_leave_before_layers_and_a_larger_batch_is_told():
    _, _, why = tell("qwen3moe-30b", machine(12, ram_gib=32))
    codes = [rung.code for rung in why.rungs if rung.taken]
    assert codes[0] == "wish"
    assert "experts" in codes
    assert "layers" not in codes
    experts = next(rung for rung in why.rungs if rung.code == "experts")
    assert experts.said.figures["n_cpu_moe"] == experts.judged.plan.host_expert_blocks
    batch = next(rung for rung in why.rungs if rung.code == "micro_batch" and rung.taken)
    assert batch.said.figures["prefill_tokens_per_s"] > batch.said.figures["prefill_before_tokens_per_s"]


def test_what_fits_at_once_is_one_rung():
    answer, _, why = tell("llama3-1b", machine(24))
    (rung,) = why.rungs
    assert rung.judged is answer.chosen
    assert rung.said.figures["n_ctx"] == 131072
    assert why.steps == ()


def test_a_card_left_out():
    _, _, why = tell("llama3-1b", machine(24, 4))
    assert [rung.code for rung in why.rungs] == ["wish", "cards"]
    assert why.rungs[1].said.text.startswith("Without CUDA1: ")


def test_without_the_small_card_where_both_are_taken():
    answer, _, why = tell("llama33-70b-q4_k_m", machine(24, 12))
    (other,) = [rung for rung in why.rungs if rung.code == "cards"]
    assert not other.taken
    assert [plan.id for plan in other.judged.plan.devices] == ["CUDA0"]
    assert other.said.figures["turn_s"] > other.said.figures["chosen_turn_s"]
    assert other.said.figures["chosen_turn_s"] == answer.speed.turn_seconds.value


def test_programs_that_hold_memory():
    host = machine(12)
    busy = host._replace(devices=(host.devices[0]._replace(free_bytes=9 * GIB),))
    _, _, why = tell("llama3-8b", busy)
    cure = next(cure for cure in why.cures if cure.code == "close_programs")
    assert cure.saves_bytes == 3 * GIB
    free, _, _ = tell("llama3-8b", host)
    assert cure.judged.plan.settings.n_ctx == free.chosen.plan.settings.n_ctx
    assert not [c for c in tell("llama3-8b", host).why.cures if c.code == "close_programs"]


def test_how_little_the_next_layer_lacks():
    host = machine(12)
    busy = host._replace(devices=(host.devices[0]._replace(free_bytes=9 * GIB),))
    _, _, why = tell("llama2-7b", busy, n_ctx=20000, cache_type_k="f16", cache_type_v="f16")
    cure = next(cure for cure in why.cures if cure.code == "close_programs")
    (step,) = why.steps
    assert cure.said.figures["over_bytes"] == step.place.over_bytes < 3 * GIB
    assert "of that is enough for one more layer" in cure.said.text
    assert cure.judged.plan.settings.n_gpu_layers > step.judged.plan.settings.n_gpu_layers


def test_programs_that_hold_system_memory():
    """19.4 GiB are lacking; 30 of 46 GiB are in use."""
    host = machine(8, ram_gib=46)
    busy = host._replace(ram=host.ram._replace(available_bytes=16 * GIB))
    answer, _, why = tell("llama33-70b-q4_k_m", busy)
    assert answer.verdict == "does_not_fit"
    cure = next(cure for cure in why.cures if cure.code == "close_programs")
    assert cure.saves_bytes == answer.chosen.shorts[0].over_bytes
    assert cure.said.figures["held_bytes"] == 30 * GIB
    more = host._replace(ram=host.ram._replace(available_bytes=16 * GIB + cure.saves_bytes))
    assert tell("llama33-70b-q4_k_m", more).answer.verdict != "does_not_fit"


def test_the_wired_limit_of_a_mac():
    host = machine(21.3, ram_gib=32, backend="metal")
    mac = host._replace(platform="darwin", devices=(host.devices[0]._replace(memory_kind="unified"),))
    answer, _, why = tell("qwen3moe-30b", mac, n_ctx=65536, cache_type_k="f16", cache_type_v="f16")
    cure = next(cure for cure in why.cures if cure.code == "wired_limit")
    match = re.fullmatch(r"sudo sysctl iogpu\.wired_limit_mb=(\d+)", cure.change)
    assert match
    assert answer.verdict == "partial"
    whole = cure.judged.plan.devices[0].planned_bytes
    assert cure.judged.plan.settings.n_gpu_layers == 49
    assert not cure.judged.plan.host_expert_blocks
    # what everything needs and the margin, in whole MiB
    assert 0 <= int(match[1]) * (1 << 20) - whole - 512 * (1 << 20) < 1 << 20


def test_what_does_not_fit_says_by_how_much_and_what_would():
    answer, _, why = tell("llama33-70b-q4_k_m", machine(8, ram_gib=16))
    assert answer.verdict == "does_not_fit"
    assert why.steps == ()
    assert why.rungs[-1].said.figures["over_bytes"] == answer.chosen.shorts[0].over_bytes
    assert "does not fit" in why.friend.text
    quantization = next(cure for cure in why.cures if cure.code == "quantization")
    assert quantization.judged.fits
    assert quantization.said.figures["perplexity"] > 0


def test_a_sentence_refuses_one_name_for_two_figures():
    one, two = say("{n_bytes} here", n_bytes=GIB), say("{n_bytes} there", n_bytes=2 * GIB)
    assert sentence(one, None, one).text == "1.00 GiB here; 1.00 GiB here."
    with pytest.raises(ValueError, match="two figures"):
        sentence(one, two)
    assert capital(say("about {x_tokens_per_s}", x_tokens_per_s=12.0)).text == "About about 12 tokens/s"


def test_the_loss_of_a_smaller_quantization_is_of_like_figures():
    """IQ4_XS has only a figure with an importance matrix, so Q4_K_M's with one counts: llama.cpp's scoreboard."""
    _, _, why = tell("llama33-70b-q4_k_m", machine(42, ram_gib=64))
    cure = next(cure for cure in why.cures if cure.code == "quantization")
    with_matrix = {"IQ4_XS": 0.228071, "IQ3_XXS": 1.226803, "IQ2_XXS": 7.860148}
    without = {"Q3_K_M": 0.656864}
    name = cure.change.removeprefix("a file in ")
    more = with_matrix[name] - 0.151303 if name in with_matrix else without[name] - 0.175482
    assert cure.said.figures["perplexity"] == pytest.approx(more, abs=5e-5)
    assert "more than Q4_K_M on Llama 3 8B" in cure.said.text
