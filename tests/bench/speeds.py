"""Prints how far predicted speeds are from public measurements, on devices that the constants were fitted without.

`python -m tests.bench.speeds [FILE]`: with a file of other rows, these are predicted with the shipped constants.
`--rows` prints every row.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from tests.tools.machines import speed_rules
from tests.tools.speed_fit import fit, parts_of
from tests.tools.speed_rows import ROWS, read_cases
from tests.tools.speed_table import Predicted, left_out, lines, median, p90, peers, predicted


def main() -> None:
    """The table, the peers' rules beside it, what is left out and why, and the fitted constants."""
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    path = Path(words[0]) if words else ROWS
    cases, dropped = read_cases(path)
    rules = speed_rules()
    print(f"{path.name}: {len(cases)} rows used, {len(dropped)} not")
    for why, count in Counter(row.why for row in dropped).most_common():
        print(f"  {count:3} not used: {why}")
    if path == ROWS:
        rows = left_out(cases, rules)
        print("\nconstants fitted without the row's device, % off")
        _print(rows)
    else:
        rows = predicted(cases, rules)
    print("\nshipped constants, % off")
    _print(predicted(cases, rules))
    print("\nrules of thumb on the same rows (one GPU), decode: median and p90, %")
    for name, errors in peers(cases).items():
        sizes = [abs(error) for error in errors]
        print(f"  {name:54} {_share(median(sizes))} {_share(p90(sizes))}")
    if path == ROWS:
        print("\nfitted to all rows")
        parts = [part for part in (parts_of(case, rules) for case in cases) if part is not None]
        for kind, values in fit(parts).items():
            print(f"  {kind:7}", "  ".join(f"{key} {value:.3g}" for key, value in values.items()))
    if "--rows" in sys.argv:
        print()
        for row in sorted(rows, key=lambda row: (row.kind, row.case.id)):
            print(f"  {row.kind:8} {row.case.id:70} {_share(row.decode_error)} {_share(row.prefill_error)}")


def _print(rows: list[Predicted]) -> None:
    head = ("class", "devices", "rows", "median", "p90", "in range", "prompts", "median", "in range")
    print("  {:12} {:>8} {:>6} {:>7} {:>7} {:>9} {:>9} {:>7} {:>9}".format(*head))
    for line in lines(rows):
        figures = (
            f"{line.devices:8} {line.rows:6} {_share(line.decode_median)} {_share(line.decode_p90)}",
            f"{_share(line.decode_in_range):>9} {line.prefill_rows:9} {_share(line.prefill_median)}",
            f"{_share(line.prefill_in_range):>9}",
        )
        print(f"  {line.kind:12} {' '.join(figures)}")


def _share(value: float | None) -> str:
    return f"{'-':>7}" if value is None else f"{100 * value:7.1f}"


if __name__ == "__main__":
    main()
