"""Prints how far predicted compute buffers are from the measured ones, by kind of setting, and what a plan costs.

The cost is CPU time without garbage collection, as the command line runs. First of one setting's compute buffers, for a
model that is known already but nothing remembered of other settings; then of the plans of whole searches (weights,
cache, compute and speed, with what they share): recommendations for experts on three cards, and easy ones.
"""

from __future__ import annotations

import gc
import time
from collections import defaultdict
from typing import Any
from unittest import mock

from advisor.app import App
from advisor.memory.compute import ComputeModel
from advisor.memory.graph import compute_bytes
from advisor.memory.plan import Planner
from advisor.memory.types import MemoryPlan
from advisor.planner import Planner as Recommender
from advisor.recommend.search import Wishes
from advisor.settings import RequestedSettings
from tests.tools.cells import cells, graph_inputs, header, planned, setting_class

LIMIT_MS = 3
HARD_MS, EASY_MS = 150, 30
THREE_CARDS = ["RTX 3090", "RTX 3090", "RTX 3060"]
EASY = ("llama3-8b", "qwen3-8b", "gemma3-4b")
SEARCHED = ("qwen3moe-30b", "gpt-oss-120b", "llama4-scout", "qwen3next", "ds3")


def main() -> None:
    """One line per kind of setting and place."""
    rows: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for name in ("grid", "grid-cpu"):
        for cell in cells(name):
            if "error" in cell:
                continue
            found, kind = planned(cell), setting_class(cell)
            for index, device in enumerate(found.plan.devices):
                truth = found.measured(index)[2]
                if truth:
                    rows[kind, "GPU"].append((device.compute.value / truth - 1, device.compute.high / truth - 1))
            truth = found.measured_host()[2]
            if truth:
                host = found.plan.host.compute
                rows[kind, "host"].append((host.value / truth - 1, host.high / truth - 1))
    head = ("setting", "place", "cells", "<=1 %", "<=2 %", "<=5 %", "<=10 %", "median", "worst", "high below")
    print("{:28} {:5} {:>6} {:>6} {:>6} {:>6} {:>7} {:>7} {:>8} {:>10}".format(*head))
    for (kind, place), errors in sorted(rows.items()):
        sizes = sorted(abs(error) for error, _ in errors)
        shares = [f"{sum(size <= limit for size in sizes) / len(sizes):.1%}" for limit in (0.01, 0.02, 0.05, 0.10)]
        below = sum(high < 0 for _, high in errors) / len(errors)
        print(
            f"{kind:28} {place:5} {len(sizes):6} {shares[0]:>6} {shares[1]:>6} {shares[2]:>6} {shares[3]:>7} "
            f"{sizes[len(sizes) // 2]:7.2%} {sizes[-1]:8.0%} {below:10.1%}"
        )
    costs = sorted(estimates())
    within = sum(cost <= LIMIT_MS for cost in costs) / len(costs)
    print(
        f"{len(costs)} estimates, CPU each: mean {sum(costs) / len(costs):.1f} ms, "
        f"median {costs[len(costs) // 2]:.1f}, "
        f"95 % within {costs[int(0.95 * len(costs))]:.1f}, worst {costs[-1]:.0f}; {within:.0%} within {LIMIT_MS} ms"
    )
    for model in SEARCHED:
        print(searched(model, THREE_CARDS, HARD_MS))
    for model in EASY:
        print(searched(model, ["RTX 3060"], EASY_MS))


def estimates() -> list[float]:
    """CPU milliseconds of every accepted cell's compute buffers, the better of two runs."""
    graphs: dict[tuple[str, int], ComputeModel] = {}
    costs: list[float] = []
    gc.collect()
    gc.freeze()
    gc.disable()
    for cell in (*cells("grid"), *cells("grid-cpu")):
        if "error" in cell:
            continue
        inputs = graph_inputs(cell)
        model = graphs.setdefault((cell["model"], len(inputs.devices)), inputs.model)
        runs: list[float] = []
        for _ in range(2):
            model.graph.traces.clear()
            model.graph.flash.clear()
            start = time.process_time()
            compute_bytes(model.graph, inputs.settings, inputs.placement, inputs.devices, model.hyper)
            runs.append(1000 * (time.process_time() - start))
        costs.append(min(runs))
    gc.enable()
    return costs


def searched(model: str, gpus: list[str], limit_ms: int) -> str:
    """One line: plans and CPU of the recommendation, the best of three."""
    gc.collect()
    gc.disable()  # as the command line does
    found = min((_searched_once(model, gpus, limit_ms) for _ in range(3)), key=lambda found: found[0])[1]
    gc.enable()
    return found


def _searched_once(model: str, gpus: list[str], limit_ms: int) -> tuple[float, str]:
    plans = 0
    plan = Planner.plan

    def counted(self: Planner, *given: Any, **named: Any) -> MemoryPlan:
        nonlocal plans
        plans += 1
        return plan(self, *given, **named)

    app = App()
    host = app.host(gpus=gpus, ram=256 << 30)
    described = app.model(header(model))
    with mock.patch.object(Planner, "plan", counted):
        start = time.process_time()
        recommender = Recommender(app, host, app.engine(None))
        recommender.recommend(described, recommender.intent("balanced"), Wishes(RequestedSettings()))
        spent = 1000 * (time.process_time() - start)
    line = f"{plans:4} plans, {spent:5.0f} ms CPU (limit {limit_ms}), {spent / plans:.2f} ms each"
    return spent, f"search {model:14} {len(gpus)} GPUs {line}"


if __name__ == "__main__":
    main()
