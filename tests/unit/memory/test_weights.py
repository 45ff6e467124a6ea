"""Weights of any placement are what its tensors are one by one."""

from __future__ import annotations

import random
import re

import pytest

from advisor.host import Device
from advisor.memory.parcels import tensor_device_bytes
from advisor.memory.placement import EXPERTS, HOST, place_layers
from advisor.memory.plan import plan_memory
from advisor.memory.resolve import resolve_settings
from advisor.memory.types import MemoryPlan
from advisor.settings import RequestedSettings, TensorOverride
from tests.tools.cells import engine, spec

GIB = 1 << 30
MODELS = ("qwen3moe-30b", "llama4-scout", "ds3", "gpt-oss-120b", "llama3-8b", "gemma3-4b", "qwen35moe-35b-mtp")
DEVICES = [Device(f"CUDA{i}", "cuda", f"CUDA{i}", size * GIB, size * GIB) for i, size in enumerate((24, 12, 8))]


def one_by_one(model: str, asked: RequestedSettings) -> tuple[list[int], int, int, int]:
    """(bytes per device, on the host, the span mapped there, blocks on GPUs with experts on the host)."""
    told, rules = spec(model), engine()
    settings = resolve_settings(asked, told, rules, tool="server", n_devices=3)
    placement = place_layers(settings, told.n_layer_all, [device.free_bytes for device in DEVICES])
    devices, host = [0, 0, 0], 0
    spans: dict[int, list[int]] = {}
    away: set[int] = set()
    for tensor in told.tensors:
        if tensor.place == "skipped":
            continue
        home = {"first": placement[0], "output": placement[-1], "input": HOST}.get(tensor.place, HOST)
        if tensor.place == "block":
            home = placement[tensor.block]
        homes = set(placement[:-1]) if tensor.place == "rope" else {home}
        expert = told.n_expert > 0 and re.search(EXPERTS, tensor.name) is not None
        rule = next((o for o in asked.tensor_overrides if re.search(o.pattern, tensor.name)), None)
        if rule is not None:
            homes = {HOST if rule.buffer == "CPU" else int(rule.buffer[-1])}
        elif expert and tensor.block < settings.n_cpu_moe:
            homes = {HOST}
        for home in homes:
            if home != HOST:
                ne0 = tensor.shape[0] if tensor.shape else 1
                devices[home] += tensor_device_bytes(tensor.n_bytes, tensor.ggml_type, ne0, rules.backends["cuda"])
                continue
            host += -(-tensor.n_bytes // rules.cpu_alignment_bytes) * rules.cpu_alignment_bytes
            span = spans.setdefault(tensor.shard, [])
            span += [tensor.offset, tensor.offset + tensor.n_bytes]
            if "exps." in tensor.name and placement[tensor.block] != HOST:
                away.add(tensor.block)
    mapped = sum(max(span) - min(span) for span in spans.values())
    return devices, host, mapped, len(away)


def drawn(model: str, chance: random.Random) -> RequestedSettings:
    """Layers, experts and single kinds of experts' tensors anywhere."""
    n_blocks = spec(model).n_layer_all
    overrides = []
    for _ in range(chance.choice((0, 0, 1, 2))):
        pattern = f"blk.{chance.randrange(n_blocks)}.{chance.choice(('ffn_up_exps', 'ffn_down_exps', 'ffn_down'))}"
        overrides.append(TensorOverride(pattern, chance.choice(("CPU", "CUDA2"))))
    if chance.random() < 0.1:
        overrides.append(TensorOverride("ffn_.*_exps", "CPU"))
    return RequestedSettings(
        n_ctx=4096, n_gpu_layers=chance.randrange(n_blocks + 2),
        n_cpu_moe=chance.choice((None, chance.randrange(n_blocks + 1))),
        tensor_overrides=tuple(overrides), tensor_split=(chance.random() + 0.1, chance.random(), chance.random()),
    )  # fmt: skip


def sums(plan: MemoryPlan) -> tuple[list[int], int, int, int]:
    """The same of a plan."""
    devices = [device.weights_bytes for device in plan.devices]
    return devices, plan.host.weights_bytes, plan.host.mapped_bytes, plan.host_expert_blocks


@pytest.mark.parametrize("model", MODELS)
def test_weights_are_the_sum_of_tensors(model: str) -> None:
    chance = random.Random(model)
    tied = spec(model).tied_output
    for _ in range(12):
        asked = drawn(model, chance)
        settings = resolve_settings(asked, spec(model), engine(), tool="server", n_devices=3)
        plan = plan_memory(spec(model), settings, engine(), DEVICES)
        devices, host, mapped, away = sums(plan)
        expected = one_by_one(model, asked)
        if tied:  # the copy of the table lies where the output does
            table = next(t for t in spec(model).tensors if t.name == "token_embd.weight")
            if plan.placement[-1] != HOST:
                devices[plan.placement[-1]] -= table.n_bytes
        assert (devices, host, mapped, away) == expected, asked
