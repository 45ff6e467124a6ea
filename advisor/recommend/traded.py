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
    longest: int  # the context that fits at most, where a longer one than the trade's would be too slow
    by_host: bool  # it is system memory that allows no longer one
    open: bool = False  # too dear for its context to matter, which may be longer

    @property
    def n_ctx(self) -> int:
        """The whole context."""
        return self.border.judged.plan.settings.n_ctx


class Span(NamedTuple):
    """Parts of a group between two that were sketched, None = from the lowest on; `at`: where it may be cheapest."""

    low: Trade | None
    high: Trade  # of the usual micro-batch where nothing was sketched of this one
    at: int
    group: Group


Item: TypeAlias = Group | Trade | Span


def group_of(item: Item) -> Group:
    """The group that it belongs to."""
    return item if isinstance(item, Group) else item.group
