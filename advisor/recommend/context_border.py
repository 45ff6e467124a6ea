"""The longest context of a candidate, by sketches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.recommend.evaluate import Judged
from advisor.recommend.solve import Border, everywhere, sketch_border
from advisor.settings import RequestedSettings

if TYPE_CHECKING:
    from advisor.recommend.search import Search


def context_border(
    search: Search, request: RequestedSettings, low: int, high: int, reach: int | None = None,
    near_n_ctx: int | None = None, least_cost: float = float("inf"),
) -> Border:  # fmt: skip
    """The longest context in [low, high] that fits, as far as sketches know; loosely, and no further than `reach`.

    Without `reach` exactly. It is left open where all that may fit costs more than `least_cost`. Layers are dealt to
    several GPUs for every context.
    """
    step = search.step

    def enough(judged: Judged, most: int) -> bool:
        speed = search.evaluator.speed(judged, search.intent)
        if search.pace(speed) < search.least_tokens_per_s:
            return False
        gain = search.lack(min(most * step, high)) / search.lack(judged.plan.settings.n_ctx)
        return search.price(judged, speed) * gain > least_cost

    border = sketch_border(
        search.evaluator,
        lambda i: search.shared(request._replace(n_ctx=min(max(i * step, low), high))),
        low // step,
        (high if reach is None else reach) // step,
        everywhere,
        None if near_n_ctx is None else near_n_ctx // step,
        loosely=reach is not None,
        contexts=True,
        enough=enough if least_cost < float("inf") else None,
    )
    return border._replace(high=high // step)
