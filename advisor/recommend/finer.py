"""Last looks around the best: single tensors of experts, other caches, half a micro-batch, a part less on the GPUs."""

from collections.abc import Iterator, Mapping, Sequence

from advisor.memory.placement import HOST
from advisor.recommend.chain import Chain
from advisor.recommend.context_border import context_border
from advisor.recommend.evaluate import ROUGHLY, Judged
from advisor.recommend.search import Ranked, Search
from advisor.recommend.solve import everywhere, settle
from advisor.recommend.wholes import WORTH
from advisor.settings import RequestedSettings, TensorOverride

_MORE_PARTS = 3  # that half a micro-batch may make room for
_BESIDE = 3  # so many of the best are looked at
_NEAR = 1.05  # if they cost no more: single tensors and half a micro-batch hardly gain it
_ROUGHLY = 4  # of compute buffers: over by that share is over
_FEWER_PARTS = 6  # that a larger one may take the room of: two blocks of three kinds of tensor


def last_looks(
    search: Search, ranked: Sequence[Ranked], kinds: Mapping[int, tuple[str, ...]], known_cost: float = float("inf")
) -> list[Judged]:
    """Fitting candidates around the best, which may have a part on the CPU, that cost less; `kinds` as for `finer`.

    And less than `known_cost`.
    """
    best = ranked[0].judged
    least = min(search.cost(best), known_cost)
    found: list[Judged] = []
    if not best.plan.host_expert_blocks and HOST not in best.plan.placement:
        return found
    near = [one.judged for one in ranked[:_BESIDE] if one.cost < _NEAR * ranked[0].cost]
    if best.plan.host_expert_blocks:
        for one in near:
            found += finer(search, one, kinds, min([least, *map(search.cost, found)]))
        found += _other_caches(search, best, kinds, min([least, *map(search.cost, found)]))
    for one in near:
        found += _smaller_batch(search, one, min([least, *map(search.cost, found)]))
    found += _usual_batch(search, best, min([least, *map(search.cost, found)]))
    found += _one_more(search, best, min([least, *map(search.cost, found)]))
    found += _larger_batches(search, best, min([least, *map(search.cost, found)]))
    return [*found, *_longer(search, best, min([least, *map(search.cost, found)]))]


def _part_of(search: Search, best: Judged, n_ubatch: int | None) -> tuple[Chain, int | None]:
    """The chain with the context and cache of `best` and a micro-batch, and the number of `best` in it."""
    settings = best.plan.settings
    chain = search.chain((settings.cache_type_k, settings.cache_type_v), settings.n_ctx, n_ubatch)
    asked = search.open_split(best.request)._replace(n_ctx=settings.n_ctx, n_ubatch=chain.base.n_ubatch)
    return chain, next((part for part in range(chain.high, chain.low - 1, -1) if chain.make(part) == asked), None)


def _usual_batch(search: Search, best: Judged, least: float) -> list[Judged]:
    """The same with the usual micro-batch, where half of it was taken to make room."""
    if best.request.n_ubatch is None or best.plan.settings.n_ubatch >= search.evaluator.engine.defaults["n_ubatch"]:
        return []
    request = best.request._replace(n_ubatch=search.wishes.pinned.n_ubatch)
    if search.cost(search.evaluator.least(request)) >= WORTH * least or not _may_fit(search, request):
        return []
    judged = search.evaluator.judge(request)
    return [judged] if judged.fits else []


def _larger_batches(search: Search, best: Judged, least: float) -> list[Judged]:
    """For the sake of context, where sketches are furthest off: larger micro-batches with a little less on the GPUs."""
    found: list[Judged] = []
    if not search.intent.least_tokens_per_s or not best.plan.host_expert_blocks:
        return found
    _, at = _part_of(search, best, best.request.n_ubatch)
    for n_ubatch in search.larger_batches if at is not None else ():
        if n_ubatch <= best.plan.settings.n_ubatch:
            continue
        chain, _ = _part_of(search, best, n_ubatch)
        longest = best.plan.settings.n_ctx >= search.unasked  # else memory ends it, and larger buffers take something
        first = (at or 0) - (not longest)
        for part in range(first, max(first - _FEWER_PARTS, chain.low) - 1, -1):
            asked = chain.make(part)
            ideal = search.evaluator.dealt_without_buffers(asked) if search.unequal else asked
            if search.cost(search.evaluator.least(ideal)) >= WORTH * least:
                break
            request = search.shared(asked)
            judged = search.evaluator.judge(request) if _may_fit(search, request) else None
            deals = request.tensor_split is not None and search.wishes.pinned.tensor_split is None
            if judged is not None and not judged.fits and deals:
                judged = search.evaluator.judge(search.evaluator.dealt_anew(judged))
            if judged is not None and judged.fits:
                found.append(judged)
                least = min(least, search.cost(judged))
                break
    return found


def _one_more(search: Search, best: Judged, least: float) -> list[Judged]:
    """For the sake of context, where few parts are sketched: one more on the GPUs, should its sketch be wrong."""
    chain, at = _part_of(search, best, best.request.n_ubatch)
    if not search.intent.least_tokens_per_s or at is None or at >= chain.high:
        return []
    request = search.shared(chain.make(at + 1))
    if search.cost(search.evaluator.least(request)) >= WORTH * least or not _may_fit(search, request):
        return []
    judged = search.evaluator.judge(request)
    return [judged] if judged.fits else []


def _longer(search: Search, best: Judged, least: float) -> list[Judged]:
    """A part less on the GPUs, with the longest context beside it: where sketches thought that it ends sooner."""
    if search.wishes.pinned.n_ctx is not None or best.plan.settings.n_ctx >= search.unasked_of(best.request):
        return []
    chain, at = _part_of(search, best, best.request.n_ubatch)
    if at is None or at <= chain.low:
        return []
    request = chain.make(at - 1)
    most = search.unasked_of(request)
    if most < best.plan.settings.n_ctx:
        return []
    if search.cost(search.evaluator.least(request._replace(n_ctx=most))) >= WORTH * least:
        return []
    n_ctx = best.plan.settings.n_ctx
    judged = search.longest(request, n_ctx, most, near_n_ctx=n_ctx)
    return [judged] if judged is not None else []


def _other_caches(search: Search, best: Judged, kinds: Mapping[int, tuple[str, ...]], least: float) -> list[Judged]:
    """The same with another cache, which may leave room for tensors of experts."""
    found: list[Judged] = []
    for pair in search.cache_pairs():
        request = best.request._replace(cache_type_k=pair[0], cache_type_v=pair[1])
        whole = request._replace(n_cpu_moe=search.wishes.pinned.n_cpu_moe, tensor_overrides=())
        if request == best.request or search.cost(search.evaluator.least(whole)) >= WORTH * least:
            continue
        if search.evaluator.far_over(request, _ROUGHLY):
            continue
        judged = search.evaluator.judge(request)
        if judged.fits:
            found += [judged, *finer(search, judged, kinds, least)]
            least = min([least, *map(search.cost, found)])
    return found


def _smaller_batch(search: Search, best: Judged, least: float) -> list[Judged]:
    """Half the micro-batch leaves room for a little more on the GPUs, at the same context or a shorter one."""
    usual = int(search.evaluator.engine.defaults["n_ubatch"])
    if search.wishes.pinned.n_ubatch is not None or best.plan.settings.n_ubatch > usual or not best.plan.devices:
        return []
    chain, part_now = _part_of(search, best, usual // 2)
    at = chain.high if part_now is None else part_now
    found = []
    for part in range(at + 1, min(at + _MORE_PARTS, chain.high) + 1):
        asked = chain.make(part)
        rough = search.evaluator.dealt_without_buffers(asked) if search.unequal else asked
        if search.cost(search.evaluator.least(rough)) >= WORTH * least:
            continue
        request = search.shared(asked)
        if search.cost(search.evaluator.least(request)) >= WORTH * least:
            continue
        judged = search.evaluator.judge(request) if _may_fit(search, request) else None
        if judged is None or not judged.fits:
            judged = _shorter(search, asked, best.plan.settings.n_ctx, least)
        if judged is not None:
            found.append(judged)
            least = min(least, search.cost(judged))
    return found


def _shorter(search: Search, asked: RequestedSettings, n_ctx: int, least: float) -> Judged | None:
    """With the longest context below one that does not fit, where that costs less than `least`."""
    if search.wishes.pinned.n_ctx is not None or n_ctx <= search.floor:
        return None
    border = context_border(search, asked, search.floor, n_ctx, n_ctx, n_ctx)
    if not border.judged.fits or search.cost(border.judged) >= WORTH * least:
        return None
    judged = settle(search.evaluator, border, everywhere)
    return judged if judged is not None and search.cost(judged) < least else None


def finer(search: Search, best: Judged, kinds: Mapping[int, tuple[str, ...]], least: float) -> list[Judged]:
    """Fitting candidates with the context of `best` that cost less than `least`; `kinds`, of `expert_kinds`, by block.

    Nothing is looked into that would not be cheaper by what is read of each memory.
    """
    pinned, settings = search.wishes.pinned, best.plan.settings
    asked = pinned.n_cpu_moe is not None or pinned.cpu_moe or pinned.tensor_overrides  # where experts lie, by wish
    if not kinds or asked or pinned.n_gpu_layers is not None or settings.n_gpu_layers <= search.spec.n_layer_all:
        return []
    found: list[Judged] = []
    last = list(_last_block(search, best, kinds))  # sketches, which know its neighbours, say nothing of it
    for request in (*last, *shared_anew(search, best, kinds)):
        may_fit = search.may_fit(request) if request in last else _may_fit(search, request)
        if may_fit and search.cost(search.evaluator.least(request)) < WORTH * least:
            judged = search.evaluator.judge(request)
            if judged.fits:
                found.append(judged)
                least = min(least, search.cost(judged))
    return found


def _may_fit(search: Search, request: RequestedSettings) -> bool:
    """Whether it is worth an exact plan: a new way to deal needs a graph of its own."""
    return search.may_fit(request) and not search.evaluator.far_over(request, ROUGHLY)


def _last_block(search: Search, best: Judged, kinds: Mapping[int, tuple[str, ...]]) -> Iterator[RequestedSettings]:
    """Of experts in the last block alone, which works on the wanted rows only, no GPU needs a copy for prompts."""
    last = search.spec.n_layer - 1
    if best.plan.host_expert_blocks > 2 or last not in kinds:
        return
    for pair in search.cache_pairs():
        whole = best.request._replace(
            n_cpu_moe=search.wishes.pinned.n_cpu_moe, cache_type_k=pair[0], cache_type_v=pair[1], tensor_overrides=()
        )
        for count in range(1, len(kinds[last]) + 1):
            overrides = tuple(TensorOverride(f"blk.{last}.{kind}", "CPU") for kind in kinds[last][-count:])
            yield search.shared(search.open_split(whole._replace(tensor_overrides=overrides)))


def shared_anew(search: Search, best: Judged, kinds: Mapping[int, tuple[str, ...]]) -> Iterator[RequestedSettings]:
    """On each GPU no more experts away than it lacks room; as dealt, or one layer more on one of two neighbours."""
    plan, pinned = best.plan, search.wishes.pinned
    n_devices = len(plan.devices)
    counts = [plan.placement.count(index) for index in range(n_devices)]
    asked = pinned.n_cpu_moe is not None or pinned.cpu_moe or pinned.tensor_overrides or pinned.tensor_split
    if n_devices < 2 or asked or pinned.split_mode or HOST in plan.placement or 0 in counts:
        return
    whole = best.request._replace(n_cpu_moe=None, tensor_overrides=())
    layers = search.evaluator.bytes_by_layer(whole)
    sizes = {
        (block, kind): search.evaluator.matched_bytes(block, f"blk.{block}.{kind}")
        for block in kinds
        for kind in kinds[block]
    }
    room = search.evaluator.room_beside(best)
    ways = [counts]
    for index in range(n_devices - 1):
        for step in (1, -1):
            changed = list(counts)
            changed[index] += step
            changed[index + 1] -= step
            ways.append(changed)
    tried = []
    for way in ways:
        away = _away(layers, way, room, kinds, sizes) if min(way) > 0 else None
        if away is not None:
            tried.append((sum(sizes[one] for one in away), way, away))
    for _, changed, away in sorted(tried, key=lambda trial: trial[0]):
        yield _request(whole, changed, away, kinds)


def _away(
    layers: Sequence[int], counts: Sequence[int], room: Sequence[int], kinds: Mapping[int, tuple[str, ...]],
    sizes: Mapping[tuple[int, str], int],
) -> list[tuple[int, str]] | None:  # fmt: skip
    """Tensors that must leave so that every device has room, its first blocks first; None where that is not enough."""
    away: list[tuple[int, str]] = []
    begin = 0
    for count, limit in zip(counts, room, strict=True):
        end = begin + count
        over = sum(layers[begin:end]) - limit
        for block in range(begin, end):
            mine = list(kinds.get(block, ()))
            while mine and over > 0:  # the smallest that is enough, else the largest
                kind = next((kind for kind in mine if sizes[block, kind] >= over), mine[-1])
                mine.remove(kind)
                away.append((block, kind))
                over -= sizes[block, kind]
        if over > 0:
            return None
        begin = end
    return away


def _request(
    whole: RequestedSettings, counts: Sequence[int], away: Sequence[tuple[int, str]],
    kinds: Mapping[int, tuple[str, ...]],
) -> RequestedSettings:  # fmt: skip
    """`whole` with these tensors on the CPU: whole blocks from the first on by number, the others by name."""
    gone = set(away)
    first = 0
    while all((first, kind) in gone for kind in kinds.get(first, ())) and any(block >= first for block, _ in gone):
        first += 1
    overrides = tuple(TensorOverride(f"blk.{block}.{kind}", "CPU") for block, kind in away if block >= first)
    return whole._replace(
        n_cpu_moe=first or None, tensor_overrides=overrides, tensor_split=tuple(float(count) for count in counts)
    )
