"""Judges drawn recommendations with the exact arithmetic, an exhaustive grid and the engine's own fit.

usage: python -m tests.bench.choice [COUNT [SEED [EVERY]]]   (default 500 cases, seed 6; every EVERYth; no assertions)
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict

from tests.tools.choice_cases import Answer, ask, beaten, describe, draw, fit_beside, wasted, wrong_need

GRANULARITY = 0.01


def main() -> None:
    """What went wrong, one line each, then the counts and what fit would have made of the same questions."""
    given = [int(word) for word in sys.argv[1:4]]
    count, seed, every = (*given, *(500, 6, 1)[len(given) :])
    counts: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    beside: dict[tuple[str, str], list[tuple[float, float, float]]] = defaultdict(list)
    for case in draw(count, seed)[::every]:
        answer = ask(case)
        verdicts[answer.given.verdict] += 1
        for kind, found in (
            ("wrong need", wrong_need(answer)),
            ("memory wasted", wasted(answer)),
            ("beaten", beaten(answer, GRANULARITY)),
        ):
            counts[kind] += found is not None
            if found is not None:
                print(f"{kind}: {case.text}: {describe(answer.given.chosen)}: {found}")
        add_fit(answer, beside)
    print()
    print(f"{sum(verdicts.values())} cases: " + ", ".join(f"{n} {word}" for word, n in verdicts.most_common()))
    print(f"{counts['wrong need']:5} over the budget, or needing more than was said")
    print(f"{counts['memory wasted']:5} with less than 95 % of the memory used though a step up fits")
    print(f"{counts['beaten']:5} beaten by a candidate of the grid by more than {GRANULARITY:.0%} of the intent's cost")
    print()
    print("beside `llama-server -fit on` by its published rules, medians: cost for the intent, seconds a turn, context")
    for (intent, words), rows in sorted(beside.items()):
        cost, turn, context = (sorted(column)[len(rows) // 2] for column in zip(*rows, strict=True))
        print(f"{intent:12} {words:30} {len(rows):4}  cost x{cost:.2f}  turn x{turn:.2f}  context x{context:.2f}")


def add_fit(answer: Answer, beside: dict[tuple[str, str], list[tuple[float, float, float]]]) -> None:
    """Sort a case by how it differs from what fit would choose."""
    found = fit_beside(answer)
    if found is None:
        return
    intent = answer.case.intent.partition(":")[0]
    ours, fit = answer.given.chosen.plan.settings, found.judged.plan.settings
    if not found.judged.fits:
        words = "fit's own choice does not fit"
    elif (ours.n_ctx, ours.n_gpu_layers, ours.cache_type_k, ours.n_ubatch) == (
        fit.n_ctx, fit.n_gpu_layers, fit.cache_type_k, fit.n_ubatch,
    ) and answer.cost == found.cost:  # fmt: skip
        words = "the same"
    else:
        kinds = []
        kinds += ["context"] if ours.n_ctx != fit.n_ctx else []
        kinds += ["cache"] if ours.cache_type_k != fit.cache_type_k else []
        kinds += ["batch"] if ours.n_ubatch != fit.n_ubatch else []
        words = "differs in " + "+".join(kinds or ["layers, cards"])
    turn = answer.given.speed.turn_seconds.value / found.turn_s
    beside[intent, words].append((answer.cost / found.cost, turn, ours.n_ctx / fit.n_ctx))


if __name__ == "__main__":
    main()
