"""What moved between two builds, and how far our prediction is from one, by architecture and component."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tests.tools.cells import header
from tests.truth.recorded import Sizes, key, measured_sizes, planned_for, planned_sizes


class Difference(NamedTuple):
    """One component of one cell: its largest difference over the GPUs, or that of the host."""

    architecture: str
    component: str
    bytes: int  # with its sign
    share: float  # of the truth, with its sign; 1 where the truth is nothing


class Row(NamedTuple):
    """One line of a table."""

    architecture: str
    component: str
    n_cells: int
    n_differing: int
    worst: Difference


def architecture_of(model: str) -> str:
    """The architecture of a zoo model, as its header names it."""
    return str(header(model).metadata["general.architecture"])


def differences(architecture: str, truth: Sizes, other: Sizes) -> Iterator[Difference]:
    """One per component that is in the cell."""
    theirs = other.by_component()
    for component, sizes in truth.by_component().items():
        pairs = list(zip(sizes, theirs[component], strict=True))
        if not pairs:
            continue
        true, found = max(pairs, key=lambda pair: abs(pair[1] - pair[0]))
        share = (found - true) / true if true else float(found != true)
        yield Difference(architecture, component, found - true, share)


def rows(found: Iterable[Difference]) -> list[Row]:
    """Differences by architecture and component."""
    groups: dict[tuple[str, str], list[Difference]] = defaultdict(list)
    for difference in found:
        groups[difference.architecture, difference.component].append(difference)
    return [
        Row(*group, len(items), sum(item.bytes != 0 for item in items), max(items, key=lambda item: abs(item.share)))
        for group, items in groups.items()
    ]


def moved(before: Iterable[dict[str, Any]], after: Iterable[dict[str, Any]]) -> tuple[list[Row], list[str]]:
    """(rows, cells that only one of the two refused) between two builds over the cells that both have."""
    old = {key(cell): cell for cell in before}
    changes: list[Difference] = []
    verdicts = []
    for cell in after:
        previous = old.get(key(cell))
        if previous is None:
            continue
        if ("error" in previous) != ("error" in cell):
            verdicts.append(f"{'refused now' if 'error' in cell else 'accepted now'}: {key(cell)}")
        elif "error" not in cell:
            architecture = architecture_of(cell["model"])
            changes += differences(architecture, measured_sizes(previous), measured_sizes(cell))
    return rows(changes), verdicts


def predicted(cells: Iterable[dict[str, Any]], build: int) -> tuple[list[Row], list[str]]:
    """(rows, cells where we and the engine disagree on whether they run) of our plans at one build."""
    found: list[Difference] = []
    verdicts = []
    for cell in cells:
        ours = planned_for(cell, build)
        if (ours.plan.refused is not None) != ("error" in cell):
            verdicts.append(f"we refuse {ours.plan.refused!r}, the engine says {cell.get('error')!r}: {key(cell)}")
        elif "error" not in cell:
            found += differences(architecture_of(cell["model"]), measured_sizes(cell), planned_sizes(ours))
    return rows(found), verdicts


def show(title: str, table: list[Row], verdicts: list[str]) -> None:
    """Print what differs and the sums."""
    print(f"\n{title}")
    for row in table:
        if row.n_differing:
            print(
                f"  {row.architecture:18} {row.component:13} {row.n_differing:4} of {row.n_cells:4} cells differ, "
                f"worst {row.worst.share:+.2%} ({row.worst.bytes:+,} bytes)"
            )
    for verdict in verdicts:
        print(f"  {verdict}")
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in table:
        totals[row.component][0] += row.n_differing
        totals[row.component][1] += row.n_cells
    for component, (differing, cells) in totals.items():
        print(f"  {component}: {cells - differing} of {cells} cells the same")
