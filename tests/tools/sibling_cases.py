"""Drawn cases of a model in several quantizations, a machine and an intent; each file judged alone, by hand."""

from __future__ import annotations

import contextlib
import io
import json
import random
from pathlib import Path
from typing import Any, NamedTuple

from advisor.cli.main import main
from advisor.quants.choose import Chooser, Impossible
from advisor.quants.quality import weights_quality
from tests.tools.cells import DATA, spec
from tests.tools.machines import policy, quant_rules
from tests.tools.quant_files import write_quantizations

INTENTS = ("balanced", "context", "speed", "quality", "parallel:2")
CARDS = ("RTX 3060", "RTX 4060", "RTX 4070", "RTX 4090", "H100 PCIe", "A100 PCIe 80GB")
RAM_GIB = (16, 32, 64, 128)
NAMES = ("F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "IQ4_XS", "Q3_K_M", "Q2_K")


class Case(NamedTuple):
    """One question."""

    model: str
    names: tuple[str, ...]
    hardware: tuple[str, ...]
    intent: str

    @property
    def text(self) -> str:
        """It in a few words."""
        return f"{self.model} in {'+'.join(self.names)} on {' '.join(self.hardware[1::2])} for {self.intent}"


class Outcome(NamedTuple):
    """Which file was chosen, and what each costs, asked about alone."""

    chosen: str
    costs: dict[str, float]

    @property
    def least(self) -> str:
        """The cheapest."""
        return min(self.costs, key=self.costs.__getitem__)

    @property
    def wrong(self) -> bool:
        """Whether another is cheaper, by more than figures are rounded by."""
        return self.costs[self.chosen] > self.costs[self.least] * 1.001


def draw(count: int, seed: int) -> list[Case]:
    """So many cases, the same for the same seed."""
    chance = random.Random(seed)
    zoo = sorted(path.name.removesuffix(".json.gz") for path in Path(DATA / "zoo").glob("*.json.gz"))
    models = [name for name in zoo if not name.startswith("small-")]
    cases = []
    while len(cases) < count:
        model = chance.choice(models)
        names = tuple(name for name in chance.sample(NAMES, 4) if _can_be(model, name))
        cards = chance.sample(CARDS, 1) if chance.random() < 0.7 else [chance.choice(CARDS[:4])] * 2
        hardware = [word for card in cards for word in ("--gpu", card)] or ["--no-gpu"]
        hardware += ["--ram", f"{chance.choice(RAM_GIB)}GiB"]
        if len(names) > 1:
            cases.append(Case(model, names, tuple(hardware), chance.choice(INTENTS)))
    return cases


def _can_be(model: str, name: str) -> bool:
    """Whether it can be made, and its loss is published."""
    chooser = Chooser(spec(model), quant_rules())
    share = chooser.fallback_share(name)
    return not isinstance(chooser.types(name), Impossible) and weights_quality(quant_rules(), name, share) is not None


def ask(case: Case, folder: Path) -> Outcome:
    """The choice from a folder with all files, and the cost of each from a folder with nothing else in it."""
    paths = write_quantizations(folder / "all", case.model, case.names, title=case.model)
    words = [*case.hardware, "--for", case.intent]
    chosen = recommend(folder / "all", *words)
    costs = {}
    for name, path in paths.items():
        alone = folder / name / path.name
        alone.parent.mkdir()
        path.rename(alone)
        costs[name] = cost_by_hand(recommend(alone, *words), name, case.intent)
    stem = Path(chosen["model"]["path"]).stem
    return Outcome(stem.removeprefix(f"{case.model}-"), costs)


def recommend(path: Path, *words: str) -> dict[str, Any]:
    """What the command answers."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main(["recommend", str(path), *words, "--json"])
    document: dict[str, Any] = json.loads(out.getvalue())
    return document


def cost_by_hand(document: dict[str, Any], name: str, intent: str) -> float:
    """The cost of an answer by the words of rules/policy.toml, from what it says in JSON alone."""
    if document["verdict"] == "does_not_fit":
        return float("inf")
    rules, settings, speed = policy(), document["settings"], document["speed"]
    table = rules.intents[intent.partition(":")[0]]
    per_slot = settings["n_ctx"] if settings["kv_unified"] else settings["n_ctx_seq"]
    trained = document["model"]["n_ctx_train"] or table["comfortable_n_ctx"]
    share = min(table["comfortable_n_ctx"], trained) / per_slot
    cost: float = speed["turn_seconds"]["value"]
    cost *= share ** (table["context_exponent"] if share > 1 else rules.search["beyond_comfortable_exponent"])
    cost *= max(rules.cache_factor[settings["cache_type_k"]], rules.cache_factor[settings["cache_type_v"]])
    if settings["n_ubatch"] != min(512, settings["n_ctx"]):
        cost *= rules.search["unusual_n_ubatch_factor"]
    if speed["decode_tokens_per_s"]["value"] < table["least_tokens_per_s"]:
        cost *= 1000
    quality = weights_quality(quant_rules(), name)
    assert quality is not None
    return cost * float((1 + rules.weights_factor["per_kld"] * quality.value) ** table["weights_exponent"])
