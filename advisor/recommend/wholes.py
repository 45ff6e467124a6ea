"""Everything on the GPUs: which other cache or micro-batch is worth a search for its longest context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from advisor.recommend.evaluate import Judged
from advisor.settings import RequestedSettings

if TYPE_CHECKING:
    from advisor.recommend.search import Search
    from advisor.recommend.solve import Border

WORTH = 0.995  # what cannot come below that share of the best known cost is not looked into
_SKETCHED_SHORT = 1.5  # the longest context that fits is no more times what a sketch of a new micro-batch says
_READ_SHORT = 1.15  # where buffers are read off, see `Anchors.far_apart`; half the micro-batch may still make room


def whole_may_gain(
    search: Search, pair: tuple[str, str], found: Mapping[RequestedSettings, Judged], best: float
) -> bool:
    """Whether everything on the GPUs with another cache can be longer than, or cheaper than, what was found."""
    if not found or search.unequal or all(one.plan.settings.n_ctx < search.ceiling for one in found.values()):
        return True
    request = next(iter(found))._replace(cache_type_k=pair[0], cache_type_v=pair[1])
    return search.cost(search.evaluator.least(request)) < best


def everything_on_gpu(
    search: Search, pair: tuple[str, str], n_ubatch: int | None = None, below: float | None = None
) -> Judged | None:
    """Every layer on the GPUs with the longest context that fits; `n_ubatch` None = as asked; `below` as for it."""
    pinned, every = search.wishes.pinned, search.spec.n_layer_all + 1
    experts_away = search.spec.n_expert and (pinned.n_cpu_moe or pinned.cpu_moe)
    in_part = pinned.n_gpu_layers is not None and 0 <= pinned.n_gpu_layers < every
    if in_part or experts_away or not search.evaluator.host.devices:
        return None
    request = search.base._replace(
        n_gpu_layers=every if pinned.n_gpu_layers is None else pinned.n_gpu_layers,
        cache_type_k=pair[0], cache_type_v=pair[1], n_ubatch=n_ubatch or pinned.n_ubatch,
    )  # fmt: skip
    return search.longest(request, min(search.floor, search.ceiling), search.unasked, below=below)


def larger_wholes(search: Search, found: Sequence[RequestedSettings], best: float) -> Iterator[Judged]:
    """What was found with larger micro-batches, where these may cost less than `best`: experts read prompts faster."""
    for request in found:
        pair = (request.cache_type_k or "", request.cache_type_v or "")
        for n_ubatch in search.larger_batches:
            least = search.evaluator.least(request._replace(n_ubatch=n_ubatch))
            whole = everything_on_gpu(search, pair, n_ubatch, best) if search.cost(least) < WORTH * best else None
            if whole is not None:
                best = min(best, search.cost(whole))
                yield whole


def smaller_wholes(search: Search, found: Sequence[Judged], best: float) -> Iterator[Judged]:
    """What was found short of the comfortable context with half the micro-batch: its buffers leave room for more."""
    usual = int(search.evaluator.engine.defaults["n_ubatch"])
    for one in found:
        n_ctx, devices = one.plan.settings.n_ctx, one.plan.devices
        if n_ctx >= search.comfortable or one.request.n_ubatch is not None:
            continue
        pair = (one.request.cache_type_k or "", one.request.cache_type_v or "")
        buffers, cache = (sum(n) for n in ([d.compute.high for d in devices], [d.cache_bytes for d in devices]))
        longest = min(n_ctx + n_ctx * buffers // max(2 * cache, 1), search.unasked)  # half of them are left at least
        least = search.cost(search.evaluator.least(one.request._replace(n_ubatch=usual // 2)))
        if least * search.lack(longest) / search.lack(n_ctx) < WORTH * best:
            whole = everything_on_gpu(search, pair, usual // 2, best)
            if whole is not None and whole.fits:
                best = min(best, search.cost(whole))
                yield whole


def no_cheaper(search: Search, border: Border, longest: int, below: float) -> bool:
    """Whether the context at a border costs no less than `below` even where sketches of a new micro-batch are off."""
    if not border.judged.fits:
        return False
    n_ctx = border.judged.plan.settings.n_ctx
    short = _READ_SHORT if search.far_apart else _SKETCHED_SHORT
    more = search.lack(min(int(n_ctx * short), longest)) / search.lack(n_ctx)
    return search.cost(border.judged) * more >= below


def on_cpu(search: Search, pair: tuple[str, str]) -> Judged | None:
    """Nothing on a GPU."""
    if search.wishes.pinned.n_gpu_layers not in (None, 0):
        return None
    request = search.base._replace(n_gpu_layers=0, cache_type_k=pair[0], cache_type_v=pair[1])
    return search.longest(request, search.floor, search.longest_in_ram)
