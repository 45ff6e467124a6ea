"""The question people ask first: how long a context, and does mine fit, for each cache type."""

from advisor.recommend.budget import shared_bytes
from advisor.recommend.evaluate import Judged
from advisor.recommend.search import Search
from advisor.recommend.words import experts_text
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings

WHOLE = "every layer on the GPU"


class ContextPoint(NamedTuple):
    """One context length: the need and the limit of the tightest place."""

    n_ctx: int  # as asked, per slot
    fits: bool
    device: str  # a device id or "host"
    need_bytes: int
    usable_bytes: int
    tokens_per_s: float  # with that many tokens in the cache, 0 where it does not fit


class ContextRow(NamedTuple):
    """One cache type on the basis of the table. `max_n_ctx`, per slot, is None when not even the shortest context fits.

    It says what memory allows, which may be more than the model was trained for.
    """

    cache_type: str
    max_n_ctx: int | None
    at_least: bool  # max_n_ctx is as far as was looked, not a limit
    points: tuple[ContextPoint, ...]


class ContextTable(NamedTuple):
    """Context against cache type. `basis` says what stays fixed, in words."""

    basis: str
    n_ctx_trained: int
    rows: tuple[ContextRow, ...]


def context_table(search: Search, chosen: Judged) -> ContextTable:
    """Rows for the usual cache types: everything on the GPUs if that is possible at all, else the chosen layers."""
    names = tuple(str(name) for name in search.policy.search["table_cache_types"])
    pairs = search.cache_pairs(names)
    base, basis = table_basis(search, chosen, pairs)
    dealt = chosen.request.tensor_split
    rows = [
        context_row(search, base._replace(cache_type_k=pair[0], cache_type_v=pair[1]), pair_name(pair), dealt)
        for pair in pairs
    ]
    return ContextTable(basis, search.spec.n_ctx_train, tuple(rows))


def pair_name(pair: tuple[str, str]) -> str:
    """The types of keys and values in one word."""
    return pair[0] if pair[0] == pair[1] else f"{pair[0]}/{pair[1]}"


def table_basis(search: Search, chosen: Judged, pairs: list[tuple[str, str]]) -> tuple[RequestedSettings, str]:
    """What stays fixed while context and cache type vary: the request without these, and the words for it."""
    policy = search.policy.search
    every = search.spec.n_layer_all + 1
    base: RequestedSettings = search.base._replace(n_ctx=None)
    slots = f", each of {search.slots} slots" if search.slots > 1 else ""
    settings = chosen.plan.settings
    basis = "everything on the CPU"
    if search.evaluator.host.devices and settings.n_gpu_layers:
        whole = base._replace(n_gpu_layers=every)
        smallest = min(int(policy["table_n_ctx"][0]), search.ceiling)
        known = chosen.fits and settings.n_ctx >= smallest and _with_whole(chosen.request, whole)
        if search.wishes.pinned.n_gpu_layers is None and (
            known  # a shorter context fits, too
            or any(
                search.may_fit(request) and not search.evaluator.far_over(search.shared(request))
                and search.judge(request).fits
                for request in (whole._replace(n_ctx=smallest, cache_type_k=k, cache_type_v=v) for k, v in pairs)
            )
        ):  # fmt: skip
            base, basis = whole, WHOLE
            if _with_whole(chosen.request, whole):
                base, basis = (
                    whole._replace(n_ubatch=chosen.request.n_ubatch),
                    WHOLE + experts_text(search.spec, chosen),
                )
        else:
            base = base._replace(
                n_gpu_layers=settings.n_gpu_layers,
                n_cpu_moe=settings.n_cpu_moe or None,
                tensor_overrides=chosen.request.tensor_overrides,
                n_ubatch=chosen.request.n_ubatch,
                tensor_split=chosen.request.tensor_split,
            )
            basis = f"{settings.n_gpu_layers} of {every} layers on the GPU{experts_text(search.spec, chosen)}"
    else:
        base = base._replace(n_gpu_layers=0)
    usual = search.evaluator.engine.defaults["n_ubatch"]
    batch = f", -ub {base.n_ubatch}" if base.n_ubatch not in (None, usual) else ""
    return base, basis + batch + slots


def _with_whole(chosen: RequestedSettings, whole: RequestedSettings) -> bool:
    """Whether a request has as much on the GPUs as `whole`, which is every layer and what is pinned."""
    placed = chosen._replace(
        n_ctx=whole.n_ctx, cache_type_k=whole.cache_type_k, cache_type_v=whole.cache_type_v, n_ubatch=whole.n_ubatch,
        tensor_split=whole.tensor_split,
    )  # fmt: skip
    return placed == whole


def context_row(
    search: Search, request: RequestedSettings, name: str, dealt: tuple[float, ...] | None = None
) -> ContextRow:
    """The contexts of one cache type: the usual lengths judged exactly, and the longest that fits.

    `dealt`: a split of the layers over several GPUs that is tried before each context gets its own.
    """
    policy = search.policy.search
    grows = any(layer.has_cache and layer.k_width for layer in search.spec.layers)
    reach = max(search.ceiling, int(policy["table_looks_to_n_ctx"]) * search.slots) if grows else search.ceiling
    most = max(search.ceiling, int(policy["table_shows_to_n_ctx"]) * search.slots if grows else 0)
    wanted = [int(n) for n in policy["table_n_ctx"] if int(n) * search.slots <= most]
    points = {}
    for n_ctx in _ends_first(wanted):
        judged = _with_split(search, request._replace(n_ctx=n_ctx * search.slots), dealt)
        device, need, usable = _asked_about(search, judged)
        rate = search.evaluator.tokens_per_s(judged, n_ctx) if judged.fits else 0.0
        points[n_ctx] = ContextPoint(n_ctx, judged.fits, device, need, usable, round(rate, 3))
    # after the points, between which buffers are known by now
    longest = search.longest(request, min(256 * search.slots, reach), reach, pinned=False)
    reached = longest is not None and longest.plan.settings.n_ctx >= reach
    max_n_ctx = longest.plan.settings.n_ctx // search.slots if longest else None
    return ContextRow(name, max_n_ctx, reached, tuple(points[n] for n in wanted))


def _with_split(search: Search, request: RequestedSettings, dealt: tuple[float, ...] | None) -> Judged:
    """`request` judged with a split that is known, so that more is known beside it; with its own if that is over."""
    if dealt is not None and request.tensor_split is None:
        asked = request._replace(tensor_split=dealt)
        # what is over for sure needs no exact plan to be left
        if search.evaluator.least(asked).fits and not search.evaluator.far_over(asked):
            judged = search.evaluator.judge(asked)
            if judged.fits:
                return judged
    return search.judge(request)


def _ends_first(values: list[int]) -> list[int]:
    """The ends, then the middle of what is left open: between known ends that leave only a line all is known.

    Short contexts have bends of their own, so the shortest comes last and the next one stands for it.
    """
    first, values = values[:1], values[1:]
    order = [*values[:1], *values[1:][-1:]]
    open_spans = [values[1:-1]]
    while open_spans:
        span = open_spans.pop(0)
        if span:
            middle = len(span) // 2
            order.append(span[middle])
            open_spans += [span[:middle], span[middle + 1 :]]
    return order + first


def _places(search: Search, judged: Judged) -> list[tuple[str, int, int]]:
    """(device id, bytes needed, bytes usable) of every GPU that is used."""
    return [
        (device.id, device.planned_bytes, limit.usable_bytes)
        for device, limit in zip(judged.plan.devices, search.evaluator.budget.devices, strict=True)
        if device.planned_bytes
    ]


def _least_spare(places: list[tuple[str, int, int]]) -> tuple[str, int, int]:
    return max(places, key=lambda place: (place[1] - place[2], place[1]))


def _asked_about(search: Search, judged: Judged) -> tuple[str, int, int]:
    """The tightest GPU, which is what people ask about; system memory where that is lacking, or no GPU used."""
    place, on_gpus = tightest(search, judged), _places(search, judged)
    lacking = place[0] == "host" and place[1] > place[2]
    return place if lacking or not on_gpus else _least_spare(on_gpus)


def need_at(search: Search, judged: Judged, device: str) -> int:
    """Bytes needed in one place, a device's id or "host"."""
    return next((need for name, need, _ in _all_places(search, judged) if name == device), 0)


def tightest(search: Search, judged: Judged) -> tuple[str, int, int]:
    """(device id or "host", bytes needed, bytes usable) of the place with the least to spare."""
    return _least_spare(_all_places(search, judged))


def _all_places(search: Search, judged: Judged) -> list[tuple[str, int, int]]:
    budget = search.evaluator.budget
    host = judged.plan.host.planned_bytes + shared_bytes(judged.plan, budget)
    return [*_places(search, judged), ("host", host, budget.ram_usable_bytes)]
