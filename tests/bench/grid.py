"""Prints how far predicted compute buffers are from the measured ones, by kind of setting."""

from __future__ import annotations

import time
from collections import defaultdict

from tests.tools.cells import cells, planned, setting_class


def main() -> None:
    """One line per kind of setting and place."""
    rows: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for name in ("grid", "grid-cpu"):
        for cell in cells(name):
            planned(cell)  # describe every model once, outside the timing
            break
    start, count = time.process_time(), 0
    for name in ("grid", "grid-cpu"):
        for cell in cells(name):
            if "error" in cell:
                continue
            found, kind = planned(cell), setting_class(cell)
            count += 1
            for index, device in enumerate(found.plan.devices):
                truth = found.measured(index)[2]
                if truth:
                    rows[kind, "GPU"].append((device.compute.value / truth - 1, device.compute.high / truth - 1))
            truth = found.measured_host()[2]
            if truth:
                host = found.plan.host.compute
                rows[kind, "host"].append((host.value / truth - 1, host.high / truth - 1))
    spent = (time.process_time() - start) / count * 1000
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
    print(f"{count} plans, {spent:.2f} ms CPU each, describing the models included")


if __name__ == "__main__":
    main()
