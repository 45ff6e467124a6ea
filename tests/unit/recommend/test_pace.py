"""For context an answer keeps the intent's pace wherever that can be had, and no context and cache asked for is better.

Both are asked of the same tool: whoever pins one of a grid of contexts and a cache gets what is best with these.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.host import HostSnapshot
from advisor.recommend.search import Ranked, Search, Wishes
from advisor.settings import RequestedSettings
from tests.tools.machines import advise, evaluator, machine, policy

GB = 10**9
CARDS = {"3060": (12, 360, 51.0), "4060": (8, 272, 60.0), "3090": (24, 936, 71.0), "2060": (6, 336, 52.0)}
FOUND = [  # what a stranger found dearer than what a pin gave, and what system memory ended too soon
    ("llama33-70b-q4_k_m", "3060+4060", 32),
    ("llama33-70b-q4_k_m", "4060+3060", 64),
    ("llama33-70b-q4_k_m", "3090", 24),
    ("llama33-70b-q4_k_m", "3090", 32),
    ("llama33-70b-q4_k_m", "4060+3090", 24),
    ("llama33-70b-q4_k_m", "3060", 48),
    ("command-r", "3060", 48),
    ("command-r", "3060+4060", 32),
]


def host(names: str, ram_gib: int) -> HostSnapshot:
    cards = [CARDS[name] for name in names.split("+")]
    plain = machine(*(card[0] for card in cards), ram_gib=ram_gib)
    devices = zip(plain.devices, cards, strict=True)
    return plain._replace(
        devices=tuple(
            d._replace(bandwidth_bytes_per_s=rate * GB, f16_tflops=tflops) for d, (_, rate, tflops) in devices
        )
    )


def best(model: str, on: HostSnapshot, **pinned: object) -> tuple[Search, Ranked | None]:
    search = Search(
        evaluator(model, on), policy(), policy().intent("context"), Wishes(RequestedSettings(**pinned))  # type: ignore[arg-type]
    )  # fmt: skip
    pool = search.run().pool
    return search, pool[0] if pool else None


def dearer(model: str, on: HostSnapshot) -> list[str]:
    """What of the grid is cheaper by more than 1 %."""
    search, chosen = best(model, on)
    found = []
    for name in ("f16", "q8_0"):
        n_ctx = search.floor
        while n_ctx <= search.ceiling:
            _, other = best(model, on, n_ctx=n_ctx, cache_type_k=name, cache_type_v=name)
            if other is not None and (chosen is None or chosen.cost > 1.01 * other.cost):
                found.append(f"{n_ctx} {name}: {other.cost:.0f} < {chosen.cost if chosen else 0:.0f}")
            n_ctx = int(n_ctx * 1.25) // 256 * 256
    return found


@pytest.mark.parametrize(("model", "cards", "ram_gib"), FOUND)
def test_no_context_with_a_cache_asked_for_is_better(model, cards, ram_gib):
    assert dearer(model, host(cards, ram_gib)) == []


@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    model=st.sampled_from(["llama33-70b-q4_k_m", "qwen35-27b", "mixtral", "mistral-small-24b"]),
    cards=st.lists(st.sampled_from(sorted(CARDS)), min_size=1, max_size=2).map("+".join),
    ram_gib=st.integers(20, 96),
)
def test_no_drawn_context_with_a_cache_is_better(model, cards, ram_gib):
    assert dearer(model, host(cards, ram_gib)) == []


def test_the_pace_of_the_intent_is_kept():
    """At 28,160 tokens and 0.88 a second a context three times as long is no use: 8,192 are answered from at 1.0."""
    answer = advise("llama33-70b-q4_k_m", host("3060+4060", 32), "context")
    assert answer.speed.decode_tokens_per_s.value >= policy().intent("context").least_tokens_per_s
    assert not [note for note in answer.warnings if note.code == "below_pace"]


def test_a_pace_that_cannot_be_had_is_said():
    answer = advise("llama33-70b-q4_k_m", host("3060", 48), "context")
    assert answer.speed.decode_tokens_per_s.value < 1.0
    (note,) = [note for note in answer.warnings if note.code == "below_pace"]
    assert "1 token/s" in note.text
    assert f"{answer.speed.decode_tokens_per_s.value:.2f}" in note.text
    assert not [note for note in answer.warnings if note.code == "below_min_tps"]
