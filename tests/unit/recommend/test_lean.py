"""Cards of different speeds: the faster ones are as full as they get, and a context that costs speed is not taken."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.host import Cpu, Device, HostSnapshot, Ram
from advisor.recommend.cards import recommend_on
from advisor.recommend.dealing import layer_counts, overfull
from advisor.recommend.search import Search, Wishes
from advisor.settings import RequestedSettings, TensorOverride
from tests.tools.choice_cases import ask, draw, exactly
from tests.tools.machines import GIB, evaluator, policy

GB = 10**9
CARDS = {"4080": (16, 717, 195.0), "4060": (8, 272, 60.0), "3060": (12, 360, 51.0), "3090": (24, 936, 142.0),
         "5090": (32, 1792, 419.0)}  # fmt: skip
ASKED = [
    ("qwen35-27b", "4080+4060", "balanced", {}),
    ("qwen35-27b", "4080+4060", "speed", {}),
    ("qwen35-27b", "3060+4080", "balanced", {"n_ctx": 65536}),
    ("mistral-small-24b", "4080+3060", "balanced", {}),
    ("gpt-oss-20b", "4080+3060", "speed", {}),
    ("mixtral", "3090+3060", "balanced", {}),
    ("llama33-70b-q4_k_m", "5090+3090", "balanced", {}),
]


def host(names: str) -> HostSnapshot:
    return host_of([CARDS[name] for name in names.split("+")])


def host_of(cards: Iterable[tuple[int, int, float]], ram_gib: int = 64) -> HostSnapshot:
    devices = tuple(
        Device(
            f"CUDA{index}", "cuda", f"card {index}", gib * GIB, gib * GIB, bandwidth_bytes_per_s=rate * GB,
            f16_tflops=tflops, link_bytes_per_s=16 * GB, compute_capability="8.9",
        )
        for index, (gib, rate, tflops) in enumerate(cards)
    )  # fmt: skip
    ram = Ram(ram_gib * GIB, ram_gib * GIB, bandwidth_bytes_per_s=70 * GB)
    return HostSnapshot(devices, ram, Cpu("t", 8, 16, ("avx2",)))


@pytest.mark.parametrize(("model", "cards", "wish", "pinned"), ASKED)
def test_no_other_way_to_deal_every_layer_is_cheaper(model, cards, wish, pinned):
    """Every split of all layers x contexts in steps of a quarter x cache types; what is cheaper does not fit."""
    intent, wishes, machine = policy().intent(wish), Wishes(RequestedSettings(**pinned)), host(cards)
    answer, used = recommend_on(machine, lambda some: evaluator(model, some), policy(), intent, wishes)
    ours = Search(evaluator(model, used), policy(), intent, wishes).cost(answer.chosen)
    whole = Search(evaluator(model, machine), policy(), intent, wishes)
    n_layers = whole.spec.n_layer_all + 1
    contexts = [pinned["n_ctx"]] if pinned else []
    n_ctx = float(whole.floor)
    while not pinned and n_ctx < whole.ceiling:
        contexts.append(int(n_ctx) // 256 * 256)
        n_ctx *= 1.25
    for cache in whole.intent.cache_types:
        for asked in contexts:
            for first in range(n_layers + 1):
                request = whole.base._replace(
                    n_ctx=asked, n_gpu_layers=n_layers, cache_type_k=cache, cache_type_v=cache,
                    tensor_split=(float(first), float(n_layers - first)),
                )  # fmt: skip
                if whole.may_fit(request) and whole.cost(whole.evaluator.least(request)) < 0.99 * ours:
                    judged = exactly(whole, request)
                    assert not judged.fits or whole.cost(judged) >= 0.99 * ours


def test_another_cache_may_leave_room_for_a_tensor_of_experts():
    """Found by hand: one tensor on the CPU instead of two, with q8_0 and a layer more on the large card."""
    cards = {"5090": (32, 1792, 419.0), "A100": (80, 1935, 312.0), "4060": (8, 272, 60.0)}
    machine = host_of(cards.values(), ram_gib=32)
    intent = policy().intent("balanced")
    answer, used = recommend_on(
        machine, lambda some: evaluator("gpt-oss-120b", some), policy(), intent, Wishes(RequestedSettings())
    )
    search = Search(evaluator("gpt-oss-120b", used), policy(), intent, Wishes(RequestedSettings()))
    by_hand = exactly(search, search.base._replace(
        n_ctx=40960, n_gpu_layers=37, tensor_split=(9.0, 25.0, 3.0), cache_type_k="q8_0", cache_type_v="q8_0",
        tensor_overrides=(TensorOverride("blk.9.ffn_down_exps", "CPU"),),
    ))  # fmt: skip
    assert by_hand.fits
    assert search.cost(answer.chosen) <= search.cost(by_hand)


def test_a_part_less_on_the_gpu_may_hold_all_of_the_context():
    """Experts of 21 whole blocks on the CPU instead of 20 and a tensor: 262,144 tokens fit, and context is the wish."""
    case = next(case for case in draw(500, 61) if case.text == "qwen35moe-35b 16/64 context")
    answer = ask(case)
    by_hand = exactly(answer.search, answer.search.base._replace(
        n_ctx=262144, n_gpu_layers=41, n_cpu_moe=21, cache_type_k="q8_0", cache_type_v="q8_0", n_ubatch=2048
    ))  # fmt: skip
    assert by_hand.fits
    assert answer.cost <= answer.search.cost(by_hand)


@given(
    st.lists(st.integers(100, 5000), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(0, 60000), st.sampled_from([1.0, 2.0, 5.0])), min_size=2, max_size=4),
)
def test_faster_cards_are_full(layers, cards):
    """Where what was dealt fits, no layer of a slower card would fit on a faster one as well."""
    room, speeds = [card[0] for card in cards], [card[1] for card in cards]
    counts = layer_counts(layers, room, speeds)
    if overfull(layers, counts, room) or not sum(counts):
        return
    for slow in range(len(cards)):
        for fast in range(len(cards)):
            if speeds[fast] > speeds[slow] and counts[slow]:
                moved = list(counts)
                moved[slow] -= 1
                moved[fast] += 1
                assert overfull(layers, moved, room)


def test_a_layer_finds_room_after_others_moved():
    """The second card, the fastest, takes the last layer only when its neighbour has taken the larger one before it."""
    assert layer_counts([100] * 6 + [101, 101, 100], [802, 100, 201], [2.0, 5.0, 1.0]) == [8, 1, 0]


def test_a_large_output_does_not_keep_a_fast_card_empty():
    """The output at the end is as large as four blocks; the blocks still find room for themselves."""
    layers = [100] * 20 + [400]
    assert layer_counts(layers, [1550, 2000], [2.0, 1.0]) == [15, 6]
    assert list(accumulate(layers))[14] <= 1550
