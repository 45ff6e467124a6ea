"""What is traded: groups of one cache type and micro-batch, single parts on the GPUs, and what lies between two."""

from typing import TypeAlias

from advisor.recommend.solve import Border
from advisor.records import NamedTuple


class Group(NamedTuple):
    """What is the same while context and parts on the GPUs are traded; None = the usual micro-batch."""

    pair: tuple[str, str]
    n_ubatch: int | None


class Trade(NamedTuple):
    """One part on the GPUs with the longest context that fits beside it, as a sketch."""

    group: Group
    part: int  # number of the chain
    border: Border
    cost: float
    longest: int  # the context that fits, where a longer one than the trade's would be too slow
    by_host: bool  # it is system memory that allows no longer one

    @property
    def n_ctx(self) -> int:
        """The whole context."""
        return self.border.judged.plan.settings.n_ctx


class Span(NamedTuple):
    """The parts of a group between two that were sketched."""

    low: Trade
    high: Trade


Item: TypeAlias = Group | Trade | Span


def group_of(item: Item) -> Group:
    """The group that it belongs to."""
    return item if isinstance(item, Group) else item.low.group if isinstance(item, Span) else item.group
