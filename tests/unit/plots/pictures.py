"""Pages of several models and machines, as `advisor plot` makes them."""

from __future__ import annotations

import functools

from advisor.host import HostSnapshot
from advisor.plots.page import Page, section
from advisor.plots.scene import Scene
from advisor.recommend.cards import recommend_on
from advisor.recommend.curves import MemoryCurves, SpeedCurves, memory_curves, speed_curves
from advisor.recommend.search import Search, Wishes
from advisor.settings import RequestedSettings
from tests.tools.machines import GIB, evaluator, machine, policy

BUSY = machine(12, ram_gib=32)
BUSY = BUSY._replace(devices=(BUSY.devices[0]._replace(free_bytes=7 * GIB),))
CASES: dict[str, tuple[str, HostSnapshot]] = {
    "whole": ("llama3-8b", machine(12, ram_gib=32)),
    "roomy": ("llama3-8b", machine(80, ram_gib=32)),
    "busy": ("llama3-8b", BUSY),
    "window": ("gemma3-12b", machine(12, ram_gib=32)),
    "part": ("llama33-70b-q4_k_m", machine(24, ram_gib=64)),
    "experts": ("qwen3moe-30b", machine(12, ram_gib=64)),
    "two": ("qwen3moe-30b", machine(12, 12, ram_gib=64)),
    "nothing": ("llama33-70b-q4_k_m", machine(4, ram_gib=16)),
    "cpu": ("qwen3-8b", machine(ram_gib=16)),
    "state": ("mamba-2.8b", machine(12, ram_gib=32)),
    "embeds": ("bert-large", machine(12, ram_gib=32)),
}


@functools.cache
def curves(case: str) -> tuple[MemoryCurves, SpeedCurves | None, str]:
    model, host = CASES[case]
    intent, wishes = policy().intent("balanced"), Wishes(RequestedSettings())
    answer, used = recommend_on(host, lambda each: evaluator(model, each), policy(), intent, wishes)
    search = Search(evaluator(model, used), policy(), intent, wishes)
    return memory_curves(search, answer.chosen), speed_curves(search, answer.chosen), answer.summary


@functools.cache
def page(*cases: str, title: str = "") -> Page:
    sections = []
    for case in cases:
        memory, speed, summary = curves(case)
        sections.append(section(f"machine {case}", summary, memory, speed))
    return Page(title or f"model of {', '.join(cases)}", tuple(sections), "Figures: made up for a test.")


def charts() -> list[tuple[str, Scene]]:
    return [
        (f"{case}-{index}", chart)
        for case in CASES
        for index, chart in enumerate(page(case).sections[0].charts)
    ]  # fmt: skip
