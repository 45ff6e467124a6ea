"""Finding the border of one knob: quick sketches say where it lies, exact plans walk to it."""

from collections.abc import Callable

from advisor.recommend.evaluate import Evaluator, Judged
from advisor.recommend.packing import Packing
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings

Make = Callable[[int], RequestedSettings]
Good = Callable[[Judged], bool]

_GUESSES = 6  # exact plans at sketched borders before plain halving
_TRIES = 3  # plans after which a context longer than it need be is long enough
_STEPS = 16  # from a first guess to the second
_AROUND = 32  # but no further than this share of it
_HALVING = 8  # every eighth sketch halves what is left, should need not grow evenly
_NEAR = 4  # a quarter beyond what is good is near it
_LOOSE = 7  # loosely is within 1/128


class Border(NamedTuple):
    """The largest i for which make(i) is good, as far as sketches know; `judged` is that sketch."""

    make: Make
    low: int
    high: int
    at: int
    judged: Judged
    most: int | None = None  # where the rest is of no interest: no more than that is good


def sketch_border(
    evaluator: Evaluator, make: Make, low: int, high: int, good: Good, near: int | None = None, *,
    loosely: bool = False, contexts: bool = False, look: Callable[[RequestedSettings], Judged] | None = None,
    enough: Callable[[Judged, int], bool] | None = None, bare: Make | None = None,
) -> Border:  # fmt: skip
    """The largest good i by sketches; good must be monotone in i. Where nothing is good the border is `low`.

    Need grows almost evenly with i, so what is spare at two of them says where it ends. `near`: where to look first.
    `contexts`: every i is a context of the same candidate. `bare`: as make, where layers are not dealt to GPUs yet.
    `loosely`: a good i close to where it should end will do. `look`: what is looked at in place of sketches. `enough`:
    whether it does not matter where the border lies, by what is good so far and the most that may be.
    """
    look = look or evaluator.sketch
    index, top = low - 1, high + 1  # known to be good, known not to be
    judged: Judged | None = None
    seen: list[tuple[int, int]] = []  # (i, bytes to spare)
    packing = Packing(evaluator, contexts=contexts, bare=bare)
    looks = beyond = 0
    while index + 1 < top:
        halve = looks % _HALVING == 0 and index >= low and top <= high
        at = None if halve else packing.crossing(max(index, low), min(top, high + 1), host=good is everywhere)
        packed = at is not None
        if at is None and len(seen) > 1 and not halve:
            at = _crossing(seen)
        if loosely and judged is not None:
            reach = index + (index >> _LOOSE)
            if top - 1 <= reach or (at is not None and (index < at or packed) and at <= reach):
                break
        if at is None:
            at = (index + top) // 2 if near is None or looks > 1 else near
            if near is not None and looks == 1:
                at += max(min((high - low) // _STEPS, at // _AROUND), 1) * (1 if index >= low else -1)
        elif (low <= index and at <= index) or (top <= at + packed and top <= high):
            # what is left of whole layers is more or less than it was at the last border
            step = 1 << 4 * beyond if packed else max(at // _AROUND, 1) << beyond
            beyond += 1
            at = min(index + step, (index + top) // 2) if at <= index else max(top - step, (index + top) // 2)
        at = min(max(at, index + 1), top - 1)
        tried = look(make(at))
        looks += 1
        if good(tried):
            index, judged = at, tried
        else:
            top = at
        if enough is not None and judged is not None and index + 1 < top and enough(judged, top - 1):
            return Border(make, low, high, index, judged, top - 1)
        if tried.plan.refused is None:
            packing.add(at, tried)
            seen.append((at, evaluator.spare(tried, host=good is everywhere)))
    if judged is None:
        index, judged = low, look(make(low))
    return Border(make, low, high, index, judged)


def _crossing(seen: list[tuple[int, int]]) -> int | None:
    """Where a line through two points says that nothing is to spare.

    The two with the least to spare. But of several GPUs the fullest decides what is over, and all together what is
    left: where what is over lies far beyond what is good it says little, and one of each is taken.
    """
    pair = sorted(seen, key=lambda point: abs(point[1]))[:2]
    left = max((point for point in seen if point[1] >= 0), default=None)
    over = min((point for point in seen if point[1] < 0), default=None)
    if left is not None and over is not None and left not in pair and over[0] > left[0] + left[0] // _NEAR:
        pair = [left, over]
    (x0, spare0), (x1, spare1) = pair
    if spare0 == spare1 or (x0 < x1) != (spare0 > spare1):
        return None
    return x0 + spare0 * (x1 - x0) // (spare0 - spare1)


def settle(evaluator: Evaluator, border: Border, good: Good, loose_from: int | None = None) -> Judged | None:
    """The exact candidate at the border, None when not even the lowest is good.

    From `loose_from` on one that is as close to it as a loose border will do, or as a few plans come to it: buffers may
    take leaps.
    """
    low, high, index, make = border.low, border.high, border.at, border.make
    best: Judged | None = None
    for tries in range(high - low + 1):
        judged = evaluator.judge(make(index))
        if good(judged):
            best, low = judged, index + 1
            if low > high or _over(evaluator.sketch(border.make(low)), judged, good):
                break
        else:
            high = index - 1
        if low > high or (best is not None and loose_from is not None and low > loose_from and tries >= _TRIES):
            break
        if tries < _GUESSES:  # what was judged makes the sketches beside it better
            known = index
            near = min(max(index, low), high)
            index, make = sketch_border(evaluator, border.make, low, high, good, near).at, border.make
            split = evaluator.split_anew(judged) if index < near and not good(judged) else None
            if split is not None:  # by what buffers were found to be; by what was thought of them there may be less
                dealt = _with_split(border.make, split)
                other = sketch_border(evaluator, dealt, low, high, good, near)
                if good(other.judged) and other.at > index:
                    index, make = other.at, dealt
            close = loose_from is not None and loose_from <= known < index <= known + (known >> _LOOSE)
            if close and best is not None and good(judged):
                break
        else:
            index, make = (low + high) // 2, border.make
    return best


def _with_split(make: Make, split: tuple[float, ...]) -> Make:
    return lambda index: make(index)._replace(tensor_split=split)


def _over(sketch: Judged, below: Judged, good: Good) -> bool:
    """Whether a sketch one step above an exact plan is over for sure: everything in it but compute buffers is exact.

    With the same layers and a longer context these hardly shrink (holes between tensors change); else at least half of
    what is sketched counts.
    """
    longer = sketch.plan.placement == below.plan.placement and sketch.request._replace(
        n_ctx=below.request.n_ctx, tensor_split=below.request.tensor_split
    ) == (below.request)
    exact = {device.id: device.compute.high for device in below.plan.devices} | {"host": below.plan.host.compute.high}
    drawn = {device.id: device.compute.high for device in sketch.plan.devices} | {"host": sketch.plan.host.compute.high}
    for short in sketch.shorts:
        least = exact[short.device] * 9 // 10 if longer else drawn[short.device] // 2
        counts = short.device != "host" or good is everywhere
        if counts and short.over_bytes > drawn[short.device] - min(least, drawn[short.device]):
            return True
    return False


def on_devices(judged: Judged) -> bool:
    """Whether the GPUs' part fits, whatever the host says."""
    return judged.fits_devices


def everywhere(judged: Judged) -> bool:
    """Whether it fits."""
    return judged.fits
