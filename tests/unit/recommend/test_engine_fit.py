"""The engine's own fit: its published rules come to what it chose, and it is never better than our choice."""

from __future__ import annotations

import pytest

from tests.bench.fit import as_recorded, verdicts
from tests.tools.fit_cases import choice_of_fit, compare, fit_cases, fit_evaluator, fit_machine
from tests.tools.machines import advise, machine, policy

SOME = fit_cases()[::20]
NEVER = {
    "slower at a context no longer than fit's", "shorter at no more speed", "over the same free memory",
    "slower with fit's context asked for", "slower than fit with ours asked for", "dearer for the intent",
    "fit's rules come out otherwise",
}  # fmt: skip


def name(case):
    return f"{case['model']}-{'+'.join(str(mib) for mib in case['free_mib'])}"


@pytest.mark.parametrize("case", [case for case in fit_cases() if len(case["free_mib"]) == 1][::10], ids=name)
def test_the_rules_come_to_the_measured_choice_and_bytes(case):
    judge = fit_evaluator(case["model"], fit_machine(tuple(case["free_mib"])))
    fitted = choice_of_fit(judge)
    assert fitted.request.n_ctx == case.get("n_ctx", judge.spec.n_ctx_train)
    assert [share.n_layer for share in fitted.shares] == [layers for layers, _, _ in case["shares"]]
    (device,) = judge.judge(fitted.request).plan.devices
    for _, _, used_mib in case["shares"]:  # printed where layers moved
        assert (device.weights_bytes + device.cache_bytes + device.compute.high) >> 20 == used_mib


@pytest.mark.parametrize("case", SOME, ids=name)
def test_fit_is_never_better(case):
    intent = policy().intent("balanced")
    both = compare(case["model"], tuple(case["free_mib"]), intent)
    assert not NEVER & set(verdicts(both, case, intent.turn.n_tokens))


@pytest.mark.parametrize(("model", "free_mib"), [("gpt-oss-20b", (8192, 12288)), ("lfm2moe-8b", (6144,))])
def test_with_its_context_fit_is_not_faster_for_splitting_by_kind_of_tensor(model, free_mib):
    both = compare(model, free_mib, policy().intent("balanced"))
    assert both.fit.judged.plan.settings.tensor_overrides
    assert both.alike.turn_s < both.fit.turn_s


@pytest.mark.parametrize("free_mib", [(8192, 12288), (12288, 12288)])
def test_experts_of_several_devices_come_out(free_mib):
    case = next(c for c in fit_cases() if c["model"] == "hunyuan-a13b" and tuple(c["free_mib"]) == (8192, 12288))
    both = compare("hunyuan-a13b", free_mib, policy().intent("balanced"))
    assert as_recorded(both, case) == (free_mib == (8192, 12288))
    assert sum(share.n_layer for share in both.fitted.shares) == both.ours.judged.plan.settings.n_gpu_layers


def noted(answer):
    return [note for note in answer.reasons if note.code == "engine_fit_as_good"]


def test_the_answer_says_where_the_engine_does_as_well():
    (note,) = noted(advise("llama3-8b", machine(12)))
    assert "--mode safe" in note.text
    assert f"{advise('llama3-8b', machine(12)).chosen.plan.settings.n_ctx:,}" in note.text
    assert noted(advise("llama3-8b", machine(12), n_ctx=8192))


@pytest.mark.parametrize("sizes", [(6,), ()])
def test_it_does_not_where_the_engine_does_worse(sizes):
    assert not noted(advise("llama3-8b", machine(*sizes)))


def test_nor_with_another_cache_or_batch():
    assert not noted(advise("llama3-8b", machine(12), cache_type_k="q8_0", cache_type_v="q8_0"))
    assert not noted(advise("llama3-8b", machine(12), n_ubatch=1024))


@pytest.mark.parametrize(
    ("most", "said"), [(2048, "2,048 tokens"), (20000, "19,968 tokens"), (131072, "53,504 tokens")]
)
def test_safe_mode_says_the_longest_context_wished_for_too(most, said):
    (note,) = noted(advise("llama3-8b", machine(12), max_n_ctx=most))
    assert note.text.endswith(f"with {said}.")
