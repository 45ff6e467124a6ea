"""What would help, each with its price: the question is changed and asked again, and both answers are compared."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from advisor.host import HostSnapshot
from advisor.recommend.cache_safety import slow_row
from advisor.recommend.evaluate import Judged
from advisor.recommend.recommendation import Fix, Recommendation
from advisor.recommend.rungs import context_of, rate_of, where
from advisor.recommend.said import Said, capital, say, sentence
from advisor.recommend.search import Ranked, Search, Wishes
from advisor.recommend.steps import Step
from advisor.recommend.whole import whole_request
from advisor.recommend.words import cache_name, saved_on, use_rate
from advisor.records import NamedTuple
from advisor.units import MIB, format_bytes

if TYPE_CHECKING:
    from advisor.quants.rules import QuantRules
    from advisor.recommend.smaller import Smaller

_WORTH = 1.01  # cheaper by less for the intent is not worth a word
SearchIn = Callable[[HostSnapshot, Wishes], Search]


class Cure(NamedTuple):
    """One change with what it saves on the tightest place, and the answer it leads to where that was worked out."""

    code: str
    change: str
    saves_bytes: int
    enough: bool  # alone it gives what was wished: it fits, or everything lies on the GPUs
    judged: Judged | None
    said: Said


class Cures:
    """The cures of one answer. `search_in` asks again on a changed machine, or with other wishes."""

    def __init__(
        self, search: Search, answer: Recommendation, search_in: SearchIn, quality: Callable[[str], Said | None],
        quants: "Callable[[], QuantRules]", steps: Sequence[Step] = (),
    ) -> None:  # fmt: skip
        self._search, self._answer, self._search_in = search, answer, search_in
        self._quality, self._quants, self._steps = quality, quants, steps
        self._gain = 1.0 + float(search.policy.search["alternative_gain"])

    def all(self) -> tuple[Cure, ...]:
        """What costs nothing first, money last."""
        found = [self._programs(), self._host_programs(), self._wired_limit(), self._cache(), *self._quantizations()]
        known = {cure.change for cure in found if cure is not None}
        rest = [
            self._fix(fix) for fix in self._answer.fixes if fix.change not in known and "a file in" not in fix.change
        ]
        return tuple(cure for cure in (*found, *rest) if cure is not None)

    def _better(self, search: Search) -> Ranked | None:
        """The new answer, where it is noticeably better: for the intent, longer, faster, or any at all."""
        pool = search.run().pool
        if not pool:
            return None
        chosen, now = self._answer.chosen, pool[0]
        if not chosen.fits:
            return now
        longer = now.judged.plan.settings.n_ctx >= chosen.plan.settings.n_ctx * self._gain
        faster = self._rate(now.speed.decode_tokens_per_s.value, self._gain)
        cheaper = now.cost * _WORTH < self._search.cost(chosen)
        return now if cheaper or longer or faster or _on_gpu(now.judged) > _on_gpu(chosen) else None

    def _rate(self, tokens_per_s: float, times: float) -> bool:
        return tokens_per_s >= self._answer.speed.decode_tokens_per_s.value * times

    def _then(self, search: Search, now: Ranked) -> Said:
        """The new answer beside the old."""
        (layers, a), (context, b) = where(search, now.judged), context_of(now.judged)
        text, values = f"{layers}, {context}, {{tokens_per_s}}", {**a, **b}
        if cache_name(now.judged) != cache_name(self._answer.chosen):
            text, values = (
                f"{layers}, {context} in {{cache}}, {{tokens_per_s}}",
                {**values, "cache": cache_name(now.judged)},
            )
        rate = rate_of(search, now.speed)
        if not self._answer.chosen.fits:
            return say(text, **values, tokens_per_s=rate)
        before = rate_of(self._search, self._answer.speed)
        _, was = context_of(self._answer.chosen, "n_ctx_before")
        text += " instead of {n_ctx_before} tokens, {before_tokens_per_s}"
        return say(text, **values, **was, tokens_per_s=rate, before_tokens_per_s=before)

    # -- the machine -----------------------------------------------------------------------------------------------

    def _programs(self) -> Cure | None:
        """Other programs' memory on the GPUs."""
        host, limits = self._search.evaluator.host, self._search.evaluator.budget.devices
        held = {limit.id: limit.total_bytes - limit.free_bytes for limit in limits if not limit.unified}
        held = {name: n_bytes for name, n_bytes in held.items() if n_bytes >= MIB}
        if not held:
            return None
        devices = tuple(
            device._replace(free_bytes=device.total_bytes, used_by_engines_bytes=0) if device.id in held else device
            for device in host.devices
        )
        search = self._search_in(host._replace(devices=devices), self._search.wishes)
        now = self._better(search)
        if now is None:
            return None
        total, cards = sum(held.values()), " and ".join(held)
        text = "closing the programs that hold {held_bytes} of {cards}{names}"
        said = say(text, held_bytes=total, cards=cards, names=self._names(set(held)))
        told = capital(sentence(said, self._then(search, now), self._next(held)))
        change = f"close the programs that hold memory of {cards}"
        return Cure("close_programs", change, total, now.judged.fits, now.judged, told)

    def _next(self, held: Mapping[str, int]) -> Said | None:
        """How little of it the next layer or block of experts lacks."""
        steps = [step for step in self._steps if step.code in ("layers", "experts")]  # experts come first
        step = next((one for one in steps if one.place.over_bytes <= held.get(one.place.device, 0)), None)
        if step is None:
            return None
        part = step.said.figures.get("block") is not None
        more = "some more experts" if part else "the experts of one more block"
        what = "one more layer" if step.code == "layers" else more
        return say(f"{{over_bytes}} of that is enough for {what}", over_bytes=step.place.over_bytes)

    def _host_programs(self) -> Cure | None:
        """Other programs' system memory, where only that is lacking."""
        short = next(iter(self._answer.chosen.shorts), None)
        budget = self._search.evaluator.budget
        held = budget.ram_total_bytes - budget.ram_available_bytes
        if short is None or short.device != "host" or short.over_bytes > held:
            return None
        text = "closing programs that hold {over_bytes} of system memory would do; {held_bytes} of it are in use"
        said = capital(sentence(say(text, over_bytes=short.over_bytes, held_bytes=held)))
        return Cure("close_programs", "close programs that hold system memory", short.over_bytes, True, None, said)

    def _names(self, ids: set[str]) -> str:
        """The largest of the programs, as far as they are known."""
        uses = [
            use for device in self._search.evaluator.host.devices if device.id in ids for use in device.processes
            if use.used_bytes and not use.is_engine
        ]  # fmt: skip
        uses.sort(key=lambda use: -(use.used_bytes or 0))
        names = list(dict.fromkeys(use.name for use in uses))[:3]
        return f" ({', '.join(names)})" if names else ""

    def _wired_limit(self) -> Cure | None:
        """Metal's share of the memory that it has in common with the CPU."""
        evaluator, chosen = self._search.evaluator, self._answer.chosen
        judged = self._search.judge(whole_request(evaluator, chosen.request, self._search.wishes.pinned))
        limits = zip(evaluator.host.devices, evaluator.budget.devices, judged.plan.devices, strict=True)
        over = [(device, limit, plan) for device, limit, plan in limits if plan.planned_bytes > limit.usable_bytes]
        if len(over) != 1 or over[0][0].backend != "metal" or any(short.device == "host" for short in judged.shorts):
            return None
        device, limit, plan = over[0]
        n_mib = -(-(plan.planned_bytes + limit.margin_bytes) // MIB)
        raised = device._replace(total_bytes=n_mib * MIB, free_bytes=n_mib * MIB)
        search = self._search_in(evaluator.host._replace(devices=(raised,)), self._search.wishes)
        now = self._better(search)
        if now is None:
            return None
        change = f"sudo sysctl iogpu.wired_limit_mb={n_mib}"
        more = n_mib * MIB - limit.total_bytes
        said = say(
            "sudo sysctl iogpu.wired_limit_mb={wired_limit} gives {where} {more_bytes} more of the memory",
            wired_limit=str(n_mib), where=device.id, more_bytes=more,
        )  # fmt: skip
        return Cure("wired_limit", change, more, True, now.judged, sentence(said, self._then(search, now)))

    # -- the model -------------------------------------------------------------------------------------------------

    def _cache(self) -> Cure | None:
        """The next smaller cache type, with what is published of its loss."""
        search, chosen = self._search, self._answer.chosen
        pinned = search.wishes.pinned
        if (chosen.plan.settings.cache_type_k, search.cache_allowed("q8_0")) != ("f16", True):
            return None
        if not any(layer.has_cache and layer.k_width for layer in search.spec.layers):
            return None
        wishes = search.wishes._replace(pinned=pinned._replace(cache_type_k="q8_0", cache_type_v="q8_0"))
        again = self._search_in(search.evaluator.host, wishes)
        now = self._better(again)
        if now is None:
            return None
        change = "-ctk q8_0 -ctv q8_0"
        fix = next((fix for fix in self._answer.fixes if fix.change == change), None)
        if fix is not None:
            saves, place = fix.saves_bytes, saved_on(fix.device, fix.whole)
        else:
            small = chosen.request._replace(cache_type_k="q8_0", cache_type_v="q8_0")
            saves = search.evaluator.cache_bytes(chosen.request) - search.evaluator.cache_bytes(small)
            place = "of cache"
        said = say("{change} saves {saves_bytes} {where}", change=change, saves_bytes=saves, where=place)
        row = slow_row(again.cache_rows, "q8_0")
        slow = (
            say("about {slower} times slower, as {why}", slower=row.factor, why=row.text) if row is not None else None
        )
        told = sentence(said, self._then(again, now), slow, self._quality("q8_0"))
        return Cure("cache", change, saves, now.judged.fits, now.judged, told)

    def _quantizations(self) -> list[Cure]:
        """The largest smaller quantizations that fit at all, and that are all on the GPUs; where none is, the next."""
        from advisor.recommend.smaller import Ladder, enough_alone, smaller_quantizations

        search, answer, rules = self._search, self._answer, self._quants()
        full, settings = answer.verdict == "full", answer.chosen.plan.settings
        if full and settings.n_ctx >= search.ceiling and settings.cache_type_k == "f16":
            return []  # nothing is left to want
        best = Ranked(answer.chosen, answer.speed, 0.0)
        found = smaller_quantizations(search, best, answer.chosen.fits, rules)
        enough = enough_alone(found, answer.chosen.fits) if not full else ()
        if not enough:
            ladder = Ladder(search, best, rules)
            enough = (ladder.look(ladder.names[0]),) if ladder.names else ()
        return [self._quantization(one, rules) for one in enough]

    def _quantization(self, one: "Smaller", rules: "QuantRules") -> Cure:
        from advisor.quants.quality import weights_loss

        search, full = self._search, self._answer.verdict == "full"
        saves = sum(tensor.n_bytes for tensor in search.spec.tensors) - one.weights_bytes
        said = say("as {name} the same model saves {saves_bytes} of weights", name=one.name, saves_bytes=saves)
        layers, a = where(
            Search(search.evaluator.of(one.spec), search.policy, search.intent, search.wishes), one.judged
        )
        rate = use_rate(one.spec, one.speed)
        then = say(f"{layers}, {{tokens_per_s}}", **a, tokens_per_s=rate) if one.judged.fits else None
        new = weights_loss(rules, one.spec)
        old = weights_loss(rules, search.spec, imatrix=new.imatrix)  # like with like, where there are both figures
        loss = None
        if new.of != old.of and new.imatrix == old.imatrix and None not in (new.perplexity_more, old.perplexity_more):
            more = (new.perplexity_more or 0.0) - (old.perplexity_more or 0.0)
            text = "published perplexity {perplexity} more than {than} on {of}"
            loss = say(text, perplexity=round(more, 4), than=old.of, of=new.model)
        enough = one.judged.fits and (one.full or full or not self._answer.chosen.fits)
        told = capital(sentence(said, then, loss))
        return Cure("quantization", f"a file in {one.name}", saves, enough, one.judged, told)

    def _fix(self, fix: Fix) -> Cure:
        """What the answer itself names."""
        if fix.costs == "money":
            whole = "would hold all of it" if fix.enough else "would hold what goes to the GPUs, not enough alone"
            card = f"{fix.change} {whole}".replace(format_bytes(fix.saves_bytes), "{saves_bytes}")
            text = "{saves_bytes} more system memory would do" if "system" in fix.change else card
            return Cure("hardware", fix.change, fix.saves_bytes, fix.enough, None,
                        capital(sentence(say(text, saves_bytes=fix.saves_bytes))))  # fmt: skip
        alone = "" if fix.enough else ", not enough alone"
        costs = "{lost_n_ctx} tokens less context" if fix.lost_n_ctx else "{costs}"
        said = say(f"{{change}} saves {{saves_bytes}} {{where}}, at the price of {costs}{alone}", change=fix.change,
                   saves_bytes=fix.saves_bytes, where=saved_on(fix.device, fix.whole), costs=fix.costs,
                   lost_n_ctx=fix.lost_n_ctx)  # fmt: skip
        return Cure("setting", fix.change, fix.saves_bytes, fix.enough, None, sentence(said))


def _on_gpu(judged: Judged) -> int:
    """Layers on the GPUs less blocks whose experts are not."""
    return judged.plan.settings.n_gpu_layers - judged.plan.host_expert_blocks
