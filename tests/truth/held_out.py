"""`python -m tests.truth.held_out`: our prediction on settings and shapes that no rule was fitted to.

Measures settings far from the seeded grid (tests.truth.wide) on the zoo and on fresh shapes of published models
(tests.truth.shapes), and prints how far our plans are off, by architecture.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from tests.tools.cells import spec
from tests.truth import recorded
from tests.truth.measure import measured
from tests.truth.recorded import measured_sizes, planned_for, planned_sizes
from tests.truth.report import Difference, architecture_of, differences
from tests.truth.settings import drawn, zoo
from tests.truth.shapes import fresh
from tests.truth.sources import SourceError, probe
from tests.truth.wide import drawn_wide

COMPUTE = ("compute", "host compute")


class Tally(NamedTuple):
    """One architecture over its cells; shares are of the worst GPU, or of host memory, of a cell."""

    n_cells: int
    n_exact: int  # every component of every device to the byte
    within_1: float
    within_2: float
    within_5: float
    worst: Difference | None
    n_below: int  # compute_high below the truth on a device or on the host
    n_verdicts: int  # the engine refuses what we plan, or the other way round


def tally(cells: list[dict[str, Any]], build: int) -> Tally:
    """Our plans for the cells held against them."""
    shares: list[float] = []
    worst: Difference | None = None
    exact = below = verdicts = 0
    for cell in cells:
        ours = planned_for(cell, build)
        if (ours.plan.refused is not None) != ("error" in cell):
            verdicts += 1
            continue
        if "error" in cell:
            continue
        truth = measured_sizes(cell)
        found = list(differences(architecture_of(cell["model"]), truth, planned_sizes(ours)))
        top = max(found, key=lambda item: (abs(item.share), abs(item.bytes)))
        exact += all(item.bytes == 0 for item in found)
        shares.append(abs(top.share))
        if top.bytes and (worst is None or abs(top.share) > abs(worst.share)):
            worst = top
        highs = [device.compute.high for device in ours.plan.devices] + [ours.plan.host.compute.high]
        true = [sizes[2] for sizes in (*truth.devices, truth.host)]
        below += any(high < value for high, value in zip(highs, true, strict=True))
    within = [sum(share <= limit for share in shares) / max(len(shares), 1) for limit in (0.01, 0.02, 0.05)]
    return Tally(len(shares), exact, within[0], within[1], within[2], worst, below, verdicts)


def lines(cells: list[dict[str, Any]], build: int) -> list[str]:
    """A table by architecture, the sum first."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for cell in cells:
        groups[architecture_of(cell["model"])].append(cell)
    text = [
        "| architecture | shapes | cells | to the byte | 1 % | 2 % | 5 % | worst | high below | verdict differs |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, group in [("all", cells), *sorted(groups.items())]:
        t = tally(group, build)
        worst = f"{t.worst.component} {t.worst.share:+.2%} ({t.worst.bytes:+,})" if t.worst else "-"
        text.append(
            f"| {name} | {len({c['model'] for c in group})} | {t.n_cells} | {t.n_exact} | {t.within_1:.1%} | "
            f"{t.within_2:.1%} | {t.within_5:.1%} | {worst} | {t.n_below} | {t.n_verdicts} |"
        )
    return text


def main() -> int:
    """Exit status 1 when there is no source or it does not build."""
    parser = argparse.ArgumentParser(prog="python -m tests.truth.held_out", description=__doc__)
    parser.add_argument("--build", default=str(recorded.REFERENCE_BUILD))
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--cells", type=int, default=6, metavar="N", help="settings per model")
    parser.add_argument("--of", choices=("zoo", "wide", "fresh"), default="fresh",
                        help="zoo: the grid's settings; wide: wide settings; fresh: both, on fresh shapes")  # fmt: skip
    parser.add_argument("--models", nargs="*", default=None)
    parser.add_argument("--out", type=Path, default=None, help="keep the measured cells (.jsonl.gz)")
    parser.add_argument("--read", type=Path, default=None, help="cells measured before, instead of measuring")
    asked = parser.parse_args()
    if asked.read is not None:
        build = int(asked.build)
        cells = [json.loads(line) for line in gzip.decompress(asked.read.read_bytes()).splitlines()]
        cells = [cell for cell in cells if not asked.models or cell["model"] in asked.models]
    else:
        try:
            build, program = probe(asked.build, os.cpu_count() or 1)
        except SourceError as error:
            print(error, file=sys.stderr)
            return 1
        models = asked.models or (fresh() if asked.of == "fresh" else zoo())
        cells = list(measured(program, [cell for model in models for cell in _wanted(model, asked)]))
    if asked.out is not None:
        text = "".join(json.dumps(cell, separators=(",", ":")) + "\n" for cell in cells)
        asked.out.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print("\n".join(lines(cells, build)))
    return 0


def _wanted(model: str, asked: argparse.Namespace) -> list[dict[str, Any]]:
    if asked.of == "zoo":
        return drawn(model, asked.seed, asked.cells)
    if asked.of == "wide":
        return drawn_wide(model, spec(model), asked.seed, asked.cells)
    half = asked.cells // 2
    return drawn(model, asked.seed, half) + drawn_wide(model, spec(model), asked.seed, asked.cells - half)


if __name__ == "__main__":
    raise SystemExit(main())
