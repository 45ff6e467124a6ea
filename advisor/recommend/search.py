"""The search for settings: context, cache types, layers or experts on the GPU, micro-batch.

Memory grows with n_ctx and with every layer or expert block moved to the GPU, so each knob is solved by bisection.
"""

from collections.abc import Callable

from advisor.ggml_types import BY_NAME
from advisor.recommend.evaluate import Evaluator, Judged, cost
from advisor.recommend.policy import Intent, Policy
from advisor.recommend.solve import Border, everywhere, on_devices, settle, sketch_border
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings
from advisor.speed import Speed
from advisor.units import round_up


class Wishes(NamedTuple):
    """What the user insists on. `pinned` holds every setting given on the command line."""

    pinned: RequestedSettings
    min_n_ctx: int | None = None
    max_n_ctx: int | None = None
    min_tokens_per_s: float | None = None


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


class Search:
    """Collects fitting candidates for one set of wishes and ranks them by intent."""

    def __init__(self, evaluator: Evaluator, policy: Policy, intent: Intent, wishes: Wishes) -> None:
        self.evaluator, self.policy, self.intent, self.wishes = evaluator, policy, intent, wishes
        self.spec = evaluator.spec
        step = int(policy.search["n_ctx_step"])
        self.slots = wishes.pinned.n_parallel or intent.n_parallel or 1
        trained = self.spec.n_ctx_train or intent.comfortable_n_ctx
        ceiling = min(wishes.max_n_ctx or trained, max(trained, wishes.min_n_ctx or 0)) if trained else step
        if not self.spec.causal or not any(layer.has_cache or layer.recurrent_state for layer in self.spec.layers):
            ceiling = trained
        if wishes.max_n_ctx and ceiling == wishes.max_n_ctx:  # the engine rounds up
            ceiling = max(ceiling // 256 * 256, 256)
        self.ceiling = ceiling * self.slots
        self.floor = min(max(wishes.min_n_ctx or intent.floor_n_ctx, 256), ceiling) * self.slots
        self.comfortable = min(intent.comfortable_n_ctx * self.slots, self.ceiling)
        self.step = step if self.ceiling > step else 256
        off = evaluator.engine.defaults["flash_attn"] == "off"  # its default, not what is best
        self.base = wishes.pinned._replace(
            flash_attn=wishes.pinned.flash_attn or ("on" if off else None),
            n_parallel=self.slots,
            kv_unified=wishes.pinned.kv_unified if wishes.pinned.kv_unified is not None else False,
        )

    def cache_pairs(self, names: tuple[str, ...] | None = None) -> list[tuple[str, str]]:
        """(K, V) types to try: pinned ones, else the intent's, without those the engine refuses."""
        pinned = self.wishes.pinned
        if pinned.cache_type_k or pinned.cache_type_v:
            default = "f16"
            return [(pinned.cache_type_k or default, pinned.cache_type_v or default)]
        if not any(layer.has_cache and layer.k_width for layer in self.spec.layers):
            return [("f16", "f16")]  # recurrent state is always f32, the cache type changes nothing
        return [(name, name) for name in (names or self.intent.cache_types) if self.cache_allowed(name)]

    def cache_allowed(self, name: str) -> bool:
        """Whether the engine takes this cache type for this model on these devices."""
        kind = BY_NAME[name]
        if not kind.is_quantized:
            return True
        if self.wishes.pinned.flash_attn == "off" or self.spec.flash_attn_forced_off:
            return False
        for layer in self.spec.layers:
            if layer.attention == "none":
                continue
            if layer.head_size_k % kind.block_elements or layer.head_size_v % kind.block_elements:
                return False
            for device in self.evaluator.host.devices:
                backend = self.evaluator.engine.backends[device.backend]
                n_gqa = layer.n_head // max(layer.n_head_kv, 1)
                if name not in backend.cache_types or not backend.runs_flash_attn(
                    layer.head_size_k, layer.head_size_v, n_gqa
                ):
                    return False
        return True

    def shared(self, request: RequestedSettings) -> RequestedSettings:
        """`request` with its layers dealt to the GPUs, where there are several and nobody has said how."""
        pinned = self.wishes.pinned
        settled = request.tensor_split or pinned.split_mode or pinned.tensor_overrides or request.n_gpu_layers == 0
        if settled or len(self.evaluator.host.devices) < 2:
            return request
        return self.evaluator.share_out(request)

    def open_split(self, request: RequestedSettings) -> RequestedSettings:
        """`request` without the split that it was dealt, so that another context or cache gets its own."""
        return request._replace(tensor_split=self.wishes.pinned.tensor_split)

    def judge(self, request: RequestedSettings) -> Judged:
        """`request` judged with its layers dealt to the GPUs."""
        return self.evaluator.judge(self.shared(request))

    # -- solving one knob ------------------------------------------------------------------------------------------

    def longest(self, request: RequestedSettings, low: int, high: int, *, pinned: bool = True) -> Judged | None:
        """The candidate with the largest n_ctx in [low, high] that fits, None when `low` does not fit.

        A pinned n_ctx is the only one tried, unless `pinned` is False.
        """
        if pinned and self.wishes.pinned.n_ctx is not None:
            judged = self.judge(request._replace(n_ctx=self.wishes.pinned.n_ctx or None))
            return judged if judged.fits else None
        best = self.judge(request._replace(n_ctx=high))
        if best.fits:
            return best
        if best.plan.refused is not None:
            return None
        first, last = low // self.step, high // self.step
        border = sketch_border(
            self.evaluator,
            lambda i: self.shared(request._replace(n_ctx=max(i * self.step, low))),
            first,
            last,
            everywhere,
        )
        return settle(self.evaluator, border, everywhere)

    def fill_devices(self, request: RequestedSettings) -> Judged | None:
        """As many layers on the GPUs as fit there, whatever the host says."""
        every = self.spec.n_layer_all + 1
        border = sketch_border(
            self.evaluator, lambda layers: self.shared(request._replace(n_gpu_layers=layers)), 1, every, on_devices
        )
        return settle(self.evaluator, border, on_devices)

    # -- families of candidates ------------------------------------------------------------------------------------

    def everything_on_gpu(self, pair: tuple[str, str]) -> Judged | None:
        """Every layer on the GPUs with the longest context that fits."""
        pinned, every = self.wishes.pinned, self.spec.n_layer_all + 1
        experts_away = self.spec.n_expert and (pinned.n_cpu_moe or pinned.cpu_moe)
        in_part = pinned.n_gpu_layers is not None and 0 <= pinned.n_gpu_layers < every
        if in_part or experts_away or not self.evaluator.host.devices:
            return None
        layers = every if pinned.n_gpu_layers is None else pinned.n_gpu_layers
        request = self.base._replace(n_gpu_layers=layers, cache_type_k=pair[0], cache_type_v=pair[1])
        return self.longest(request, min(self.floor, self.ceiling), self.ceiling)

    def split(self, pair: tuple[str, str], n_ctx: int, n_ubatch: int | None) -> Border | None:
        """As much as possible on the GPUs at this context: experts leave first, then whole layers.

        A larger i puts more on the GPUs, so their need grows with i and the host's need falls.
        """
        base = self.base._replace(n_ctx=n_ctx, cache_type_k=pair[0], cache_type_v=pair[1])
        if n_ubatch is not None and base.n_ubatch is None:
            base = base._replace(n_ubatch=n_ubatch)
        every, n_blocks, pinned = self.spec.n_layer_all + 1, self.spec.n_layer_all, self.wishes.pinned
        has_experts = any(layer.n_ff_expert for layer in self.spec.layers)
        if has_experts and pinned.n_cpu_moe is None and not pinned.cpu_moe and not pinned.tensor_overrides:
            layers = pinned.n_gpu_layers if pinned.n_gpu_layers is not None else every
            border = sketch_border(
                self.evaluator,
                lambda kept: self.shared(base._replace(n_gpu_layers=layers, n_cpu_moe=n_blocks - kept)),
                0,
                n_blocks - 1,
                on_devices,
            )
            if border.judged.fits_devices:
                return border
            base = base._replace(n_cpu_moe=n_blocks)
        if pinned.n_gpu_layers is not None:
            border = sketch_border(self.evaluator, lambda _: self.shared(base), 0, 0, on_devices)
        else:
            border = sketch_border(
                self.evaluator, lambda layers: self.shared(base._replace(n_gpu_layers=layers)), 1, every, on_devices
            )
        return border if border.judged.fits_devices else None

    def on_cpu(self, pair: tuple[str, str]) -> Judged | None:
        """Nothing on a GPU; the context stays at the comfortable one, since RAM is shared with everything else."""
        if self.wishes.pinned.n_gpu_layers not in (None, 0):
            return None
        request = self.base._replace(n_gpu_layers=0, cache_type_k=pair[0], cache_type_v=pair[1])
        grows = any(layer.has_cache and layer.k_width for layer in self.spec.layers)
        wished = self.comfortable if grows else self.ceiling
        return self.longest(request, self.floor, max(wished, self.floor))

    def run(self) -> Found:
        """All fitting candidates, the cheapest first."""
        found: dict[RequestedSettings, Judged] = {}

        def keep(judged: Judged | None) -> None:
            if judged is not None and judged.fits:
                found.setdefault(judged.request, judged)

        full = False
        for pair in self.cache_pairs():
            whole = self.everything_on_gpu(pair)
            keep(whole)
            full = full or (whole is not None and whole.plan.settings.n_ctx >= self.comfortable)
        if not full and self.evaluator.host.devices:
            self._add_splits(keep)
        if not found:
            for pair in self.cache_pairs():
                keep(self.on_cpu(pair))
        return Found(tuple(self.rank(list(found.values()))), self.floor, self.ceiling)

    def _add_splits(self, keep: Callable[[Judged | None], None]) -> None:
        """Sketch a split for every cache type and context, then settle those that may matter."""
        borders: dict[RequestedSettings, Border] = {}

        def add(pair: tuple[str, str], n_ctx: int, n_ubatch: int | None) -> None:
            border = self.split(pair, n_ctx, n_ubatch)
            if border is not None and border.judged.fits:
                borders[border.judged.request] = border

        for pair in self.cache_pairs():
            for n_ctx in self._split_contexts():
                add(pair, n_ctx, None)
        ranked = self.rank([border.judged for border in borders.values()])
        for best in ranked[:1]:  # a larger micro-batch reads prompts faster where weights must be copied in
            request = best.judged.request
            if self.wishes.pinned.n_ubatch is None and best.judged.plan.read_host_bytes:
                for n_ubatch in self.policy.search["n_ubatch_with_host_weights"]:
                    if n_ubatch != best.judged.plan.settings.n_ubatch:
                        pair = (request.cache_type_k or "f16", request.cache_type_v or "f16")
                        add(pair, request.n_ctx or 0, n_ubatch)
        ranked = self.rank([border.judged for border in borders.values()])
        if not ranked:
            return
        worth = ranked[:2]
        worth.append(min(ranked, key=lambda r: r.speed.turn_seconds.value))
        worth.append(max(ranked, key=lambda r: (r.judged.plan.settings.n_ctx, -r.cost)))
        worth += [r for r in ranked if r.judged.plan.settings.cache_type_k == "f16"][:1]
        for request in dict.fromkeys(r.judged.request for r in worth):
            keep(settle(self.evaluator, borders[request], on_devices))

    def _split_contexts(self) -> list[int]:
        if self.wishes.pinned.n_ctx is not None:
            return [self.wishes.pinned.n_ctx or self.spec.n_ctx_train]
        wished = {self.floor, self.comfortable} | {int(n) * self.slots for n in self.policy.search["partial_n_ctx"]}
        return sorted(round_up(n, 256) for n in wished if self.floor <= n <= max(self.ceiling, self.floor))

    def rank(self, candidates: list[Judged]) -> list[Ranked]:
        """Cheapest first; at equal cost the longer context, then the better cache."""
        ranked = []
        for judged in candidates:
            speed = self.evaluator.speed(judged, self.intent)
            least = max(self.intent.least_tokens_per_s, self.wishes.min_tokens_per_s or 0.0)
            price = cost(judged, speed, self.intent, self.policy, self.spec.n_ctx_train)
            if speed.decode_tokens_per_s.value < least:
                price *= 1000.0
            ranked.append(Ranked(judged, speed, price))
        ranked.sort(key=lambda r: (r.cost, -r.judged.plan.settings.n_ctx, r.judged.plan.settings.cache_type_k != "f16"))
        return ranked
