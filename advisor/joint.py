"""Several models on one machine: the joint plan that a command or the daemon asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from advisor.host import HostSnapshot
from advisor.planner import Planner
from advisor.recommend.budget import Budget
from advisor.recommend.evaluate import Evaluator
from advisor.together.notes import shared_out
from advisor.together.plan import plan_together
from advisor.together.types import Member, Together

if TYPE_CHECKING:
    from advisor.quants.rules import QuantRules


def plan_jointly(
    planner: Planner, members: Sequence[Member], quants: Callable[[], QuantRules] | None = None
) -> Together:
    """Settings with which all of `members` can be loaded at the same time, the main model first.

    `quants` reads the rules of quantizations, to say what a smaller one would do, which takes a moment.
    """

    def evaluator_for(member: Member, host: HostSnapshot, limits: Budget, like: Evaluator | None) -> Evaluator:
        return planner.evaluator(member.spec, member.beside, host, limits, like)

    settled = [one._replace(wishes=planner.settled(one.wishes, one.spec, one.intent)) for one in members]
    return plan_together(settled, planner.host, planner.budget(planner.host), evaluator_for, planner.policy, quants)


def options_of(planner: Planner, answer: Together) -> list[list[tuple[str, str]] | None]:
    """Each member's settings as llama-server's long options without dashes, None for one that is left out."""
    limits = shared_out(answer.seats, answer.budget)
    found: list[list[tuple[str, str]] | None] = []
    for member, seat, limit in zip(answer.members, answer.seats, limits, strict=True):
        if seat is None or limit is None:
            found.append(None)
            continue
        alone = seat.answer._replace(budget=limit)
        found.append(planner.options(alone, member.spec, seat.host, member.wishes))
    return found
