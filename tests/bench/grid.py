"""Prints how far predicted compute buffers are from the measured ones, by kind of setting, and what a plan costs.

The cost is CPU time without garbage collection, as the command line runs, of one setting's compute buffers: for a model
that is known already but nothing remembered of other settings. What whole searches cost is printed by
tests/bench/search.py.
"""

from __future__ import annotations

import gc
import time
from collections import defaultdict

from advisor.memory.compute import ComputeModel
from advisor.memory.graph import compute_bytes
from tests.tools.cells import cells, graph_inputs, planned, setting_class

LIMIT_MS = 3


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


if __name__ == "__main__":
    main()
