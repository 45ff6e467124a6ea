"""Several GPUs: an answer is never worse than the best set of cards, and says which were left out."""

from __future__ import annotations

import pytest

from advisor.host import with_devices
from advisor.recommend.cards import distinct, groups
from advisor.recommend.dealing import deal, fastest_first
from tests.tools.machines import advise, machine, spec


@pytest.mark.parametrize("small_gib", [0, 0.1, 0.5, 1, 2, 4])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("model", ["llama3-8b", "gemma3-12b"])
def test_a_second_card_never_makes_it_worse(model, first, small_gib):
    alone = advise(model, machine(12))
    both = advise(model, machine(small_gib, 12) if first else machine(12, small_gib))
    assert both.verdict == alone.verdict == "full"
    assert both.chosen.plan.settings.n_ctx >= alone.chosen.plan.settings.n_ctx
    rate = alone.speed.decode_tokens_per_s.value
    assert both.speed.decode_tokens_per_s.value == pytest.approx(rate, rel=0.01)


@pytest.mark.parametrize("fast_first", [True, False])
def test_a_small_fast_card_and_a_large_slow_one_work_together(fast_first):
    # the fast one alone, a part of it on the CPU, beats the slow one alone; both together beat either
    fast, slow = machine(2, bandwidth=800 * 10**9), machine(6, bandwidth=60 * 10**9)
    cards = (fast.devices[0], slow.devices[0]) if fast_first else (slow.devices[0], fast.devices[0])
    both = fast._replace(devices=tuple(card._replace(id=f"CUDA{i}", name=f"card {i}") for i, card in enumerate(cards)))
    answer = advise("gpt2-xl", both)
    assert answer.verdict == "full"
    rates = [advise("gpt2-xl", alone).speed.decode_tokens_per_s.value for alone in (fast, slow)]
    assert answer.speed.decode_tokens_per_s.value > max(rates)


@pytest.mark.parametrize("gib", [(24, 12, 8), (24, 4), (16, 6, 2)])
@pytest.mark.parametrize("model", ["command-r", "hunyuan-a13b", "nemotron-h-9b"])
def test_no_fewer_cards_are_better_for_context(model, gib):
    whole = machine(*gib, ram_gib=128)
    answer = advise(model, whole, "context")
    for devices in [(device,) for device in distinct(whole.devices)] + groups(whole.devices):
        fewer = advise(model, with_devices(whole, devices), "context")
        assert answer.cost <= fewer.cost * 1.01, [device.id for device in devices]


def test_the_fastest_cards_are_filled_first():
    assert fastest_first([10] * 6, [45, 45], [2, 1]) == [35, 25]
    assert fastest_first([10] * 6, [45, 45], [1, 2]) == [25, 35]
    assert fastest_first([10] * 3, [30, 50, 90], [5, 5, 1]) == [10, 20, 0]  # equally fast: the same share
    assert fastest_first([10] * 10, [45, 45], [2, 1]) == [45, 45]


def test_a_card_left_out_is_named_with_the_reason():
    answer = advise("llama3-8b", machine(0.1, 12))
    (note,) = [note for note in answer.reasons if note.code == "cards_left_out"]
    assert "CUDA0" in note.text
    assert [device.id for device in answer.chosen.plan.devices] == ["CUDA1"]


def test_a_busy_card_leaves_the_cpu():
    answer = advise("llama3-8b", machine(0.1))
    assert answer.verdict == "cpu"
    assert answer.chosen.fits
    assert answer.chosen.plan.devices == ()
    assert any(note.code == "cards_left_out" and "nothing fits" in note.text for note in answer.reasons)


@pytest.mark.parametrize("wish", [{"tensor_split": (1.0, 1.0)}, {"split_mode": "none"}, {"main_gpu": 1}])
def test_what_names_devices_by_number_keeps_them_all(wish):
    answer = advise("llama3-8b", machine(12, 24), **wish)
    assert [device.id for device in answer.chosen.plan.devices] == ["CUDA0", "CUDA1"]


@pytest.mark.parametrize("sizes", [(24, 12), (12, 24)])
def test_experts_fill_every_card(sizes):
    answer = advise("qwen3next", machine(*sizes, ram_gib=64))
    assert answer.verdict == "partial"
    plan = answer.chosen.plan
    tensors = spec("qwen3next").tensors
    block = max(sum(tensor.n_bytes for tensor in tensors if tensor.block == il) for il in range(48))
    for device, limit in zip(plan.devices, answer.budget.devices, strict=True):
        assert limit.usable_bytes - device.planned_bytes < block, device.id


def test_layers_are_dealt_to_equal_shares():
    assert deal([10] * 10, [30, 70]) == [3, 7]
    assert deal([1] * 5 + [10] * 5, [27.5, 27.5]) == [7, 3]
    assert deal([10] * 3, [0, 5]) == [0, 3]
    assert deal([10] * 3, [0, 0]) == [0, 0]
    assert deal([0, 0], [1, 1]) == [0, 0]


def test_sets_of_cards():
    devices = machine(8, 8, 24, 12).devices
    assert [device.id for device in distinct(devices)] == ["CUDA2", "CUDA3", "CUDA0", "CUDA1"]
    assert [[device.id for device in group] for group in groups(devices)] == [
        ["CUDA2", "CUDA3"],
        ["CUDA0", "CUDA2", "CUDA3"],
    ]
    quick = tuple(
        device._replace(bandwidth_bytes_per_s=rate) for device, rate in zip(devices, (9, 1, 8, 2), strict=True)
    )
    assert [[device.id for device in group] for group in groups(quick)] == [
        ["CUDA2", "CUDA3"],
        ["CUDA0", "CUDA2"],  # the fastest two
        ["CUDA0", "CUDA2", "CUDA3"],
    ]
    twins = tuple(device._replace(name="card") for device in devices)
    assert [device.id for device in distinct(twins)] == ["CUDA2", "CUDA3", "CUDA0"]
    host = with_devices(machine(8, 24), machine(8, 24).devices[1:])
    assert ([d.id for d in host.devices], [d.id for d in host.idle_devices]) == (["CUDA1"], ["CUDA0"])


@pytest.mark.parametrize("sizes", [(12,), (24, 12)])
def test_the_table_and_what_did_not_fit_say_the_same(sizes):
    answer = advise("qwen3next", machine(*sizes, ram_gib=64))
    settings = answer.chosen.plan.settings
    row = next(row for row in answer.contexts.rows if row.cache_type == settings.cache_type_k)
    assert all(point.fits for point in row.points if point.n_ctx <= settings.n_ctx)
    (longer,) = [failed for failed in answer.rejected if failed.code == "longer_context"]
    point = next(point for point in row.points if point.n_ctx == longer.judged.plan.settings.n_ctx)
    assert point.need_bytes - point.usable_bytes == longer.over_bytes
