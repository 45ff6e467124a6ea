"""Finding the border of one knob: quick sketches say where it lies, exact plans walk to it."""

from collections.abc import Callable

from advisor.recommend.evaluate import Evaluator, Judged
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings

Make = Callable[[int], RequestedSettings]
Good = Callable[[Judged], bool]


class Border(NamedTuple):
    """The largest i for which make(i) is good, as far as sketches know; `judged` is that sketch."""

    make: Make
    low: int
    high: int
    at: int
    judged: Judged


def sketch_border(evaluator: Evaluator, make: Make, low: int, high: int, good: Good) -> Border:
    """Bisect with sketches; good must be monotone in i. Where nothing is good the border is `low`."""
    index, top = low - 1, high
    judged: Judged | None = None
    while index < top:
        middle = (index + top + 1) // 2
        tried = evaluator.sketch(make(middle))
        if good(tried):
            index, judged = middle, tried
        else:
            top = middle - 1
    if judged is None:
        index, judged = low, evaluator.sketch(make(low))
    return Border(make, low, high, index, judged)


def settle(evaluator: Evaluator, border: Border, good: Good) -> Judged | None:
    """The exact candidate at the border, None when not even the lowest is good."""
    index = border.at
    judged = evaluator.judge(border.make(index))
    if not good(judged):
        while index > border.low:
            index -= 1
            judged = evaluator.judge(border.make(index))
            if good(judged):
                return judged
        return None
    while index < border.high:
        if _clearly_over(evaluator.sketch(border.make(index + 1)), good):
            break
        above = evaluator.judge(border.make(index + 1))
        if not good(above):
            break
        index, judged = index + 1, above
    return judged


def _clearly_over(sketch: Judged, good: Good) -> bool:
    """Whether a sketch is over by more than half of a compute buffer: only that part of it is not exact."""
    computes = {plan.id: plan.compute.high for plan in sketch.plan.devices}
    computes["host"] = sketch.plan.host.compute.high
    shorts = [short for short in sketch.shorts if short.device != "host" or good is everywhere]
    return any(short.over_bytes > computes[short.device] // 2 for short in shorts)


def on_devices(judged: Judged) -> bool:
    """Whether the GPUs' part fits, whatever the host says."""
    return judged.fits_devices


def everywhere(judged: Judged) -> bool:
    """Whether it fits."""
    return judged.fits
