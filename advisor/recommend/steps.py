"""The next step up from an answer in each direction: the first that does not fit, and by how much."""

from advisor.recommend.chain import expert_kinds
from advisor.recommend.evaluate import Judged
from advisor.recommend.rungs import Figures, Place, context_of, tightest_of, where
from advisor.recommend.said import Said, capital, say, sentence
from advisor.recommend.search import Search
from advisor.recommend.whole import step_from
from advisor.recommend.words import on
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings, TensorOverride

_LOOSE = 8  # steps that the longest context over several GPUs, which is found loosely, may be short


class Step(NamedTuple):
    """One step that does not fit; `place` is where it lacks most."""

    code: str  # "context" | "cache" | "experts" | "layers"
    judged: Judged
    place: Place
    said: Said


def next_steps(search: Search, chosen: Judged) -> tuple[Step, ...]:
    """What a little more context, a better cache, one more layer or block of experts would lack.

    Empty where the choice fits no better itself, or where there is nothing left to want.
    """
    if not chosen.fits:
        return ()
    request, settings, pinned = search.open_split(chosen.request), chosen.plan.settings, search.wishes.pinned
    found = []
    if pinned.n_ctx is None and settings.n_ctx < search.ceiling:
        found.append(_context(search, chosen, request))
    if settings.cache_type_k != "f16" and not (pinned.cache_type_k or pinned.cache_type_v):
        lossless = search.judge(step_from(search, chosen)._replace(cache_type_k="f16", cache_type_v="f16"))
        found.append(_step("cache", search, lossless, "an f16 cache", {}))
    if search.evaluator.host.devices:
        in_part = bool(request.tensor_overrides) and not pinned.tensor_overrides
        if (settings.n_cpu_moe or in_part) and pinned.n_cpu_moe is None and not pinned.cpu_moe:
            found.append(_experts(search, chosen, request))
        if settings.n_gpu_layers <= search.spec.n_layer_all and pinned.n_gpu_layers is None:
            counts = range(settings.n_gpu_layers + 1, search.spec.n_layer_all + 2)
            found.append(_more(search, "layers", [request._replace(n_gpu_layers=count) for count in counts]))
    return tuple(step for step in found if step is not None)


def _context(search: Search, chosen: Judged, request: RequestedSettings) -> Step | None:
    """The first context that is too long; much may fit that the choice leaves to everything else."""
    n_ctx = chosen.plan.settings.n_ctx
    tried = search.judge(request._replace(n_ctx=min(n_ctx + search.step, search.ceiling)))
    if tried.fits:
        longest = search.longest(request, n_ctx, search.ceiling)
        n_ctx = longest.plan.settings.n_ctx if longest is not None else n_ctx
        if n_ctx >= search.ceiling:
            return None
        for _ in range(_LOOSE):
            tried = search.judge(request._replace(n_ctx=min(n_ctx + search.step, search.ceiling)))
            n_ctx = tried.plan.settings.n_ctx
            if not tried.fits or n_ctx >= search.ceiling:
                break
    context, values = context_of(tried)
    if tried.request.tensor_split != chosen.request.tensor_split:
        context += ", however the layers are dealt,"
    return _step("context", search, tried, context, values)


def _experts(search: Search, chosen: Judged, request: RequestedSettings) -> Step | None:
    """The smallest step: one more kind of tensor of one block's experts where -ot can say it, else one block."""
    pinned, n_whole = search.wishes.pinned, chosen.plan.settings.n_cpu_moe
    in_part = tuple(one for one in request.tensor_overrides if one not in pinned.tensor_overrides)
    whole = request._replace(tensor_overrides=pinned.tensor_overrides)
    blocks = [whole._replace(n_cpu_moe=count or None) for count in range(n_whole - (not in_part), -1, -1)]
    if search.wishes.whole_blocks or pinned.tensor_overrides:
        return _more(search, "experts", blocks)
    kinds = expert_kinds(search.spec)
    if not in_part:
        away = tuple(f"blk.{n_whole - 1}.{kind}" for kind in kinds.get(n_whole - 1, ()))
        in_part = tuple(TensorOverride(name, "CPU") for name in away)
        n_whole -= 1

    def size(one: TensorOverride) -> int:
        return search.evaluator.matched_bytes(int(one.pattern.split(".")[1]), one.pattern)

    left = sorted(in_part, key=lambda one: (size(one), one.pattern))
    the_gpus = "the GPU" if len(search.evaluator.host.devices) == 1 else "the GPUs"
    for number, one in enumerate(left, 1):
        rest = tuple(other for other in in_part if other not in left[:number])
        judged = search.judge(request._replace(n_cpu_moe=n_whole or None, tensor_overrides=rest))
        _, block, kind = one.pattern.split(".")
        words = f"one more tensor of experts, {kind} of block {{block}}, on {the_gpus}"
        step = _step("experts", search, judged, words, {"block": int(block)})
        if step is not None:
            return step
    return _more(search, "experts", blocks[1:] if not request.tensor_overrides else blocks)


def _more(search: Search, code: str, requests: list[RequestedSettings]) -> Step | None:
    """The first of `requests`, each more than the one before, that does not fit."""
    if not requests:
        return None
    low, high = 0, len(requests)
    if not search.judge(requests[0]).fits:
        high = 0
    while low < high:
        middle = (low + high) // 2
        if search.judge(requests[middle]).fits:
            low = middle + 1
        else:
            high = middle
    if low == len(requests):
        return None
    judged = search.judge(requests[low])
    layers, values = where(search, judged)
    return _step(code, search, judged, layers, values)


def _step(code: str, search: Search, judged: Judged, words: str, values: Figures) -> Step | None:
    if judged.fits or judged.plan.refused is not None:
        return None
    place, n_ubatch = tightest_of(search, judged), judged.plan.settings.n_ubatch
    if search.wishes.pinned.n_ubatch is None and n_ubatch > search.evaluator.engine.defaults["n_ubatch"]:
        words += ", with a micro-batch of {n_ubatch} tokens,"  # not what the rungs before it need
        values = {**values, "n_ubatch": n_ubatch}
    said = say(
        words + " would need {need_bytes} {place}", **values, need_bytes=place.need_bytes, place=on(place.device)
    )
    much = say("{over_bytes} too much", over_bytes=place.over_bytes)
    return Step(code, judged, place, capital(sentence(said, much)))
