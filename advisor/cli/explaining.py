"""`advisor recommend --explain`: the ladder, the next steps, what would help and the line for a friend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from advisor.cli.terminal import Screen, clean
from advisor.recommend.explained import Explained, explain
from advisor.recommend.said import Said

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.cli.siblings import Family
    from advisor.host import HostSnapshot
    from advisor.memory.extras import Beside
    from advisor.model.spec import ModelSpec
    from advisor.planner import Planner
    from advisor.quants.rules import QuantRules
    from advisor.recommend.policy import Intent
    from advisor.recommend.recommendation import Recommendation
    from advisor.recommend.rungs import Place
    from advisor.recommend.search import Search, Wishes


def explained(
    planner: Planner, spec: ModelSpec, intent: Intent, wishes: Wishes, beside: Beside | None, answer: Recommendation,
    host: HostSnapshot, quants: Callable[[], QuantRules], family: Family | None = None,
) -> Explained:  # fmt: skip
    """The answer explained; `host` as `Planner.recommend` returned it, `family` what was judged beside it."""
    from functools import cache

    from advisor.recommend.search import Search

    first: list[Search] = []

    def search_in(machine: HostSnapshot, wished: Wishes) -> Search:
        limits = answer.budget if machine == host else None  # it may keep more free than the policy says
        evaluator = planner.evaluator(spec, beside, machine, limits)
        for known in first:
            evaluator.share(known.evaluator)
        return Search(evaluator, planner.policy, intent, planner.settled(wished, spec, intent))

    first.append(search_in(host, wishes))
    siblings = None
    if family is not None:
        from advisor.recommend.explained import Siblings

        searches = (planner.search(other.spec, intent, wishes, other.host, beside) for other in family.others)
        siblings = Siblings(family.chosen, tuple(zip(family.others, searches, strict=True)))
    return explain(first[0], answer, planner.host, search_in, cache(quants), siblings)


def explained_shape(why: Explained) -> dict[str, Any]:
    """The key `explain` of the JSON answer."""
    from advisor.cli import shapes

    return {
        "rungs": [
            {
                "code": rung.code,
                "taken": rung.taken,
                "fits": rung.judged.fits,
                "settings": shapes.settings_shape(rung.judged.plan),
                "devices": [device.id for device in rung.judged.plan.devices],
                "places": [_place_shape(place) for place in rung.places],
                "speed": shapes.speed_shape(rung.speed) if rung.speed is not None else None,
                **_said_shape(rung.said),
            }
            for rung in why.rungs
        ],
        "next_steps": [
            {
                "code": step.code,
                "settings": shapes.settings_shape(step.judged.plan),
                **_place_shape(step.place),
                **_said_shape(step.said),
            }
            for step in why.steps
        ],
        "fixes": [
            {
                "code": cure.code,
                "change": cure.change,
                "saves_bytes": cure.saves_bytes,
                "enough": cure.enough,
                "settings": shapes.settings_shape(cure.judged.plan) if cure.judged is not None else None,
                **_said_shape(cure.said),
            }
            for cure in why.cures
        ],
        "friend": _said_shape(why.friend),
    }


def _place_shape(place: Place) -> dict[str, Any]:
    return {**place._asdict(), "over_bytes": place.over_bytes}


def _said_shape(said: Said) -> dict[str, Any]:
    return {"text": said.text, "figures": dict(said.figures)}


def explained_lines(why: Explained, screen: Screen) -> list[str]:
    """The explanation as text: a mark and a sentence for each rung, in the order in which they are tried."""
    lines = ["", screen.paint("How it was chosen", "bold")]
    for number, rung in enumerate(why.rungs, 1):
        if not rung.judged.fits:
            mark, color = screen.symbol("✗", "no "), "red"
        elif rung.taken:
            mark, color = screen.symbol("✓", "yes"), "green"
        else:
            mark, color = screen.symbol("○", "or "), "yellow"
        lines += _marked(rung.said, f"{number:>2}", mark, color, screen)
    if why.steps:
        lines += ["", screen.paint("The next step up does not fit", "bold")]
        for step in why.steps:
            lines += _marked(step.said, " ", screen.symbol("✗", "no "), "red", screen)
    if why.cures:
        lines += ["", screen.paint("What would help, and its price", "bold")]
        for cure in why.cures:
            lines += _marked(cure.said, " ", screen.symbol("·", "-"), "dim", screen)
    return [*lines, "", screen.paint("In one line", "bold"), *screen.wrap(clean(why.friend.text, 400), "  ", "  ")]


def _marked(said: Said, number: str, mark: str, color: str, screen: Screen) -> list[str]:
    start = f"  {number} {mark} " if number.strip() else f"  {mark} "
    lines = screen.wrap(clean(said.text, 600), " " * len(start), start)
    lines[0] = lines[0].replace(mark, screen.paint(mark, color, "bold"), 1)
    return lines
