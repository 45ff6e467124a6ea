"""A part on the CPU: layers or experts against context, for every cache type and micro-batch."""

from collections.abc import Callable, ItemsView

from advisor.recommend.evaluate import Judged
from advisor.recommend.search import WORTH, Search
from advisor.recommend.solve import Border, everywhere, settle
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings

_CLOSE = 1.002  # a sketch that was no further off than this told enough
_REACH = 4  # times the comfortable context is as far as sketches look; what is settled may be longer
_LOOKS = 3  # how often one cache type and micro-batch are sketched, each time beside more that is exact


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


class Trades:
    """The trades of one search."""

    def __init__(self, search: Search) -> None:
        self._search, self._evaluator, self._policy = search, search.evaluator, search.policy.search
        self._left: list[Trade] = []
        self._done: set[tuple[Group, int]] = set()
        self._usual: dict[tuple[str, str], list[Trade]] = {}  # those with the usual micro-batch
        self._skipped: list[Group] = []  # what no longer looked worth a sketch

    def settled(self, known_cost: float) -> list[Judged]:
        """The exact candidates that are cheaper than `known_cost` or otherwise of use, the best among them.

        Sketches are close, not exact: the cheapest is settled until none looks cheaper than what is settled.
        """
        self._sketch_all(known_cost)
        worth = self._worth_settling()
        looks: dict[Group, int] = {}
        found: list[Judged] = []
        best = known_cost
        while True:
            if not self._left or self._left[0].cost >= best:
                again = next((group for group in self._skipped if self._may_gain(group, best)), None)
                if again is None:
                    break
                self._skipped.remove(again)
                self._add(again)
                continue
            trade = self._left[0]
            judged = self._settle(trade)
            cost = self._search.cost(judged) if judged is not None else float("inf")
            if judged is not None:
                found.append(judged)
                best = min(best, cost)
            looks[trade.group] = looks.get(trade.group, 1) + 1
            if not trade.cost / _CLOSE < cost < trade.cost * _CLOSE and looks[trade.group] <= _LOOKS:
                self._left = [other for other in self._left if other.group != trade.group]
                self._add(trade.group)
        for pair in self._search.cache_pairs():
            judged = self._doubted(pair, best)
            if judged is not None:
                found.append(judged)
                best = min(best, self._search.cost(judged))
        for trade in worth:
            if (trade.group, trade.part) not in self._done:
                judged = self._settle(trade)
                found += [judged] if judged is not None else []
        return found

    def _doubted(self, pair: tuple[str, str], best: float) -> Judged | None:
        """What a sketch may have thought too large: buffers depend on which blocks lie on the CPU, not only how many.

        The least on the GPUs that would beat `best` with a comfortable context is planned exactly.
        """
        search = self._search
        n_ctx = search.wishes.pinned.n_ctx
        n_ctx = max(search.comfortable, search.floor) if n_ctx is None else n_ctx or search.spec.n_ctx_train
        chain = search.chain(pair, n_ctx, None)
        low, high = chain.low, chain.high + 1
        while low < high:
            middle = (low + high) // 2
            if search.cost(self._evaluator.least(chain.make(middle))) < WORTH * best:
                high = middle
            else:
                low = middle + 1
        if low > chain.high or (Group(pair, None), low) in self._done or not search.may_fit(chain.make(low)):
            return None
        judged = search.judge(chain.make(low))
        if not judged.fits:
            return None
        border = Border(lambda part: search.shared(chain.make(part)), low, chain.high, low, judged)
        most = settle(self._evaluator, border, everywhere)
        return min((judged, most or judged), key=search.cost)  # more is not better where flash attention falls off

    def _settle(self, trade: Trade) -> Judged | None:
        self._done.add((trade.group, trade.part))
        self._left = [other for other in self._left if (other.group, other.part) not in self._done]
        return settle(self._evaluator, trade.border, everywhere)

    def _sketch_all(self, known_cost: float) -> None:
        for pair in self._search.cache_pairs():
            self._usual[pair] = self._add(Group(pair, None))
            for n_ubatch in self._search.larger_batches:  # what lies between two is easily sketched
                group = Group(pair, n_ubatch)
                if self._may_gain(group, min([known_cost, *(trade.cost for trade in self._left[:1])])):
                    self._add(group)
                else:  # the best is a sketch
                    self._skipped.append(group)

    def _add(self, group: Group) -> list[Trade]:
        """Sketch the trades of one group."""
        trades = [
            Trade(group, part, border, self._search.cost(border.judged))
            for part, border in self._frontier(group)
            if (group, part) not in self._done
        ]
        self._left = sorted((*self._left, *trades), key=lambda trade: trade.cost)
        return trades

    def _may_gain(self, group: Group, best: float) -> bool:
        """Whether a larger micro-batch could beat `best` if it needed no more memory than the usual one."""
        return any(
            self._search.cost(self._evaluator.least(trade.border.judged.request._replace(n_ubatch=group.n_ubatch)))
            < best
            for trade in self._usual[group.pair]
            if trade.border.judged.plan.read_host_bytes
        )

    def _frontier(self, group: Group) -> ItemsView[int, Border]:
        """For each part on the GPUs the longest context that fits with it, from the most that fits to the comfortable.

        Not every part is looked at where there are many: first in steps, then closer around the best.
        """
        search, (pair, n_ubatch) = self._search, group
        floor, wished, ceiling = search.floor, search.comfortable, max(search.ceiling, search.floor)
        if search.wishes.pinned.n_ctx is not None:
            floor = wished = ceiling = search.wishes.pinned.n_ctx or search.spec.n_ctx_train
        most = search.split(pair, floor, n_ubatch)
        if most is None:
            return {}.items()
        chain = search.chain(pair, floor, n_ubatch)
        borders: dict[int, Border] = {}
        others = {most.at - 1}  # should the sketch be wrong
        if not most.judged.plan.flash_attn and search.base.flash_attn != "off":
            others.add(chain.low)  # flash attention may come back when no block with attention lies on a GPU
        if floor == ceiling:
            for part in {most.at} | {part for part in others if part >= chain.low}:
                request = search.shared(chain.make(part))
                judged = self._evaluator.sketch(request)
                if judged.fits:
                    borders[part] = Border(_always(request), 0, 0, 0, judged)
            return borders.items()
        least = search.split(pair, max(wished, floor), n_ubatch, most.at)
        reach = min(ceiling, max(_REACH * wished - search.step, floor))  # beyond hardly anything is gained
        first = max(least.at - 1, chain.low) if least is not None else most.low

        def add(index: int) -> None:
            if index in borders or not (first <= index <= most.at or index in others):
                return
            near = min(borders, key=lambda known: abs(known - index), default=None)
            at = borders[near].judged.plan.settings.n_ctx if near is not None else None
            border = search.context_border(chain.make(index), floor, ceiling, reach, at)
            if border.judged.fits:
                borders[index] = border

        stride = max(-(-(most.at - first) // int(self._policy["trades"])), 1)
        for index in (*range(first, most.at, stride), most.at, *(part for part in others if part == chain.low)):
            add(index)
        best, stride = -1, 2 * stride
        while borders:  # at last step by step until it gets no better
            before, best = best, min(borders, key=lambda index: search.cost(borders[index].judged))
            if stride == 1 and best == before:
                break
            stride = -(-stride // 2)
            add(best - stride)
            add(best + stride)
        return borders.items()

    def _worth_settling(self) -> list[Trade]:
        """Beside the best what a person may want instead: noticeably faster, a longer context, or a better cache."""
        if not self._left:
            return []
        gain = 1.0 + float(self._policy["alternative_gain"])
        best = self._left[0]
        turns = [
            self._evaluator.speed(trade.border.judged, self._search.intent).turn_seconds.value for trade in self._left
        ]
        fastest = min(range(len(turns)), key=lambda number: turns[number])
        longest = max(self._left, key=_n_ctx)
        worth = [self._left[fastest]] if turns[fastest] * gain < turns[0] else []
        worth += [longest] if _n_ctx(longest) > _n_ctx(best) * gain else []
        if best.group.pair[0] != "f16":
            worth += [trade for trade in self._left if trade.group.pair[0] == "f16"][:1]
        return worth


def _n_ctx(trade: Trade) -> int:
    return trade.border.judged.plan.settings.n_ctx


def _always(request: RequestedSettings) -> Callable[[int], RequestedSettings]:
    return lambda _: request
