"""What would put everything on the GPU, or make a model fit at all: single changes with what they save and cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from advisor.recommend.budget import shared_bytes
from advisor.recommend.cache_safety import slow_row
from advisor.recommend.contexts import WHOLE, ContextTable, tightest
from advisor.recommend.evaluate import Judged
from advisor.recommend.recommendation import Fix
from advisor.recommend.search import Search
from advisor.recommend.whole import whole_request
from advisor.recommend.words import pace_of, use_rate
from advisor.settings import RequestedSettings
from advisor.units import format_bytes

if TYPE_CHECKING:
    from advisor.recommend.smaller import Smaller


def fixes(
    search: Search, best: Judged, verdict: str, contexts: ContextTable, smaller: Sequence[Smaller] = ()
) -> list[Fix]:
    """Single changes towards having everything on the GPU (or fitting at all): what is enough first, cheap first.

    `smaller`: quantizations that would do, the one that loses least first.
    """
    if verdict == "full" or (verdict == "cpu" and best.fits):
        return []
    wished = whole_request(search.evaluator, best.request, search.wishes.pinned)
    wished = wished._replace(n_ctx=best.plan.settings.n_ctx)
    all_of_it, nothing_fits = wished, verdict == "does_not_fit"
    if nothing_fits:  # then whatever makes it fit in part will do
        wished = best.request
    before = search.judge(wished)
    if before.fits:  # what is not on the GPUs is away by wish: nothing is lacking
        return []
    place, need, _ = tightest(search, before)
    over = before.shorts[0].over_bytes if before.shorts else 0
    out: list[Fix] = []

    def offer(change: str, request: RequestedSettings, costs: str, lost_n_ctx: int = 0) -> None:
        if not search.may_fit(request):  # however it is dealt: it is compared as it was dealt before
            request = request._replace(tensor_split=before.request.tensor_split)
        judged = search.judge(request)
        after = _need_at(search, judged, place)
        if need - after > 0:
            whole = not nothing_fits or wished == all_of_it
            enough = judged.fits or (nothing_fits and _fits_otherwise(search, request))
            out.append(Fix(change, need - after, costs, enough, lost_n_ctx=lost_n_ctx, device=place, whole=whole))

    settings = before.plan.settings
    if settings.cache_type_k == "f16" and search.cache_allowed("q8_0"):
        slow = slow_row(search.cache_rows, "q8_0")
        costs = f"near lossless, but about {slow.factor:g} times slower here" if slow is not None else "near lossless"
        offer("-ctk q8_0 -ctv q8_0", wished._replace(cache_type_k="q8_0", cache_type_v="q8_0"), costs)
    for n_ctx in _shorter_contexts(contexts, settings.cache_type_k, settings.n_ctx, search.slots):
        lost = settings.n_ctx - n_ctx
        offer(f"-c {n_ctx}", wished._replace(n_ctx=n_ctx), f"{lost:,} tokens less context", lost)
    if settings.n_parallel > 1:
        offer("-np 1", wished._replace(n_parallel=1), "one conversation at a time")
    if settings.n_ubatch > 256:
        offer("-ub 256", wished._replace(n_ubatch=256), "slower reading of the prompt")
    out += [quantization_fix(search, one) for one in smaller]
    if (over and place != "host") or (nothing_fits and search.evaluator.host.devices):
        from advisor.recommend.more_memory import more_memory

        more = more_memory(search, all_of_it)
        if more is not None:
            out.append(Fix(more.text, more.more_bytes, "money", more.enough))
    if verdict == "does_not_fit" and best.shorts and best.shorts[0].device == "host":
        lacking = best.shorts[0].over_bytes
        alone = all(short.device == "host" for short in best.shorts)
        out.append(Fix(f"{format_bytes(lacking)} more system memory", lacking, "money", alone))
    out.sort(key=lambda fix: (not fix.enough, fix.costs == "money"))  # otherwise they stand in the order of their price
    return out


def quantization_fix(search: Search, one: Smaller) -> Fix:
    """A file of that quantization, which alone is enough."""
    saves = sum(tensor.n_bytes for tensor in search.spec.tensors) - one.weights_bytes
    loses = "some" if one.bits_per_weight >= search.policy.warnings["much_loss_below_bits"] else "much"
    rate = use_rate(one.spec, one.speed)
    return Fix(f"a file in {one.text}", saves, f"loses {loses} quality, {pace_of(rate)}", True, rate)


def _shorter_contexts(contexts: ContextTable, cache_type: str, n_ctx: int, slots: int) -> list[int]:
    """The longest context that fits with everything on the GPU; where none does, two short ones to compare."""
    row = next((row for row in contexts.rows if row.cache_type == cache_type), None)
    if row is not None and row.max_n_ctx and contexts.basis.startswith(WHOLE) and row.max_n_ctx >= 4096:
        return [row.max_n_ctx * slots] if row.max_n_ctx * slots < n_ctx else []
    return [shorter * slots for shorter in (8192, 4096) if shorter * slots < n_ctx]


def _fits_otherwise(search: Search, request: RequestedSettings) -> bool:
    """Whether a request fits with as much on the GPUs as goes there, where nothing says how much that is."""
    if search.wishes.pinned.n_gpu_layers is not None or not search.evaluator.host.devices or not request.n_ctx:
        return False
    pair = (request.cache_type_k or "f16", request.cache_type_v or "f16")
    border = search.split(pair, request.n_ctx, request.n_ubatch)
    return border is not None and search.judge(border.make(border.at)).fits


def _need_at(search: Search, judged: Judged, place: str) -> int:
    """What is planned on a GPU or in system memory, what GPUs take of that among it."""
    need = next((plan.planned_bytes for plan in judged.plan.devices if plan.id == place), None)
    host = judged.plan.host.planned_bytes + shared_bytes(judged.plan, search.evaluator.budget)
    return host if need is None else need
