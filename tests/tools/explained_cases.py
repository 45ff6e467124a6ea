"""Explained answers of drawn cases, and what a sentence says apart from its figures."""

from __future__ import annotations

import re
from typing import NamedTuple

from advisor.host import HostSnapshot, with_devices
from advisor.recommend.cards import recommend_on
from advisor.recommend.explained import Explained, explain
from advisor.recommend.recommendation import Recommendation
from advisor.recommend.said import Said, compared, written
from advisor.recommend.search import Search, Wishes
from advisor.settings import RequestedSettings
from tests.tools.machines import evaluator, policy, quant_rules

_NAMES = re.compile(
    r"f16|f32|bf16|F16|q\d_\w+|I?Q\d(?:_[A-Z\d]+)*|(?:CUDA|ROCM|VULKAN|METAL)\d|card \d|\d+ GiB, \d+ GB/s"
    r"|(?:Llama|Gemma) \d+ \d+B(?: A4B)?|wired_limit_mb=\d+|-c \d+|-ub \d+|-np \d+"
)


class Told(NamedTuple):
    """One answer, the search on its cards, and its explanation."""

    answer: Recommendation
    search: Search
    why: Explained


def tell(model: str, host: HostSnapshot, intent: str = "balanced", **wishes: object) -> Told:
    """`recommend --explain` for a zoo model; keywords are settings to pin, or min_n_ctx and the like."""
    limits = {k: wishes.pop(k) for k in ("min_n_ctx", "max_n_ctx", "min_tokens_per_s") if k in wishes}
    wished = Wishes(RequestedSettings(**wishes), **limits)  # type: ignore[arg-type]
    goal = policy().intent(intent)
    answer, used = recommend_on(host, lambda some: evaluator(model, some), policy(), goal, wished, quant_rules)

    def search_in(machine: HostSnapshot, others: Wishes) -> Search:
        return Search(evaluator(model, machine), policy(), goal, others)

    search = search_in(with_devices(host, used.devices), wished)
    return Told(answer, search, explain(search, answer, host, search_in, quant_rules))


def sentences(why: Explained) -> list[Said]:
    """Everything that is said."""
    return [*(r.said for r in why.rungs), *(s.said for s in why.steps), *(c.said for c in why.cures), why.friend]


def unexplained_digits(said: Said, *names: str) -> str:
    """`said` without its figures and without names: no digit may be left."""
    text = said.text
    for name in names:
        text = text.replace(name, "")
    text = _NAMES.sub("", text)
    figures = set()
    for name, value in said.figures.items():
        ways = [written(name, value), *([compared(value)] if name.endswith("tokens_per_s") and value < 1 else [])]
        assert any(way in said.text for way in ways), (ways, said.text)
        figures |= set(ways)
    for shown in sorted(figures, key=len, reverse=True):
        text = text.replace(shown, "")
    return text
