"""Beyond memory: what spills over the link, and streaming by layers."""

from __future__ import annotations

import pytest

from advisor.settings import RequestedSettings
from advisor.speed import constants_of
from advisor.speed.beyond import spilled_seconds, streaming_seconds
from tests.tools.cells import spec
from tests.tools.machines import GIB, evaluator, machine, speed_rules


def test_70b_streamed_by_layers_takes_47_seconds_a_token() -> None:
    """140 GB in 16 bit at the 3 GB/s of a disk, whatever the card's link does."""
    constants = constants_of(machine(4, ram_gib=16), speed_rules())
    assert streaming_seconds(spec("llama33-70b-q4_k_m").parameters, constants) == pytest.approx(47, rel=0.02)
    slow = constants._replace(devices=(constants.devices[0]._replace(link_bytes_per_s=1e9),))
    assert streaming_seconds(spec("llama33-70b-q4_k_m").parameters, slow) == pytest.approx(141, rel=0.01)


def test_spilled_weights_come_over_the_link() -> None:
    host = machine(8, ram_gib=32)
    plan = evaluator("llama3-8b", host).judge(RequestedSettings(n_ctx=4096, n_gpu_layers=999, n_parallel=1)).plan
    constants = constants_of(host, speed_rules())
    rate = constants.devices[0].spill_bytes_per_s
    assert rate == pytest.approx(0.15 * 16e9)
    assert spilled_seconds(plan, (0,), constants) == 0
    assert spilled_seconds(plan, (GIB,), constants) == pytest.approx(GIB / rate, rel=0.01)


def test_of_spilled_experts_only_the_used_share_is_read() -> None:
    host = machine(24, ram_gib=32)
    plan = evaluator("qwen3moe-30b", host).judge(RequestedSettings(n_ctx=4096, n_gpu_layers=999, n_parallel=1)).plan
    constants = constants_of(host, speed_rules())
    share = plan.read_device_bytes[0] / plan.devices[0].weights_bytes
    assert spilled_seconds(plan, (GIB,), constants) == pytest.approx(
        share * GIB / constants.devices[0].spill_bytes_per_s
    )
