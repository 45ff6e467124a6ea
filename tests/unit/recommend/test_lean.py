"""Cards of different speeds: the faster ones are as full as they get, and a context that costs speed is not taken."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.host import Cpu, Device, HostSnapshot, Ram
from advisor.recommend.cards import recommend_on
from advisor.recommend.dealing import layer_counts, overfull
from advisor.recommend.search import Search, Wishes
from advisor.settings import RequestedSettings
from tests.tools.choice_cases import exactly
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
    devices = tuple(
        Device(
            f"CUDA{index}", "cuda", name, CARDS[name][0] * GIB, CARDS[name][0] * GIB,
            bandwidth_bytes_per_s=CARDS[name][1] * GB, f16_tflops=CARDS[name][2], link_bytes_per_s=16 * GB,
            compute_capability="8.9",
        )
        for index, name in enumerate(names.split("+"))
    )  # fmt: skip
    return HostSnapshot(devices, Ram(64 * GIB, 64 * GIB, bandwidth_bytes_per_s=70 * GB), Cpu("t", 8, 16, ("avx2",)))


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
