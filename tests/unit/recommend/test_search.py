"""The search: what it promises for any model, machine and intent."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.settings import RequestedSettings
from tests.tools.cells import spec
from tests.tools.machines import GIB, advise, evaluator, machine, policy

MODELS = ("llama3-8b", "gemma3-12b", "qwen3moe-30b", "ds2-lite", "mamba2-7b", "falcon-h1-7b", "phi2", "bert-large")
INTENTS = ("balanced", "context", "speed", "quality", "parallel:3")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("vram", [(), (4,), (12,), (24, 8)])
@pytest.mark.parametrize("intent", INTENTS)
def test_what_is_chosen_fits_and_says_so(model: str, vram: tuple[float, ...], intent: str) -> None:
    host = machine(*vram)
    answer = advise(model, host, intent)
    assert (answer.verdict == "does_not_fit") == (not answer.chosen.fits)
    for device, limit in zip(answer.chosen.plan.devices, answer.budget.devices, strict=True):
        if answer.verdict != "does_not_fit":
            assert device.planned_bytes <= limit.usable_bytes
    for other in answer.alternatives:
        assert other.judged.fits
    for failed in answer.rejected:
        assert failed.over_bytes > 0
        assert not failed.judged.fits
    chosen = answer.chosen.plan.settings
    if intent == "quality":
        assert chosen.cache_type_k == chosen.cache_type_v == "f16"
    if intent == "parallel:3":
        assert chosen.n_parallel == 3
    trained = spec(model).n_ctx_train
    assert chosen.n_ctx_seq <= -(-trained // 256) * 256


@pytest.mark.parametrize("model", ["llama3-8b", "gemma3-12b", "qwen3moe-30b"])
@pytest.mark.parametrize("vram", [6.0, 8.0, 12.0, 16.0])
def test_no_step_up_was_left_out(model: str, vram: float) -> None:
    """With everything on the GPU the next context does not fit; split, the next layer or expert block does not."""
    host = machine(vram)
    answer = advise(model, host)
    judge = evaluator(model, host).judge
    chosen, request = answer.chosen.plan.settings, answer.chosen.request
    if answer.verdict == "full" and chosen.n_ctx < spec(model).n_ctx_train:
        assert not judge(request._replace(n_ctx=chosen.n_ctx + 1024)).fits
    if answer.verdict == "partial":
        step = (
            request._replace(n_cpu_moe=chosen.n_cpu_moe - 1)
            if chosen.n_cpu_moe
            else request._replace(n_gpu_layers=chosen.n_gpu_layers + 1)
        )
        assert not judge(step).fits


@settings(max_examples=60, deadline=None)
@given(
    model=st.sampled_from(["llama3-8b", "gemma3-4b", "gpt-oss-20b", "qwen3next", "ds2-lite"]),
    n_ctx=st.integers(256, 65536),
    more=st.integers(1, 65536),
    layers=st.integers(0, 60),
    slots=st.integers(1, 4),
)
def test_weights_and_cache_grow_with_every_knob(model: str, n_ctx: int, more: int, layers: int, slots: int) -> None:
    judge = evaluator(model, machine(24)).judge
    base = RequestedSettings(n_ctx=n_ctx, n_gpu_layers=layers, n_parallel=slots, kv_unified=True)

    def held(request: RequestedSettings) -> int:
        device = judge(request).plan.devices[0]
        return device.weights_bytes + device.cache_bytes

    assert held(base) <= held(base._replace(n_ctx=n_ctx + more))
    assert held(base) <= held(base._replace(n_gpu_layers=layers + 1))


def test_pinned_settings_are_kept() -> None:
    answer = advise("llama3-8b", machine(12), n_ctx=20000, cache_type_k="q8_0", cache_type_v="q8_0", n_ubatch=256)
    chosen = answer.chosen.plan.settings
    assert (chosen.n_ctx, chosen.cache_type_k, chosen.n_ubatch) == (20224, "q8_0", 256)
    assert any(note.code == "context_rounded" for note in answer.warnings)


def test_limits_of_the_context_are_kept() -> None:
    assert advise("llama3-8b", machine(12), max_n_ctx=16384).chosen.plan.settings.n_ctx == 16384
    assert advise("llama3-8b", machine(6), min_n_ctx=32768).chosen.plan.settings.n_ctx >= 32768


def test_least_speed_prefers_what_reaches_it() -> None:
    slow = advise("llama3-8b", machine(6), "context")
    quick = advise("llama3-8b", machine(6), "context", min_tokens_per_s=30.0)
    assert slow.speed.decode_tokens_per_s.value < 30 <= quick.speed.decode_tokens_per_s.value
    impossible = advise("llama3-8b", machine(6), min_tokens_per_s=1000.0)
    assert any(note.code == "below_min_tps" for note in impossible.warnings)


def test_quantised_cache_only_where_the_engine_takes_it() -> None:
    """Head size 80 is no multiple of 32; grok switches flash attention off."""
    for model in ("phi2", "grok1"):
        answer = advise(model, machine(80, ram_gib=512), "context")
        assert answer.chosen.plan.settings.cache_type_k == "f16"


def test_memory_of_engines_counts_as_free_unless_now() -> None:
    host = machine(12)
    busy = host.devices[0]._replace(free_bytes=2 * GIB, used_by_engines_bytes=9 * GIB)
    host = host._replace(devices=(busy,))
    assert evaluator("llama3-8b", host).budget.devices[0].free_bytes == 11 * GIB
    assert evaluator("llama3-8b", host, now=True).budget.devices[0].free_bytes == 2 * GIB
    assert evaluator("llama3-8b", host, keep_free=3 * GIB).budget.devices[0].usable_bytes == 8 * GIB


def test_unified_memory_is_counted_once() -> None:
    host = machine(48, ram_gib=64, backend="metal")
    shared = host.devices[0]._replace(memory_kind="unified")
    answer = advise("llama33-70b-q4_k_m", host._replace(devices=(shared,)))
    total = answer.chosen.plan.devices[0].planned_bytes + answer.chosen.plan.host.planned_bytes
    assert total <= answer.budget.ram_usable_bytes


def test_intents_of_the_policy_parse() -> None:
    for name in INTENTS:
        assert policy().intent(name).floor_n_ctx > 0
