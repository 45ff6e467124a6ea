"""Parts on the CPU as sketches: layers or experts against context, for every cache type and micro-batch."""

from collections.abc import Callable
from heapq import heappush
from itertools import pairwise

from advisor.recommend.between import Between
from advisor.recommend.context_border import context_border
from advisor.recommend.pace import quick_n_ctx
from advisor.recommend.search import Search
from advisor.recommend.solve import Border
from advisor.recommend.traded import Group, Item, Span, Trade
from advisor.recommend.wholes import WORTH
from advisor.settings import RequestedSettings

CLOSE = 1.002  # a sketch that was no further off than this told enough
NEARLY = 5  # an alternative may be 1/32 shorter than need be
_DEARER = 1.03  # sketches of what costs more by that do not look for the end of its context
_ABOVE = 4  # parts that half a micro-batch may take more
_REACH = 4  # times the comfortable context is as far as sketches look; what is settled may be longer


class Sketches:
    """The trades of one search as sketches, in the order of the least that they can cost.

    Memory is monotone: more on the GPUs leaves no longer a context there, a larger micro-batch neither. And more on the
    GPUs is no slower. So nothing between two parts costs less than the faster with the context of the longer.
    """

    def __init__(self, search: Search) -> None:
        self._search, self._evaluator, self._policy = search, search.evaluator, search.policy.search
        self._open: list[tuple[float, int, Item]] = []  # a heap by (least cost, order of coming)
        self._n_pushed = self._n_sketched = 0
        self._seen: dict[tuple[Group, int], Trade] = {}
        self._done: set[tuple[Group, int]] = set()
        self._begun: set[Group] = set()
        self._tops: dict[tuple[str, str], Trade] = {}  # the most on the GPUs, where that is end enough
        self._ends: dict[tuple[str, str], tuple[int, int]] = {}  # parts with the usual micro-batch
        self._looks: dict[Group, int] = {}
        self._best = self._least_drawn = float("inf")
        pinned = search.wishes.pinned.n_ctx
        self._floor, self._wished = search.floor, max(search.comfortable, search.floor)
        self._ceiling = search.unasked
        if pinned is not None:
            self._floor = self._wished = self._ceiling = pinned or search.spec.n_ctx_train
        self._reach = min(self._ceiling, max(_REACH * self._wished - search.step, self._floor))
        self._far = search.far_apart and self._floor < self._ceiling
        self._by_context = self._far or (search.intent.least_tokens_per_s > 0.0 and self._floor < self._ceiling)
        self._bounds = Between(search, self._reach, self._ceiling, far=self._far)

    def _push(self, cost: float, item: Item) -> None:
        self._n_pushed += 1
        heappush(self._open, (cost, self._n_pushed, item))

    def _expand(self, item: Group | Span, least: float) -> None:
        if isinstance(item, Group):
            if item not in self._begun and not self._not_yet(item, least) and not self._put_off(item, least):
                self._begin(item)
            return
        low, high, middle, group = item
        near = min(self._bounds.near_n_ctx(low, high, middle), self._reach)
        trade = self._sketch(group, middle, near)
        judged = trade.border.judged
        if not judged.fits_devices and low is None:  # the parts above do not fit either
            self._between(None, high._replace(part=middle), group)
            return
        self._between(low, trade, group)
        self._between(trade, high, group)

    def _begin(self, group: Group) -> None:
        """The ends of a group: the most on the GPUs that fits, and the most beside a comfortable context."""
        search, (pair, n_ubatch) = self._search, group
        self._begun.add(group)
        if n_ubatch is not None and pair in self._tops:
            top, last = self._tops[pair], search.chain(pair, self._floor, n_ubatch).high
            self._between(None, top._replace(part=min(top.part + _ABOVE, last + 1)), group)
            self._lowest_with_flash(top, group)
            return
        lead = Group(search.cache_pairs()[0], n_ubatch)
        if n_ubatch is not None and lead not in self._begun:  # what is worked out for it does for other cache types
            self._begin(lead)
        near_least, near_most = self._ends.get(pair, (None, None))
        most = search.split(pair, self._floor, n_ubatch, near_most)
        if most is None:
            return
        if self._far and self._from_top(group, most.at):
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
            self._between(bottom, top, group)
        for part in others:
            if part >= chain.low:
                self._sketch(group, part, self._wished)
        if n_ubatch is None:
            self._ends[pair] = (bottom.part, top.part)
            self._larger_batches(bottom, top)

    def _from_top(self, group: Group, part: int) -> bool:
        """Whether the most on the GPUs is end enough: their memory ends it, so that bytes tell what is below."""
        top = self._sketch(group, part, self._floor)
        if not self._bounds.ended(top):
            return False
        self._between(None, top, group)
        self._lowest_with_flash(top, group)
        if group.n_ubatch is None:
            self._tops[group.pair], self._ends[group.pair] = top, (part, part)
            for n_ubatch in self._batches():
                batch = Group(group.pair, n_ubatch)
                least, _ = self._bounds.least(None, top, batch, WORTH * self._best)
                self._push(min(least, self._bounds.least_of(top, batch)), batch)
        return True

    def _lowest_with_flash(self, top: Trade, group: Group) -> None:
        """Flash attention may come back when no block with attention lies on a GPU."""
        low = self._search.chain(group.pair, self._floor, group.n_ubatch).low
        flash = top.border.judged.plan.flash_attn or self._search.base.flash_attn == "off"
        if not flash and self._bounds.lowest(group) <= low:
            self._sketch(group, low, self._wished)

    def _sketch(self, group: Group, part: int, near_n_ctx: int, *, whole: bool = False) -> Trade:
        """The trade of a part, which counts as one where it fits; `whole`: with its context, whatever it costs."""
        search, key = self._search, (group, part)
        self._n_sketched += 1
        chain = search.chain(group.pair, self._floor, group.n_ubatch)
        asked = chain.make(part)
        ceiling = min(self._ceiling, search.unasked_of(asked)) if self._floor < self._ceiling else self._ceiling
        if self._floor >= ceiling:
            request = search.shared(asked)
            border = Border(_always(request), 0, 0, 0, self._evaluator.sketch(request))
        else:
            least = float("inf") if whole else _DEARER * min(self._best, self._least_drawn)
            reach = min(self._reach, ceiling)
            border = context_border(search, asked, self._floor, ceiling, reach, near_n_ctx, least)
        longest, by_host, left_open = border.judged.plan.settings.n_ctx, self._by_host(border), border.most is not None
        quick = longest if left_open else quick_n_ctx(search, border.judged.request, self._floor, longest)
        if quick < longest:
            border = context_border(search, asked, self._floor, quick, near_n_ctx=quick)
        cost = search.cost(border.judged)
        if border.most is not None:
            longest = min(border.most * search.step, reach)
        trade = Trade(group, part, border, cost, longest, by_host, left_open)
        if border.judged.fits:
            self._least_drawn = min(self._least_drawn, cost)
            self._seen[key] = trade
            if key not in self._done:  # what ends where sketches do may be longer
                more = trade.longest if left_open else trade.n_ctx
                more = more if more < self._reach else self._ceiling
                self._push(trade.cost * self._lack(more) / self._lack(trade.n_ctx), trade)
        return trade

    def _between(self, low: Trade | None, high: Trade, group: Group) -> None:
        judged = high.border.judged
        if not judged.fits and judged.fits_devices and self._evaluator.far_over(judged.request):
            return  # less on the GPUs leaves even less of system memory
        if low is None and not self._bounds.ended(high):
            return  # nor is it quicker, or longer
        if low is None or high.part - low.part > 1:
            least, at = self._bounds.least(low, high, group, WORTH * self._best)
            self._push(least, Span(low, high, at, group))

    def _by_host(self, border: Border) -> bool:
        """Whether only system memory ends it."""
        at, judged = border.at + (border.at >> NEARLY) + 1 if border.most is None else border.most + 1, border.judged
        if at > border.high or self._evaluator.spare(judged, host=True) == self._evaluator.spare(judged, host=False):
            return False
        beyond = self._evaluator.sketch(border.make(at))
        return not beyond.fits and beyond.fits_devices

    def _batches(self) -> list[int]:
        """Micro-batches that are sketched for every part: none where context counts for more than how fast it is."""
        return [] if self._by_context else self._other_batches()

    def _other_batches(self) -> list[int]:
        """Micro-batches to try beside the usual one."""
        batches = self._search.larger_batches
        if self._search.intent.least_tokens_per_s and self._search.wishes.pinned.n_ubatch is None:
            # the pace and a context that counts for more than prompts leave little room: a smaller buffer makes some
            batches = [*batches, int(self._evaluator.engine.defaults["n_ubatch"]) // 2]
        return batches

    def _larger_batches(self, bottom: Trade, top: Trade) -> None:
        """Larger micro-batches read prompts faster where weights lie on the host, and need more memory."""
        by_pace = self._search.intent.least_tokens_per_s
        longest = self._lack(self._ceiling if by_pace else self._bounds.longest(bottom))
        for n_ubatch in self._batches():
            fastest = min(self._bounds.seconds(trade, n_ubatch) for trade in (bottom, top))
            self._push(fastest * longest, Group(top.group.pair, n_ubatch))

    def _not_yet(self, group: Group, least: float) -> bool:
        """Whether what a cache type costs at least was worked out only now, and is more than nothing."""
        if least or group.n_ubatch is not None or not (self._begun or self._best < float("inf")):
            return False
        bound = self._bounds.alone(Group(group.pair, max(self._other_batches(), default=None)), WORTH * self._best)
        if bound:
            self._push(bound, group)
        return bound > 0.0

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
        enough = WORTH * self._best
        if self._far and self._bounds.ended(known[0]):
            bound, _ = self._bounds.least(None, known[0], group, enough)
        else:
            bound = self._bounds.seconds(known[0], group.n_ubatch) * self._lack(self._bounds.longest(known[0]))
        bound = min([bound, *(self._bounds.least_of(trade, group) for trade in known)])
        bound = min([bound, *(self._bounds.least(low, high, group, enough)[0] for low, high in pairwise(known))])
        if bound <= least * CLOSE:
            return False
        self._push(bound, group)
        return True

    def _lack(self, n_ctx: int) -> float:
        return self._search.lack(n_ctx)


def _always(request: RequestedSettings) -> Callable[[int], RequestedSettings]:
    return lambda _: request
