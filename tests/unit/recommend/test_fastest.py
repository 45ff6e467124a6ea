"""A wish for speed is met wherever anything that fits meets it: all of it is judged here, one by one."""

from __future__ import annotations

import pytest

from advisor.cli.recommend import exit_status
from advisor.host import HostSnapshot
from advisor.recommend.evaluate import Judged
from advisor.recommend.recommendation import Recommendation
from advisor.recommend.search import Search, Wishes
from advisor.settings import RequestedSettings, TensorOverride
from tests.tools.choice_cases import exactly
from tests.tools.machines import advise, evaluator, machine, policy

CASES = {
    "experts in part": ("qwen3moe-30b", machine(12, ram_gib=32), "balanced", {}),
    "a pinned context": ("qwen3moe-30b", machine(12, ram_gib=32), "balanced", {"n_ctx": 8192}),
    "layers": ("llama3-8b", machine(6), "balanced", {}),
    "everything on the GPU": ("qwen3-8b", machine(8), "balanced", {}),
    "more tokens than it holds": ("qwen3-8b", machine(8), "context", {}),
    "a pinned micro-batch": ("gpt-oss-20b", machine(8), "speed", {"n_ubatch": 512}),
    "slots": ("gpt-oss-20b", machine(10), "parallel:2", {}),
    "layers by wish": ("llama3-8b", machine(8), "balanced", {"n_gpu_layers": 20}),
    "no flash attention": ("stablelm2-12b", machine(10), "parallel:2", {}),
    "experts with their layers": ("smallthinker-21b", machine(4, ram_gib=128), "parallel:4", {}),
    "no GPU": ("llama3-8b", machine(), "balanced", {}),
}


def rate_of(answer: Recommendation) -> float:
    return answer.speed.decode_tokens_per_s.value


def slow(answer: Recommendation) -> list[str]:
    return [note.text for note in answer.warnings if note.code == "below_min_tps"]


def pace(search: Search, judged: Judged) -> float:
    return search.evaluator.speed(judged, search.intent).decode_tokens_per_s.value


def best_rate(model: str, host: HostSnapshot, intent: str, pinned: dict[str, int]) -> float:
    """The most tokens per second at the shortest context, over caches, micro-batches and blocks on the GPU."""
    wishes = Wishes(RequestedSettings(**pinned))
    search = Search(evaluator(model, host), policy(), policy().intent(intent), wishes)
    every, experts = search.spec.n_layer_all + 1, search.spec.n_expert > 0
    layers = range(every + 1) if host.devices else [0]
    ways = [{"n_gpu_layers": at} for at in layers]
    ways += [{"n_gpu_layers": every, "n_cpu_moe": at} for at in range(every) if experts]
    if "n_gpu_layers" in pinned:
        ways = [{}]
    most = 0.0
    for pair in search.cache_pairs():
        for n_ubatch in (512,) if "n_ubatch" in pinned else (512, 256):
            for way in ways:
                request = search.base._replace(
                    n_ctx=search.wishes.pinned.n_ctx or search.floor, cache_type_k=pair[0], cache_type_v=pair[1],
                    n_ubatch=n_ubatch, **way,
                )  # fmt: skip
                if pace(search, search.evaluator.least(request)) > most and search.may_fit(
                    request
                ):  # no slower than it is
                    judged = exactly(search, request)
                    most = max(most, pace(search, judged) if judged.fits else 0.0)
    return most


@pytest.mark.parametrize("text", CASES)
def test_what_can_be_had_is_had(text):
    model, host, intent, pinned = CASES[text]
    most = best_rate(model, host, intent, pinned)
    answer = advise(model, host, intent, min_tokens_per_s=most * 0.9999, **pinned)
    assert rate_of(answer) >= most * 0.9999
    assert not slow(answer)


@pytest.mark.parametrize("text", CASES)
def test_what_cannot_be_had_comes_as_near_as_it_can(text):
    model, host, intent, pinned = CASES[text]
    most = best_rate(model, host, intent, pinned)
    answer = advise(model, host, intent, min_tokens_per_s=most * 1.1, **pinned)
    assert most * 0.995 <= rate_of(answer) < most * 1.1  # of what is as good as equally fast the cheapest is taken
    (said,) = slow(answer)
    assert f"the fastest, gives about {rate_of(answer):.1f}" in said
    floor = pinned.get("n_ctx") or policy().intent(intent).floor_n_ctx
    assert f"{floor:,} tokens of context" in said
    assert exit_status(answer, gpu_idle=False) == 3


@pytest.mark.parametrize(
    ("n_ctx", "n_ubatch", "overrides"), [(8192, 512, ("blk.21.ffn_up_exps",)), (8192, 256, ()), (4096, 512, ())]
)
def test_what_a_stranger_found(n_ctx, n_ubatch, overrides):
    """Each of them fits; the last is shorter than a chat's floor, so it must be asked for."""
    judge = evaluator("qwen3moe-30b", machine(12, ram_gib=32))
    judged = judge.judge(
        RequestedSettings(
            n_ctx=n_ctx, n_ubatch=n_ubatch, n_gpu_layers=49, n_cpu_moe=21, cache_type_k="q8_0", cache_type_v="q8_0",
            flash_attn="on", n_parallel=1, tensor_overrides=tuple(TensorOverride(name, "CPU") for name in overrides),
        )
    )  # fmt: skip
    assert judged.fits
    wish = judge.speed(judged, policy().intent("balanced")).decode_tokens_per_s.value
    answer = advise("qwen3moe-30b", machine(12, ram_gib=32), min_tokens_per_s=wish, min_n_ctx=n_ctx)
    assert rate_of(answer) >= wish
    assert answer.chosen.plan.settings.n_ctx >= n_ctx
    assert not slow(answer)


def test_of_what_meets_the_wish_the_longest_context_is_taken():
    """With one part less on the GPU it would be too slow, with 256 tokens more it would not fit."""
    host = machine(12, ram_gib=32)
    answer = advise("qwen3moe-30b", host, min_tokens_per_s=best_rate("qwen3moe-30b", host, "balanced", {}) * 0.9999)
    search = Search(evaluator("qwen3moe-30b", host), policy(), policy().intent("balanced"), Wishes(RequestedSettings()))
    request = answer.chosen.request
    assert not exactly(search, request._replace(n_ctx=(request.n_ctx or 0) + 256)).fits


def test_a_wish_that_is_met_is_no_partial_answer():
    answer = advise("llama3-8b", machine(24), min_tokens_per_s=5.0)
    assert exit_status(answer, gpu_idle=False) == 0
    assert exit_status(advise("llama3-8b", machine(24), min_n_ctx=200_000), gpu_idle=False) == 3


def by_name(*cards: tuple[float, int, float], ram_gib: float) -> HostSnapshot:
    """GiB, GB/s and TFLOPS of each."""
    plain = machine(*(card[0] for card in cards), ram_gib=ram_gib)
    devices = [
        device._replace(bandwidth_bytes_per_s=rate * 10**9, f16_tflops=tflops)
        for device, (_, rate, tflops) in zip(plain.devices, cards, strict=True)
    ]
    return plain._replace(devices=tuple(devices))


EXPERTS_ON_CARDS = [  # a few tensors of experts on the CPU, layers dealt otherwise than without them
    ("gpt-oss-120b", by_name((32, 1792, 209.5), (80, 1935, 311.9), (8, 272, 121.0), ram_gib=32),
     {"n_gpu_layers": 37, "n_ubatch": 256, "tensor_split": (9.0, 25.0, 3.0),
      "tensor_overrides": (TensorOverride("blk.9.ffn_down_exps", "CPU"),)}),
]  # fmt: skip


@pytest.mark.parametrize(("model", "host", "way"), EXPERTS_ON_CARDS)
def test_with_several_cards_few_experts_are_away(model, host, way):
    judge = evaluator(model, host)
    judged = judge.judge(RequestedSettings(n_ctx=8192, flash_attn="on", n_parallel=1, **way))
    assert judged.fits
    wish = judge.speed(judged, policy().intent("balanced")).decode_tokens_per_s.value
    answer = advise(model, host, min_tokens_per_s=wish)
    assert rate_of(answer) >= wish
    assert not slow(answer)
    (said,) = slow(advise(model, host, min_tokens_per_s=wish * 1.5))
    assert said.startswith("None of the settings looked at reaches")
    assert "the fastest of these" in said


def test_an_unmet_wish_changes_nothing_for_nothing():
    """Wholly on the GPU a smaller micro-batch writes no faster, and reads prompts slower."""
    answer = advise("llama3-8b", machine(12, ram_gib=32), min_tokens_per_s=60.0)
    assert slow(answer)
    free = advise("llama3-8b", machine(12, ram_gib=32))
    assert answer.chosen.plan.settings.n_ubatch == free.chosen.plan.settings.n_ubatch == 512
    assert rate_of(answer) >= rate_of(free) * 0.995


@pytest.mark.parametrize("wish", [60.0, 5000.0])
def test_a_smaller_quantization_that_reaches_the_wish_is_offered(wish):
    """Between Q4_K_M's 4.9 bits a weight, at 54 tokens a second, and what 5,000 would take."""
    answer = advise("llama3-8b", machine(12, ram_gib=32), min_tokens_per_s=wish)
    assert slow(answer)
    offered = [fix for fix in answer.fixes if "a file in" in fix.change]
    assert bool(offered) == (wish == 60.0)
    for fix in offered:
        assert fix.enough
        assert fix.saves_bytes > 0
        assert (fix.tokens_per_s or 0.0) >= wish


def test_a_model_that_does_not_answer_is_wished_a_pace_of_reading():
    host = machine(12, ram_gib=32)
    reads = advise("bert-large", host).speed.prefill_tokens_per_s.value
    assert reads > 900
    kept = advise("bert-large", host, min_tokens_per_s=900.0)
    assert not slow(kept)
    assert exit_status(kept, gpu_idle=False) == 0
    missed = advise("bert-large", host, min_tokens_per_s=reads * 1.1)
    (said,) = slow(missed)
    assert f"gives about {missed.speed.prefill_tokens_per_s.value:,.0f}." in said
