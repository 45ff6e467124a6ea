"""Models that share a machine, and the answer about them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from advisor.host import HostSnapshot
from advisor.model.spec import ModelSpec
from advisor.recommend.budget import Budget, Shortfall
from advisor.recommend.policy import Intent
from advisor.recommend.recommendation import Fix, Note, Recommendation
from advisor.recommend.search import Wishes
from advisor.records import NamedTuple

if TYPE_CHECKING:
    from advisor.memory.extras import Beside


class Member(NamedTuple):
    """One model of a set, each a process of its own. The first of a set is its main model."""

    name: str
    spec: ModelSpec
    intent: Intent
    wishes: Wishes
    beside: "Beside | None" = None


class Seat(NamedTuple):
    """What one member gets: `host` has only its GPUs, the answer's budget is what the others leave of them."""

    host: HostSnapshot
    answer: Recommendation


class Lack(NamedTuple):
    """What a member lacks beside others that fit, and the changes of it that would help."""

    member: int
    beside: tuple[int, ...]
    short: Shortfall
    fixes: tuple[Fix, ...]


class Together(NamedTuple):
    """The answer. Where not all fit, the seats are those of the first of `subsets`, None for who is left out."""

    verdict: str  # "full": all wholly where they are wished to be | "partial" | "does_not_fit"
    members: tuple[Member, ...]
    seats: tuple[Seat | None, ...]
    budget: Budget  # of the whole machine
    subsets: tuple[tuple[int, ...], ...]  # the largest that fit, none of them part of another; the whole set if it does
    over: Shortfall | None  # by how much the whole set is over where it lacks least, None where it fits
    lacks: tuple[Lack, ...]
    notes: tuple[Note, ...]
    refused: Mapping[int, str] = {}  # members of whom the engine takes no settings, whatever memory there is, and why
