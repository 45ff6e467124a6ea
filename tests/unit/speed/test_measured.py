"""Speeds on a machine that was measured, from first principles: each measured cost where it belongs."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.calibration import CPU, Calibration, CpuTimes, HeadTimes, Machine, Run, TypeTimes, device_key
from advisor.host import HostSnapshot
from advisor.memory.types import MemoryPlan
from advisor.settings import RequestedSettings
from advisor.speed import SpeedModel, Turn
from advisor.speed.measured import weights_bytes
from tests.tools.cells import spec
from tests.tools.machines import GIB, evaluator, machine, speed_rules

PLENTY = 1 << 50
MACHINE = Machine("test", 8, 16, 64 * GIB)
TYPES = (TypeTimes("q4_K", 20e9, 3e11), TypeTimes("q6_K", 10e9, 1e11))
HEADS = (HeadTimes(64, 10e-9, 40e-9, 2e-9), HeadTimes(128, 20e-9, 30e-9, 4e-9))
CPU_TIMES = CpuTimes("x", None, 50e-6, 10e-9, 8e-9, TYPES, HEADS)
MEASURED = Calibration(MACHINE, "2026-11-30", 40_000_000_000, (), CPU_TIMES)
CPU_ONLY = machine(ram_gib=64)
CARD = machine(24, ram_gib=64, bandwidth=10**12)


def plan(name: str, host: HostSnapshot = CPU_ONLY, **settings: Any) -> MemoryPlan:
    given: dict[str, Any] = {"n_ctx": 8192, "n_parallel": 1, "kv_unified": False, "flash_attn": "on", **settings}
    return evaluator(name, host).judge(RequestedSettings(**given)).plan


def model(name: str, calibration: Calibration | None, host: HostSnapshot = CPU_ONLY) -> SpeedModel:
    return SpeedModel(spec(name), host._replace(calibration=calibration), speed_rules())


def seconds(name: str, calibration: Calibration | None, depth: int = 0, **settings: Any) -> float:
    return model(name, calibration).decode(plan(name, **settings), depth, PLENTY).seconds


def test_memory_alone_replaces_what_is_assumed():
    """0.95 of what threads that only read get."""
    only = MEASURED._replace(cpu=None)
    read = sum(t.n_bytes for t in spec("llama3-8b").tensors if t.name != "token_embd.weight")
    assert seconds("llama3-8b", only) == pytest.approx(read / (0.95 * 40e9), rel=1e-3)
    assert model("llama3-8b", only).decode(plan("llama3-8b"), 0, PLENTY).confidence == "formula"
    assert model("llama3-8b", None).decode(plan("llama3-8b"), 0, PLENTY).confidence == "low"


def test_weights_by_type_blocks_and_vocabulary():
    """Llama 3 8B in Q4_K_M: 32 blocks; rows of 4,096 and more gain half a row's time; 128,256 tokens."""
    by_type: dict[int, int] = {}
    rows = 0.0
    for tensor in spec("llama3-8b").tensors:
        if tensor.name != "token_embd.weight" and len(tensor.shape) > 1:
            by_type[tensor.ggml_type] = by_type.get(tensor.ggml_type, 0) + tensor.n_bytes
            rows += tensor.shape[1] if tensor.name.startswith("blk.") else 0
    assert set(by_type) == {12, 14}
    wanted = by_type[12] / 20e9 + by_type[14] / 10e9 + 32 * 50e-6 + 128256 * 8e-9 - rows / 2 * 10e-9
    assert seconds("llama3-8b", MEASURED) == pytest.approx(wanted, rel=1e-3)


def test_short_rows_cost_more():
    """Each row counts for as much as it is shorter than those of the trials of types."""
    one = MEASURED._replace(cpu=CPU_TIMES._replace(types=()))
    without = one._replace(cpu=one.cpu._replace(row_seconds=0.0))  # type: ignore[union-attr]
    rows = sum(
        tensor.shape[1] * (1 - min(tensor.shape[0] / 2150, 1.5))
        for tensor in spec("small-gemma3").tensors
        if tensor.name.startswith("blk.") and len(tensor.shape) > 1
    )
    assert rows > 0
    difference = seconds("small-gemma3", one) - seconds("small-gemma3", without)
    assert difference == pytest.approx(rows * 10e-9, rel=2e-3)  # norms take part in the rate


def test_attention_over_a_cache():
    """32 heads of 128 over 8 key heads; 4,096 tokens lie in 4,352 cells."""
    deeper = seconds("llama3-8b", MEASURED, 4096) - seconds("llama3-8b", MEASURED)
    assert deeper == pytest.approx(32 * 4352 * (32 * 20e-9 + 8 * 30e-9), rel=1e-6)
    few = seconds("llama3-8b", MEASURED, 100) - seconds("llama3-8b", MEASURED)
    assert few == pytest.approx(32 * 100 * (32 * 20e-9 + 8 * 30e-9), rel=1e-6)


def test_a_full_context_has_no_more_cells_than_the_cache():
    full = seconds("llama3-8b", MEASURED, 8192) - seconds("llama3-8b", MEASURED)
    assert full == pytest.approx(32 * 8192 * (32 * 20e-9 + 8 * 30e-9), rel=1e-6)


def test_attention_is_never_faster_than_memory():
    quick = MEASURED._replace(cpu=CPU_TIMES._replace(heads=(HeadTimes(128, 1e-15, 0.0, None),)))
    deeper = seconds("llama3-8b", quick, 4096) - seconds("llama3-8b", quick)
    assert deeper == pytest.approx(32 * 4096 * 2 * 8 * 128 * 2 / (0.95 * 40e9), rel=1e-6)


def test_attention_without_flash_attention_and_with_a_quantized_cache():
    rules = speed_rules()["measured"]
    base = {name: seconds("llama3-8b", MEASURED, **given) for name, given in (("off", {"flash_attn": "off"}), ("q8", {
        "cache_type_k": "q8_0", "cache_type_v": "q8_0"}))}  # fmt: skip
    off = seconds("llama3-8b", MEASURED, 4096, flash_attn="off") - base["off"]
    quantized = seconds("llama3-8b", MEASURED, 4096, cache_type_k="q8_0", cache_type_v="q8_0") - base["q8"]
    cells = 32 * 4352
    assert off == pytest.approx(
        cells * (32 * 20e-9 * rules["cpu_no_flash_pair_factor"] + 8 * 30e-9 * rules["cpu_no_flash_row_factor"])
    )
    assert quantized == pytest.approx(
        cells
        * (32 * 20e-9 * rules["cpu_quantized_cache_pair_factor"] + 8 * 30e-9 * rules["cpu_quantized_cache_row_factor"])
    )


def test_heads_between_and_beyond_those_that_were_tried():
    """Of 96: half way between 64 and 128. Of 256: twice what 128 take."""
    sized = {64: (10e-9, 40e-9), 96: (15e-9, 35e-9), 128: (20e-9, 30e-9), 256: (40e-9, 60e-9), 32: (5e-9, 20e-9)}
    from advisor.speed.measured import _head_times

    layer = spec("llama3-8b").layers[0]
    for size, (pair, row) in sized.items():
        found = _head_times(layer._replace(head_size_k=size, head_size_v=size), HEADS)
        assert found[:2] == pytest.approx((pair, row)), size
    single = _head_times(layer._replace(n_head_kv=1), HEADS)
    assert single[:2] == pytest.approx((20e-9, 0.0))


def test_a_window_takes_all_its_cells():
    """40 of 48 blocks of Gemma 3 12B keep 1,024 tokens in 1,536 cells; heads of 256."""
    heads = MEASURED._replace(cpu=CPU_TIMES._replace(heads=(HeadTimes(256, 30e-9, 0.0, None),)))
    near, far = seconds("gemma3-12b", heads, 1024), seconds("gemma3-12b", heads, 5000)
    assert far - near == pytest.approx(8 * (5120 - 1280) * 16 * 30e-9, rel=1e-6)
    window = near - seconds("gemma3-12b", heads)
    assert window == pytest.approx((40 * 1536 + 8 * 1280) * 16 * 30e-9, rel=1e-6)


def test_types_that_were_not_tried_come_at_memorys_pace():
    part = MEASURED._replace(cpu=CPU_TIMES._replace(types=TYPES[:1]))
    read = model("llama3-8b", part).decode(plan("llama3-8b"), 0, PLENTY)
    q6 = sum(t.n_bytes for t in spec("llama3-8b").tensors if t.ggml_type == 14 and t.place != "input")
    assert seconds("llama3-8b", MEASURED) - read.seconds == pytest.approx(q6 / 10e9 - q6 / 38e9, rel=1e-3)
    assert read.confidence == "formula"  # a quarter of the bytes is of that type


def test_it_is_called_calibrated_and_its_range_is_narrow():
    known = model("llama3-8b", MEASURED).predict(plan("llama3-8b"), Turn(500, 1000, 100), PLENTY)
    assert known.confidence == "calibrated"
    decode = known.decode_tokens_per_s
    assert decode.high / decode.value == pytest.approx(1 + speed_rules()["measured"]["range"])


def test_reading_a_prompt():
    """Products at each type's pace, attention at that of its heads."""
    speed = model("llama3-8b", MEASURED).predict(plan("llama3-8b"), Turn(512, 0, 1), PLENTY)
    parameters: dict[int, int] = {}
    for tensor in spec("llama3-8b").tensors:
        if tensor.name.startswith("blk.") and len(tensor.shape) > 1:
            count = tensor.shape[0] * tensor.shape[1]
            parameters[tensor.ggml_type] = parameters.get(tensor.ggml_type, 0) + count
    wanted = 2 * parameters[12] / 3e11 + 2 * parameters[14] / 1e11 + 32 * 32 * 256 * 4e-9
    assert 1 / speed.prefill_tokens_per_s.value == pytest.approx(wanted, rel=1e-2)


def test_blocks_on_a_card_do_not_change():
    """What was measured of the CPU says nothing of a card."""
    planned = plan("llama3-8b", CARD, n_gpu_layers=999)
    before, after = (model("llama3-8b", c, CARD).decode(planned, 4000, PLENTY) for c in (None, MEASURED))
    assert before == after


# ---------------------------------------------------------------- runs


UNTRIED = MEASURED._replace(cpu=None)


def run(device: str = CPU, **changes: Any) -> Run:
    llama = spec("llama3-8b")
    base = Run(device, llama.quantization, None, "another", weights_bytes(llama) + 1000, (1.5,), (2.0,), 1)
    return base._replace(**changes)


@pytest.mark.parametrize("device", [CPU, device_key("cuda", "card 0")])
def test_a_run_of_a_model_like_it_corrects_its_speed(device):
    host = CPU_ONLY if device == CPU else CARD
    planned = plan("llama3-8b", host, n_gpu_layers=None if device == CPU else 999)
    turn = Turn(512, 0, 1)
    before, after = (
        model("llama3-8b", UNTRIED._replace(runs=runs), host).predict(planned, turn, PLENTY)
        for runs in ((), (run(device),))
    )
    assert after.decode_tokens_per_s.value == pytest.approx(before.decode_tokens_per_s.value / 1.5)
    assert after.prefill_tokens_per_s.value == pytest.approx(before.prefill_tokens_per_s.value / 2, rel=0.05)
    assert after.confidence == "calibrated"
    decode = after.decode_tokens_per_s
    assert decode.high / decode.value == pytest.approx(1 + speed_rules()["measured"]["range"])


@pytest.mark.parametrize(
    "other",
    [
        run(quantization="Q8_0"), run("cuda card 0"), run(weights_bytes=weights_bytes(spec("llama3-8b")) * 5),
        run(weights_bytes=weights_bytes(spec("llama3-8b")) // 5),
    ],
)  # fmt: skip
def test_a_run_of_something_else_does_not(other):
    assert seconds("llama3-8b", UNTRIED._replace(runs=(other,))) == seconds("llama3-8b", UNTRIED)


def test_the_nearest_run_counts_and_its_median():
    size = weights_bytes(spec("llama3-8b"))
    runs = (
        run(weights_bytes=size // 2, decode_factors=(9.0,)),
        run(decode_factors=(1.0, 2.0, 50.0)),
        run(weights_bytes=2 * size, decode_factors=(7.0,)),
    )
    assert seconds("llama3-8b", UNTRIED._replace(runs=runs)) == pytest.approx(2 * seconds("llama3-8b", UNTRIED))


def test_where_the_cpu_was_tried_a_run_speaks_for_its_own_model():
    """The types are known; what is left is the model's own."""
    llama = spec("llama3-8b")
    own = run(model=llama.name, weights_bytes=weights_bytes(llama))
    assert seconds("llama3-8b", MEASURED._replace(runs=(run(),))) == seconds("llama3-8b", MEASURED)
    assert seconds("llama3-8b", MEASURED._replace(runs=(run(), own))) == pytest.approx(
        1.5 * seconds("llama3-8b", MEASURED)
    )


def test_a_run_on_the_build_of_the_trials_comes_first():
    llama = spec("llama3-8b")
    built = MEASURED._replace(cpu=CPU_TIMES._replace(build=11434))
    own = run(model=llama.name, weights_bytes=weights_bytes(llama))
    runs = (own._replace(build=11000, decode_factors=(3.0,)), own._replace(build=11434, decode_factors=(2.0,)))
    assert seconds("llama3-8b", built._replace(runs=runs)) == pytest.approx(2 * seconds("llama3-8b", built))


def test_another_quantization_of_a_searched_model_gets_its_own_factor():
    """Evaluator.of hands the machine's constants on, not those of the model it came from."""
    first = model("llama3-8b", UNTRIED._replace(runs=(run(),)))
    other = SpeedModel(spec("small-llama"), CPU_ONLY, {}, first.machine)
    assert other.constants.host.decode_factor == 1.0
    assert first.constants.host.decode_factor == 1.5
