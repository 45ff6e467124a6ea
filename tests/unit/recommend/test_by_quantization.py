"""Each quantization's verdict, longest context and cache against the planner's own answers one by one."""

from __future__ import annotations

import pytest

from advisor.model.spec import ModelSpec
from advisor.quants.requantize import requantized
from advisor.recommend.budget import make_budget
from advisor.recommend.by_quantization import cache_sizes, fit
from advisor.recommend.evaluate import Evaluator
from advisor.recommend.search import Search, Wishes
from advisor.settings import RequestedSettings
from advisor.speed import SpeedModel
from tests.tools.cells import engine
from tests.tools.machines import GIB, HostSnapshot, machine, policy, speed_rules
from tests.tools.quantized import rules, spec_of


def evaluator(spec: ModelSpec, host: HostSnapshot, like: Evaluator | None = None) -> Evaluator:
    speed = SpeedModel(spec, host, speed_rules())
    return Evaluator(spec, host, engine(), make_budget(host, policy()), speed, "server", like=like)


def search(model: str, name: str, host: HostSnapshot, like: Evaluator | None = None, **pinned: str) -> Search:
    spec = requantized(spec_of(f"zoo/{model}"), name, rules())
    wishes = Wishes(RequestedSettings(**pinned))  # type: ignore[arg-type]
    return Search(evaluator(spec, host, like), policy(), policy().intent("balanced"), wishes)


def whole(asked: Search, n_ctx: int) -> RequestedSettings:
    return asked.base._replace(
        n_ctx=n_ctx, n_gpu_layers=asked.spec.n_layer_all + 1, cache_type_k="f16", cache_type_v="f16"
    )


@pytest.mark.parametrize("name", ["Q6_K", "Q4_K_M", "IQ2_XS"])
def test_full_means_that_everything_fits_the_gpu_and_the_longest_is_the_longest(name: str) -> None:
    asked = search("llama3-8b", name, machine(12))
    found = fit(asked, 8192)
    assert found.verdict == "full"
    assert found.max_n_ctx == found.max_n_ctx_full
    assert found.max_n_ctx is not None
    assert asked.evaluator.judge(whole(asked, found.max_n_ctx)).fits
    assert not asked.evaluator.judge(whole(asked, found.max_n_ctx + asked.step)).fits
    assert found.judged.plan.settings.n_ctx == 8192


def test_a_smaller_quantization_reaches_further() -> None:
    reach = [fit(search("llama3-8b", name, machine(12)), 8192).max_n_ctx or 0 for name in ("Q8_0", "Q5_K_M", "Q3_K_S")]
    assert reach == sorted(reach)
    assert reach[0] < reach[-1]


def test_in_part_what_the_card_lacks_lies_in_system_memory() -> None:
    asked = search("llama3-8b", "F16", machine(12, ram_gib=16))
    found = fit(asked, 8192)
    assert found.verdict == "partial"
    assert 0 < found.judged.plan.settings.n_gpu_layers < 33
    assert found.max_n_ctx_full is None
    assert found.max_n_ctx is not None
    assert 8192 < found.max_n_ctx <= 131072
    border = asked.split(("f16", "f16"), found.max_n_ctx, None)
    assert border is not None
    assert border.judged.fits


def test_a_shorter_context_may_fit_the_card_where_the_shown_one_does_not() -> None:
    asked = search("llama3-8b", "Q8_0", machine(12))
    longest = fit(asked, 8192).max_n_ctx_full
    assert longest is not None
    found = fit(asked, longest + 8192)
    assert found.verdict == "partial"
    assert found.max_n_ctx_full == longest


def test_nothing_fits() -> None:
    found = fit(search("llama3-8b", "F16", machine(4, ram_gib=8)), 8192)
    assert (found.verdict, found.max_n_ctx, found.max_n_ctx_full) == ("does_not_fit", None, None)
    assert found.speed.bound_by == "disk"


def test_without_a_gpu() -> None:
    found = fit(search("llama3-8b", "Q4_K_M", machine(ram_gib=32)), 8192)
    assert (found.verdict, found.max_n_ctx, found.max_n_ctx_full) == ("cpu", 131072, None)


def test_what_the_gpu_has_no_kernels_for_stays_on_the_cpu() -> None:
    assert rules().quantizations["TQ1_0"].cpu_only_on >= {"cuda", "rocm"}
    assert "vulkan" not in rules().quantizations["TQ1_0"].cpu_only_on
    found = fit(search("llama3-8b", "TQ1_0", machine(12)), 8192, cpu_only=True)
    assert found.verdict == "cpu"
    assert found.judged.plan.settings.n_gpu_layers == 0


@pytest.mark.parametrize("model", ["llama3-8b", "gemma3n-e4b", "qwen3next", "ds2-lite", "bert-large"])
@pytest.mark.parametrize("cards", [(), (24,), (16, 16)])
def test_what_is_shared_between_quantizations_is_what_each_would_find_alone(
    model: str, cards: tuple[float, ...]
) -> None:
    host = machine(*cards, ram_gib=256)
    first = search(model, "F16", host)
    n_ctx = min(4096, first.ceiling)
    for name in ("Q8_0", "IQ2_XXS", "Q4_0"):
        alone, together = search(model, name, host), search(model, name, host, first.evaluator)
        request = alone.shared(whole(alone, n_ctx)._replace(n_gpu_layers=None if cards else 0))
        first.evaluator.judge(request)
        assert together.evaluator.judge(request).plan == alone.evaluator.judge(request).plan
    half = whole(alone, n_ctx)._replace(n_gpu_layers=alone.spec.n_layer_all // 2 if cards else 0)
    assert together.evaluator.judge(half).plan == alone.evaluator.judge(half).plan


def test_cache_by_type() -> None:
    sizes = cache_sizes(search("llama3-8b", "Q4_K_M", machine(12)), 32768, ("f16", "q8_0", "q4_0", "iq4_nl"))
    assert sizes["f16"] == 4 * GIB  # 32 blocks x 8 heads x 128 x 2 (keys and values) x 2 bytes x 32,768 tokens
    assert sizes["q8_0"] == 4 * GIB * 17 // 32
    assert sizes["q4_0"] == 4 * GIB * 9 // 32
    assert "iq4_nl" not in sizes  # CUDA's flash attention does not read it
    assert cache_sizes(search("mamba-2.8b", "Q4_K_M", machine(12)), 4096, ("f16",))["f16"] < GIB // 4
