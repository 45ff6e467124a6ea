"""Other micro-batches around the best, where context counts: there they bring little, and are not sketched everywhere.

A larger one reads prompts faster and leaves room for less on the GPUs, a smaller one for more.
"""

from advisor.memory.types import DevicePlan
from advisor.recommend.sketched import Sketches
from advisor.recommend.solve import Border
from advisor.recommend.traded import Group, Trade
from advisor.recommend.wholes import WORTH

_ROUGHLY = 4  # of compute buffers: what a sketch thinks over by less may fit, parts of blocks make buffers of their own
_GAIN = 0.99  # and is planned exactly where it would be cheaper by that
_NEARBY = 1.15  # judgement: half the micro-batch gains no more than that


class Batches(Sketches):
    """Sketches of the best of every cache type with other micro-batches."""

    @property
    def _usable(self) -> int:
        return sum(limit.usable_bytes for limit in self._evaluator.budget.devices)

    def _beside_best(self) -> None:
        if not self._by_context:
            return
        for pair in self._search.cache_pairs():
            alike = [trade for trade in self._seen.values() if trade.group.pair == pair]
            if alike:
                self._beside(min(alike, key=cost_of))

    def _beside(self, best: Trade) -> None:
        usual = int(self._evaluator.engine.defaults["n_ubatch"])
        for n_ubatch in sorted(self._other_batches(), key=lambda n: abs(n - usual)):
            group = Group(best.group.pair, n_ubatch)
            enough = WORTH * min(self._best, best.cost)
            low = self._from_here(group, best, enough) if n_ubatch > usual else self._from_here_on(group, best, enough)
            most = self._most(group, best, low) if low is not None else None
            if most is None or low is None:
                continue
            tried = [self._sketch(group, part, best.n_ctx) for part in {most.at, max(min(most.at, best.part), low)}]
            for part in (most.at + 1, most.at - 1):
                if most.low <= part <= most.high and (part > most.at or best.n_ctx < self._ceiling):
                    tried.append(self._sketch(group, part, best.n_ctx))
            best = min([best, *(trade for trade in tried if trade.border.judged.fits)], key=cost_of)

    def _most(self, group: Group, best: Trade, low: int) -> Border | None:
        """As much as possible on the GPUs at the context of the best, None where the part `low` does not fit."""
        border = self._search.split(group.pair, best.n_ctx, group.n_ubatch, max(best.part, low), low)
        if border is not None:
            return border
        request = self._search.shared(self._search.chain(group.pair, best.n_ctx, group.n_ubatch).make(low))
        gains = self._search.cost(self._evaluator.least(request)) < _GAIN * min(self._best, best.cost)
        if not gains or self._evaluator.far_over(request, _ROUGHLY) or not self._evaluator.judge(request).fits_devices:
            return None
        return self._search.split(group.pair, best.n_ctx, group.n_ubatch, low, low)  # sketches are better there now

    def _from_here(self, group: Group, best: Trade, enough: float) -> int | None:
        """The least on the GPUs for which a larger micro-batch is worth it, None where no room is left for it."""
        low = self._least_worth(group, best.n_ctx, enough)
        return low if low is not None and self._has_room(group, low, best.n_ctx, best) else None

    def _has_room(self, group: Group, part: int, n_ctx: int, best: Trade) -> bool:
        """Whether there may be room for a part with larger buffers than the best, or a longer context than its."""
        if part > best.part or (part == best.part and best.n_ctx < self._ceiling):
            return False
        used = sum(device.beside_layers_bytes for device in best.border.judged.plan.devices)
        return self._bounds.bytes_of(group.pair, part, n_ctx) + used <= self._usable

    def _from_here_on(self, group: Group, best: Trade, enough: float) -> int | None:
        """The same for a smaller one: with the longest context only more on the GPUs is, where buffers make room."""
        if best.cost >= _NEARBY * enough:
            return None
        if best.n_ctx < self._ceiling:
            return best.part
        low = self._least_worth(group, best.n_ctx, enough)
        if low is None:
            return None
        part = self._bounds.bytes_of(group.pair, low, best.n_ctx)
        return (
            max(low, best.part) if part + sum(map(_others, best.border.judged.plan.devices)) <= self._usable else None
        )

    def _least_worth(self, group: Group, n_ctx: int, enough: float) -> int | None:
        """The least on the GPUs that costs less than `enough` with that context, None where nothing does."""
        search, chain = self._search, self._search.chain(group.pair, n_ctx, group.n_ubatch)
        low, high = chain.low, chain.high + 1
        while low < high:
            middle = (low + high) // 2
            asked = chain.make(middle)
            ideal = self._evaluator.dealt_without_buffers(asked) if search.unequal else asked
            worth = search.cost(self._evaluator.least(ideal)) < enough
            low, high = (low, middle) if worth else (middle + 1, high)
        return low if low <= chain.high else None


def _others(device: DevicePlan) -> int:
    return device.overhead_bytes + device.extras_bytes


def cost_of(trade: Trade) -> float:
    """What it costs for the intent."""
    return trade.cost
