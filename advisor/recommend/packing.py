"""Where whole layers no longer find room on several GPUs, as the context grows or more of them shall lie there.

Bytes left on all of them together say little of it: a layer goes to one GPU or another. So what layers take and what
buffers leave for them is drawn as lines through what was looked at, and layers are packed between these.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

from advisor.recommend.budget import host_over_bytes
from advisor.recommend.evaluate import Evaluator, Judged
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings


class Look(NamedTuple):
    """What was found at one number of a border."""

    at: int
    judged: Judged
    ends: tuple[int, ...]  # bytes of the first so many layers on the GPUs
    rooms: tuple[int, ...]  # bytes for layers on each, about; negative where buffers alone are too much
    host: int  # bytes left of system memory

    @property
    def used(self) -> list[bool]:
        """Which GPUs got layers; looks unlike another are no line."""
        return list(map(bool, self.judged.request.tensor_split or ()))


class Packing:
    """What was looked at for one border, with layers dealt by what was known of buffers."""

    def __init__(
        self, evaluator: Evaluator, *, contexts: bool, bare: Callable[[int], RequestedSettings] | None = None
    ) -> None:
        """`contexts`: numbers are known to stand for nothing but contexts. `bare`: requests whose layers nobody dealt.

        With neither numbers are taken for contexts where that is all that they change.
        """
        self._evaluator, self._contexts, self._bare = evaluator, contexts, bare
        self._looks: list[Look] = []
        self._ends: dict[int, tuple[int, ...]] = {}

    def add(self, at: int, judged: Judged) -> None:
        """What was looked at; it says nothing where nobody dealt layers to several GPUs, or more than `at` differs."""
        request = judged.request
        if not self._evaluator.is_dealt(request) or not request.tensor_split:
            return
        if self._looks and self._bare is None:
            first = self._looks[0].judged.request
            if request._replace(n_ctx=first.n_ctx, tensor_split=first.tensor_split) != first:
                return
        devices = judged.plan.devices
        widest = max(plan.compute.high for plan in devices)  # what one without layers would need with some
        limits = zip(self._evaluator.budget.devices, devices, request.tensor_split, strict=True)
        rooms = tuple(
            [limit.usable_bytes - (plan.beside_layers_bytes if layers else widest) for limit, plan, layers in limits]
        )
        left = -host_over_bytes(judged.plan, self._evaluator.budget)
        self._looks.append(Look(at, judged, self._ends_of(request), rooms, left))

    def crossing(self, good: int, bad: int, *, host: bool) -> int | None:
        """The last number from `good` to before `bad` at which all find room; None where too little was looked at.

        `host`: and what is left on the host.
        """
        if not self._looks:
            return None
        below = sorted((look for look in self._looks if look.at <= good), key=lambda look: -look.at)
        above = sorted((look for look in self._looks if look.at > good), key=lambda look: look.at)
        if len(below) > 1 and self._looks[-1] is below[0]:
            # need grows ever faster: between good and bad it ends later than on a line, beyond two good ones sooner
            last = self._last(below, good, bad, host=host)
            if last is not None and last < bad - 1:
                return last
        near = below[:1] + above[:1] if below else above
        return self._last([*near, *below[1:]], good, bad, host=host)

    def _last(self, near: Sequence[Look], good: int, bad: int, *, host: bool) -> int | None:
        """The same by the line through the first and the next that leaves the same GPUs empty."""
        a = near[0]
        b = next((look for look in near[1:] if look.used == a.used), None)
        if b is None and self._bare is not None:
            b = a._replace(at=a.at + 1)  # buffers hardly change from part to part
        if b is None and not self._contexts:
            return None
        b = b or self._twice(a)
        low, high = good, bad - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._fits(a, b, middle, host=host) else (low, middle - 1)
        return low

    def _fits(self, a: Look, b: Look, at: int, *, host: bool) -> bool:
        share, of = at - a.at, b.at - a.at
        if host and a.host + (b.host - a.host) * share // of < 0:
            return False
        if self._bare is None:
            ends: Sequence[int] = _line(a.ends, b.ends, share, of)
        else:
            ends = self._ends[at] = self._ends.get(at) or self._ends_of(self._bare(at))
        done = 0
        for room in _line(a.rooms, b.rooms, share, of):
            if room > 0:
                done = bisect_right(ends, room + (ends[done - 1] if done else 0), done)
        return done == len(ends)

    def _ends_of(self, request: RequestedSettings) -> tuple[int, ...]:
        return tuple(accumulate(self._evaluator.bytes_by_layer(request)))

    def _twice(self, look: Look) -> Look:
        """Twice the context, where buffers grow by the mask alone."""
        request, settings = look.judged.request, look.judged.plan.settings
        mask = (2 if look.judged.plan.flash_attn else 4) * settings.n_ubatch * settings.n_ctx_seq
        return look._replace(
            at=2 * look.at,
            ends=self._ends_of(request._replace(n_ctx=2 * settings.n_ctx)),
            rooms=tuple([room - mask for room in look.rooms]),
        )


def _line(a: Sequence[int], b: Sequence[int], share: int, of: int) -> list[int]:
    return [x + (y - x) * share // of for x, y in zip(a, b, strict=True)]
