"""One model on one machine: the recommendation that a command, a list of models or the daemon asks for."""

from __future__ import annotations

from advisor.app import App
from advisor.host import HostSnapshot
from advisor.memory.engine_spec import EngineSpec
from advisor.memory.extras import Beside
from advisor.memory.server import checkpoints_of_slot
from advisor.model.spec import ModelSpec
from advisor.outputs.command import server_options
from advisor.recommend.budget import Budget, ServerCaches, make_budget, server_caches
from advisor.recommend.cards import by_number, recommend_on
from advisor.recommend.evaluate import Evaluator
from advisor.recommend.policy import Intent, parse_policy
from advisor.recommend.recommend import recommend
from advisor.recommend.recommendation import Recommendation
from advisor.recommend.search import Search, Wishes
from advisor.recommend.warn import rounded_note
from advisor.settings import without_draft
from advisor.speed import SpeedModel
from advisor.units import round_up


class Planner:
    """Plans models for one machine and one engine; `now` and the bytes to keep free as in `make_budget`."""

    def __init__(
        self,
        app: App,
        host: HostSnapshot,
        engine: EngineSpec,
        *,
        tool: str = "server",
        now: bool = False,
        keep_free_bytes: int | None = None,
        keep_free_ram_bytes: int | None = None,
    ) -> None:
        self._app, self.host, self.engine, self._tool = app, host, engine, tool
        self._margins = {"now": now, "keep_free_bytes": keep_free_bytes, "keep_free_ram_bytes": keep_free_ram_bytes}
        self.policy = parse_policy(app.required("policy.toml"))
        self._speed_rules = app.required("speed.toml")
        self._overheads = app.overheads(host)

    def intent(self, text: str, n_parallel: int | None = None) -> Intent:
        """The intent of that name ("balanced", "parallel:4"), for so many slots if asked for. Raises UsageError."""
        return self.policy.intent(text, n_parallel)

    def budget(self, host: HostSnapshot) -> Budget:
        """What may be used of `host`."""
        return make_budget(host, self.policy, **self._margins)  # type: ignore[arg-type]

    def evaluator(
        self,
        spec: ModelSpec,
        beside: Beside | None = None,
        host: HostSnapshot | None = None,
        limits: Budget | None = None,
        like: Evaluator | None = None,
    ) -> Evaluator:
        """What judges settings of `spec` on `host`, the whole machine unless given, within `limits` if given.

        `like`: the evaluator of the same model in another quantization on the same machine.
        """
        host = host or self.host
        budget = limits or self.budget(host)
        speed = SpeedModel(spec, host, self._speed_rules)
        return Evaluator(spec, host, self.engine, budget, speed, self._tool, beside, self._overheads, like)

    def recommend(
        self, spec: ModelSpec, intent: Intent, wishes: Wishes, beside: Beside | None = None, *, smaller: bool = False
    ) -> tuple[Recommendation, HostSnapshot]:
        """The best answer over the sets of GPUs, and the machine with those left out among its idle ones.

        `smaller`: say what smaller quantizations would do where not everything fits the GPUs, which takes a moment.
        """
        quants = self._app.quant_rules if smaller else None
        asked = wishes.pinned.n_ctx
        wishes = self.settled(wishes, spec, intent)
        n_ctx = wishes.pinned.n_ctx

        def placed(some: Wishes, parts: Beside | None = beside) -> tuple[Recommendation, HostSnapshot]:
            answer, host = recommend_on(
                self.host, lambda host: self.evaluator(spec, parts, host), self.policy, intent, some, quants
            )
            if asked and n_ctx and asked != n_ctx:
                answer = answer._replace(warnings=(rounded_note(asked, n_ctx), *answer.warnings))
            return answer, host

        if beside is None or not self.host.devices:
            return placed(wishes)
        from advisor.together.placing import Placing, best_placed

        def placing_on(host: HostSnapshot) -> Placing:
            constants = SpeedModel(spec, host, self._speed_rules).constants
            return Placing(spec, beside, constants, self.engine, self.policy, intent)

        def undrafted(some: Wishes) -> tuple[Recommendation, HostSnapshot]:
            return placed(some._replace(pinned=without_draft(some.pinned)), beside._replace(draft=None))

        return best_placed(wishes, beside, placed, placing_on, undrafted)

    def search(
        self, spec: ModelSpec, intent: Intent, wishes: Wishes, host: HostSnapshot, beside: Beside | None = None
    ) -> Search:
        """The search on exactly the GPUs of `host`, for whoever wants more of it than the best answer."""
        return Search(self.evaluator(spec, beside, host), self.policy, intent, self.settled(wishes, spec, intent))

    def least_cost(self, spec: ModelSpec, intent: Intent, wishes: Wishes) -> float:
        """No answer for `spec` costs less; 0 where nothing is known without searching."""
        from advisor.recommend.bounds import least_cost, pooled

        pinned = wishes.pinned
        if not self.host.devices or by_number(pinned) or pinned.n_gpu_layers == 0:
            return 0.0
        evaluator = self.evaluator(spec)
        one = pooled(self.host, evaluator.budget, evaluator.read_rates)
        found = least_cost(self.search(spec, intent, wishes, one)) if one is not None else 0.0
        return found if found < float("inf") else 0.0  # what no GPU takes part in may still do

    def recommend_within(
        self, spec: ModelSpec, intent: Intent, wishes: Wishes, host: HostSnapshot, limits: Budget, beside: Beside | None
    ) -> Recommendation:
        """The best answer on exactly the GPUs of `host` within `limits`."""
        evaluator = self.evaluator(spec, beside, host, limits)
        return recommend(evaluator, self.policy, intent, self.settled(wishes, spec, intent), self._app.quant_rules)

    def settled(self, wishes: Wishes, spec: ModelSpec, intent: Intent) -> Wishes:
        """The wishes as they will be written: a micro-batch for embeddings, a context that the engine need not round.

        Rounded later, a context below the batch would make the batch another in the plan than in the command.
        """
        pinned = wishes.pinned
        if not spec.answers:
            from advisor.recommend.embedding import with_whole_texts

            pinned = with_whole_texts(pinned, spec, wishes.max_n_ctx)
        if pinned.n_ctx and pinned.n_ctx < (pinned.n_batch or self.engine.defaults["n_batch"]):
            slots = 1 if pinned.kv_unified else pinned.n_parallel or intent.n_parallel or 1
            rounded = round_up(max(pinned.n_ctx // slots, 1), self.engine.defaults["context_padding"]) * slots
            pinned = pinned._replace(n_ctx=rounded)
        return wishes._replace(pinned=pinned) if pinned != wishes.pinned else wishes

    def options(
        self, answer: Recommendation, spec: ModelSpec, host: HostSnapshot, wishes: Wishes, mode: str = "exact"
    ) -> list[tuple[str, str]]:
        """The chosen settings as llama-server's long options without dashes; `host` as `recommend` returned it."""
        caches = self.server_caches(answer, wishes)
        return server_options(
            answer.chosen.plan,
            self.engine,
            mode=mode,
            n_layer_all=spec.n_layer_all,
            margin_bytes=max((limit.margin_bytes for limit in answer.budget.devices), default=0),
            embeds=not spec.answers,
            only_devices=len(host.devices) < len(self.host.devices),
            cache_ram_mib=caches.cache_ram_mib,
            n_ctx_checkpoints=caches.n_ctx_checkpoints,
        )

    def server_caches(self, answer: Recommendation, wishes: Wishes) -> ServerCaches:
        """What the server should be told to keep at most in system memory; nothing where the user said it."""
        plan, pinned = answer.chosen.plan, wishes.pinned
        caches = server_caches(plan, answer.budget, checkpoints_of_slot(plan.settings, self.engine))
        return ServerCaches(
            caches.cache_ram_mib if pinned.cache_ram_mib is None else None,
            caches.n_ctx_checkpoints if pinned.n_ctx_checkpoints is None else None,
        )

    def limited(self, answer: Recommendation, wishes: Wishes) -> dict[str, int]:
        """What the server comes to keep in system memory with the limits that it is told, in bytes."""
        plan = answer.chosen.plan
        checkpoints = checkpoints_of_slot(plan.settings, self.engine)
        return self.server_caches(answer, wishes).applied(plan.host.extras, checkpoints)
