"""What is said of one thing in several places is the same, and follows: places, steps, fixes, limits, reasons."""

from __future__ import annotations

import re

import pytest

from advisor.cli.explaining import explained_shape
from advisor.host import Cpu, Device, HostSnapshot, Ram
from advisor.recommend.rungs import where
from advisor.recommend.search import Search, Wishes
from advisor.recommend.steps import next_steps
from advisor.settings import RequestedSettings
from advisor.units import GIB, format_bytes
from tests.tools.choice_cases import draw, exactly
from tests.tools.explained_cases import tell
from tests.tools.machines import advise, evaluator, machine, policy

CASES = {case.text: case for case in draw(200, 77)[5::13]}


def mac(gib=16, ram=24, backend="metal", platform="darwin"):
    host = machine(gib, ram_gib=ram, backend=backend)
    return host._replace(platform=platform, devices=(host.devices[0]._replace(memory_kind="unified"),))


def of(notes, code):
    return next((note.text for note in notes if note.code == code), "")


def card(answer):
    return next(fix.saves_bytes for fix in answer.fixes if fix.change.startswith("a card"))


@pytest.mark.parametrize("model", ["qwen3moe-30b", "gpt-oss-20b"])
def test_the_next_step_of_experts_is_the_smallest_tensor(model):
    answer, search, why = tell(model, machine(12))
    (step,) = [step for step in why.steps if step.code == "experts"]
    request = answer.chosen.request
    left = request.tensor_overrides
    assert left
    over = {}
    for one in sorted(left, key=lambda each: each.pattern):
        rest = tuple(other for other in left if other != one)
        tried = exactly(search, request._replace(tensor_overrides=rest))
        over.setdefault(tried.plan.devices[0].planned_bytes, one.pattern)
    need = min(over)
    assert step.place.need_bytes == need
    block, kind = re.fullmatch(r"blk\.(\d+)\.(\w+)", over[need]).groups()
    assert f"{kind} of block {block}, on the GPU" in step.said.text
    assert step.place.over_bytes < next(rung for rung in why.rungs if rung.code == "experts").tightest.over_bytes


def test_the_next_step_is_a_block_where_the_target_knows_no_tensors():
    wishes = Wishes(RequestedSettings(), whole_blocks=True)
    search = Search(evaluator("qwen3moe-30b", machine(12)), policy(), policy().intent("balanced"), wishes)
    chosen = search.run().pool[0].judged
    (step,) = [step for step in next_steps(search, chosen) if step.code == "experts"]
    assert not step.judged.request.tensor_overrides
    assert step.judged.plan.settings.n_cpu_moe == chosen.plan.settings.n_cpu_moe - 1


@pytest.mark.parametrize("text", CASES)
def test_what_is_called_the_same_lacks_the_same(text):
    case = CASES[text]
    answer, search, why = tell(case.model, case.host, case.intent)
    figures = {}
    for entry in why.steps:
        name = entry.said.text.partition(" would need")[0].lower()
        assert figures.setdefault(name, entry.place.over_bytes) == entry.place.over_bytes
    for rung in why.rungs:
        name = rung.said.text.partition(":")[0].lower().removeprefix("or ")
        if name in figures and rung.judged.plan.settings == answer.chosen.plan.settings:
            assert rung.tightest.over_bytes == figures[name]
        if "are enough for" in rung.said.text:  # it is no reason against less
            assert rung.judged.plan.settings.n_ctx > answer.chosen.plan.settings.n_ctx >= search.comfortable


@pytest.mark.parametrize(
    ("model", "host", "wishes"),
    [
        ("qwen3-8b", machine(12, ram_gib=32), {"min_n_ctx": 131072}),
        ("qwen3-8b", machine(8), {"n_ctx": 131072, "cache_type_k": "q8_0", "cache_type_v": "q8_0"}),
        ("mistral-small-24b", mac(), {"n_ctx": 32768, "cache_type_k": "f16", "cache_type_v": "f16"}),
    ],
)
def test_one_line_and_the_fixes_lack_the_same_to_run_whole(model, host, wishes):
    answer, search, why = tell(model, host, **wishes)
    settings = answer.chosen.plan.settings
    assert answer.verdict == "partial"
    assert "it would run whole" in why.friend.text
    whole = exactly(search, answer.chosen.request._replace(n_gpu_layers=search.spec.n_layer_all + 1))
    lacking = whole.plan.devices[0].planned_bytes - search.evaluator.budget.devices[0].usable_bytes
    assert why.friend.figures["over_bytes"] == card(answer) == lacking
    assert settings.n_ctx == why.friend.figures["n_ctx"]


def test_the_cache_that_a_wish_has_is_named_where_the_answer_has_another():
    answer, _, why = tell("qwen3moe-30b", machine(12))
    assert answer.chosen.plan.settings.cache_type_k == "q8_0"
    assert "for all of it with 131,072 tokens in f16 it lacks" in why.friend.text


@pytest.mark.parametrize(
    ("host", "pattern", "unit"),
    [
        (mac(), r"iogpu\.wired_limit_mb=(\d+)", 1 << 20),
        (mac(backend="vulkan", platform="linux"), r"ttm\.pages_limit=(\d+)", 4096),
    ],
)
def test_the_limit_of_shared_memory_is_what_everything_needs(host, pattern, unit):
    """Not the plan's part and the host's together: token embeddings and their buffers stay there."""
    answer, search, why = tell("mistral-small-24b", host, n_ctx=32768, cache_type_k="f16", cache_type_v="f16")
    said = of(answer.warnings, "shared_memory_limit")
    whole = exactly(search, search.base._replace(n_gpu_layers=41, cache_type_k="f16", cache_type_v="f16"))
    need = whole.plan.devices[0].planned_bytes
    assert f"lets it hold all {format_bytes(need)}," in said
    limit = int(re.search(pattern, said)[1]) * unit
    assert 0 <= limit - need - search.evaluator.budget.devices[0].margin_bytes < unit
    for cure in why.cures:
        if cure.code == "wired_limit":
            assert re.search(pattern, cure.change)[0] in said


@pytest.mark.parametrize("host", [mac(), machine(8), machine(12)])
def test_what_sets_the_pace_is_said_once(host):
    answer = advise("mistral-small-24b", host, n_ctx=32768, cache_type_k="f16", cache_type_v="f16")
    said = of(answer.warnings, "dense_on_cpu")
    assert said
    assert ("which sets the pace" in said) == (answer.speed.bound_by == "ram bandwidth")


def test_what_is_read_from_disk_is_not_said_to_be_read_from_memory():
    answer = advise("llama33-70b-q4_k_m", machine(4, ram_gib=16))
    assert answer.speed.bound_by == "disk"
    assert of(answer.warnings, "streams_from_disk")
    assert not of(answer.warnings, "dense_on_cpu")


@pytest.mark.parametrize("n_ubatch", [128, 256])
def test_fixes_have_the_micro_batch_that_was_asked_for(n_ubatch):
    answer = advise("qwen3-8b", machine(12, ram_gib=32), min_n_ctx=131072, n_ubatch=n_ubatch)
    assert answer.verdict == "partial"
    assert not [fix for fix in answer.fixes if fix.change.startswith("-ub")]
    row = next(row for row in answer.contexts.rows if row.cache_type == answer.chosen.plan.settings.cache_type_k)
    (shorter,) = [fix for fix in answer.fixes if fix.change.startswith("-c ")]
    assert shorter.change == f"-c {row.max_n_ctx}"
    assert shorter.enough


def test_a_setting_saves_the_same_in_both_lists_and_says_where():
    answer, _, why = tell("gpt-oss-20b", machine(12))
    changes = {fix.change: fix for fix in answer.fixes if fix.device}
    assert set(changes) >= {"-ctk q8_0 -ctv q8_0", "-ub 256"}
    for cure in why.cures:
        if cure.change in changes:
            fix = changes[cure.change]
            assert cure.saves_bytes == fix.saves_bytes
            assert f"saves {format_bytes(fix.saves_bytes)} on CUDA0, with every layer on the GPU" in cure.said.text


def test_one_block_is_no_blocks():
    search = Search(
        evaluator("gpt-oss-20b", machine(24)), policy(), policy().intent("balanced"), Wishes(RequestedSettings())
    )
    for n_blocks, words in ((1, "experts of 1 block on"), (2, "experts of 2 blocks on")):
        text, values = where(
            search, search.judge(search.base._replace(n_ctx=4096, n_gpu_layers=25, n_cpu_moe=n_blocks))
        )
        assert words in text.format(**values)


def test_a_rung_says_which_cards_it_is_for():
    _, _, why = tell("llama33-70b-q4_k_m", machine(24, 8))
    shape = explained_shape(why)
    used = {rung["code"]: rung["devices"] for rung in shape["rungs"]}
    without = [rung for rung in shape["rungs"] if rung["text"].lower().removeprefix("or ").startswith("without")]
    assert without
    assert all(rung["devices"] == ["CUDA0"] for rung in without)
    assert ["CUDA0", "CUDA1"] in used.values()


def test_the_cheapest_quantization_that_fits_is_among_the_fixes():
    host = machine(12, ram_gib=6)
    answer, _, why = tell("qwen3moe-30b", host)
    assert answer.verdict == "does_not_fit"
    fits = of(answer.warnings, "smaller_quantization_fits")
    name = re.match(r"As (\w+)", fits)[1]
    files = [fix.change for fix in answer.fixes if fix.change.startswith("a file in")]
    assert files[0].startswith(f"a file in {name} ")
    cures = [cure for cure in why.cures if cure.code == "quantization"]
    assert cures[0].change == f"a file in {name}"
    assert cures[0].enough


@pytest.mark.parametrize("pinned", [{"split_mode": "none"}, {"tensor_split": (1.0, 0.0)}])
def test_only_cards_that_hold_layers_are_counted(pinned):
    answer, _, why = tell("qwen3-8b", machine(24, 12), n_ctx=8192, **pinned)
    assert answer.chosen.plan.devices[1].weights_bytes == 0
    for text in (answer.summary, why.friend.text, *(note.text for note in answer.reasons)):
        assert "2 GPUs" not in text


def two_speeds():
    sizes = ((16, 717, 195.0), (8, 272, 60.0))
    devices = tuple(
        Device(
            f"CUDA{index}", "cuda", f"card {index}", gib * GIB, gib * GIB, bandwidth_bytes_per_s=speed * 10**9,
            f16_tflops=flops, link_bytes_per_s=16 * 10**9, compute_capability="8.9",
        )
        for index, (gib, speed, flops) in enumerate(sizes)
    )  # fmt: skip
    ram = Ram(64 * GIB, 64 * GIB, bandwidth_bytes_per_s=70 * 10**9)
    return HostSnapshot(devices, ram, Cpu("t", 8, 16, ("avx2",)))


def test_a_longer_context_that_needs_another_split_says_what_that_costs():
    answer, search, why = tell("qwen35-27b", two_speeds())
    chosen = answer.chosen
    said = of(answer.reasons, "context_comfortable")
    longest = int(re.search(r"up to ([\d,]+) tokens fit", said)[1].replace(",", ""))
    assert longest > chosen.plan.settings.n_ctx
    row = next(row for row in answer.contexts.rows if row.cache_type == chosen.plan.settings.cache_type_k)
    assert longest == row.max_n_ctx
    other = exactly(search, search.shared(search.open_split(chosen.request)._replace(n_ctx=longest)))
    assert other.fits
    moved = other.plan.placement.count(1) - chosen.plan.placement.count(1)
    assert f"with {moved} more layers on CUDA1" in said
    speeds = [search.evaluator.speed(one, search.intent).decode_tokens_per_s.value for one in (other, chosen)]
    assert f"{round(100 * (1 - speeds[0] / speeds[1]))} % slower" in said
    rung = next(rung for rung in why.rungs if rung.judged.plan.settings.n_ctx == longest and not rung.taken)
    assert f"more layers than the choice: {moved} on CUDA1;" in rung.said.text
    step = next(step for step in why.steps if step.code == "context")
    assert step.judged.plan.settings.n_ctx > longest
    assert "however the layers are dealt" in step.said.text


def test_the_table_shows_the_gpu_that_is_asked_about():
    """System memory has less to spare than the GPU, but is not lacking."""
    answer = advise("qwen35-27b", machine(24, ram_gib=4))
    for row in answer.contexts.rows:
        assert {point.device for point in row.points} == {"CUDA0"}
    lacking = advise("qwen35-27b", machine(8, ram_gib=4))
    assert {point.device for row in lacking.contexts.rows for point in row.points if not point.fits} & {"host"}
