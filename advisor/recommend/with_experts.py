"""Layers that go to the CPU with their experts: what a large cache may make cheaper than experts alone.

The search keeps every layer's attention on the GPUs and moves experts last. Where that cannot be better it is not
looked into: at a context no more layers fit than without buffers, and a longer one leaves room for no more.
"""

from collections.abc import Callable, Iterator

from advisor.memory.placement import HOST
from advisor.recommend.bounds import context_steps
from advisor.recommend.chain import Chain
from advisor.recommend.evaluate import Judged
from advisor.recommend.search import Search
from advisor.recommend.solve import everywhere, on_devices, settle, sketch_border
from advisor.recommend.wholes import WORTH
from advisor.settings import RequestedSettings

_FAR_LESS = 2  # times: then nothing but experts is worth moving


def with_their_experts(search: Search, best: Judged, least: float) -> list[Judged]:
    """Fitting candidates with whole layers on the CPU that cost less than `least`; `best`: the best so far."""
    pinned, spec = search.wishes.pinned, search.spec
    if not (best.plan.host_expert_blocks or HOST in best.plan.placement) or pinned.n_gpu_layers is not None:
        return []
    # of an expert's bytes this share is read for a token, of a cache's what the turn fills: the lesser is better away
    read, filled = spec.n_expert_used / spec.n_expert, search.intent.turn.n_tokens * search.slots / search.comfortable
    if _FAR_LESS * read < filled:
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
    return found


def _layers(search: Search, pair: tuple[str, str], n_ctx: int, n_ubatch: int | None) -> Chain:
    chain = search.chain(pair, n_ctx, n_ubatch)
    return chain._replace(experts=False, low=1, high=chain.n_blocks + 1)


def _worth(search: Search, pair: tuple[str, str], least: float) -> Iterator[tuple[int, int, int]]:
    """(context, the next one, the most layers that may fit there) between which something may be cheaper."""
    contexts = context_steps(search)
    largest = max(search.larger_batches, default=None)
    top: int | None = None
    for n_ctx, longer in zip(contexts, (*contexts[1:], contexts[-1]), strict=True):
        chain = _layers(search, pair, n_ctx, None)
        if not search.may_fit(chain.make(chain.low), host=False):
            return
        border = sketch_border(
            search.evaluator, chain.make, chain.low, chain.high if top is None else top, on_devices, top,
            look=lambda request: search.evaluator.least(search.evaluator.dealt_without_buffers(request)),
        )  # fmt: skip
        top = border.at
        asked = _layers(search, pair, n_ctx, largest).make(top)
        fastest = search.evaluator.least(search.evaluator.dealt_without_buffers(asked))
        if search.cost(fastest) * search.lack(longer) / search.lack(n_ctx) < WORTH * least:
            yield n_ctx, longer, top


def _at(search: Search, chain: Chain, n_ctx: int, longer: int, most: int, least: float) -> Judged | None:
    """The cheapest between two contexts, None where nothing is cheaper than `least`."""
    best = None
    while n_ctx <= longer:
        here = chain._replace(base=chain.base._replace(n_ctx=n_ctx))
        border = sketch_border(search.evaluator, _shared(search, here), chain.low, most, on_devices, most)
        if not border.judged.fits_devices:
            return best
        most = border.at
        beside = search.context_border(chain.make(most), search.floor, search.unasked, near_n_ctx=n_ctx)
        if beside.judged.fits and search.cost(beside.judged) < WORTH * least:
            judged = settle(search.evaluator, beside, everywhere)
            if judged is not None and search.cost(judged) < least:
                best, least = judged, search.cost(judged)
        n_ctx = max(n_ctx, beside.judged.plan.settings.n_ctx) + search.step
    return best


def _shared(search: Search, chain: Chain) -> Callable[[int], RequestedSettings]:
    return lambda layers: search.shared(chain.make(layers))
