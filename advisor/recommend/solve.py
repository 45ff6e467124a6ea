"""Finding the border of one knob: quick sketches say where it lies, exact plans walk to it."""

from collections.abc import Callable

from advisor.recommend.evaluate import Evaluator, Judged
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings

Make = Callable[[int], RequestedSettings]
Good = Callable[[Judged], bool]

_GUESSES = 6  # exact plans at sketched borders before plain halving
_STEPS = 16  # from a first guess to the second
_HALVING = 5  # every fifth sketch halves what is left, should need not grow evenly
_NEAR = 4  # a quarter beyond what is good is near it
_LOOSE = 7  # loosely is within 1/128


class Border(NamedTuple):
    """The largest i for which make(i) is good, as far as sketches know; `judged` is that sketch."""

    make: Make
    low: int
    high: int
    at: int
    judged: Judged


def sketch_border(
    evaluator: Evaluator, make: Make, low: int, high: int, good: Good, near: int | None = None, *,
    loosely: bool = False, look: Callable[[RequestedSettings], Judged] | None = None,
) -> Border:  # fmt: skip
    """The largest good i by sketches; good must be monotone in i. Where nothing is good the border is `low`.

    Need grows almost evenly with i, so what is spare at two of them says where it ends. `near`: where to look first.
    `loosely`: a good i close to where it should end will do. `look`: what is looked at in place of sketches.
    """
    look = look or evaluator.sketch
    index, top = low - 1, high + 1  # known to be good, known not to be
    judged: Judged | None = None
    over: Judged | None = None
    seen: list[tuple[int, int]] = []  # (i, bytes to spare)
    while index + 1 < top:
        at = _crossing(seen) if len(seen) > 1 and len(seen) % _HALVING else None
        if loosely and judged is not None and at is not None and at - index <= index >> _LOOSE:
            break
        if at is None:
            at = (index + top) // 2 if near is None or len(seen) > 1 else near
            if near is not None and len(seen) == 1:
                at += max((high - low) // _STEPS, 1) * (1 if index >= low else -1)
        at = min(max(at, index + 1), top - 1)
        tried = look(make(at))
        if good(tried):
            index, judged = at, tried
        else:
            top, over = at, tried
        if tried.plan.refused is None:
            seen.append((at, evaluator.spare(tried, host=good is everywhere)))
    if judged is None:
        index, judged = low, look(make(low))
    if over is not None and not over.fits_devices:
        evaluator.ends(judged)
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


def settle(evaluator: Evaluator, border: Border, good: Good) -> Judged | None:
    """The exact candidate at the border, None when not even the lowest is good."""
    low, high, index = border.low, border.high, border.at
    best: Judged | None = None
    for tries in range(high - low + 1):
        judged = evaluator.judge(border.make(index))
        if good(judged):
            best, low = judged, index + 1
            if low > high or _over(evaluator.sketch(border.make(low)), judged, good):
                break
        else:
            high = index - 1
        if low > high:
            break
        if tries < _GUESSES:  # what was judged makes the sketches beside it better
            index = sketch_border(evaluator, border.make, low, high, good, min(max(index, low), high)).at
        else:
            index = (low + high) // 2
    return best


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
