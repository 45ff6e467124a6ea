"""Prints what a choice and its whole answer cost: CPU time and graphs; 150 ms for a hard one, 30 for an easy one.

usage: python -m tests.bench.search [MODEL...]   (default: every mixture of experts of the zoo and its large dense
models on three cards, small models on one; no assertions)

Hard is a model that three cards hold in part, or only just. Every line is for `balanced`; of the other intents the last
lines say how many are above. CPU time is that of this process without garbage
collection, as the command line runs, the best of some repeats; start-up is not in it. The choice is there when every
set of cards has been searched; the answer explains it: contexts, fixes, what was rejected, reasons, warnings.
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
from advisor.recommend.recommend import recommend_found
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
OTHERS = ("quality", "speed", "parallel:4", "context")
DENSE = ("command-r", "llama33-70b-q4_k_m", "seed-oss-36b", "deci-49b")


class Cost(NamedTuple):
    """What one recommendation took: the search alone, and with its explanation."""

    model: str
    cards: str
    verdict: str
    plans: int
    search_graphs: int
    graphs: int
    search_ms: float
    cpu_ms: float
    limit_ms: int

    @property
    def text(self) -> str:
        """One line."""
        return (
            f"{self.model:22} {self.cards:14} {self.verdict:12} {self.plans:4} plans  "
            f"choice {self.search_graphs:3} graphs {self.search_ms:6.1f} ms {self._above(self.search_ms)}  "
            f"answer {self.graphs:3} graphs {self.cpu_ms:6.1f} ms {self._above(self.cpu_ms)}  of {self.limit_ms}"
        )

    def _above(self, spent_ms: float) -> str:
        return "!" if spent_ms > self.limit_ms else " "


def main() -> None:
    """One line per model and set of cards, the dearest last, and how many are above their limit."""
    models = sys.argv[1:] or [*experts(), *DENSE]
    hard = [cost(model, *cards, HARD_MS) for model in models for cards in THREE_CARDS]
    easy = [] if sys.argv[1:] else [cost(model, *ONE_CARD, EASY_MS) for model in EASY]
    for found in (easy, hard):
        for each in sorted(found, key=lambda each: each.cpu_ms):
            print(each.text)
        if found:
            print(f"{len(found)} cases, above {found[0].limit_ms} ms ({sum(each.graphs for each in found)} graphs):")
            for what, spent in (("choice", [each.search_ms for each in found]), ("answer", [e.cpu_ms for e in found])):
                print(f"  {what}: {summary(spent, found[0].limit_ms)}")
            print()
    for intent in OTHERS if not sys.argv[1:] else ():
        spent = [cost(model, *cards, HARD_MS, intent).search_ms for model in models for cards in THREE_CARDS]
        print(f"{intent:10} choice: {summary(spent, HARD_MS)}")


def summary(spent_ms: list[float], limit_ms: int) -> str:
    """How many are above the limit, and how much they take."""
    middle, above = sorted(spent_ms)[len(spent_ms) // 2], sum(ms > limit_ms for ms in spent_ms)
    return f"{above}, median {middle:.0f} ms, most {max(spent_ms):.0f} ms"


def experts() -> list[str]:
    """The zoo's mixtures of experts."""
    names = sorted(path.name.removesuffix(".json.gz") for path in (DATA / "zoo").glob("*.json.gz"))
    return [name for name in names if spec(name).n_expert]


def cost(model: str, cards: tuple[str, ...], ram_gib: int, limit_ms: int, intent: str = "balanced") -> Cost:
    """The recommendation of a model on these cards, the best of some repeats."""
    gc.collect()
    gc.disable()
    found = [_once(model, cards, ram_gib, limit_ms, intent) for _ in range(REPEATS)]
    gc.enable()
    best = min(found, key=lambda each: each.cpu_ms)
    return best._replace(search_ms=min(each.search_ms for each in found))


def _once(model: str, cards: tuple[str, ...], ram_gib: int, limit_ms: int, intent: str) -> Cost:
    counts = {"graphs": 0, "plans": 0}
    build, plan = Job.build, Planner.plan

    def built(self: Job, *given: Any, **named: Any) -> Any:
        counts["graphs"] += 1
        return build(self, *given, **named)

    def planned(self: Planner, *given: Any, **named: Any) -> Any:
        counts["plans"] += 1
        return plan(self, *given, **named)

    search_graphs, search_ms = 0, 0.0

    def explained(*given: Any, **named: Any) -> Any:
        nonlocal search_graphs, search_ms
        search_graphs, search_ms = counts["graphs"], 1000 * (time.process_time() - start)
        return recommend_found(*given, **named)

    app = App()
    host = app.host(gpus=list(cards), ram=ram_gib << 30)
    described = app.model(header(model))
    with (
        mock.patch.object(Job, "build", built),
        mock.patch.object(Planner, "plan", planned),
        mock.patch("advisor.recommend.cards.recommend_found", explained),
    ):
        start = time.process_time()
        recommender = Recommender(app, host, app.engine(None))
        answer, _ = recommender.recommend(described, recommender.intent(intent), Wishes(RequestedSettings()))
        spent = 1000 * (time.process_time() - start)
    sizes = "+".join(f"{device.total_bytes / (1 << 30):g}" for device in host.devices)
    return Cost(
        model, f"{sizes}/{ram_gib}", answer.verdict, counts["plans"], search_graphs, counts["graphs"],
        search_ms, spent, limit_ms,
    )  # fmt: skip


if __name__ == "__main__":
    main()
