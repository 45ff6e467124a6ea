"""The figures behind the plots: memory against context for each cache type, tokens/s against layers on the GPU.

Every point is a memory plan of the core. Contexts of the table in `recommend` and the longest that fits are planned
exactly; between them compute buffers are interpolated, as the search itself does.
"""

from collections.abc import Callable

from advisor.memory.placement import one_block
from advisor.memory.types import DevicePlan, HostPlan
from advisor.recommend.budget import shared_bytes
from advisor.recommend.contexts import ContextRow, context_row, pair_name, table_basis
from advisor.recommend.evaluate import Judged
from advisor.recommend.search import Search
from advisor.recommend.solve import on_devices, settle, sketch_border
from advisor.recommend.words import cache_name, tokens_text
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings
from advisor.speed import Range
from advisor.units import round_up

N_POINTS = 32  # of a curve over the context, beside those that are planned exactly
MOST_PLACES = 4  # pictures of memory for one machine
_MULTIPLE = 256  # the engine rounds contexts up to it


class Need(NamedTuple):
    """Bytes planned in one place, by what takes them; `other` is the backend's own, the output and what lies beside."""

    weights_bytes: int
    cache_bytes: int
    compute_bytes: int
    other_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return sum(self)


class Place(NamedTuple):
    """Where memory is taken: a GPU, or the system's. `free_bytes` less what must stay free is `usable_bytes`."""

    id: str  # a device id or "host"
    name: str
    total_bytes: int
    free_bytes: int
    usable_bytes: int
    unified: bool


class MemoryPoint(NamedTuple):
    """One context, per slot, with the need of every place in the order of `MemoryCurves.places`."""

    n_ctx: int
    exact: bool
    fits: bool
    needs: tuple[Need, ...]


class MemoryCurve(NamedTuple):
    """One cache type; `max_n_ctx` and `at_least` as in ContextRow, `at_max` that point, None where nothing fits."""

    cache_type: str
    max_n_ctx: int | None
    at_least: bool
    at_max: MemoryPoint | None
    points: tuple[MemoryPoint, ...]


class MemoryCurves(NamedTuple):
    """Memory against context. `basis` says in words what stays fixed."""

    basis: str
    n_ctx_trained: int
    grows: bool  # the cache grows with the context
    places: tuple[Place, ...]  # the host last
    bound_by_host: bool  # system memory ends some curve, not a GPU
    curves: tuple[MemoryCurve, ...]
    chosen: MemoryPoint | None
    chosen_cache_type: str

    def shown(self) -> tuple[int, ...]:
        """The places worth a picture: GPUs that take part, the first four, and system memory where it sets the limit.

        Where no GPU takes part it is system memory alone.
        """
        last = len(self.places) - 1
        used = [i for i in range(last) if any(point.needs[i].total_bytes for c in self.curves for point in c.points)]
        return (*used[:MOST_PLACES], last) if not used or self.bound_by_host else tuple(used[:MOST_PLACES])


class SpeedPoint(NamedTuple):
    """Tokens per second with `n_on_gpu` layers, or blocks whose experts are, on the GPUs."""

    n_on_gpu: int
    tokens_per_s: Range
    fits: bool


class SpeedCurve(NamedTuple):
    """`moves` is what varies: "layers", or "experts" with every layer's other part on the GPUs."""

    moves: str
    points: tuple[SpeedPoint, ...]
    most_that_fits: int | None


class SpeedCurves(NamedTuple):
    """Tokens/s against what lies on the GPUs, at the chosen context and cache type; `context` says these in words."""

    n_layers: int  # as -ngl counts, the output included
    context: str
    n_ctx: int
    cache_type: str
    at_depth: int
    reads: bool  # the model only reads: the figures are of the prompt
    curves: tuple[SpeedCurve, ...]
    chosen: tuple[str, SpeedPoint] | None  # the curve it lies on, and the point


def memory_curves(search: Search, chosen: Judged) -> MemoryCurves:
    """Memory of every place against the context, for each cache type that the engine takes here."""
    names = tuple(str(name) for name in search.policy.search["plot_cache_types"])
    pairs = search.cache_pairs(names)
    usual = tuple(str(name) for name in search.policy.search["table_cache_types"])
    base, basis = table_basis(search, chosen, search.cache_pairs(usual))
    requests = {pair_name(pair): base._replace(cache_type_k=pair[0], cache_type_v=pair[1]) for pair in pairs}
    rows = [context_row(search, request, name) for name, request in requests.items()]
    end = _last_context(search, chosen, rows)
    curves = [_memory_curve(search, requests[row.cache_type], row, end) for row in rows]
    settings = chosen.plan.settings
    return MemoryCurves(
        basis=basis,
        n_ctx_trained=search.spec.n_ctx_train,
        grows=grows(search),
        places=places(search),
        bound_by_host=any(point.device == "host" for row in rows for point in row.points if not point.fits),
        curves=tuple(curves),
        chosen=_point(search, chosen, settings.n_ctx // search.slots, exact=True) if chosen.fits else None,
        chosen_cache_type=cache_name(chosen),
    )


def grows(search: Search) -> bool:
    """Whether the cache grows with the context."""
    return any(layer.has_cache and layer.k_width for layer in search.spec.layers)


def places(search: Search) -> tuple[Place, ...]:
    """Every GPU of the machine, and the system's memory last."""
    budget = search.evaluator.budget
    found = [
        Place(limit.id, device.name, limit.total_bytes, limit.free_bytes, limit.usable_bytes, limit.unified)
        for limit, device in zip(budget.devices, search.evaluator.host.devices, strict=True)
    ]
    ram = Place(
        "host", "system memory", budget.ram_total_bytes, budget.ram_available_bytes, budget.ram_usable_bytes, False
    )
    return (*found, ram)


def _last_context(search: Search, chosen: Judged, rows: list[ContextRow]) -> int:
    """Where the curves end: a little beyond the longest context that fits, within what the model was trained for."""
    trained = search.spec.n_ctx_train or search.ceiling // search.slots
    longest = max((row.max_n_ctx or 0 for row in rows), default=0)
    end = max(longest * 5 // 4, min(32768, trained))
    end = trained if end > trained * 4 // 5 else end
    return round_up(max(end, chosen.plan.settings.n_ctx // search.slots, _MULTIPLE), _MULTIPLE)


def _memory_curve(search: Search, request: RequestedSettings, row: ContextRow, end: int) -> MemoryCurve:
    known = {round_up(point.n_ctx, _MULTIPLE) for point in row.points if point.n_ctx <= end} | {_MULTIPLE, end}
    if row.max_n_ctx is not None and row.max_n_ctx <= end:
        known.add(row.max_n_ctx)
    n_ubatch = search.judge(request._replace(n_ctx=end * search.slots)).plan.settings.n_ubatch
    bends = {round_up(layer.n_window + n_ubatch, _MULTIPLE) for layer in search.spec.layers}  # n_window 0 = none
    step = max(end // N_POINTS // _MULTIPLE, 1) * _MULTIPLE
    points = {}
    for n_ctx in sorted(known | {n for n in bends if n < end} | set(range(step, end, step))):
        asked = request._replace(n_ctx=n_ctx * search.slots)
        exact = n_ctx in known
        judged = search.judge(asked) if exact else search.evaluator.sketch(search.shared(asked))
        if judged.plan.refused is None:
            points[n_ctx] = _point(search, judged, n_ctx, exact=exact)
    at_max = points.get(row.max_n_ctx) if row.max_n_ctx is not None else None
    return MemoryCurve(row.cache_type, row.max_n_ctx, row.at_least, at_max, tuple(points.values()))


def _point(search: Search, judged: Judged, n_ctx: int, *, exact: bool) -> MemoryPoint:
    needs = [_need(plan, plan.overhead_bytes + plan.extras_bytes) for plan in judged.plan.devices]
    host = _need(judged.plan.host, judged.plan.host.output_bytes + judged.plan.host.beside_bytes)
    shared = shared_bytes(judged.plan, search.evaluator.budget)
    if shared:  # system memory holds the parts of unified GPUs too; what is their own holds weights
        together = Need(*(sum(each) for each in zip(host, *needs, strict=True)))
        private = together.total_bytes - host.total_bytes - shared
        host = together._replace(weights_bytes=together.weights_bytes - private)
    return MemoryPoint(n_ctx, exact, judged.fits, (*needs, host))


def _need(plan: DevicePlan | HostPlan, other_bytes: int) -> Need:
    return Need(plan.weights_bytes, plan.cache_bytes, plan.compute.high, other_bytes)


def speed_curves(search: Search, chosen: Judged) -> SpeedCurves | None:
    """Tokens/s against layers on the GPUs, None without a GPU; with experts also against their blocks."""
    if not search.evaluator.host.devices:
        return None
    spec, pinned = search.spec, search.wishes.pinned
    every = spec.n_layer_all + 1
    settings = chosen.plan.settings
    in_part = settings.n_gpu_layers < every  # then the chosen blocks keep their experts where they are
    base = search.open_split(chosen.request)._replace(
        n_cpu_moe=(settings.n_cpu_moe or None) if in_part else pinned.n_cpu_moe,
        tensor_overrides=pinned.tensor_overrides,
    )

    def layers(count: int) -> RequestedSettings:
        return search.shared(base._replace(n_gpu_layers=count))

    def experts(count: int) -> RequestedSettings:
        return search.shared(base._replace(n_gpu_layers=every, n_cpu_moe=spec.n_layer_all - count))

    curves = [_speed_curve(search, "layers", layers, every)]
    placed = pinned.n_cpu_moe or pinned.cpu_moe or pinned.tensor_overrides
    if any(layer.n_ff_expert for layer in spec.layers) and not placed:
        curves.append(_speed_curve(search, "experts", experts, spec.n_layer_all))
    speed = search.evaluator.speed(chosen, search.intent)
    moves, count = "layers", settings.n_gpu_layers
    in_parts = {one_block(override.pattern) for override in settings.tensor_overrides}  # blocks, not wholly on a GPU
    if (settings.n_cpu_moe or in_parts) and len(curves) > 1 and not in_part:
        moves, count = "experts", spec.n_layer_all - settings.n_cpu_moe - len(in_parts)
    rate = speed.decode_tokens_per_s if spec.answers else speed.prefill_tokens_per_s
    return SpeedCurves(
        n_layers=every,
        context=tokens_text(settings) + (f", {cache_name(chosen)} cache" if grows(search) else ""),
        n_ctx=settings.n_ctx,
        cache_type=cache_name(chosen),
        at_depth=speed.at_depth,
        reads=not spec.answers,
        curves=tuple(curves),
        chosen=(moves, SpeedPoint(count, rate, True)) if chosen.fits else None,
    )


def _speed_curve(search: Search, moves: str, make: Callable[[int], RequestedSettings], last: int) -> SpeedCurve:
    """Speed needs no compute buffer, so every point is a sketch; what fits the GPUs is settled exactly."""
    border = settle(search.evaluator, sketch_border(search.evaluator, make, 0, last, on_devices), on_devices)
    most = None
    if border is not None:
        on_host = border.plan.settings.n_cpu_moe
        most = border.plan.settings.n_gpu_layers if moves == "layers" else search.spec.n_layer_all - on_host
    points = []
    for count in range(last + 1):
        judged = search.evaluator.sketch(make(count))
        if judged.plan.refused is not None:
            continue
        speed = search.evaluator.speed(judged, search.intent)
        rate = speed.decode_tokens_per_s if search.spec.answers else speed.prefill_tokens_per_s
        in_ram = all(short.device != "host" for short in judged.shorts)
        points.append(SpeedPoint(count, rate, most is not None and count <= most and in_ram))
    return SpeedCurve(moves, tuple(points), most)
