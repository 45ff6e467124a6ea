"""Draws models in several quantizations: is the file that `advisor recommend FOLDER` chooses the cheapest of all?

Each file is asked about alone, and its cost worked out by hand from the JSON answer.

usage: python -m tests.bench.siblings [COUNT [SEED]]   (default 60 cases, seed 6; no assertions)
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from tests.tools.sibling_cases import ask, draw


def main() -> None:
    """What was chosen wrongly, one line each, then how often each quantization was chosen for each intent."""
    given = [int(word) for word in sys.argv[1:3]]
    count, seed = (*given, *(60, 6)[len(given) :])
    chosen: dict[str, Counter[str]] = defaultdict(Counter)
    n_wrong = n_fitting = 0
    for case in draw(count, seed):
        with tempfile.TemporaryDirectory() as folder:
            found = ask(case, Path(folder))
        n_fitting += found.costs[found.least] < float("inf")
        if found.wrong:
            n_wrong += 1
            dearer = found.costs[found.chosen] / found.costs[found.least]
            print(f"wrong: {case.text}: {found.chosen}, {dearer:.3f} times as dear as {found.least}")
        chosen[case.intent][found.chosen] += 1
    print(f"{count} cases, {n_fitting} with something that fits, {n_wrong} not the cheapest")
    for intent, names in sorted(chosen.items()):
        print(f"{intent:12} " + ", ".join(f"{name} {times}" for name, times in names.most_common()))


if __name__ == "__main__":
    main()
