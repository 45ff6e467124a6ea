"""What one answer says in several places agrees: fixes, tables, rungs and steps are of the answer's own settings."""

from __future__ import annotations

import functools
import re
from itertools import pairwise

import pytest

from advisor.cli.explaining import explained_lines
from advisor.cli.render_curves import curve_lines
from advisor.cli.render_recommend import context_lines, render_recommendation
from advisor.cli.terminal import Screen
from advisor.recommend.curves import memory_curves, speed_curves
from advisor.units import GIB, format_bytes
from tests.tools.cells import engine
from tests.tools.choice_cases import draw, exactly
from tests.tools.explained_cases import Told, tell
from tests.tools.machines import machine

CASES = {case.text: case for case in draw(200, 77)[::10]}


@functools.cache
def told(text: str) -> Told:
    case = CASES[text]
    return tell(case.model, case.host, case.intent)


@functools.cache
def moe() -> Told:
    return tell("gpt-oss-20b", machine(12))


def test_what_would_help_is_worked_out_at_the_answers_own_context():
    """It has 2,560 tokens more than are called comfortable; each is 80 blocks x 8 heads x 2 x 128 x 34/32 bytes."""
    answer, search, _ = tell("llama33-70b-q4_k_m", machine(24))
    settings = answer.chosen.plan.settings
    assert answer.verdict == "partial"
    assert settings.n_ctx > search.comfortable
    whole = answer.chosen.request._replace(n_gpu_layers=81, n_ubatch=None)
    lacking = exactly(search, whole).plan.devices[0].planned_bytes - search.evaluator.budget.devices[0].usable_bytes
    assert f"a card with {format_bytes(lacking)} more memory" in [fix.change for fix in answer.fixes]
    shorter = {fix.change: fix for fix in answer.fixes if fix.change.startswith("-c ")}
    assert set(shorter) == {"-c 8192", "-c 4096"}
    for change, fix in shorter.items():
        n_ctx = int(change.removeprefix("-c "))
        assert fix.lost_n_ctx == settings.n_ctx - n_ctx
        assert fix.costs == f"{settings.n_ctx - n_ctx:,} tokens less context"
        cache = fix.lost_n_ctx * 80 * 8 * 2 * 128 * 34 // 32
        assert 0 <= fix.saves_bytes - cache < GIB // 2  # and buffers that grow with the context


def test_experts_in_part_are_told_from_whole_blocks():
    answer, _, why = moe()
    settings, n_blocks = answer.chosen.plan.settings, answer.chosen.plan.host_expert_blocks
    assert settings.tensor_overrides
    assert n_blocks == settings.n_cpu_moe + 1
    words = f"experts of {settings.n_cpu_moe} blocks and some of 1 more on the CPU"
    assert words in answer.summary
    assert words in answer.contexts.basis
    last, experts = why.rungs[-1], next(rung for rung in why.rungs if rung.code == "experts")
    assert last.said.figures["n_cpu_moe"] == settings.n_cpu_moe
    assert last.said.figures["n_blocks_in_part"] == 1
    assert experts.said.figures["n_cpu_moe"] == experts.judged.plan.settings.n_cpu_moe == settings.n_cpu_moe


def test_a_larger_micro_batch_is_said_with_the_next_step():
    _, _, why = tell("qwen3moe-30b", machine(12))
    step = next(step for step in why.steps if step.code == "experts")
    assert step.judged.plan.settings.n_ubatch == 1024
    assert "with a micro-batch of 1,024 tokens" in step.said.text


@pytest.mark.parametrize("text", CASES)
def test_the_same_settings_are_never_said_to_need_two_things(text):
    needs: dict[object, object] = {}
    _, _, why = told(text)
    for entry in (*why.rungs, *why.steps):
        plan = entry.judged.plan
        key = (plan.settings._replace(tensor_split=None), tuple(device.id for device in plan.devices))
        if plan.settings.tensor_split is None:
            assert needs.setdefault(key, entry.judged.plan) == plan


@pytest.mark.parametrize("text", CASES)
def test_nothing_is_given_up_once_it_fits_but_for_a_larger_micro_batch(text):
    _, search, why = told(text)
    way = [rung for rung in why.rungs if rung.taken]
    for before, rung in pairwise(way):
        if before.judged.fits and rung.code not in ("cards", "wish") and told(text).answer.verdict != "cpu":
            if search.unequal and rung.code == "context":  # with less of it more layers are on the faster card
                assert rung.said.figures["turn_s"] < rung.said.figures["before_turn_s"]
                continue
            assert rung.code == "micro_batch"  # on the CPU the context stays short, since all else needs that memory


def test_a_larger_micro_batch_comes_where_there_is_room_and_what_it_costs_after_it():
    _, _, why = tell("qwen3moe-30b", machine(12), "context")
    way = [(rung.code, rung.judged.fits) for rung in why.rungs if rung.taken]
    assert way[-3:] == [("experts", True), ("micro_batch", False), ("parts", True)]


def test_a_smaller_micro_batch_is_tried_before_the_last_concession():
    """With all else as it was then."""
    _, search, why = moe()
    rungs = list(why.rungs)
    smaller = next(rung for rung in rungs if rung.code == "micro_batch")
    before = [rung for rung in rungs[: rungs.index(smaller)] if rung.taken][-1]
    assert smaller.judged.request == search.shared(before.judged.request._replace(n_ubatch=256))
    assert not smaller.judged.fits
    assert rungs.index(smaller) == len(rungs) - 2
    assert smaller.tightest.over_bytes == before.tightest.over_bytes - smaller.said.figures["saves_bytes"]


def test_the_longest_context_is_the_tables_or_is_not_called_so():
    answer, _, _ = tell("gpt-oss-20b", machine(8, 8), "quality")
    longest = max(row.max_n_ctx or 0 for row in answer.contexts.rows)
    (other,) = [other for other in answer.alternatives if "context" in other.label]
    assert answer.chosen.plan.settings.n_ctx < other.judged.plan.settings.n_ctx != longest
    assert other.label == "longer context"
    assert other.why.startswith("all 25 layers on 2 GPUs, experts of ")  # others than in the table


@pytest.mark.parametrize("text", CASES)
def test_no_row_of_the_table_is_longer_than_the_longest_context(text):
    answer, search, _ = told(text)
    for other in answer.alternatives:
        if other.label == "longest context":
            for row in answer.contexts.rows:
                assert other.judged.plan.settings.n_ctx >= min((row.max_n_ctx or 0) * search.slots, search.ceiling)


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("text", CASES)
def test_no_line_is_longer_than_eighty_columns(text, color):
    answer, search, why = told(text)
    screen = Screen(width=80, color=color, unicode=True)
    lines = render_recommendation(answer, search.spec, search.evaluator.host, engine(), None, screen)
    lines += explained_lines(why, screen)
    lines += curve_lines(memory_curves(search, answer.chosen), speed_curves(search, answer.chosen), screen)
    assert max(len(re.sub(r"\x1b\[[\d;]*m", "", line)) for line in lines) <= 80


@pytest.mark.parametrize("width", [80, 120])
def test_the_heading_of_contexts_keeps_to_the_width(width):
    for answer in (moe().answer, tell("gpt-oss-20b", machine(10, 10), "quality").answer):
        lines = context_lines(answer.contexts, Screen(width=width, color=False, unicode=True))
        assert max(map(len, lines)) <= width
        assert lines[0].startswith("Context with ")
        colored = context_lines(answer.contexts, Screen(width=width, color=True, unicode=True))
        assert colored[0].startswith("\x1b[1mContext\x1b[0m with ")
