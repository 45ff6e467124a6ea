"""A part on the CPU: the sketched trades of parts against context, planned exactly where they are worth it."""

from heapq import heapify, heappop

from advisor.recommend.evaluate import ROUGHLY, Judged
from advisor.recommend.sketched import CLOSE, NEARLY, Sketches
from advisor.recommend.solve import Border, everywhere, settle, sketch_border
from advisor.recommend.traded import Group, Trade, group_of
from advisor.recommend.wholes import WORTH

_ALMOST = 0.95  # an alternative may be dearer by so much than the best of its cache type
_BELOW = 6  # parts that are planned exactly below a sketch that was too good, where the context is fixed
_MORE = 6  # sketches for an alternative that was not met on the way
_OPENED = 3  # and for the longest context of what was left open
_LOOKS = 3  # how often one cache type and micro-batch are sketched, each time beside more that is exact


class Trades(Sketches):
    """What is worth an exact plan among them."""

    def settled(self, known_cost: float, *, only_better: bool = False) -> list[Judged]:
        """The exact candidates that are cheaper than `known_cost`, the best among them, or otherwise of use.

        `only_better`: where none is cheaper nothing else is of use.
        Sketches are close, not exact: the cheapest is settled until nothing looks cheaper than what is settled.
        """
        self._best = known_cost
        found: list[Judged] = []
        for pair in self._search.cache_pairs():
            largest = Group(pair, max(self._batches(), default=None))
            self._push(self._bounds.alone(largest, WORTH * self._best), Group(pair, None))
        while self._open and self._open[0][0] < self._best:
            cost, _, item = heappop(self._open)
            if isinstance(item, Trade) and item.open:
                self._sketch(item.group, item.part, item.n_ctx, whole=True)
            elif isinstance(item, Trade):
                found += self._settle(item)
            elif cost < WORTH * self._best:
                self._expand(item, cost)
        for pair in self._search.cache_pairs():
            found += self._doubted(pair)
        for trade in self._worth_settling() if found or not only_better else ():
            found += self._alternative(trade)
        return found

    def _settle(self, trade: Trade) -> list[Judged]:
        """The exact candidate of a trade. Where the sketch was far off the whole group is sketched anew."""
        key = (trade.group, trade.part)
        if key in self._done:
            return []
        self._done.add(key)
        make, low, high, at, _, _ = trade.border
        border = sketch_border(self._evaluator, make, low, high, everywhere, at) if low < high else trade.border
        judged = settle(self._evaluator, border, everywhere)
        if judged is None and self._floor == self._ceiling:
            judged = self._below(trade)
        cost = self._search.cost(judged) if judged is not None else float("inf")
        self._best = min(self._best, cost)
        drawn = (item for _, _, item in self._open if isinstance(item, Trade) and not item.open)
        self._least_drawn = min([item.cost for item in drawn], default=float("inf"))
        looks = self._looks[trade.group] = self._looks.get(trade.group, 1) + 1
        reached = judged is not None and trade.longest >= self._reach
        last = self._search.chain(trade.group.pair, self._floor, None).high
        sketched = min(trade.cost, self._search.cost(border.judged))  # what is looked at loosely may be longer
        close = reached or sketched / CLOSE < cost < trade.cost * CLOSE
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
        if trade.open:
            trade = self._sketch(trade.group, trade.part, trade.n_ctx, whole=True)
        make, low, _, at, _, _ = trade.border
        if (trade.group, trade.part) in self._done:
            return []
        for index in (at, max(at - (at >> NEARLY) - 1, low)):
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
        trades, most = list(self._seen.values()), float(self._policy.get("alternative_cost", 1000.0)) * best.cost
        fastest = min((trade for trade in trades if trade.cost <= most), key=self._turn_s)
        longest = self._longest()
        if self._far and longest.n_ctx < self._ceiling and best.group.pair in self._tops:  # nobody looked so far
            self._sketch(best.group, self._bounds.part_with(self._ceiling, best), self._ceiling, whole=True)
            longest = self._longest()
        worth += [fastest] if self._turn_s(fastest) * gain < self._turn_s(best) else []
        return worth + ([longest] if longest.n_ctx > best.n_ctx * gain else [])

    def _longest(self) -> Trade:
        """The trade with the longest context; of those left open a few that may have it are looked at to their end."""
        for _ in range(_OPENED):
            longest = max(self._seen.values(), key=lambda one: (one.longest if one.open else one.n_ctx, -one.cost))
            if not longest.open:
                return longest
            self._seen[longest.group, longest.part] = longest._replace(open=False)
            self._sketch(longest.group, longest.part, longest.n_ctx, whole=True)
        return max(self._seen.values(), key=lambda one: (one.n_ctx, -one.cost))

    def _turn_s(self, trade: Trade) -> float:
        return self._evaluator.speed(trade.border.judged, self._search.intent).turn_seconds.value

    def _cheapest(self, cache_type: str) -> list[Trade]:
        """The cheapest trade with that cache, if there is one."""
        self._open = [entry for entry in self._open if group_of(entry[2]).pair[0] == cache_type]
        heapify(self._open)
        until = self._n_sketched + _MORE
        while self._open and self._n_sketched < until:
            cost, _, item = heappop(self._open)
            known = self._of(cache_type)
            if isinstance(item, Trade) or (known and cost >= _ALMOST * min(map(_cost, known))):
                break
            self._expand(item, cost)
        known = self._of(cache_type)
        return [min(known, key=_cost)] if known else []

    def _of(self, cache_type: str) -> list[Trade]:
        return [trade for trade in self._seen.values() if trade.group.pair[0] == cache_type]


def _cost(trade: Trade) -> float:
    return trade.cost
