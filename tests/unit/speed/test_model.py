"""Seconds a token from first principles: bytes over rates, steps, hops, disks, links."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from advisor.host import HostSnapshot, Ram, Storage
from advisor.memory.types import MemoryPlan
from advisor.recommend.evaluate import Evaluator
from advisor.settings import RequestedSettings
from advisor.speed import SpeedModel, Turn, constants_of
from tests.tools.cells import spec
from tests.tools.machines import GIB, evaluator, machine, speed_rules

CARD = machine(24, ram_gib=64, bandwidth=10**12)
PLENTY = 1 << 50


@functools.cache
def judges(model: str, host: HostSnapshot = CARD) -> Evaluator:
    return evaluator(model, host)


def plan(model: str, host: HostSnapshot = CARD, **settings: Any) -> MemoryPlan:
    defaults: dict[str, Any] = {"n_ctx": 8192, "n_gpu_layers": 999, "n_parallel": 1, "kv_unified": False}
    return judges(model, host).judge(RequestedSettings(**{**defaults, **settings})).plan


def model_of(name: str, host: HostSnapshot = CARD) -> SpeedModel:
    return SpeedModel(spec(name), host, speed_rules())


def seconds(name: str, planned: MemoryPlan, depth: int = 0, host: HostSnapshot = CARD, ram: int = PLENTY) -> float:
    return model_of(name, host).decode(planned, depth, ram).seconds


def test_a_dense_model_on_one_card() -> None:
    planned = plan("llama3-8b")
    constants = constants_of(CARD, speed_rules()).devices[0]
    weights = sum(t.n_bytes for t in spec("llama3-8b").tensors if t.name != "token_embd.weight")
    cache = 32 * 4000 * 2 * 8 * 128 * 2
    wanted = weights / constants.read_bytes_per_s + cache / constants.cache_bytes_per_s + 32 * constants.step_seconds
    assert seconds("llama3-8b", planned, 4000) == pytest.approx(wanted, rel=1e-3)


def test_without_flash_attention_the_cache_is_read_at_a_quarter() -> None:
    on, off = plan("llama3-8b", flash_attn="on"), plan("llama3-8b", flash_attn="off")
    deeper = [seconds("llama3-8b", planned, 8000) - seconds("llama3-8b", planned) for planned in (on, off)]
    assert deeper[1] == pytest.approx(4 * deeper[0], rel=1e-6)


def test_a_window_stops_growing() -> None:
    """40 of the 48 blocks of Gemma 3 12B see 1,024 tokens."""
    planned = plan("gemma3-12b", n_ctx=65536)
    near, far, farther = (seconds("gemma3-12b", planned, depth) for depth in (1024, 17408, 33792))
    rate = constants_of(CARD, speed_rules()).devices[0].cache_bytes_per_s
    assert far - near == pytest.approx(8 * 16384 * 2 * 8 * 256 * 2 / rate, rel=1e-6)
    assert farther - far == pytest.approx(far - near, rel=1e-6)


def test_of_experts_only_the_used_ones_are_read() -> None:
    """Qwen3 30B-A3B: 8 of 128 experts a token, 3.3 of 30.5 billion parameters."""
    planned = plan("qwen3moe-30b")
    active = sum(planned.read_device_bytes) / planned.devices[0].weights_bytes
    assert 0.09 < active < 0.14
    steps = constants_of(CARD, speed_rules()).devices[0]
    wanted = sum(planned.read_device_bytes) / steps.read_bytes_per_s
    wanted += 48 * (1 + steps.extra_steps) * steps.step_seconds
    assert seconds("qwen3moe-30b", planned) == pytest.approx(wanted, rel=1e-3)


def test_layers_on_the_cpu_run_at_the_speed_of_ram() -> None:
    whole, part = plan("llama3-8b"), plan("llama3-8b", n_gpu_layers=17)
    constants = constants_of(CARD, speed_rules())
    slower = seconds("llama3-8b", part) - seconds("llama3-8b", whole)
    moved = part.read_host_bytes
    wanted = moved / constants.host.read_bytes_per_s - moved / constants.devices[0].read_bytes_per_s
    wanted += constants.hop_seconds - 16 * constants.devices[0].step_seconds
    assert slower == pytest.approx(wanted, rel=1e-3)
    assert model_of("llama3-8b").decode(part, 0, PLENTY).bound_by == "ram bandwidth"


def test_two_cards_work_one_after_the_other() -> None:
    pair = machine(24, 24, ram_gib=64, bandwidth=10**12)
    alone = seconds("llama3-8b", plan("llama3-8b"))
    both = seconds("llama3-8b", plan("llama3-8b", pair), host=pair)
    assert both == pytest.approx(alone + constants_of(pair, speed_rules()).hop_seconds, rel=1e-3)


def test_experts_on_the_cpu_cost_two_hops_a_block() -> None:
    planned = plan("qwen3moe-30b", n_cpu_moe=48)
    constants = constants_of(CARD, speed_rules())
    on_host = planned.read_host_bytes / constants.host.read_bytes_per_s
    on_card = sum(planned.read_device_bytes) / constants.devices[0].read_bytes_per_s
    steps = 48 * (1 + constants.devices[0].extra_steps) * constants.devices[0].step_seconds
    rest = seconds("qwen3moe-30b", planned) - on_host - on_card - steps
    assert rest / 48 == pytest.approx(2 * constants.hop_seconds, rel=1e-6)
    assert 150e-6 <= rest / 48 <= 300e-6  # as measured


def test_a_cache_in_system_memory_is_read_there() -> None:
    planned = plan("llama3-8b", kv_offload=False)
    deeper = seconds("llama3-8b", planned, 8000) - seconds("llama3-8b", planned)
    rate = constants_of(CARD, speed_rules()).host.read_bytes_per_s
    assert deeper == pytest.approx(32 * 8000 * 2 * 8 * 128 * 2 / rate, rel=1e-3)


def test_a_dense_model_beyond_ram_reads_all_of_its_cpu_part_from_disk() -> None:
    """42 GB at 3 GB/s is 14 s a token, however little is missing."""
    host = machine(ram_gib=36)
    planned = plan("llama33-70b-q4_k_m", host, n_gpu_layers=0)
    kept = seconds("llama33-70b-q4_k_m", planned, host=host)
    for ram in (planned.host.weights_bytes - GIB, planned.host.weights_bytes // 2):
        decode = model_of("llama33-70b-q4_k_m", host).decode(planned, 0, ram)
        assert decode.seconds - kept == pytest.approx(42e9 / 3e9, rel=0.02)
        assert (decode.bound_by, decode.confidence) == ("disk", "low")


def test_of_experts_only_cold_ones_come_from_disk() -> None:
    host = machine(ram_gib=64)
    planned = plan("qwen3moe-30b", host, n_gpu_layers=0)
    kept = seconds("qwen3moe-30b", planned, host=host)
    weights = planned.host.weights_bytes
    tenth = seconds("qwen3moe-30b", planned, host=host, ram=planned.host.cache_bytes + weights * 9 // 10)
    half = seconds("qwen3moe-30b", planned, host=host, ram=planned.host.cache_bytes + weights // 2)
    rules = speed_rules()["disk"]
    cold = 0.1 * planned.read_host_bytes * rules["cold_expert_read_ahead"] / rules["assumed_read_bytes_per_s"]
    assert tenth - kept == pytest.approx(cold, rel=0.01)
    assert half - kept == pytest.approx(5 * cold, rel=0.01)
    assert half - kept < weights / rules["assumed_read_bytes_per_s"] / 5  # far from all of it


def test_the_disk_under_the_model_counts() -> None:
    nvme, hdd = Storage("/models", kind="nvme"), Storage("/models/old", kind="hdd")
    measured = Storage("/fast", kind="nvme", read_bytes_per_s=6 * 10**9)
    host = machine(ram_gib=16)._replace(storage=(nvme, hdd, measured))
    rates = [
        constants_of(host, speed_rules(), path).host.disk_bytes_per_s
        for path in ("/models/a.gguf", "/models/old/a.gguf", "/fast/b.gguf")
    ]
    assert rates == [3e9, 150e6, 6e9]


def test_prompts_read_host_weights_once_a_batch_over_the_link() -> None:
    """The bigger micro-batch is the lever: t = bytes on the CPU / link per batch."""
    model, turn = model_of("llama33-70b-q4_k_m"), Turn(8192, 0, 0)
    token = {}
    for n_ubatch in (512, 1024, 2048):
        planned = plan("llama33-70b-q4_k_m", n_gpu_layers=20, n_ubatch=n_ubatch, n_ctx=16384)
        token[n_ubatch] = 1 / model.predict(planned, turn, PLENTY).prefill_tokens_per_s.value
    copied = planned.read_host_bytes + 61 * 4096 * 2 * 8 * 128 * 2  # and the cache of 61 blocks, half full
    link = constants_of(CARD, speed_rules()).devices[0].link_bytes_per_s
    assert token[512] - token[1024] == pytest.approx(copied / link / 1024, rel=0.01)
    assert token[1024] - token[2048] == pytest.approx(copied / link / 2048, rel=0.01)
    assert token[512] > 1.4 * token[2048]


def test_few_tokens_are_read_on_the_cpu_where_the_weights_lie() -> None:
    """The engine copies host weights to the GPU for batches of 32 tokens and more (ggml offload_op)."""
    model, planned = model_of("llama33-70b-q4_k_m"), plan("llama33-70b-q4_k_m", n_gpu_layers=20)
    never = plan("llama33-70b-q4_k_m", n_gpu_layers=20, op_offload=False)
    rate = [
        model.predict(p, Turn(tokens, 0, 0), PLENTY).prefill_tokens_per_s.value
        for p, tokens in ((planned, 31), (planned, 512), (never, 512))
    ]
    assert rate[0] == pytest.approx(rate[2], rel=0.02)
    assert rate[1] > 1.5 * rate[2]


def test_experts_get_few_tokens_of_a_batch_each() -> None:
    """At depth 0 a mixture of experts reads prompts at 0.2 to 0.6 of what its active parameters would allow."""
    moe = model_of("qwen3moe-30b").predict(plan("qwen3moe-30b"), Turn(512, 0, 0), PLENTY).prefill_tokens_per_s.value
    dense = model_of("llama32-3b").predict(plan("llama32-3b"), Turn(512, 0, 0), PLENTY).prefill_tokens_per_s.value
    assert 0.2 < moe / dense < 0.6


def test_bf16_experts_on_vulkan_take_the_matrix_kernel() -> None:
    vulkan = machine(96, ram_gib=64, bandwidth=256 * 10**9, backend="vulkan")
    tensors = tuple(t._replace(ggml_type=30) if "exps." in t.name else t for t in spec("qwen3moe-30b").tensors)
    as_bf16 = spec("qwen3moe-30b")._replace(tensors=tensors)
    planned = plan("qwen3moe-30b", vulkan)
    plain = seconds("qwen3moe-30b", planned, host=vulkan)
    slow = SpeedModel(as_bf16, vulkan, speed_rules()).decode(planned, 0, PLENTY).seconds
    assert slow - plain == pytest.approx(3 * 48 * speed_rules()["classes"]["vulkan"]["slow_expert_seconds"], rel=1e-6)
    rocm = machine(96, ram_gib=64, bandwidth=256 * 10**9, backend="rocm")
    planned = plan("qwen3moe-30b", rocm)
    same = SpeedModel(as_bf16, rocm, speed_rules()).decode(planned, 0, PLENTY).seconds
    assert same == pytest.approx(seconds("qwen3moe-30b", planned, host=rocm), rel=1e-9)


def test_stacked_memory_is_not_used_up_by_one_token() -> None:
    device = CARD.devices[0]
    a100 = CARD._replace(devices=(device._replace(compute_capability="8.0"),))
    factor = speed_rules()["stacked_memory"]["efficiency_factor"]
    plain, stacked = (constants_of(host, speed_rules()).devices[0].read_bytes_per_s for host in (CARD, a100))
    assert stacked == pytest.approx(factor * plain)


def test_measured_constants_replace_the_rules() -> None:
    planned = plan("llama3-8b", n_gpu_layers=17)
    known = constants_of(CARD, speed_rules())
    device = known.devices[0]._replace(decode_factor=2.0, confidence="calibrated")
    host = known.host._replace(read_bytes_per_s=60e9, confidence="calibrated")
    model = SpeedModel(spec("llama3-8b"), CARD, {}, known._replace(devices=(device,), host=host))
    decode = model.decode(planned, 0, PLENTY)
    assert decode.confidence == "calibrated"
    on_card = sum(planned.read_device_bytes) / device.read_bytes_per_s + 16 * device.step_seconds
    wanted = 2 * on_card + planned.read_host_bytes / 60e9 + known.hop_seconds
    assert decode.seconds == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize(("ram", "confidence"), [(None, "low"), (50 * 10**9, "formula")])
def test_confidence_is_low_where_the_memory_is_not_known(ram: int | None, confidence: str) -> None:
    host = CARD._replace(ram=Ram(64 * GIB, 64 * GIB, bandwidth_bytes_per_s=ram))
    planned = plan("llama3-8b", host, n_gpu_layers=17)
    assert model_of("llama3-8b", host).decode(planned, 0, PLENTY).confidence == confidence


def test_a_full_context_is_told_beside_the_everyday_one() -> None:
    judged = judges("llama3-8b").judge(RequestedSettings(n_ctx=32768, n_gpu_layers=999, n_parallel=1))
    model = model_of("llama3-8b")
    everyday = model.predict(judged.plan, Turn(1000, 4000, 400), PLENTY)
    full = model.when_full(judged.plan, everyday, PLENTY)
    assert full.full_depth == judged.plan.settings.n_ctx_seq
    assert full.when_full is not None
    assert full.when_full.value == pytest.approx(1 / model.decode(judged.plan, 32768, PLENTY).seconds)
    assert full.when_full.low < full.when_full.value < everyday.decode_tokens_per_s.value
