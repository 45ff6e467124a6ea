"""What `llama-server -fit on` chooses: the engine's published rules, over our arithmetic.

It measures with everything on the GPUs at the trained context, then shortens the context down to a floor, then, at that
floor, takes layers (for a model with experts: the experts first) off the GPUs. It never touches cache types or the
micro-batch, and takes system memory as unlimited.
Source: llama.cpp b11434 common/fit.cpp (common_params_fit_impl).
"""

from collections.abc import Callable, Sequence

from advisor.memory.types import MemoryPlan
from advisor.model.spec import ModelSpec
from advisor.recommend.evaluate import Judged
from advisor.recommend.search import Search
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings, TensorOverride

MARGIN_BYTES = 1 << 30  # --fit-target, per device
FLOOR_N_CTX = 4096  # --fit-ctx, per sequence
_ALIGN = 256

PlanOf = Callable[[RequestedSettings], MemoryPlan]

# of the first block in part, what goes to the CPU; of the others the experts
_LEAVES = {
    "attn": "ffn_(gate|up|gate_up|down).*",
    "up": "ffn_(gate|gate_up|down).*",
    "gate": "ffn_down.*",
    "moe": "ffn_(up|down|gate_up|gate)_(ch|)exps",
}


class Share(NamedTuple):
    """A device's layers, the output counted as one: how many, and how many of them, the last ones, only in part.

    `kept` is what of the first such block stays: "attn", "up" (attention and up), "gate" (these and gate), "moe"
    (everything but the experts, as of the others). `next_device`: the rest of it goes to the next device.
    """

    n_layer: int = 0
    n_part: int = 0
    kept: str = "moe"
    next_device: bool = False


class Fitted(NamedTuple):
    """The engine's choice; `shares` is empty while everything lies on the devices as the engine deals it by itself."""

    request: RequestedSettings
    shares: tuple[Share, ...]


def used_bytes(plan: MemoryPlan) -> list[int]:
    """Per device what the engine's own accounting holds: weights, cache and compute buffers."""
    return [device.weights_bytes + device.cache_bytes + device.compute.value for device in plan.devices]


def fit_context(plan_of: PlanOf, spec: ModelSpec, base: RequestedSettings, targets: Sequence[int]) -> tuple[int, bool]:
    """(context, whether the rules stop there) with everything on the devices; `targets`: bytes to use per device."""
    slots = base.n_parallel or 1
    most, least = spec.n_ctx_train * slots, FLOOR_N_CTX * slots
    if base.n_ctx is not None:  # what the user has set it leaves alone, 0 (all of it) too
        plan = plan_of(base)
        return plan.settings.n_ctx, all(a <= b for a, b in zip(used_bytes(plan), targets, strict=True))
    used = used_bytes(plan_of(base._replace(n_ctx=most)))
    if all(a <= b for a, b in zip(used, targets, strict=True)):
        return most, True
    if sum(used) <= sum(targets) or most <= least:
        return most, False
    target = sum(targets)
    if len(targets) > 1:
        per_layer = sum(d.weights_bytes for d in plan_of(base._replace(n_ctx=most)).devices) // spec.n_layer
        target -= (len(targets) + 1) * per_layer // (6 if spec.n_expert else 2)
    shortest = sum(used_bytes(plan_of(base._replace(n_ctx=least))))
    if not shortest < min(target, sum(used)):
        return least, False
    n_ctx = least + (most - least) * (target - shortest) // (sum(used) - shortest)
    return max(n_ctx - n_ctx % (_ALIGN * slots), least), len(targets) == 1


def engine_fit(
    plan_of: PlanOf, spec: ModelSpec, base: RequestedSettings, free_bytes: Sequence[int], device_ids: Sequence[str]
) -> Fitted:
    """What fit chooses for settings `base` that leave context, layers and overrides open, on one or more devices."""
    targets = [free - MARGIN_BYTES for free in free_bytes]
    n_ctx, stops = fit_context(plan_of, spec, base, targets)
    base = base._replace(n_ctx=n_ctx)
    if stops:
        return Fitted(base, ())
    shares = _Layers(plan_of, spec, base, targets, device_ids).fill()
    return Fitted(request_of(base, spec, shares, device_ids), tuple(shares))


def request_of(
    base: RequestedSettings, spec: ModelSpec, shares: Sequence[Share], device_ids: Sequence[str]
) -> RequestedSettings:
    """`base` with the layers of `shares`, as the engine then loads it."""
    total = sum(share.n_layer for share in shares)
    block = spec.n_layer + 1 - total
    overrides = []
    for index, share in enumerate(shares):
        block += share.n_layer - share.n_part
        for number in range(share.n_part):
            kept = share.kept if number == 0 else "moe"
            buffer = device_ids[index + 1] if number == 0 and share.next_device else "CPU"
            overrides.append(TensorOverride(rf"blk\.{block}\.{_LEAVES[kept]}", buffer))
            block += 1
    split = tuple(float(share.n_layer) for share in shares) if len(shares) > 1 and total else None
    # the engine counts NextN blocks only when it loads them, -ngl counts them always
    return base._replace(n_gpu_layers=total, tensor_split=split, tensor_overrides=tuple(overrides))


def as_good(search: Search, chosen: Judged) -> int | None:
    """The context that fit comes to when everything on the GPUs and f16 is best anyway, None where it does worse.

    With the margins that safe mode hands it. Only its first two steps are asked: it then changes nothing but the
    context.
    """
    evaluator, settings = search.evaluator, chosen.plan.settings
    if evaluator.engine.program != "llama-server" or not evaluator.host.devices:
        return None
    defaults = evaluator.engine.defaults
    usual = settings.n_ubatch == min(defaults["n_ubatch"], settings.n_ctx) and not settings.tensor_overrides
    if not usual or {settings.cache_type_k, settings.cache_type_v} != {defaults["cache_type"]}:
        return None
    base = search.open_split(search.base)._replace(n_gpu_layers=None)
    targets = [
        limit.usable_bytes - device.overhead_bytes
        for limit, device in zip(evaluator.budget.devices, chosen.plan.devices, strict=True)
    ]
    pinned = search.wishes.pinned.n_ctx
    if pinned is None and search.wishes.max_n_ctx is not None:
        pinned = settings.n_ctx  # as safe mode then says it
    if pinned is not None:
        plan = evaluator.judge(base._replace(n_ctx=pinned)).plan
        fits = all(used <= target for used, target in zip(used_bytes(plan), targets, strict=True))
        return settings.n_ctx if fits else None
    if len(targets) > 1 and settings.n_ctx < search.spec.n_ctx_train * search.slots:
        return None  # for several devices it goes on to deal the layers anew
    n_ctx, stops = fit_context(lambda request: evaluator.judge(request).plan, search.spec, base, targets)
    return n_ctx if stops and n_ctx >= settings.n_ctx else None


class _Layers:
    """Steps 3 and 4: layers from the last device to the first, then, with experts, full ones from the first on."""

    def __init__(
        self, plan_of: PlanOf, spec: ModelSpec, base: RequestedSettings, targets: Sequence[int], ids: Sequence[str]
    ) -> None:
        self._plan_of, self._spec, self._base, self._targets, self._ids = plan_of, spec, base, targets, ids
        self._last = len(targets) - 1
        self._experts = spec.n_expert > 0

    def fill(self) -> list[Share]:
        """The shares of all devices."""
        shares = [Share()] * (self._last + 1)
        for index in range(self._last, -1, -1):
            shares = self._fill_one(shares, index)
        if not self._experts or not self._dense_parts_fit():
            return shares
        first_dense = next(i for i in range(self._last + 1) if all(share.n_layer for share in shares[i:]))
        for index in range(self._last + 1):
            if index > first_dense:
                break
            shares, first_dense = self._fill_full(shares, index, first_dense)
            shares, first_dense = self._one_in_part(shares, index, first_dense)
        return shares

    def _used(self, shares: Sequence[Share]) -> list[int]:
        return used_bytes(self._plan_of(request_of(self._base, self._spec, shares, self._ids)))

    def _dense_parts_fit(self) -> bool:
        everything = TensorOverride(rf"blk\.\d+\.{_LEAVES['moe']}", "CPU")
        used = used_bytes(self._plan_of(self._base._replace(tensor_overrides=(everything,))))
        return sum(self._targets) > sum(used)

    def _fill_one(self, shares: list[Share], index: int) -> list[Share]:
        """The most layers (without their experts) that device `index` takes of those that are left."""
        left = self._spec.n_layer + 1 - sum(share.n_layer for share in shares[index + 1 :])
        at_end = index == self._last  # the output is its first layer and is never in part

        def with_layers(count: int) -> list[Share]:
            in_part = max(count - at_end, 0) if self._experts else 0
            return [*shares[:index], Share(count, in_part), *shares[index + 1 :]]

        if left == 0:
            return shares
        count = self._most(lambda n: self._used(with_layers(n))[index], 0, left, self._targets[index])
        return with_layers(count)

    def _fill_full(self, shares: list[Share], index: int, first_dense: int) -> tuple[list[Share], int]:
        """The most blocks without experts that become full ones on device `index`."""
        movable = sum(share.n_part for share in shares[first_dense:])

        def converted(count: int) -> tuple[list[Share], int]:
            new, at, done = list(shares), first_dense, 0
            while at <= self._last:
                taken = min(count - done, new[at].n_part)
                new[at] = new[at]._replace(n_layer=new[at].n_layer - taken, n_part=new[at].n_part - taken)
                new[index] = new[index]._replace(n_layer=new[index].n_layer + taken)
                done += taken
                if new[at].n_part > 0:
                    break
                at += 1
            return new, min(at, self._last)

        count = self._most(lambda n: self._used(converted(n)[0])[index], 0, movable, self._targets[index])
        return converted(count)

    def _one_in_part(self, shares: list[Share], index: int, first_dense: int) -> tuple[list[Share], int]:
        """A part of one more block on device `index`; the rest of it goes to the next device, or to the CPU."""
        if shares[first_dense].n_layer <= (0 if index < self._last else 1) or not shares[first_dense].n_part:
            return shares, first_dense
        trial = list(shares)
        trial[first_dense] = trial[first_dense]._replace(
            n_layer=trial[first_dense].n_layer - 1, n_part=trial[first_dense].n_part - 1
        )
        after = first_dense + (trial[first_dense].n_part == 0)
        mine = trial[index]

        def trying(kept: str) -> list[Share] | None:
            trial[index] = Share(mine.n_layer + 1, mine.n_part + 1, kept, next_device=index < self._last)
            used = self._used(trial)
            near = range(index, min(index + 2, self._last + 1))
            return list(trial) if all(used[i] < self._targets[i] for i in near) else None

        best = trying("up")
        best = (trying("gate") or best) if best else trying("attn")
        return (best, min(after, self._last)) if best else (shares, first_dense)

    @staticmethod
    def _most(used: Callable[[int], int], low: int, high: int, target: int) -> int:
        """The largest count in [low, high] that stays within `target`; `low` is taken as it is.

        The engine finds it by false position; memory grows with the count, so bisection finds the same.
        """
        if used(high) <= target:
            return high
        while high - low > 1:
            middle = (low + high) // 2
            if used(middle) <= target:
                low = middle
            else:
                high = middle
        return low
