"""The search for settings: context, cache types, layers or experts on the GPU, micro-batch.

Memory grows with n_ctx and with every layer or expert block moved to the GPU, so each knob is solved by bisection.
"""

from collections.abc import Mapping

from advisor.ggml_types import BY_NAME
from advisor.recommend.budget import surely_over
from advisor.recommend.cache_safety import rows_for, runs_cache, with_safety
from advisor.recommend.chain import Chain, chain_of
from advisor.recommend.context_border import context_border
from advisor.recommend.evaluate import Evaluator, Judged, cost
from advisor.recommend.policy import Intent, Policy, lack
from advisor.recommend.solve import Border, everywhere, on_devices, settle, sketch_border
from advisor.recommend.wholes import (
    everything_on_gpu,
    larger_wholes,
    no_cheaper,
    on_cpu,
    smaller_wholes,
    whole_may_gain,
)
from advisor.recommend.words import use_rate
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings
from advisor.speed import Speed

_TOO_SLOW = 1e7  # more seconds than any turn has tokens
_WIDE = 8  # times the shortest context: from there on one context says little of another
_AS_FAST = 0.995  # nobody notices the rest


class Wishes(NamedTuple):
    """What the user insists on. `pinned` holds every setting given on the command line."""

    pinned: RequestedSettings
    min_n_ctx: int | None = None
    max_n_ctx: int | None = None
    min_tokens_per_s: float | None = None
    whole_blocks: bool = False  # what the settings are for cannot say -ot


class Ranked(NamedTuple):
    """A fitting candidate with its speed and cost."""

    judged: Judged
    speed: Speed
    cost: float


class Found(NamedTuple):
    """The pool of fitting candidates, best first, and the context limits of the wishes."""

    pool: tuple[Ranked, ...]
    floor_n_ctx: int
    ceiling_n_ctx: int
    refined_by: float = 1.0  # what the last looks made of the cost of the best


class Search:
    """Collects fitting candidates for one set of wishes and ranks them by intent."""

    def __init__(self, evaluator: Evaluator, policy: Policy, intent: Intent, wishes: Wishes) -> None:
        self.evaluator, self.intent, self.wishes = evaluator, intent, wishes
        self.least_tokens_per_s = max(intent.least_tokens_per_s, wishes.min_tokens_per_s or 0.0)  # else much too dear
        self.spec = evaluator.spec
        self._backends: list[str] = [device.backend for device in evaluator.host.devices]
        self.cache_rows = rows_for(policy.cache_safety, self.spec, evaluator.engine, self._backends)
        evaluator.know(self.cache_rows)
        self.policy: Policy = with_safety(policy, self.cache_rows) if self.cache_rows else policy
        step, padding = (
            int(policy.search["n_ctx_step"]),
            int(evaluator.engine.defaults["context_padding"]),
        )  # of one slot
        self.slots = wishes.pinned.n_parallel or intent.n_parallel or 1
        trained = self.spec.n_ctx_train or intent.comfortable_n_ctx
        ceiling = min(wishes.max_n_ctx or trained, max(trained, wishes.min_n_ctx or 0)) if trained else step
        if not self.spec.causal or not any(layer.has_cache or layer.recurrent_state for layer in self.spec.layers):
            ceiling = trained
        if wishes.max_n_ctx and ceiling == wishes.max_n_ctx:  # the engine rounds up
            ceiling = max(ceiling // padding * padding, padding)
        self.ceiling = ceiling * self.slots
        self.floor = min(max(wishes.min_n_ctx or intent.floor_n_ctx, padding), ceiling) * self.slots
        self.comfortable = min(intent.comfortable_n_ctx * self.slots, self.ceiling)
        self.step = step * self.slots
        self.far_apart = self.comfortable > _WIDE * self.floor
        evaluator.look_far(self.far_apart)
        self._grows: bool = any(layer.has_cache and layer.k_width for layer in self.spec.layers)
        off = evaluator.engine.defaults["flash_attn"] == "off"  # its default, not what is best
        self._base: RequestedSettings = wishes.pinned._replace(
            flash_attn=wishes.pinned.flash_attn or ("on" if off else None),
            n_parallel=self.slots,
            kv_unified=bool(wishes.pinned.kv_unified),
        )
        self._kinds: Mapping[int, tuple[str, ...]] | None = None
        self._chain: Chain  # any one, made with them
        self._most: dict[tuple[tuple[str, str], int], int] = {}
        self._settled = self._base.flash_attn is not None or not evaluator.host.devices

    @property
    def unasked(self) -> int:
        """The longest context that is taken without being asked for."""
        pinned = self.wishes.pinned
        in_ram = pinned.n_gpu_layers == 0 or pinned.kv_offload is False or not self.evaluator.host.devices
        return self.longest_in_ram if in_ram else max(self.ceiling, self.floor)

    def unasked_of(self, request: RequestedSettings) -> int:
        """The same of one request: with no block on a GPU the whole cache lies in system memory."""
        return self.unasked if request.n_gpu_layers != 1 else min(self.unasked, self.longest_in_ram)

    @property
    def longest_in_ram(self) -> int:
        """The same of a cache in system memory, which is shared with everything else: the comfortable one."""
        return max(self.comfortable if self._grows else self.ceiling, self.floor)

    @property
    def base(self) -> RequestedSettings:
        """What every candidate has in common. Flash attention that comes out as on is asked for, as it is written."""
        if not self._settled:
            self._settled = True
            if self.evaluator.flash_attn(self._base._replace(n_gpu_layers=self.spec.n_layer_all + 1, n_ctx=self.floor)):
                self._base = self._base._replace(flash_attn="on")
        return self._base

    def cache_pairs(self, names: tuple[str, ...] | None = None) -> list[tuple[str, str]]:
        """(K, V) types to try: pinned ones, else the intent's, without those the engine refuses."""
        pinned = self.wishes.pinned
        if pinned.cache_type_k or pinned.cache_type_v:
            default = "f16"
            return [(pinned.cache_type_k or default, pinned.cache_type_v or default)]
        if not self._grows:
            return [("f16", "f16")]  # recurrent state is always f32, the cache type changes nothing
        return [(name, name) for name in (names or self.intent.cache_types) if self.cache_allowed(name)]

    def cache_allowed(self, name: str) -> bool:
        """Whether the engine takes this cache type for this model on these devices."""
        if self.wishes.pinned.flash_attn == "off" and BY_NAME[name].is_quantized:
            return False
        return runs_cache(name, self.spec, self.evaluator.engine, self._backends)

    @property
    def _deals(self) -> bool:
        """Whether there are several GPUs and nobody has said how layers are dealt to them."""
        pinned = self.wishes.pinned
        settled = pinned.tensor_split or pinned.split_mode or pinned.tensor_overrides
        return not settled and len(self.evaluator.host.devices) > 1

    @property
    def unequal(self) -> bool:
        """Whether it matters for speed on which GPU a layer lies."""
        return self._deals and len(set(self.evaluator.read_rates)) > 1

    def shared(self, request: RequestedSettings) -> RequestedSettings:
        """`request` with its layers dealt to the GPUs, where there are several and nobody has said how."""
        settled = request.tensor_split or request.n_gpu_layers == 0 or not self._deals
        return request if settled else self.evaluator.share_out(request)

    def open_split(self, request: RequestedSettings) -> RequestedSettings:
        """`request` without the split that it was dealt, so that another context or cache gets its own."""
        return request._replace(tensor_split=self.wishes.pinned.tensor_split)

    def judge(self, request: RequestedSettings) -> Judged:
        """`request` judged with its layers dealt to the GPUs."""
        return self.evaluator.judge(self.shared(request))

    # -- solving one knob ------------------------------------------------------------------------------------------

    def longest(
        self, request: RequestedSettings, low: int, high: int, *, pinned: bool = True, below: float | None = None,
        near_n_ctx: int | None = None,
    ) -> Judged | None:  # fmt: skip
        """The candidate with the largest n_ctx in [low, high] that fits, None when `low` does not fit.

        A pinned n_ctx is the only one tried, unless `pinned` is False. None also for what is not sketched `below`.
        """
        if pinned and self.wishes.pinned.n_ctx is not None:
            request = request._replace(n_ctx=self.wishes.pinned.n_ctx or None)
            if not self.may_fit(request):
                return None
            judged = self.judge(request)
            return judged if judged.fits else None
        if not self.may_fit(request._replace(n_ctx=low)):
            return None
        at_most = request._replace(n_ctx=high)
        if self.may_fit(at_most) and not self.evaluator.far_over(self.shared(at_most)):
            best = self.judge(at_most)
            if best.fits:
                return best
            if best.plan.refused is not None:
                return None
        border = context_border(self, request, low, high, near_n_ctx=near_n_ctx)
        if below is not None and no_cheaper(self, border, high, below):
            return None
        several = len(self.evaluator.host.devices) > 1  # every way to deal layers is a graph of its own
        return settle(self.evaluator, border, everywhere, self.comfortable // self.step if several else None)

    def may_fit(self, request: RequestedSettings, *, host: bool = True) -> bool:
        """False where not even weights and cache fit; how layers lie on several GPUs is not looked at."""
        return not surely_over(self.evaluator.least(request).plan, self.evaluator.budget, host=host)

    # -- families of candidates ------------------------------------------------------------------------------------

    def chain(self, pair: tuple[str, str], n_ctx: int, n_ubatch: int | None) -> Chain:
        """Every way to keep a part on the CPU with this cache, context and micro-batch."""
        base = self.base._replace(n_ctx=n_ctx, cache_type_k=pair[0], cache_type_v=pair[1])
        if n_ubatch is not None and base.n_ubatch is None:
            base = base._replace(n_ubatch=n_ubatch)
        if self._kinds is None:
            self._kinds = {} if self.wishes.whole_blocks else self.evaluator.expert_kinds
            self._chain = chain_of(self.spec, base, self.wishes.pinned, self._kinds)
        return self._chain._replace(base=base)

    def split(
        self, pair: tuple[str, str], n_ctx: int, n_ubatch: int | None, near: int | None = None, low: int = 0
    ) -> Border | None:
        """As much as possible on the GPUs at this context: experts leave first, then whole layers.

        None where not even the part `low` fits, or the least.
        """
        chain = self.chain(pair, n_ctx, n_ubatch)
        low = max(low, chain.low)
        high = self._most_that_may_fit(pair, n_ctx)
        if low > high or not self.may_fit(chain.make(low), host=False):
            return None
        border = sketch_border(
            self.evaluator, lambda index: self.shared(chain.make(index)), low, high, on_devices,
            high if near is None else near, bare=chain.make,
        )  # fmt: skip
        return border if border.judged.fits_devices else None

    def _most_that_may_fit(self, pair: tuple[str, str], n_ctx: int) -> int:
        """The number of the chain above which weights and cache alone are too much for the GPUs."""
        known = self._most.get((pair, n_ctx))
        if known is None:
            chain = self.chain(pair, n_ctx, None)
            low, high = chain.low, chain.high
            while low < high:
                middle = (low + high + 1) // 2
                low, high = (middle, high) if self.may_fit(chain.make(middle), host=False) else (low, middle - 1)
            known = self._most[pair, n_ctx] = low
        return known

    def run(self, known_cost: float = float("inf"), *, whatever: bool = False) -> Found:
        """All fitting candidates, the cheapest first; those that cannot cost less than `known_cost` may be missing.

        `whatever`: only those of the last looks may.
        """
        found: dict[RequestedSettings, Judged] = {}

        def keep(judged: Judged | None) -> None:
            if judged is not None and judged.fits:
                found.setdefault(judged.request, judged)

        best, full = float("inf"), False
        better = known_cost < float("inf") and not whatever
        for pair in self.cache_pairs():
            below = min(best if self.far_apart else float("inf"), known_cost if better else float("inf"))
            if self.unequal:  # dealt otherwise it may cost less
                below = float("inf")
            may_gain = whole_may_gain(self, pair, found, best)
            whole = everything_on_gpu(self, pair, below=below) if may_gain else None
            if whole is not None and whole.fits:
                keep(whole)
                best = min(best, self.cost(whole))
                full = full or whole.plan.settings.n_ctx >= self.comfortable
        for whole in larger_wholes(self, list(found), best):
            keep(whole)
            best = min(best, self.cost(whole))
        for whole in smaller_wholes(self, list(found.values()), best) if not full else ():
            keep(whole)
            best = min(best, self.cost(whole))
        if not full and self.evaluator.host.devices:
            from advisor.recommend.trade import Trades  # it searches on with this

            for judged in Trades(self).settled(min(best, known_cost) if better else best, only_better=better):
                keep(judged)
        for pair in self.cache_pairs() if not found and not better else ():
            keep(on_cpu(self, pair))
        ranked = self.rank(list(found.values()))
        before = ranked[0].cost if ranked else 0.0
        if better and not 0 < before < known_cost:
            pass  # the last looks do not make up for that
        elif self.least_tokens_per_s or self._kinds is not None or self.unequal:
            from advisor.recommend.refine import refined  # it searches on with this

            ranked = refined(self, ranked, self._kinds, known_cost)
        return Found(tuple(ranked), self.floor, self.ceiling, ranked[0].cost / before if before else 1.0)

    @property
    def larger_batches(self) -> list[int]:
        """Micro-batches above the usual one that are worth a try, the largest first; none where one was asked for."""
        if self.wishes.pinned.n_ubatch is not None:
            return []
        usual = self.evaluator.engine.defaults["n_ubatch"]
        return sorted((n for n in self.policy.search["n_ubatch_with_host_weights"] if n > usual), reverse=True)

    def cost(self, judged: Judged) -> float:
        """What a candidate costs for the intent, see `cost`; too slow for the wishes is much too dear."""
        return self.price(judged, self.evaluator.speed(judged, self.intent))

    def lack(self, n_ctx: int) -> float:
        """What that context, of all slots, makes of the cost."""
        return lack(n_ctx // self.slots, self.intent, self.policy, self.spec.n_ctx_train)

    def price(self, judged: Judged, speed: Speed) -> float:
        """What a candidate of that speed costs for the intent."""
        price = cost(judged, speed, self.intent, self.policy, self.spec.n_ctx_train)
        return price * 1000.0 if self.pace(speed) < self.least_tokens_per_s else price

    def pace(self, speed: Speed) -> float:
        """Tokens per second that are wished for: written, or read where the model does not answer."""
        return use_rate(self.spec, speed)

    def fast_enough(self, speed: Speed) -> bool:
        """Whether a speed is what the user wishes at least."""
        return self.pace(speed) >= (self.wishes.min_tokens_per_s or 0.0)

    def rank(self, candidates: list[Judged]) -> list[Ranked]:
        """Cheapest first, then what is too slow for the wish: of the fastest the cheapest, then the next fastest."""
        speeds = [self.evaluator.speed(judged, self.intent) for judged in candidates]
        most = max(map(self.pace, speeds), default=0.0)
        rows = []
        for judged, speed in zip(candidates, speeds, strict=True):
            price, rate = self.price(judged, speed), self.pace(speed)
            slow = _TOO_SLOW / (most if rate > _AS_FAST * most else rate)
            one = Ranked(judged, speed, price if self.fast_enough(speed) else slow)
            rows.append((one, price, judged.plan.settings))
        rows.sort(key=lambda row: (row[0].cost, row[1], -row[2].n_ctx, row[2].cache_type_k != "f16"))
        return [one for one, _, _ in rows]
