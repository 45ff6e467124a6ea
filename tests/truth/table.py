"""`python -m tests.truth.table` writes tests/data/ACCURACY.md: our prediction against every measured cell."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tests.tools.cells import DATA, cells
from tests.truth import recorded
from tests.truth.recorded import COMPONENTS, REFERENCE_BUILD, measured_sizes, planned_for, planned_sizes
from tests.truth.report import Difference, architecture_of, differences

PATH = DATA / "ACCURACY.md"
_INTRO = """# Predicted against measured

What `advisor` predicts held against what llama.cpp itself accounts for: its real loader, cache, graph builder,
scheduler and allocator on stand-in GPUs that follow the CUDA backend's rules. All cells of `cases/` (b{reference}) and
`truth/` (`make truth BUILD=...`), each planned for its own build; cells that the engine refuses are not in it. Driver
context and scratch pools are outside this accounting.

A field is the number of cells that have the component and the worst error in it, as a share of the truth and in bytes:
per GPU the one that is furthest off, host memory as a sum. "exact" = every cell to the byte.

Written by `python -m tests.truth.table`; a test fails when it is out of date.
"""


def measured_cells() -> dict[int, list[dict[str, Any]]]:
    """Every accepted cell there is, by build, the newest build first."""
    by_build: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for name in ("grid", "grid-cpu"):
        by_build[REFERENCE_BUILD] += cells(name)
    for build in recorded.recorded_builds():
        by_build[build] += recorded.read(build)
    return {
        build: [cell for cell in by_build[build] if "error" not in cell] for build in sorted(by_build, reverse=True)
    }


def document() -> str:
    """The whole file."""
    parts = [_INTRO.format(reference=REFERENCE_BUILD)]
    for build, found in measured_cells().items():
        table: dict[str, dict[str, list[Difference]]] = defaultdict(lambda: defaultdict(list))
        for cell in found:
            sizes = planned_sizes(planned_for(cell, build))
            for difference in differences(architecture_of(cell["model"]), measured_sizes(cell), sizes):
                for row in (difference.architecture, "all"):
                    table[row][difference.component].append(difference)
        parts.append(_section(build, len(found), table))
    return "\n".join(parts)


def _section(build: int, n_cells: int, table: dict[str, dict[str, list[Difference]]]) -> str:
    lines = [f"## b{build}: {n_cells} cells", "", f"| architecture | {' | '.join(COMPONENTS)} |"]
    lines.append("|---" * (len(COMPONENTS) + 1) + "|")
    for name in ["all", *sorted(table.keys() - {"all"})]:
        lines.append(f"| {name} | {' | '.join(field(table[name][component]) for component in COMPONENTS)} |")
    if table["all"]:
        shares = (f"{component} {_exact_share(table['all'][component])}" for component in COMPONENTS)
        lines += ["", f"To the byte: {', '.join(shares)}."]
    return "\n".join(lines) + "\n"


def _exact_share(found: list[Difference]) -> str:
    return f"{sum(item.bytes == 0 for item in found) / len(found):.1%}" if found else "-"


def field(found: list[Difference]) -> str:
    """Number of cells and the worst error."""
    if not found:
        return "-"
    worst = max(found, key=lambda item: (abs(item.share), abs(item.bytes)))
    return f"{len(found)}: exact" if worst.bytes == 0 else f"{len(found)}: {worst.share:+.2%} ({worst.bytes:+,})"


def main() -> None:
    """Write the file."""
    PATH.write_text(document(), encoding="utf-8")
    print(f"wrote {PATH}")


if __name__ == "__main__":
    main()
