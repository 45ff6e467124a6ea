"""What the parts between two that were sketched cost at least: memory is monotone, and so is speed.

More on the GPUs leaves no longer a context there, and is no slower. The part with more on them also says how much its
buffers leave of all GPUs together; those of a longer context are no smaller. So no part between has a longer context
than its weights and cache alone allow in that room.
"""

from collections.abc import Callable
from heapq import heappush, heapreplace

from advisor.recommend.budget import host_over_bytes
from advisor.recommend.search import Search
from advisor.recommend.traded import Group, Trade

_PIECES = 16  # that a span is looked at in at most
_STRIDE = 8  # share of the parts below
_HALVINGS = 10  # a context is found to a thousandth
_BUFFERS = 8  # judgement: sketches are off by no more than this share of buffers


class Between:
    """The bounds of one search whose sketches look no further than `reach` and no context than `ceiling`."""

    def __init__(self, search: Search, reach: int, ceiling: int, *, far: bool) -> None:
        """`far`: contexts are so far apart that weights and cache say more than a span's ends."""
        self._search, self._reach, self._ceiling, self._far = search, reach, ceiling, far
        self._known_seconds: dict[tuple[Group, int], float] = {}
        self._lows: dict[tuple[str, str], int] = {}
        self._known_bytes: dict[tuple[tuple[str, str], int], tuple[int, int]] = {}

    def alone(self, group: Group, enough: float) -> float:
        """No part of a group, or of a smaller micro-batch, costs less, were there no buffers."""
        if not self._far:
            return 0.0
        room = sum([limit.usable_bytes for limit in self._search.evaluator.budget.devices])
        chain = self._search.chain(group.pair, self._search.floor, group.n_ubatch)
        return self._in_pieces(self.lowest(group), chain.high, group, lambda _: room, self._ceiling, enough)[0]

    def least(self, low: Trade | None, high: Trade, group: Group, enough: float) -> tuple[float, int]:
        """(a bound, the part where it is): no part of `group` between two of its cache type costs less.

        If its micro-batch is no smaller than theirs. From `enough` on it may be higher. Without `low` from the least on
        the GPUs on, where their memory ends the upper one.
        """
        if low is None:
            first = self.lowest(group)
            least, _ = self._by_bytes(first, high, group, self._ceiling, enough)
            return least, self._likely(first, high, group) if least < enough else first
        rises = low.by_host and high.by_host  # more on the GPUs leaves more of system memory
        most_n_ctx = self.longest(high if rises else low, rises=rises)
        fastest = min(self.seconds(trade, group.n_ubatch) for trade in (low, high))
        least, part = 0.0, (low.part + high.part) // 2
        if low.border.judged.plan.flash_attn == high.border.judged.plan.flash_attn:
            least, part = self._by_bytes(low.part + 1, high, group, most_n_ctx, enough)
        return max(fastest * self._search.lack(most_n_ctx), least), part

    def least_of(self, trade: Trade, group: Group) -> float:
        """The part of a trade costs no less in `group`, with the same condition."""
        known = trade.border.judged.fits and trade.longest < self._reach
        return self.seconds(trade, group.n_ubatch) * self._search.lack(trade.longest if known else self._ceiling)

    def longest(self, trade: Trade, *, rises: bool = False) -> int:
        """No part with as much on the GPUs has a longer context, where they end it. One that is over says nothing.

        `rises`: where system memory ends it, no part with less on the GPUs.
        """
        known = trade.border.judged.fits and trade.longest < self._reach and trade.by_host == rises
        return trade.longest if known else self._ceiling

    def seconds(self, trade: Trade, n_ubatch: int | None) -> float:
        """No more than the cost of a trade with that micro-batch as if its context lacked nothing."""
        lack = self._search.lack(trade.n_ctx)
        if n_ubatch == trade.group.n_ubatch:
            return trade.cost / lack
        request = trade.border.judged.request._replace(n_ubatch=n_ubatch)
        return self._search.cost(self._search.evaluator.least(request)) / lack

    def near_n_ctx(self, low: Trade | None, high: Trade, part: int) -> int:
        """About the longest context of a part between two: with weights and cache between theirs."""
        ends = [(trade.part, self._used(trade)) for trade in (low, high) if trade is not None and self.ended(trade)]
        if low is not None and not ends:
            share = (high.part - part) / (high.part - low.part)
            return high.n_ctx + int(max(low.n_ctx - high.n_ctx, 0) * share)
        (first, room), (last, least) = ends[0], ends[-1]
        if first < last:
            room += (least - room) * (part - first) // (last - first)
        return self._filling(high.group.pair, part, lambda _: room)

    def ended(self, trade: Trade) -> bool:
        """Whether it is the GPUs' memory that allows no longer context."""
        longest = (trade.n_ctx == trade.longest or trade.open) and trade.longest < self._reach
        return trade.border.judged.fits and longest and not trade.by_host

    def lowest(self, group: Group) -> int:
        """The least on the GPUs that leaves what is not there room in system memory."""
        known = self._lows.get(group.pair)
        if known is None:
            evaluator = self._search.evaluator
            chain = self._search.chain(group.pair, self._search.floor, None)
            low, high = chain.low, chain.high
            while low < high:
                middle = (low + high) // 2 if low > chain.low else low  # mostly there is room for all
                over = host_over_bytes(evaluator.least(chain.make(middle)).plan, evaluator.budget) > 0
                low, high = (middle + 1, high) if over else (low, middle)
            known = self._lows[group.pair] = low
        return known

    def _used(self, trade: Trade) -> int:
        return sum([device.weights_bytes + device.cache_bytes for device in trade.border.judged.plan.devices])

    def _by_bytes(self, first: int, high: Trade, group: Group, most_n_ctx: int, enough: float) -> tuple[float, int]:
        """The same by weights and cache, and where; 0 in the middle where the GPUs' memory does not end the upper one.

        It is looked at in ever smaller pieces where it is least, until that is `enough`.
        """
        last = high.part - 1
        if first > last:
            return float("inf"), last
        if not self._far or not self.ended(high):
            return 0.0, (first + last) // 2
        least, part = self._in_pieces(first, last, group, self._room(high, group), most_n_ctx, enough)
        margin = (last - first) // 4
        return least, min(max(part, first + margin), last - margin)

    def _in_pieces(
        self, first: int, last: int, group: Group, room: Callable[[int], int], most_n_ctx: int, enough: float
    ) -> tuple[float, int]:  # fmt: skip
        def piece(begin: int, end: int) -> tuple[float, int, int]:
            n_ctx = min(self._filling(group.pair, begin, room), most_n_ctx)
            return self._least_seconds(group, end) * self._search.lack(n_ctx), begin, end

        pieces = [piece(first, last)]
        for _ in range(_PIECES):
            least, begin, end = pieces[0]
            if least >= enough or begin == end:
                break
            middle = (begin + end) // 2
            heapreplace(pieces, piece(begin, middle))
            heappush(pieces, piece(middle + 1, end))
        least, begin, end = pieces[0]
        return least, (begin + end) // 2

    def _likely(self, first: int, high: Trade, group: Group) -> int:
        """The part from `first` on that is cheapest with as many bytes of weights and cache as the one above them."""
        used = self._used(high)

        def cost(part: int) -> float:
            n_ctx = self._filling(group.pair, part, lambda _: used)
            return self._least_seconds(group, part) * self._search.lack(n_ctx)

        low, last = first, max(high.part - 1, first)
        while low < last:
            middle = (low + last) // 2
            low, last = (low, middle) if cost(middle) <= cost(middle + 1) else (middle + 1, last)
        # not part by part where it is the next one every time
        return low if low < high.part - 1 else max(high.part - max((high.part - first) // _STRIDE, 1), first)

    def part_with(self, n_ctx: int, trade: Trade) -> int:
        """About the part that has that context: with as many bytes of weights and cache as a trade."""
        used, (low, high) = self._used(trade), (self.lowest(trade.group), trade.part)
        while low < high:
            middle = (low + high + 1) // 2
            fills = self._filling(trade.group.pair, middle, lambda _: used) >= n_ctx
            low, high = (middle, high) if fills else (low, middle - 1)
        return low

    def _room(self, trade: Trade, group: Group) -> Callable[[int], int]:
        """Bytes of all GPUs together that are left for weights and cache beside a trade's buffers, by context.

        Of half the micro-batch they are half at least, and without flash attention they hold every head's scores.
        """
        usual, slots = int(self._search.evaluator.engine.defaults["n_ubatch"]), self._search.slots
        n_ubatch = group.n_ubatch or usual
        smaller = max((trade.group.n_ubatch or usual) // n_ubatch, 1)
        room, buffers = 0, list[int]()
        for limit, device in zip(self._search.evaluator.budget.devices, trade.border.judged.plan.devices, strict=True):
            room += limit.usable_bytes - device.overhead_bytes - device.extras_bytes
            buffers.append((device.compute.high - device.compute.high // _BUFFERS) // smaller)
        heads = min((layer.n_head for layer in self._search.spec.layers if layer.has_cache), default=0)
        windows = any(layer.n_window for layer in self._search.spec.layers)
        if trade.border.judged.plan.flash_attn or windows or not heads:
            left = room - sum(buffers)
            return lambda _: left
        scores = 4 * heads * min(n_ubatch, self._search.floor // slots)
        return lambda n_ctx: room - sum([max(size, scores * (n_ctx // slots)) if size else 0 for size in buffers])

    def _least_seconds(self, group: Group, part: int) -> float:
        """No more than the cost of a part as if its context lacked nothing."""
        known = self._known_seconds.get((group, part))
        if known is None:
            search, n_ctx = self._search, self._search.floor
            request = search.chain(group.pair, n_ctx, group.n_ubatch).make(part)
            if search.unequal:
                request = search.evaluator.dealt_without_buffers(request)
            known = search.cost(search.evaluator.least(request)) / search.lack(n_ctx)
            self._known_seconds[group, part] = known
        return known

    def _filling(self, pair: tuple[str, str], part: int, room: Callable[[int], int]) -> int:
        """The context with which weights and cache of a part fill the room; a window makes it no longer."""
        shortest, longest = self._search.floor, self._ceiling
        known = self._known_bytes.get((pair, part))
        if known is None:
            known = self._known_bytes[pair, part] = (
                self.bytes_of(pair, part, shortest), self.bytes_of(pair, part, longest),
            )  # fmt: skip
        few, many = known
        if many <= room(longest):
            return longest
        left = room(shortest)
        filled = shortest + (longest - shortest) * max(left - few, 0) // (many - few) if many > few else longest
        filled = min(filled, longest)
        if room(filled) == left:
            return filled
        low, high = shortest, filled  # less is left the longer the context
        for _ in range(_HALVINGS):
            middle = (low + high) // 2
            fits = few + (many - few) * (middle - shortest) // (longest - shortest) <= room(middle)
            low, high = (middle, high) if fits else (low, middle)
        return high

    def bytes_of(self, pair: tuple[str, str], part: int, n_ctx: int) -> int:
        """Weights and cache of a part on all GPUs."""
        return sum(self._search.evaluator.bytes_by_layer(self._search.chain(pair, n_ctx, None).make(part)))
