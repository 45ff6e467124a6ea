"""A lower bound on what a set of GPUs can cost: whoever is already cheaper need not search it."""

from collections.abc import Sequence
from heapq import heappush, heapreplace

from advisor.host import HostSnapshot
from advisor.recommend.budget import Budget
from advisor.recommend.policy import lack, lossiness
from advisor.recommend.search import Search
from advisor.recommend.solve import on_devices, sketch_border

_STEP = 1.1  # contexts closer than that are not told apart


def pooled(host: HostSnapshot, budget: Budget, read_rates: tuple[float, ...]) -> HostSnapshot | None:
    """One GPU with the memory of all and the best of each: nothing that they do together is faster or fits better.

    None where that would be no bound: different backends, memory shared with the host, figures known only of some.
    """
    devices = host.devices
    if len(devices) == 1:
        return host
    flops = [device.f16_tflops for device in devices]
    links = [device.link_bytes_per_s for device in devices]
    if len({device.backend for device in devices}) > 1 or any(limit.unified for limit in budget.devices):
        return None
    if any(None in figures and set(figures) != {None} for figures in (flops, links)):
        return None
    best = max(range(len(devices)), key=lambda index: read_rates[index])
    together = sum(limit.usable_bytes for limit in budget.devices) + budget.devices[best].margin_bytes
    one = devices[best]._replace(
        total_bytes=together,
        free_bytes=together,
        used_by_engines_bytes=0,
        f16_tflops=max((figure for figure in flops if figure is not None), default=None),
        link_bytes_per_s=max((figure for figure in links if figure is not None), default=None),
    )
    return host._replace(devices=(one,))


def least_cost(search: Search, *, roughly: bool = False, enough: float = 0.0) -> float:
    """No candidate of `search`, which has one GPU, costs less; infinite where none can fit.

    `roughly`: as if the shortest context were as good as the longest, which is worked out sooner. `enough`: contexts
    are looked at in ever smaller steps where it is least, until it is no less than that.

    Memory is monotone: a longer context or more on the GPU never needs less, compute buffers need more than nothing.
    So at a context the most that fits without them is the most that can fit, and a candidate between two contexts has
    no more on the GPU than fits at the shorter one, and lacks no less context than the longer one.
    """
    pairs = search.cache_pairs()
    if not pairs:
        return float("inf")
    contexts = context_steps(search)
    steps = [(contexts[0], contexts[-1])]
    if not roughly:
        steps = list(zip(contexts, (*contexts[1:], contexts[-1]), strict=True))
    smallest = min(pairs, key=lambda pair: search.evaluator.cache_bytes(search.chain(pair, contexts[-1], None).make(0)))
    found: list[tuple[float, int, int, int]] = []  # a heap by the least cost
    top: int | None = None
    for n_ctx, longer in steps:
        top = _most_on_gpu(search, smallest, n_ctx, top)
        if top is None:
            break  # nothing longer fits either
        heappush(found, (_least_between(search, pairs, top, n_ctx, longer), n_ctx, longer, top))
    while found and found[0][0] < enough and found[0][2] > found[0][1] * _STEP:
        _, n_ctx, longer, top = found[0]
        middle = int((n_ctx * longer) ** 0.5)
        heapreplace(found, (_least_between(search, pairs, top, n_ctx, middle), n_ctx, middle, top))
        most = _most_on_gpu(search, smallest, middle, top)
        if most is not None:
            heappush(found, (_least_between(search, pairs, most, middle, longer), middle, longer, most))
    return found[0][0] if found else float("inf")


def _least_between(search: Search, pairs: Sequence[tuple[str, str]], top: int, n_ctx: int, longer: int) -> float:
    """With no more on the GPU than the part `top`, which fits at `n_ctx`, and a context of up to `longer`."""
    found = float("inf")
    for pair in pairs:
        chain = search.chain(pair, n_ctx, _largest_ubatch(search))
        turns = (
            search.evaluator.speed(search.evaluator.least(chain.make(index)), search.intent).turn_seconds.value
            for index in {top, chain.low if search.wishes.pinned.n_gpu_layers is not None else 0}
        )
        found = min(found, min(turns) * lossiness(search.policy, *pair))
    return found * lack(longer // search.slots, search.intent, search.policy, search.spec.n_ctx_train)


def context_steps(search: Search) -> list[int]:
    """From the shortest that may be chosen to the longest: doubling, in larger steps where little depends on it."""
    if search.wishes.pinned.n_ctx is not None:
        return [search.wishes.pinned.n_ctx or search.spec.n_ctx_train]
    contexts = [search.floor]
    while contexts[-1] < search.ceiling:
        contexts.append(min(contexts[-1] * (2 if contexts[-1] < search.comfortable else 4), search.ceiling))
    return contexts


def _largest_ubatch(search: Search) -> int:
    return int(max(search.policy.search["n_ubatch_with_host_weights"]))


def _most_on_gpu(search: Search, pair: tuple[str, str], n_ctx: int, most: int | None) -> int | None:
    """The largest number of the chain that fits the GPU without compute buffers, None where the host is over too."""
    chain, evaluator = search.chain(pair, n_ctx, None), search.evaluator
    low = chain.low if search.wishes.pinned.n_gpu_layers is not None else 0
    high = most if most is not None else chain.high + (1 if chain.experts else 0)
    border = sketch_border(evaluator, chain.make, low, high, on_devices, most, look=evaluator.least)
    return border.at if border.judged.fits else None
