"""What writes fastest of all that fits: asked where a wish for speed was not met by what is best otherwise."""

from collections.abc import Iterator
from itertools import combinations

from advisor.recommend.chain import Chain
from advisor.recommend.contexts import pair_name
from advisor.recommend.evaluate import Judged
from advisor.recommend.finer import shared_anew
from advisor.recommend.recommendation import Note
from advisor.recommend.search import Ranked, Search
from advisor.recommend.solve import Border, on_devices, settle, sketch_border
from advisor.settings import RequestedSettings, TensorOverride


def fastest(search: Search, least_tokens_per_s: float) -> list[Judged]:
    """For every cache type and micro-batch what fits and writes fastest, and the longest context that still does.

    More on the GPUs is no slower, and a shorter context leaves no less room for it: so the most that fits beside the
    shortest context decides. Where that reaches `least_tokens_per_s`, then also the least on the GPUs that does, with
    the longest context that fits beside it.
    """
    found: list[Judged] = []
    for pair in search.cache_pairs():
        for n_ubatch in micro_batches(search):
            some: list[Judged] = []
            for request in _fastest(search, pair, n_ubatch, least_tokens_per_s):
                some += _contexts(search, request, least_tokens_per_s)
            for request in _anew(search, some, least_tokens_per_s):
                some += _contexts(search, request, least_tokens_per_s)
            found += some
    return found


def too_slow(search: Search, best: Ranked) -> Note:
    """That the wish cannot be met, among what that holds, and what is the nearest to it."""
    n_ctx, pinned = shortest(search) // search.slots, search.wishes.pinned
    longer = pinned.n_ctx is None and n_ctx * search.slots < search.ceiling
    context = f"{n_ctx:,} tokens of context" + (" or more" if longer else "")
    caches = " or ".join(pair_name(pair) for pair in search.cache_pairs())
    smallest = micro_batches(search)[-1]
    batch = f"-ub {pinned.n_ubatch}" if smallest is None else f"-ub {smallest} or more"
    least, most = search.wishes.min_tokens_per_s or 0.0, search.pace(best.speed)
    ways = len(search.evaluator.host.devices) > 1 and best.judged.plan.host_expert_blocks  # more than are looked at
    nothing, these = (
        ("None of the settings looked at", "the fastest of these") if ways else ("Nothing that fits", "the fastest")
    )
    grows = any(layer.has_cache for layer in search.spec.layers)
    knobs = f"{context}, {caches} cache and {batch}" if grows else f"{context} and {batch}"
    text = f"{nothing} reaches {_rate(least)} tokens/s with {knobs}"
    return Note(
        "below_min_tps", f"{text}; this, {these}, gives about {f'{most:,.0f}' if most >= 1000 else f'{most:.1f}'}."
    )


def _rate(tokens_per_s: float) -> str:
    """As it was asked for, large ones with commas."""
    return f"{tokens_per_s:,.0f}" if tokens_per_s >= 1000 else f"{tokens_per_s:g}"


def micro_batches(search: Search) -> tuple[int | None, ...]:
    """As asked or usual (None), and half of that, which needs less memory."""
    usual = int(search.evaluator.engine.defaults["n_ubatch"])
    return (None,) if search.wishes.pinned.n_ubatch is not None else (None, usual // 2)


def shortest(search: Search) -> int:
    """The shortest context that may be chosen, of all slots together."""
    pinned = search.wishes.pinned.n_ctx
    return search.floor if pinned is None else pinned or search.spec.n_ctx_train


def rate(search: Search, judged: Judged) -> float:
    """Tokens per second that it writes in the intent's turn, or reads where it does not answer."""
    return search.pace(search.evaluator.speed(judged, search.intent))


def _fastest(search: Search, pair: tuple[str, str], n_ubatch: int | None, least: float) -> Iterator[RequestedSettings]:
    """The most on the GPUs that fits at the shortest context, and the fewest parts that reach the wish."""
    n_ctx = shortest(search)
    chain = search.chain(pair, n_ctx, n_ubatch)
    whole = chain.base._replace(n_gpu_layers=chain.n_blocks + 1)
    if chain.experts and search.wishes.pinned.n_gpu_layers is None and search.may_fit(whole):
        yield whole
    yield from _most(search, chain, search.split(pair, n_ctx, n_ubatch), least)
    if chain.experts and search.wishes.pinned.n_gpu_layers is None:  # where experts go with their layers less is copied
        layers = chain._replace(experts=False, high=chain.n_blocks + 1)
        border = sketch_border(
            search.evaluator, lambda at: search.shared(layers.make(at)), layers.low, layers.high, on_devices
        )
        yield from _most(search, layers, border, least)


def _most(search: Search, chain: Chain, border: Border | None, least: float) -> Iterator[RequestedSettings]:
    """Of one chain the most on the GPUs that fits, and the fewest parts that reach the wish."""
    most = settle(search.evaluator, border, on_devices) if border is not None else None
    if most is None or border is None:
        return
    asked = search.open_split(most.request)  # it may have been dealt anew
    top = next(at for at in range(chain.high, chain.low - 1, -1) if search.open_split(chain.make(at)) == asked)
    yield chain.make(top)
    yield from _other_kinds(search, chain, top)

    def reached(at: int) -> bool:
        return rate(search, search.evaluator.least(search.shared(chain.make(at)))) >= least

    if not reached(top):
        return
    low = chain.low
    while low < top:
        middle = (low + top) // 2
        low, top = (low, middle) if reached(middle) else (middle + 1, top)
    yield chain.make(low)


def _other_kinds(search: Search, chain: Chain, part: int) -> Iterator[RequestedSettings]:
    """Of a block that is on the GPUs in part other kinds of tensors there, where these are more to read."""
    request = chain.make(part)
    if not request.tensor_overrides or search.wishes.pinned.tensor_overrides:
        return
    block, slowest = request.n_cpu_moe or 0, rate(search, search.evaluator.least(request))
    kinds = chain.kinds[block]
    for count in range(1, len(kinds)):
        for left in combinations(kinds, count):
            overrides = tuple(TensorOverride(f"blk.{block}.{kind}", "CPU") for kind in left)
            other = request._replace(tensor_overrides=overrides)
            if rate(search, search.evaluator.least(other)) > slowest and search.may_fit(other):
                yield other


def _anew(search: Search, found: list[Judged], least: float) -> Iterator[RequestedSettings]:
    """With the layers dealt otherwise to several GPUs, and fewer experts away: what is quicker than all of `found`."""
    short = [one for one in found if one.plan.settings.n_ctx <= shortest(search) and one.plan.host_expert_blocks]
    if not short or search.wishes.whole_blocks:
        return
    best = max(short, key=lambda one: rate(search, one))
    most = rate(search, best)
    if most >= least:
        return
    for request in shared_anew(search, best, search.evaluator.expert_kinds):
        if rate(search, search.evaluator.least(request)) <= most or not search.may_fit(request):
            continue
        judged = search.evaluator.judge(request)
        if judged.fits:
            most = rate(search, judged)
            yield request


def _contexts(search: Search, request: RequestedSettings, least: float) -> list[Judged]:
    """`request` as it is, and with the longest context that fits and writes no slower, or still reaches the wish."""
    judged = search.judge(request)
    if not judged.fits:
        return []
    if search.wishes.pinned.n_ctx is not None:
        return [judged]
    enough = min(least, rate(search, judged))
    low, high = search.floor // search.step, search.unasked // search.step
    while low < high:  # the deeper in its context it answers, the slower
        middle = (low + high + 1) // 2
        longer = search.evaluator.least(search.shared(request._replace(n_ctx=middle * search.step)))
        low, high = (middle, high) if rate(search, longer) >= enough else (low, middle - 1)
    longest = search.longest(request, search.floor, max(low * search.step, search.floor))
    return [judged] if longest is None else [judged, longest]
