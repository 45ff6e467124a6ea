"""Layers that go to the CPU with their experts: what a large cache may make cheaper than experts alone.

The search keeps every layer's attention on the GPUs and moves experts last. Where that cannot be better it is not
looked into: at a context no more layers fit than without buffers, and a longer one leaves room for no more.
"""

from collections.abc import Callable, Iterator

from advisor.memory.placement import HOST
from advisor.recommend.bounds import context_steps
from advisor.recommend.chain import Chain
from advisor.recommend.context_border import context_border
from advisor.recommend.evaluate import Judged
from advisor.recommend.search import Search
from advisor.recommend.solve import everywhere, on_devices, settle, sketch_border
from advisor.recommend.wholes import WORTH
from advisor.settings import RequestedSettings

_WITHOUT_BUFFERS = 0.97  # judgement: a bound that leaves buffers out is lower by more than that


def with_their_experts(search: Search, best: Judged, least: float) -> list[Judged]:
    """Fitting candidates with whole layers on the CPU that cost less than `least`; `best`: the best so far."""
    pinned = search.wishes.pinned
    if not (best.plan.host_expert_blocks or HOST in best.plan.placement) or pinned.n_gpu_layers is not None:
        return []
    found: list[Judged] = []
    batches = (None, *search.larger_batches)
    for pair in search.cache_pairs():
        for n_ctx, longer, most in _worth(search, pair, least):
            for n_ubatch in batches:
                judged = _at(search, _layers(search, pair, n_ctx, n_ubatch), n_ctx, longer, most, least)
                if judged is not None:
                    found.append(judged)
                    least = search.cost(judged)
                elif search.far_apart:
                    break  # where context counts a micro-batch brings little
    return found


def _layers(search: Search, pair: tuple[str, str], n_ctx: int, n_ubatch: int | None) -> Chain:
    chain = search.chain(pair, n_ctx, n_ubatch)
    return chain._replace(experts=False, low=1, high=chain.n_blocks + 1)


def _worth(search: Search, pair: tuple[str, str], least: float) -> Iterator[tuple[int, int, int]]:
    """(context, the next one, the most layers that may fit there) between which something may be cheaper."""
    contexts = context_steps(search)
    spans = [(0, len(contexts) - 1)]
    while spans:
        first, last = spans.pop()
        most = _most(search, pair, contexts[first])
        if most is None:
            continue
        asked = (_layers(search, pair, contexts[first], n).make(most) for n in (None, *search.larger_batches))
        fastest = min(search.cost(_ideal(search, request)) for request in asked)
        if fastest * search.lack(contexts[last]) / search.lack(contexts[first]) >= _WITHOUT_BUFFERS * least:
            continue
        if last - first < 2:
            yield contexts[first], contexts[last], most
        else:
            middle = (first + last) // 2
            spans += [(middle, last), (first, middle)]


def _most(search: Search, pair: tuple[str, str], n_ctx: int) -> int | None:
    """More layers than that are too much for all GPUs together, without buffers; None where one is."""
    chain = _layers(search, pair, n_ctx, None)
    low, high = chain.low - 1, chain.high
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if search.may_fit(chain.make(middle), host=False) else (low, middle - 1)
    return low if low >= chain.low else None


def _ideal(search: Search, request: RequestedSettings) -> Judged:
    """As if nothing but layers took room."""
    return search.evaluator.least(search.evaluator.dealt_without_buffers(request))


def _at(search: Search, chain: Chain, n_ctx: int, longer: int, most: int, least: float) -> Judged | None:
    """The cheapest between two contexts, None where nothing is cheaper than `least`."""
    best = None
    while n_ctx <= longer:
        here = chain._replace(base=chain.base._replace(n_ctx=n_ctx))
        border = sketch_border(
            search.evaluator, _shared(search, here), chain.low, most, on_devices, most, bare=here.make
        )
        if not border.judged.fits_devices:
            return best
        most = border.at
        if search.wishes.pinned.n_ctx is not None:
            judged = settle(search.evaluator, border, everywhere)
            return judged if judged is not None and search.cost(judged) < least else None
        if search.cost(border.judged) * search.lack(longer) / search.lack(n_ctx) >= WORTH * least:
            return best  # a longer context leaves room for no more layers
        asked = chain.make(most)
        beside = context_border(search, asked, search.floor, search.unasked_of(asked), near_n_ctx=n_ctx)
        if beside.judged.fits and search.cost(beside.judged) < WORTH * least:
            judged = settle(search.evaluator, beside, everywhere)
            if judged is not None and search.cost(judged) < least:
                best, least = judged, search.cost(judged)
        n_ctx = max(n_ctx, beside.judged.plan.settings.n_ctx) + search.step
    return best


def _shared(search: Search, chain: Chain) -> Callable[[int], RequestedSettings]:
    return lambda layers: search.shared(chain.make(layers))
