"""Prints what a recommendation costs: CPU time, graphs and plans, against 150 ms for a hard one, 30 for an easy one.

usage: python -m tests.bench.search [MODEL...]   (default: every mixture of experts of the zoo and its large dense
models on three cards, small models on one; no assertions)

Hard is a model that three cards hold in part, or only just. CPU time is that of this process without garbage
collection, as the command line runs, the best of some repeats; start-up is not in it.
"""

from __future__ import annotations

import gc
import sys
import time
from typing import Any, NamedTuple
from unittest import mock

from advisor.app import App
from advisor.memory.graph import Job
from advisor.memory.plan import Planner
from advisor.planner import Planner as Recommender
from advisor.recommend.search import Wishes
from advisor.settings import RequestedSettings
from tests.tools.cells import DATA, header, spec

HARD_MS, EASY_MS = 150, 30
REPEATS = 3
THREE_CARDS = (  # names, GiB of RAM
    (("RTX 3090", "RTX 3090", "RTX 3060"), 256),
    (("RTX 3090", "RTX 3060", "RTX 3070"), 64),
)
ONE_CARD = (("RTX 3060",), 64)
EASY = ("llama3-8b", "qwen3-8b", "gemma3-4b")
DENSE = ("command-r", "llama33-70b-q4_k_m", "seed-oss-36b", "deci-49b")


class Cost(NamedTuple):
    """What one recommendation took."""

    model: str
    cards: str
    verdict: str
    graphs: int
    plans: int
    cpu_ms: float
    limit_ms: int

    @property
    def text(self) -> str:
        """One line."""
        share = self.cpu_ms / self.limit_ms
        return (
            f"{self.model:22} {self.cards:14} {self.verdict:12} {self.graphs:3} graphs {self.plans:4} plans "
            f"{self.cpu_ms:6.1f} ms  {share:4.2f} of {self.limit_ms} ms"
        )


def main() -> None:
    """One line per model and set of cards, the dearest last, and how many are above their limit."""
    models = sys.argv[1:] or [*experts(), *DENSE]
    hard = [cost(model, *cards, HARD_MS) for model in models for cards in THREE_CARDS]
    easy = [] if sys.argv[1:] else [cost(model, *ONE_CARD, EASY_MS) for model in EASY]
    for found in (easy, hard):
        for each in sorted(found, key=lambda each: each.cpu_ms):
            print(each.text)
        if found:
            above = sum(each.cpu_ms > each.limit_ms for each in found)
            middle = sorted(each.cpu_ms for each in found)[len(found) // 2]
            print(f"{len(found)} cases, median {middle:.0f} ms, {above} above {found[0].limit_ms} ms\n")


def experts() -> list[str]:
    """The zoo's mixtures of experts."""
    names = sorted(path.name.removesuffix(".json.gz") for path in (DATA / "zoo").glob("*.json.gz"))
    return [name for name in names if spec(name).n_expert]


def cost(model: str, cards: tuple[str, ...], ram_gib: int, limit_ms: int) -> Cost:
    """The recommendation of a model on these cards, the best of some repeats."""
    gc.collect()
    gc.disable()
    found = min((_once(model, cards, ram_gib, limit_ms) for _ in range(REPEATS)), key=lambda each: each.cpu_ms)
    gc.enable()
    return found


def _once(model: str, cards: tuple[str, ...], ram_gib: int, limit_ms: int) -> Cost:
    counts = {"graphs": 0, "plans": 0}
    build, plan = Job.build, Planner.plan

    def built(self: Job, *given: Any, **named: Any) -> Any:
        counts["graphs"] += 1
        return build(self, *given, **named)

    def planned(self: Planner, *given: Any, **named: Any) -> Any:
        counts["plans"] += 1
        return plan(self, *given, **named)

    app = App()
    host = app.host(gpus=list(cards), ram=ram_gib << 30)
    described = app.model(header(model))
    with mock.patch.object(Job, "build", built), mock.patch.object(Planner, "plan", planned):
        start = time.process_time()
        recommender = Recommender(app, host, app.engine(None))
        answer, _ = recommender.recommend(described, recommender.intent("balanced"), Wishes(RequestedSettings()))
        spent = 1000 * (time.process_time() - start)
    sizes = "+".join(f"{device.total_bytes / (1 << 30):g}" for device in host.devices)
    return Cost(model, f"{sizes}/{ram_gib}", answer.verdict, counts["graphs"], counts["plans"], spent, limit_ms)


if __name__ == "__main__":
    main()
