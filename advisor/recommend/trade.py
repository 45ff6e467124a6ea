"""A part on the CPU: the sketched trades of parts against context, planned exactly where they are worth it."""

from heapq import heapify, heappop

from advisor.recommend.batches import Batches, cost_of
from advisor.recommend.evaluate import ROUGHLY, Judged
from advisor.recommend.sketched import CLOSE, NEARLY
from advisor.recommend.solve import Border, everywhere, settle, sketch_border
from advisor.recommend.traded import Group, Trade, group_of
from advisor.recommend.wholes import WORTH

_ALMOST = 0.95  # an alternative may be dearer by so much than the best of its cache type
_BELOW = 6  # parts that are planned exactly below a sketch that was too good, where the context is fixed
_MORE = 6  # sketches for an alternative that was not met on the way
_DEALT = 2  # blocks more may make up for how layers are dealt
_NEAR = 1.05  # times the best drawn: so much may single tensors of experts gain
_FILLED = 0.98  # and by that are others worth an exact plan
_OPENED = 3  # and for the longest context of what was left open
_LOOKS = 3  # how often one cache type and micro-batch are sketched, each time beside more that is exact


class Trades(Batches):
    """What is worth an exact plan among them."""

    def settled(self, known_cost: float, *, only_better: bool = False) -> list[Judged]:
        """The exact candidates that are cheaper than `known_cost`, the best among them, or otherwise of use.

        `only_better`: where none is cheaper nothing else is of use.
        Sketches are close, not exact: the cheapest is settled until nothing looks cheaper than what is settled.
        """
        self._best = known_cost
        found: list[Judged] = []
        for pair in self._search.cache_pairs()[::-1]:  # the smallest is the longest
            self._push(0.0, Group(pair, None))
        self._until_one_is_cheapest()
        self._beside_best()
        while self._open and self._open[0][0] < self._best:
            found += self._next()
        for group in self._to_doubt():
            found += self._doubted(group)
        for trade in self._worth_settling() if found or not only_better else ():
            found += self._alternative(trade)
        return found

    def _until_one_is_cheapest(self) -> None:
        """Look into what is open until a trade costs less than anything else may."""
        while self._open and self._open[0][0] < self._best:
            item = self._open[0][2]
            if isinstance(item, Trade) and not item.open:
                return
            self._next()

    def _next(self) -> list[Judged]:
        """Look into what may be the cheapest: the exact candidates found."""
        cost, _, item = heappop(self._open)
        if isinstance(item, Trade) and item.open:
            self._sketch(item.group, item.part, item.n_ctx, whole=True)
        elif isinstance(item, Trade):
            return self._settle(item)
        elif cost < WORTH * self._best:
            self._expand(item, cost)
        return []

    def _settle(self, trade: Trade) -> list[Judged]:
        """The exact candidate of a trade. Where the sketch was far off the whole group is sketched anew."""
        key = (trade.group, trade.part)
        if key in self._done:
            return []
        self._done.add(key)
        make, low, high, at, _, _ = trade.border
        border = sketch_border(self._evaluator, make, low, high, everywhere, at) if low < high else trade.border
        several = len(self._evaluator.budget.devices) > 1
        judged = settle(self._evaluator, border, everywhere, self._wished // self._search.step if several else None)
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
        if len(self._evaluator.budget.devices) == 1:  # all contexts are read off one graph
            judged = settle(self._evaluator, trade.border, everywhere)
            return [judged] if judged is not None else []
        nearly = max(at - (at >> NEARLY) - 1, low)
        for index in (nearly,) if self._far and trade.n_ctx < self._ceiling else (at, nearly):
            if not self._evaluator.far_over(make(index), ROUGHLY):
                tried = self._evaluator.judge(make(index))
                if tried.fits:
                    return [tried]
        return self._settle(trade)

    def _to_doubt(self) -> list[Group]:
        """Cache types with the usual micro-batch, and where few parts were sketched with others larger ones."""
        groups = [Group(pair, None) for pair in self._search.cache_pairs()]
        if self._by_context and self._seen:
            groups += [Group(self._best_drawn.group.pair, n_ubatch) for n_ubatch in self._search.larger_batches]
        return groups

    def _doubted(self, group: Group) -> list[Judged]:
        """What a sketch may have thought too large: buffers depend on which blocks lie on the CPU, not only how many.

        The least on the GPUs that would beat the best with a comfortable context is planned exactly.
        """
        search = self._search
        chain = search.chain(group.pair, self._wished, group.n_ubatch)
        low = self._least_worth(group, self._wished, WORTH * self._best)
        if low is None or (group, low) in self._done or not search.may_fit(chain.make(low)):
            return []
        if group.n_ubatch is not None and not self._has_room(group, low, self._wished, self._best_drawn):
            return []
        most = min(low + _DEALT * chain.n_steps, chain.high)
        request = search.shared(chain.make(low))
        while low < most and search.cost(self._evaluator.least(request)) >= WORTH * self._best:
            low += 1
            request = search.shared(chain.make(low))  # as layers are dealt, not as they might be
        beside = any((group, part) in self._done for part in range(low + 1, low + chain.n_steps + 1))
        over = beside and not self._evaluator.sketch(request).fits  # next to what was planned exactly it is right
        if low > chain.n_layers and (over or self._evaluator.far_over(request)):  # of experts the number says enough
            return []
        if group.n_ubatch is not None and self._evaluator.far_over(request, ROUGHLY):
            return []
        judged = self._evaluator.judge(request)
        if not judged.fits:
            return []
        border = Border(lambda part: search.shared(chain.make(part)), low, chain.high, low, judged)
        longest = settle(self._evaluator, border, everywhere)
        best = min((judged, longest or judged), key=search.cost)  # more is not better where flash attention falls off
        self._best = min(self._best, search.cost(best))
        return [best]

    def _worth_settling(self) -> list[Trade]:
        """Beside the best what a person may want instead: noticeably faster, a longer context, or a better cache."""
        if not self._seen:
            return []
        gain = 1.0 + float(self._policy["alternative_gain"])
        best, worth = self._best_drawn, list[Trade]()
        if best.group.pair[0] != "f16":
            worth += self._cheapest("f16")
        trades, most = list(self._seen.values()), float(self._policy.get("alternative_cost", 1000.0)) * best.cost
        fastest = min((trade for trade in trades if trade.cost <= most), key=self._turn_s)
        self._block_less(best)
        longest = self._longest()
        if self._far and longest.n_ctx < self._ceiling and best.group.pair in self._tops:  # nobody looked so far
            self._sketch(best.group, self._bounds.part_with(self._ceiling, best), self._ceiling, whole=True)
            longest = self._longest()
        worth += [fastest] if self._turn_s(fastest) * gain < self._turn_s(best) else []
        worth += self._roomiest(best)
        return worth + ([longest] if longest.n_ctx > best.n_ctx * gain else [])

    def _block_less(self, best: Trade) -> None:
        """See what context a block less on the GPUs leaves room for, if nobody looked there yet."""
        chain = self._search.chain(best.group.pair, self._floor, best.group.n_ubatch)
        part = best.part - (chain.n_steps if best.part > chain.n_layers else 1)
        if part >= chain.low and best.n_ctx < self._ceiling and (best.group, part) not in self._seen:
            self._sketch(best.group, part, best.n_ctx, whole=True)

    def _roomiest(self, best: Trade) -> list[Trade]:
        """The trade near the best that last looks may make cheapest: they keep experts on each GPU to its last byte.

        Whole layers leave more on some GPUs with one part than with another.
        """
        chain = self._search.chain(best.group.pair, self._floor, None)
        if len(self._evaluator.budget.devices) < 2 or not chain.experts or chain.n_steps < 2:
            return []
        near = [one for one in self._seen.values() if one.cost < _NEAR * best.cost and one.part > chain.n_layers]
        filled = [(self._filled(one), one) for one in near]
        least, most = min(filled, key=lambda entry: entry[0], default=(best.cost, best))
        known = next((cost for cost, one in filled if one is best), best.cost)
        return [most] if most is not best and least < _FILLED * known else []

    def _filled(self, trade: Trade) -> float:
        """About what it costs when experts fill all that it leaves of the GPUs."""
        search, chain = self._search, self._search.chain(trade.group.pair, trade.n_ctx, trade.group.n_ubatch)
        room = self._usable - sum(device.beside_layers_bytes for device in trade.border.judged.plan.devices)
        low, high = trade.part, chain.high
        while low < high:
            middle = (low + high + 1) // 2
            fits = self._bounds.bytes_of(trade.group.pair, middle, trade.n_ctx) <= room
            low, high = (middle, high) if fits else (low, middle - 1)
        return search.cost(self._evaluator.least(self._evaluator.dealt_without_buffers(chain.make(low))))

    @property
    def _best_drawn(self) -> Trade:
        return min(self._seen.values(), key=cost_of)

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
            if isinstance(item, Trade) or (known and cost >= _ALMOST * min(map(cost_of, known))):
                break
            self._expand(item, cost)
        known = self._of(cache_type)
        return [min(known, key=cost_of)] if known else []

    def _of(self, cache_type: str) -> list[Trade]:
        return [trade for trade in self._seen.values() if trade.group.pair[0] == cache_type]
