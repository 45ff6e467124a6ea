"""Draws sets of zoo models and machines and prints what planning them together is worth.

    python -m tests.bench.together [CASES] [SEED]

Each answer is estimated anew, model by model, and held against the machine; then the same models are planned one after
the other, in every order, each with the best that those before it leave.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from itertools import permutations

from advisor.together.whole import resident
from tests.tools.together import answers_of, drawn, one_after_the_other, over_budget, together, worth


def main(n_cases: int, seed: int) -> int:
    """Print the counts; 1 where a sum is over the budget, or one after the other is better."""
    dice = random.Random(seed)
    verdicts: dict[str, int] = {}
    over, worse, missed, whole, only_together, seconds = 0, 0, 0, 0, 0, list[float]()
    for _ in range(n_cases):
        host, names = drawn(dice.randrange(1 << 30))
        start = time.process_time()
        answer = together(host, *names)
        seconds.append(time.process_time() - start)
        verdicts[answer.verdict] = verdicts.get(answer.verdict, 0) + 1
        over += bool(over_budget(answer, host))
        members = tuple(map(resident, answer.members))
        ways = [one_after_the_other(members, host, order) for order in permutations(range(len(members)))]
        if answer.verdict == "does_not_fit":
            missed += any(way is not None for way in ways)
            continue
        own = worth(members, answers_of(answer))
        worse += any(way is not None and worth(members, way) < own for way in ways)
        named = ways[0]
        only_together += named is None
        whole += named is not None and worth(members, named)[0] > own[0]
    told = ", ".join(f"{count} {verdict.replace('_', ' ')}" for verdict, count in sorted(verdicts.items()))
    print(f"{n_cases} sets of 2 or 3 models (seed {seed}): {told}")
    print(f"  {over} sums over what may be used, {missed} sets missed that fit one after the other in some order")
    print(f"  {worse} worse than one after the other in some order")
    print(f"  {only_together} fit together only, in the order named one would find nothing")
    print(f"  {whole} more with a model wholly on the GPUs that would be in part on the CPU")
    print(f"  CPU seconds: median {statistics.median(seconds):.2f}, most {max(seconds):.2f}")
    return int(bool(over or worse or missed))


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    sys.exit(main(*(*given, *(100, 1)[len(given) :])))
