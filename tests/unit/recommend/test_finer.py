"""Experts by kind of tensor: every step of the chain, what only some targets can say, and its exact need."""

from __future__ import annotations

import pytest

from advisor.memory.graph import CPU, compute_bytes
from advisor.memory.placement import Overrides, one_block
from advisor.recommend.chain import chain_of, expert_kinds
from advisor.recommend.finer import _away, _request
from advisor.recommend.recommend import recommend
from advisor.recommend.search import Wishes
from advisor.settings import RequestedSettings
from tests.tools.cells import spec
from tests.tools.machines import evaluator, machine, policy

MODELS = ("gpt-oss-20b", "qwen3moe-30b", "ds2-lite", "gemma4-26b-a4b", "afmoe-26b")


def chosen(model, sizes, intent="balanced", **wishes):
    judge = evaluator(model, machine(*sizes))
    answer = recommend(judge, policy(), policy().intent(intent), Wishes(RequestedSettings(), **wishes))
    return judge, answer.chosen


def on_cpu(model, request):
    """Names of the expert tensors that a request leaves on the CPU, by the engine's own rule."""
    judge = evaluator(model, machine(24))
    overrides = Overrides(judge._resolve(request), ["CUDA0"])
    return {t.name for t in judge.spec.tensors if "exps" in t.name and overrides.target(t.name, t.block) == -1}


@pytest.mark.parametrize("model", MODELS)
def test_each_step_of_the_chain_takes_a_kind_or_a_block_to_the_gpu(model):
    kinds = expert_kinds(spec(model))
    assert all(kind.startswith("ffn_") and kind.endswith("exps") for each in kinds.values() for kind in each)
    chain = chain_of(spec(model), RequestedSettings(n_ctx=4096), RequestedSettings(), kinds)
    before = on_cpu(model, chain.make(chain.n_layers))
    assert before == {t.name for t in spec(model).tensors if "exps" in t.name and t.place != "skipped"}
    for index in range(chain.n_layers + 1, chain.high + 1):
        after = on_cpu(model, chain.make(index))
        assert after <= before
        assert len({name.split(".")[1] for name in before - after}) <= 1  # of one block
        before = after


def test_a_target_that_cannot_say_it_gets_whole_blocks():
    sizes = (12,)
    _, parts = chosen("qwen3moe-30b", sizes)
    judge, whole = chosen("qwen3moe-30b", sizes, whole_blocks=True)
    assert parts.plan.settings.tensor_overrides
    assert not whole.plan.settings.tensor_overrides
    assert whole.plan.settings.n_cpu_moe
    assert (whole.fits, parts.fits) == (True, True)
    turn = policy().intent("balanced")
    assert judge.speed(parts, turn).turn_seconds.value <= judge.speed(whole, turn).turn_seconds.value


@pytest.mark.parametrize(("model", "sizes"), [("qwen3moe-30b", (12,)), ("gpt-oss-20b", (8,)), ("mixtral", (10, 8))])
def test_the_need_is_that_of_the_whole_graph(model, sizes):
    judge, best = chosen(model, sizes)
    settings = best.plan.settings
    assert settings.tensor_overrides
    compute = judge._planner.compute
    placement, overrides, *_ = judge._planner._place(settings)
    graph, where = compute.values(settings, placement, overrides)
    exact = compute_bytes(compute.graph, graph, where, judge._planner._backends, full=True)
    assert [device.compute.value for device in best.plan.devices] == [exact[i] for i in range(len(sizes))]
    assert best.plan.host.compute.value == exact[CPU]


@pytest.mark.parametrize("pinned", [{"n_cpu_moe": 20}, {"cpu_moe": True}])
def test_what_was_asked_for_is_not_made_finer(pinned):
    judge = evaluator("qwen3moe-30b", machine(12))
    answer = recommend(judge, policy(), policy().intent("balanced"), Wishes(RequestedSettings(**pinned)))
    assert not answer.chosen.plan.settings.tensor_overrides


def test_on_each_gpu_no_more_leaves_than_must():
    kinds = dict.fromkeys(range(4), ("ffn_up_exps", "ffn_down_exps"))
    sizes = {(block, kind): 10 if kind == "ffn_up_exps" else 14 for block in kinds for kind in kinds[block]}
    layers = [30, 30, 30, 30, 5]
    assert _away(layers, [2, 3], [60, 65], kinds, sizes) == []
    assert _away(layers, [2, 3], [50, 53], kinds, sizes) == [(0, "ffn_up_exps"), (2, "ffn_down_exps")]
    assert _away(layers, [2, 3], [10, 65], kinds, sizes) is None
    away = [(0, "ffn_up_exps"), (0, "ffn_down_exps"), (2, "ffn_down_exps")]
    request = _request(RequestedSettings(), [2, 3], away, kinds)
    assert (request.n_cpu_moe, request.tensor_split) == (1, (2.0, 3.0))
    assert [override.pattern for override in request.tensor_overrides] == ["blk.2.ffn_down_exps"]


@pytest.mark.parametrize(
    ("pattern", "block"),
    [
        ("blk.7.ffn_up_exps", 7), (r"blk\.17\.ffn_down", 17), ("blk.7.a|output", None), (r"blk\.(1|2)\.ffn", None),
        ("ffn_up_exps", None), (r"blk\.\d+\.ffn", None),
    ],
)  # fmt: skip
def test_patterns_of_one_block_are_told(pattern, block):
    assert one_block(pattern) == block
