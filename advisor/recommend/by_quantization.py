"""The same model in several quantizations: does each fit at one context, how long a context would, how fast."""

from collections.abc import Sequence

from advisor.recommend.evaluate import Judged
from advisor.recommend.search import Search
from advisor.recommend.whole import verdict_of
from advisor.records import NamedTuple
from advisor.speed import Speed
from advisor.units import round_up

_PROBES = 32  # contexts looked at between the shown one and the trained one are multiples of a part of it


class Fit(NamedTuple):
    """One quantization on one machine. With does_not_fit `judged` is what comes nearest.

    `max_n_ctx`: the longest context in any way that fits, up to the trained one; `max_n_ctx_full`: with everything on
    the GPUs, None where it does not fit.
    """

    judged: Judged
    verdict: str  # "full" | "partial" | "cpu" | "does_not_fit"
    speed: Speed
    max_n_ctx: int | None
    max_n_ctx_full: int | None


def fit(search: Search, n_ctx: int, *, cpu_only: bool = False) -> Fit:
    """How the model of `search` fits at `n_ctx` tokens. `cpu_only`: the GPUs cannot compute with these weights."""
    pair = search.cache_pairs()[0]
    least = min(256, n_ctx)
    most = max(search.ceiling, n_ctx)
    base = search.base._replace(n_ctx=n_ctx, cache_type_k=pair[0], cache_type_v=pair[1])
    away = base._replace(n_gpu_layers=0)
    budget = search.evaluator.budget
    on_gpus = sum(limit.usable_bytes for limit in budget.devices)
    if _weights(search, ("skipped",)) > on_gpus + budget.ram_usable_bytes:
        return _fit(search, search.evaluator.sketch(away), False, None, None)
    full = None
    if search.evaluator.host.devices and not cpu_only:
        if _weights(search, ("skipped", "input")) <= on_gpus:
            whole = base._replace(n_gpu_layers=search.spec.n_layer_all + 1)
            judged = search.judge(whole)
            longest = search.longest(whole, least, most, pinned=False)
            full = longest.plan.settings.n_ctx if longest is not None else None
            if judged.fits:
                return _fit(search, judged, True, full, full)
        border = search.split(pair, n_ctx, None)
        if border is not None:
            reach = _longest_split(search, pair, n_ctx, most) if border.judged.fits else full
            return _fit(search, border.judged, border.judged.fits, reach, full)
    judged = search.evaluator.judge(away)
    longest = search.longest(away, least, most, pinned=False)
    reach = max(longest.plan.settings.n_ctx if longest is not None else 0, full or 0) or None
    return _fit(search, judged, judged.fits, reach, full)


def _weights(search: Search, without: tuple[str, ...]) -> int:
    """Bytes of the weights, those in these places left out: what does not even hold them needs no plan."""
    return sum(tensor.n_bytes for tensor in search.spec.tensors if tensor.place not in without)


def cache_sizes(search: Search, n_ctx: int, names: Sequence[str]) -> dict[str, int]:
    """Bytes of the cache at `n_ctx` tokens, by the type of keys and values; types that the engine refuses left out."""
    everything = search.spec.n_layer_all + 1
    layers = everything if search.evaluator.host.devices else 0
    base = search.base._replace(n_ctx=n_ctx, n_gpu_layers=layers)
    return {
        name: search.evaluator.cache_bytes(base._replace(cache_type_k=name, cache_type_v=name))
        for name in names
        if search.cache_allowed(name)
    }


def _fit(search: Search, judged: Judged, fits: bool, longest: int | None, full: int | None) -> Fit:
    speed = search.evaluator.speed(judged, search.intent)
    if fits:
        longest = max(longest or 0, judged.plan.settings.n_ctx)
    return Fit(judged, verdict_of(judged, fits), speed, longest, full)


def _longest_split(search: Search, pair: tuple[str, str], n_ctx: int, most: int) -> int:
    """The longest context with a part on the CPU, at least `n_ctx`: as far as system memory reaches."""

    def fits(longer: int) -> bool:
        border = search.split(pair, longer, None)
        return border is not None and border.judged.fits

    away = search.base._replace(n_ctx=most, n_gpu_layers=0, cache_type_k=pair[0], cache_type_v=pair[1])
    if most <= n_ctx or fits(most) or search.evaluator.sketch(away).fits:
        return max(n_ctx, most)
    step = round_up(max((most - n_ctx) // _PROBES, 1), search.step)
    low, high = 0, (most - n_ctx) // step
    while low < high:
        middle = (low + high + 1) // 2
        if fits(n_ctx + middle * step):
            low = middle
        else:
            high = middle - 1
    return n_ctx + low * step
