"""Wishes are kept, or the answer says that they were not."""

from __future__ import annotations

import shlex

import pytest

from advisor.errors import UsageError
from advisor.llama_flags import parse_command
from advisor.memory.server import checkpoints_of_slot
from advisor.outputs.command import command_line, server_options
from advisor.recommend.budget import server_caches
from advisor.recommend.search import Search, Wishes
from advisor.settings import RequestedSettings
from tests.tools.cells import engine
from tests.tools.machines import advise, evaluator, machine, policy


@pytest.mark.parametrize("wish", [{"n_gpu_layers": 33}, {"n_gpu_layers": 999}, {"n_cpu_moe": 5}, {"cpu_moe": True}])
def test_pinning_what_would_be_chosen_anyway_changes_nothing(wish):
    free = advise("llama3-8b", machine(12))
    pinned = advise("llama3-8b", machine(12), **wish)  # a dense model has no experts to move
    assert pinned.verdict == free.verdict == "full"
    assert pinned.chosen.plan.settings.n_ctx == free.chosen.plan.settings.n_ctx
    assert pinned.chosen.plan.devices == free.chosen.plan.devices


@pytest.mark.parametrize("most", [300, 5000, 20000, 32768, 50001])
def test_the_longest_context_wished_for_is_not_exceeded(most):
    answer = advise("llama3-8b", machine(12), max_n_ctx=most)
    n_ctx = answer.chosen.plan.settings.n_ctx
    assert most - 256 < n_ctx <= most
    assert not any(note.code == "context_trained" for note in answer.reasons)
    assert any(note.code == "context_max" and f"{most:,}" in note.text for note in answer.reasons)


@pytest.mark.parametrize("least", [131072, 200000])
def test_a_shortest_context_that_cannot_be_had_is_said(least):
    answer = advise("llama3-8b", machine(8, ram_gib=12), min_n_ctx=least)
    kept = answer.verdict != "does_not_fit" and answer.chosen.plan.settings.n_ctx_seq >= least
    said = any(note.code == "below_min_ctx" and f"{least:,}" in note.text for note in answer.warnings)
    assert kept or said or answer.verdict == "does_not_fit"


@pytest.mark.parametrize("slots", [1, 2, 8])
def test_every_count_of_tokens_is_of_one_slot(slots):
    answer = advise("llama3-8b", machine(12), intent=f"parallel:{slots}")
    settings = answer.chosen.plan.settings
    assert settings.n_ctx == slots * settings.n_ctx_seq
    row = next(row for row in answer.contexts.rows if row.cache_type == settings.cache_type_k)
    fits = {point.n_ctx: point.fits for point in row.points}
    assert all(ok == (n_ctx <= row.max_n_ctx) for n_ctx, ok in fits.items())
    assert f"{settings.n_ctx_seq:,} tokens" in answer.summary


@pytest.mark.parametrize("ram_gib", [7, 8, 10, 16, 64])
def test_the_command_keeps_old_prompts_within_what_is_left(ram_gib):
    answer = advise("llama3-8b", machine(ram_gib=ram_gib))
    plan, budget = answer.chosen.plan, answer.budget
    left = budget.ram_usable_bytes - plan.host.planned_bytes
    assert left >= 0
    caches = server_caches(plan, budget, checkpoints_of_slot(plan.settings, engine()))
    options = server_options(
        plan, engine(), mode="exact", n_layer_all=32, margin_bytes=0, cache_ram_mib=caches.cache_ram_mib
    )
    words = dict(options)
    said = [note for note in answer.warnings if note.code == "prompt_cache_fills_ram"]
    if left < plan.host.extras["prompt_cache_bytes"] + plan.host.extras["context_checkpoints_bytes"]:
        assert int(words["cache-ram"]) << 20 <= left
        assert f"--cache-ram {words['cache-ram']} keeps" in said[0].text
    else:
        assert "cache-ram" not in words
        assert not said
    assert parse_command(shlex.split(command_line("llama-server", "m.gguf", options))).model == "m.gguf"


def test_old_prompts_stay_within_what_a_gpu_leaves_of_shared_memory():
    host = machine(12, ram_gib=16, backend="metal")
    host = host._replace(devices=tuple(device._replace(memory_kind="unified") for device in host.devices))
    answer = advise("llama3-8b", host)
    plan, budget = answer.chosen.plan, answer.budget
    left = budget.ram_usable_bytes - plan.host.planned_bytes - plan.devices[0].planned_bytes
    assert plan.devices[0].planned_bytes > 4 << 30
    assert 0 <= left < plan.host.extras["prompt_cache_bytes"]
    mib = server_caches(plan, budget, checkpoints_of_slot(plan.settings, engine())).cache_ram_mib
    assert mib is not None
    assert mib << 20 <= left


def test_all_of_the_context_is_what_0_asks_for():
    """-c 0 is the trained context, also where layers have to leave the GPU for it."""
    answer = advise("llama3-8b", machine(8), n_ctx=0)
    assert answer.chosen.plan.settings.n_ctx == 131072
    assert answer.verdict == "partial"


@pytest.mark.parametrize("intent", ["speed", "balanced", "parallel:2"])
@pytest.mark.parametrize(
    "wishes", [{"n_gpu_layers": 0}, {"n_gpu_layers": 0, "n_cpu_moe": 3}, {"n_gpu_layers": 0, "cpu_moe": True},
               {"kv_offload": False}, {"n_gpu_layers": 0, "n_ubatch": 256}]
)  # fmt: skip
@pytest.mark.parametrize("model", ["llama3-8b", "qwen3moe-30b"])
def test_a_cache_in_system_memory_stays_at_the_comfortable_context(model, wishes, intent):
    """It is shared with everything else, whether a GPU is there or not, as with no GPU at all."""
    alone = advise(model, machine(ram_gib=64), intent).chosen.plan.settings
    comfortable = policy().intent(intent).comfortable_n_ctx
    assert alone.n_ctx_seq == comfortable
    answer = advise(model, machine(12, ram_gib=64), intent, **wishes)
    assert answer.chosen.plan.settings.n_ctx_seq == comfortable
    longer = advise(model, machine(12, ram_gib=64), intent, min_n_ctx=2 * comfortable, **wishes)
    assert longer.chosen.plan.settings.n_ctx_seq == 2 * comfortable


def test_for_context_a_cache_in_system_memory_is_as_long_as_fits():
    answer = advise("llama3-8b", machine(12, ram_gib=64), "context", n_gpu_layers=0)
    assert answer.chosen.plan.settings.n_ctx == 131072


@pytest.mark.parametrize("n_gpu_layers", [0, 1, 5, 20, 48])
def test_no_tensor_is_placed_where_its_block_is_anyway(n_gpu_layers):
    """The last blocks go to the GPU, the output counts as one more: those before have nothing that could be moved."""
    answer = advise("qwen3moe-30b", machine(12, ram_gib=32), n_gpu_layers=n_gpu_layers)
    request, first = answer.chosen.request, 48 - max(n_gpu_layers - 1, 0)
    assert not (request.n_cpu_moe or 0) or first < (request.n_cpu_moe or 0) <= 48
    for override in request.tensor_overrides:
        assert int(override.pattern.split(".")[1]) >= first


@pytest.mark.parametrize(
    ("asked", "said"), [(100, "256 tokens for the 100 that you asked for."), (512, "512 tokens as you asked.")]
)
def test_a_context_that_the_engine_rounds_up_is_said(asked, said):
    assert said in [note.text for note in advise("llama3-8b", machine(12), n_ctx=asked).reasons]


def test_slots_asked_for_twice_must_agree():
    assert policy().intent("parallel:8", 8).n_parallel == policy().intent("parallel:8").n_parallel == 8
    assert policy().intent("parallel", 3).n_parallel == 4  # no count is said, and -np goes before what is usual
    with pytest.raises(UsageError, match="parallel:8 asks for 8 slots, -np 4 for 4"):
        policy().intent("parallel:8", 4)


LONGER = (16384, 24576, 65536, 114688)


@pytest.mark.parametrize("model", ["qwen35moe-35b-mtp", "gpt-oss-20b", "llama3-8b", "gemma3-12b", "nemotron-h-9b"])
@pytest.mark.parametrize("vram_gib", [6, 12])
def test_a_longer_context_by_wish_is_no_better(model, vram_gib):
    """What is chosen for it fits a shorter one too, and there it must not be better than what is chosen there.

    A turn may still be quicker: a cache of 8 bits is taken where it gains 4 %, which grows with the context.
    """
    host, before = machine(vram_gib, ram_gib=96), None
    for n_ctx in LONGER:
        wishes = Wishes(RequestedSettings(n_ctx=n_ctx))
        search = Search(evaluator(model, host), policy(), policy().intent("balanced"), wishes)
        best = search.run().pool[0]
        if before is not None:
            shorter, n_shorter, chosen = before
            other = shorter.evaluator.judge(best.judged.request._replace(n_ctx=n_shorter))
            assert other.fits
            assert shorter.cost(other) >= shorter.cost(chosen) * 0.9999
            of_both = [one.plan.settings for one in (best.judged, chosen)]
            if len({(settings.cache_type_k, settings.n_ubatch) for settings in of_both}) == 1:
                turn = shorter.evaluator.speed(chosen, shorter.intent).turn_seconds.value
                assert best.speed.turn_seconds.value >= turn * 0.9999
        before = (search, n_ctx, best.judged)
