"""A part on the CPU: layers or experts against context, for every cache type and micro-batch."""

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from advisor.recommend.evaluate import ROUGHLY, Judged
from advisor.recommend.pace import quick_n_ctx
from advisor.recommend.search import Search
from advisor.recommend.solve import Border, everywhere, settle, sketch_border
from advisor.recommend.traded import Group, Item, Span, Trade, group_of
from advisor.recommend.wholes import WORTH
from advisor.settings import RequestedSettings

_CLOSE = 1.002  # a sketch that was no further off than this told enough
_REACH = 4  # times the comfortable context is as far as sketches look; what is settled may be longer
_NEARLY = 5  # an alternative may be 1/32 shorter than need be
_ALMOST = 0.95  # and dearer by so much than the best of its cache type
_BELOW = 6  # parts that are planned exactly below a sketch that was too good, where the context is fixed
_LOOKS = 3  # how often one cache type and micro-batch are sketched, each time beside more that is exact


class Trades:
    """The trades of one search, looked at in the order of the least that they can cost.

    Memory is monotone: more on the GPUs leaves no longer a context there, a larger micro-batch neither. And more on the
    GPUs is no slower. So nothing between two parts costs less than the faster with the context of the longer.
    """

    def __init__(self, search: Search) -> None:
        self._search, self._evaluator, self._policy = search, search.evaluator, search.policy.search
        self._open: list[tuple[float, int, Item]] = []  # a heap by (least cost, order of coming)
        self._n_pushed = 0
        self._seen: dict[tuple[Group, int], Trade] = {}
        self._done: set[tuple[Group, int]] = set()
        self._begun: set[Group] = set()
        self._ends: dict[tuple[str, str], tuple[int, int]] = {}  # parts with the usual micro-batch
        self._looks: dict[Group, int] = {}
        self._best = float("inf")
        pinned = search.wishes.pinned.n_ctx
        self._floor, self._wished = search.floor, max(search.comfortable, search.floor)
        self._ceiling = search.unasked
        if pinned is not None:
            self._floor = self._wished = self._ceiling = pinned or search.spec.n_ctx_train
        self._reach = min(self._ceiling, max(_REACH * self._wished - search.step, self._floor))

    def settled(self, known_cost: float, *, only_better: bool = False) -> list[Judged]:
        """The exact candidates that are cheaper than `known_cost`, the best among them, or otherwise of use.

        `only_better`: where none is cheaper nothing else is of use.
        Sketches are close, not exact: the cheapest is settled until nothing looks cheaper than what is settled.
        """
        self._best = known_cost
        found: list[Judged] = []
        for pair in self._search.cache_pairs():
            self._push(0.0, Group(pair, None))
        while self._open and self._open[0][0] < self._best:
            cost, _, item = heappop(self._open)
            if isinstance(item, Trade):
                found += self._settle(item)
            elif cost < WORTH * self._best:
                self._expand(item, cost)
        for pair in self._search.cache_pairs():
            found += self._doubted(pair)
        for trade in self._worth_settling() if found or not only_better else ():
            found += self._alternative(trade)
        return found

    def _push(self, cost: float, item: Item) -> None:
        self._n_pushed += 1
        heappush(self._open, (cost, self._n_pushed, item))

    # -- sketches --------------------------------------------------------------------------------------------------

    def _expand(self, item: Group | Span, least: float) -> None:
        if isinstance(item, Group):
            if item not in self._begun and not self._put_off(item, least):
                self._begin(item)
            return
        low, high = item
        middle = (low.part + high.part) // 2
        share = (high.part - middle) / (high.part - low.part)
        near = high.n_ctx + int(max(low.n_ctx - high.n_ctx, 0) * share)
        trade = self._sketch(low.group, middle, near)
        self._between(low, trade)
        self._between(trade, high)

    def _begin(self, group: Group) -> None:
        """The ends of a group: the most on the GPUs that fits, and the most beside a comfortable context."""
        search, (pair, n_ubatch) = self._search, group
        self._begun.add(group)
        lead = Group(search.cache_pairs()[0], n_ubatch)
        if n_ubatch is not None and lead not in self._begun:  # what is worked out for it does for other cache types
            self._begin(lead)
        near_least, near_most = self._ends.get(pair, (None, None))
        most = search.split(pair, self._floor, n_ubatch, near_most)
        if most is None:
            return
        chain = search.chain(pair, self._floor, n_ubatch)
        first, others = most.at, {most.at - 1}  # should the sketch be wrong
        if self._floor < self._ceiling:
            least = search.split(pair, self._wished, n_ubatch, most.at if near_least is None else near_least)
            first = least.at if least is not None else chain.low
            others = {first - 1} if n_ubatch is None else set()
        if not most.judged.plan.flash_attn and search.base.flash_attn != "off":
            others.add(chain.low)  # flash attention may come back when no block with attention lies on a GPU
        top = bottom = self._sketch(group, most.at, self._floor)
        if first < most.at:
            bottom = self._sketch(group, first, self._wished)
            self._between(bottom, top)
        for part in others:
            if part >= chain.low:
                self._sketch(group, part, self._wished)
        if n_ubatch is None:
            self._ends[pair] = (bottom.part, top.part)
            self._larger_batches(bottom, top)

    def _sketch(self, group: Group, part: int, near_n_ctx: int) -> Trade:
        """The trade of a part, which counts as one where it fits."""
        search, key = self._search, (group, part)
        chain = search.chain(group.pair, self._floor, group.n_ubatch)
        asked = chain.make(part)
        ceiling = min(self._ceiling, search.unasked_of(asked)) if self._floor < self._ceiling else self._ceiling
        if self._floor >= ceiling:
            request = search.shared(asked)
            border = Border(_always(request), 0, 0, 0, self._evaluator.sketch(request))
        else:
            border = search.context_border(asked, self._floor, ceiling, min(self._reach, ceiling), near_n_ctx)
        longest, by_host = border.judged.plan.settings.n_ctx, self._by_host(border)
        quick = quick_n_ctx(search, border.judged.request, self._floor, longest)
        if quick < longest:
            border = search.context_border(asked, self._floor, quick)
        trade = Trade(group, part, border, search.cost(border.judged), longest, by_host)
        if border.judged.fits:
            self._seen[key] = trade
            if key not in self._done:  # what ends where sketches do may be longer
                more = trade.n_ctx if trade.n_ctx < self._reach else self._ceiling
                self._push(trade.cost * self._lack(more) / self._lack(trade.n_ctx), trade)
        return trade

    def _between(self, low: Trade, high: Trade) -> None:
        judged = high.border.judged
        if not judged.fits and judged.fits_devices and self._evaluator.far_over(judged.request):
            return  # less on the GPUs leaves even less of system memory
        if high.part - low.part > 1:
            fastest = min(trade.cost / self._lack(trade.n_ctx) for trade in (low, high))
            rises = low.by_host and high.by_host  # more on the GPUs leaves more of system memory
            self._push(fastest * self._lack(self._longest(high if rises else low, rises=rises)), Span(low, high))

    def _by_host(self, border: Border) -> bool:
        """Whether only system memory ends it."""
        at, judged = border.at + (border.at >> _NEARLY) + 1, border.judged
        if at > border.high or self._evaluator.spare(judged, host=True) == self._evaluator.spare(judged, host=False):
            return False
        beyond = self._evaluator.sketch(border.make(at))
        return not beyond.fits and beyond.fits_devices

    def _larger_batches(self, bottom: Trade, top: Trade) -> None:
        """Larger micro-batches read prompts faster where weights lie on the host, and need more memory."""
        longest = self._lack(self._longest(bottom))
        batches = self._search.larger_batches
        if self._search.intent.least_tokens_per_s and self._search.wishes.pinned.n_ubatch is None:
            # the pace and a context that counts for more than prompts leave little room: a smaller buffer makes some
            batches = [*batches, int(self._evaluator.engine.defaults["n_ubatch"]) // 2]
            longest = self._lack(self._ceiling)
        for n_ubatch in batches:
            fastest = min(self._fastest(trade, n_ubatch) for trade in (bottom, top))
            self._push(fastest * longest, Group(top.group.pair, n_ubatch))

    def _fastest(self, trade: Trade, n_ubatch: int) -> float:
        """No more than the cost of a trade with another micro-batch as if its context lacked nothing."""
        request = trade.border.judged.request._replace(n_ubatch=n_ubatch)
        return self._search.cost(self._evaluator.least(request)) / self._lack(trade.n_ctx)

    def _put_off(self, group: Group, least: float) -> bool:
        """Whether a larger micro-batch costs more than was thought, by what is known now of the usual one.

        It leaves no part a longer context, so what holds between two parts of the usual one holds for it.
        """
        usual = int(self._evaluator.engine.defaults["n_ubatch"])
        if group.n_ubatch is None or group.n_ubatch <= usual:
            return False
        alike = Group(group.pair, None)
        known = sorted((trade for (of, _), trade in self._seen.items() if of == alike), key=lambda trade: trade.part)
        if not known or not known[0].part <= self._ends[group.pair][0] or known[-1].part < self._ends[group.pair][1]:
            return False
        costs = [self._fastest(trade, group.n_ubatch) for trade in known]
        bound = costs[0] * self._lack(self._longest(known[0]))
        for low, high, cost in zip(known, known[1:], costs[1:], strict=False):
            rises = low.by_host and high.by_host
            longest = self._lack(self._longest(high if rises else low, rises=rises))
            bound = min(bound, self._fastest(low, group.n_ubatch) * longest, cost * longest)
        if bound <= least * _CLOSE:
            return False
        self._push(bound, group)
        return True

    def _longest(self, trade: Trade, *, rises: bool = False) -> int:
        """No part with as much on the GPUs has a longer context, where they end it. One that is over says nothing.

        `rises`: where system memory ends it, no part with less on the GPUs.
        """
        known = trade.border.judged.fits and trade.longest < self._reach and trade.by_host == rises
        return trade.longest if known else self._ceiling

    def _lack(self, n_ctx: int) -> float:
        return self._search.lack(n_ctx)

    # -- exact candidates ------------------------------------------------------------------------------------------

    def _settle(self, trade: Trade) -> list[Judged]:
        """The exact candidate of a trade. Where the sketch was far off the whole group is sketched anew."""
        key = (trade.group, trade.part)
        if key in self._done:
            return []
        self._done.add(key)
        make, low, high, at, _ = trade.border
        border = sketch_border(self._evaluator, make, low, high, everywhere, at) if low < high else trade.border
        judged = settle(self._evaluator, border, everywhere)
        if judged is None and self._floor == self._ceiling:
            judged = self._below(trade)
        cost = self._search.cost(judged) if judged is not None else float("inf")
        self._best = min(self._best, cost)
        looks = self._looks[trade.group] = self._looks.get(trade.group, 1) + 1
        reached = judged is not None and trade.longest >= self._reach
        last = self._search.chain(trade.group.pair, self._floor, None).high
        close = reached or trade.cost / _CLOSE < cost < trade.cost * _CLOSE
        if not close and looks <= _LOOKS:
            self._open = [entry for entry in self._open if group_of(entry[2]) != trade.group]
            heapify(self._open)
            self._begin(trade.group)
        elif judged is not None and cost <= self._best and trade.part < last:
            self._sketch(trade.group, trade.part + 1, judged.plan.settings.n_ctx)  # beside it sketches are best now
        return [judged] if judged is not None else []

    def _below(self, trade: Trade) -> Judged | None:
        """With the context that was asked for: the next part below a trade that fits, where its sketch was too good.

        Sketches of other parts are as far off, and layers may have been dealt by buffers that are larger in truth.
        """
        chain = self._search.chain(trade.group.pair, self._floor, trade.group.n_ubatch)
        by_wish = self._search.wishes.pinned.tensor_split is not None
        for part in range(trade.part, max(trade.part - _BELOW, chain.low) - 1, -1):
            judged = self._evaluator.judge(self._search.shared(chain.make(part)))
            if not (judged.fits or judged.plan.refused or by_wish) and judged.request.tensor_split is not None:
                judged = self._evaluator.judge(self._evaluator.dealt_anew(judged))  # by what buffers were found to be
            self._done.add((trade.group, part))
            if judged.fits:
                return judged
        return None

    def _alternative(self, trade: Trade) -> list[Judged]:
        """The candidate of a trade with a context that is close to the longest: nobody counts its last tokens."""
        make, low, _, at, _ = trade.border
        if (trade.group, trade.part) in self._done:
            return []
        for index in (at, max(at - (at >> _NEARLY) - 1, low)):
            if not self._evaluator.far_over(make(index), ROUGHLY):
                judged = self._evaluator.judge(make(index))
                if judged.fits:
                    return [judged]
        return self._settle(trade)

    def _doubted(self, pair: tuple[str, str]) -> list[Judged]:
        """What a sketch may have thought too large: buffers depend on which blocks lie on the CPU, not only how many.

        The least on the GPUs that would beat the best with a comfortable context is planned exactly.
        """
        search = self._search
        chain = search.chain(pair, self._wished, None)
        low, high = chain.low, chain.high + 1
        while low < high:
            middle = (low + high) // 2
            if search.cost(self._evaluator.least(chain.make(middle))) < WORTH * self._best:
                high = middle
            else:
                low = middle + 1
        if low > chain.high or (Group(pair, None), low) in self._done or not search.may_fit(chain.make(low)):
            return []
        request = search.shared(chain.make(low))
        beside = any((Group(pair, None), part) in self._done for part in range(low + 1, low + chain.n_steps + 1))
        over = beside and not self._evaluator.sketch(request).fits  # next to what was planned exactly it is right
        if low > chain.n_layers and (over or self._evaluator.far_over(request)):  # of experts the number says enough
            return []
        judged = self._evaluator.judge(request)
        if not judged.fits:
            return []
        border = Border(lambda part: search.shared(chain.make(part)), low, chain.high, low, judged)
        most = settle(self._evaluator, border, everywhere)
        best = min((judged, most or judged), key=search.cost)  # more is not better where flash attention falls off
        self._best = min(self._best, search.cost(best))
        return [best]

    def _worth_settling(self) -> list[Trade]:
        """Beside the best what a person may want instead: noticeably faster, a longer context, or a better cache."""
        if not self._seen:
            return []
        gain = 1.0 + float(self._policy["alternative_gain"])
        best = min(self._seen.values(), key=_cost)
        worth = []
        if best.group.pair[0] != "f16":
            worth += self._cheapest("f16")
        trades = list(self._seen.values())
        turns = [self._evaluator.speed(trade.border.judged, self._search.intent).turn_seconds.value for trade in trades]
        fastest = min(range(len(turns)), key=lambda number: turns[number])
        longest = max(trades, key=lambda trade: (trade.n_ctx, -trade.cost))
        worth += [trades[fastest]] if turns[fastest] * gain < turns[trades.index(best)] else []
        return worth + ([longest] if longest.n_ctx > best.n_ctx * gain else [])

    def _cheapest(self, cache_type: str) -> list[Trade]:
        """The cheapest trade with that cache, if there is one."""
        left = [entry for entry in self._open if group_of(entry[2]).pair[0] == cache_type]
        known = [trade for trade in self._seen.values() if trade.group.pair[0] == cache_type]
        self._open = left
        heapify(self._open)
        while self._open:
            cost, _, item = heappop(self._open)
            known = [trade for trade in self._seen.values() if trade.group.pair[0] == cache_type]
            if isinstance(item, Trade) or (known and cost >= _ALMOST * min(map(_cost, known))):
                break
            self._expand(item, cost)
        return [min(known, key=_cost)] if known else []


def _cost(trade: Trade) -> float:
    return trade.cost


def _always(request: RequestedSettings) -> Callable[[int], RequestedSettings]:
    return lambda _: request
