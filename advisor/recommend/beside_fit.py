"""What the engine's own fit chooses beside our choice: the same model, machine and slots; which is better by what."""

from collections.abc import Sequence

from advisor.recommend.engine_fit import MARGIN_BYTES, Fitted, as_good, engine_fit
from advisor.recommend.evaluate import Judged
from advisor.recommend.policy import lack
from advisor.recommend.recommendation import Recommendation
from advisor.recommend.rungs import Figures, rate_of
from advisor.recommend.said import Said, capital, say, sentence, written
from advisor.recommend.search import Search
from advisor.recommend.words import cache_name, on
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings
from advisor.speed import Speed

_SAME = 1.005  # what is dearer by less is as good


class Side(NamedTuple):
    """One choice with its speed and what it costs for the intent."""

    judged: Judged
    speed: Speed
    cost: float

    @property
    def n_ctx(self) -> int:
        """Tokens of context of one slot."""
        settings = self.judged.plan.settings
        return settings.n_ctx if settings.kv_unified else settings.n_ctx_seq

    @property
    def turn_s(self) -> float:
        """Seconds of the intent's turn."""
        return self.speed.turn_seconds.value


class BesideFit(NamedTuple):
    """Both choices. `better`: "ours", "fit", "equal", or "neither" where nothing fits."""

    fitted: Fitted
    fit: Side
    ours: Side
    better: str
    leave: bool  # leaving it to the engine is fine
    said: tuple[Said, ...]


def fit_base(search: Search) -> RequestedSettings:
    """What is asked of fit: the user's own settings with our slots, everything that it decides left open."""
    return search.wishes.pinned._replace(n_parallel=search.slots, kv_unified=search.base.kv_unified)


def fit_by_rules(search: Search, free_bytes: Sequence[int] | None = None) -> Fitted:
    """Fit's choice by its published rules; `free_bytes`: what the engine itself finds free on each GPU.

    It looks when the backend has taken its own already, so that is taken off where only advisor has looked.
    """
    evaluator = search.evaluator
    if free_bytes is None:
        overheads = [evaluator.engine.backends[device.backend].overhead_bytes for device in evaluator.host.devices]
        limits = evaluator.budget.devices
        free_bytes = [limit.free_bytes - n for limit, n in zip(limits, overheads, strict=True)]
    ids = [device.id for device in evaluator.host.devices]
    return engine_fit(lambda request: evaluator.judge(request).plan, search.spec, fit_base(search), free_bytes, ids)


def beside_fit(whole: Search, answer: Recommendation, used: Search, fitted: Fitted) -> BesideFit:
    """`answer` and what `fitted` comes to; `whole` has all cards, `used` those that the answer takes."""
    ours, fit = _side(used, answer.chosen), _side(whole, whole.evaluator.judge(fitted.request))
    # fit takes system memory as unlimited, and what lies on GPUs it has measured
    over = next((short.over_bytes for short in fit.judged.shorts if short.device == "host"), 0)
    if over or not answer.chosen.fits:
        better = "ours" if answer.chosen.fits else "neither" if over else "fit"
    else:
        better = "ours" if ours.cost < fit.cost / _SAME else "fit" if fit.cost < ours.cost / _SAME else "equal"
    leave = better in ("equal", "fit")
    said = [*_choices(whole, fit, ours, leave), *_beside(whole, fit, ours, over)]
    safe = as_good(used, answer.chosen) if answer.verdict == "full" and not leave else None
    if safe is not None:
        words = "handed advisor's margin by --mode safe, fit comes to {safe_n_ctx} tokens, which is as good"
        said.append(sentence(say(words, safe_n_ctx=safe // used.slots)))
    return BesideFit(fitted, fit, ours, better, leave, tuple(capital(one) for one in said))


def _side(search: Search, judged: Judged) -> Side:
    return Side(judged, search.evaluator.speed(judged, search.intent), search.cost(judged))


def _choices(search: Search, fit: Side, ours: Side, leave: bool) -> list[Said]:
    """Both in one sentence."""
    if not ours.judged.fits:
        return []
    values: Figures = {
        "fit_n_ctx": fit.n_ctx,
        "our_n_ctx": ours.n_ctx,
        "fit_turn_s": fit.turn_s,
        "our_turn_s": ours.turn_s,
        "fit_tokens_per_s": rate_of(search, fit.speed),
        "our_tokens_per_s": rate_of(search, ours.speed),
    }
    if leave:
        text = "leaving it to the engine is fine: {fit_n_ctx} tokens, a turn takes {fit_turn_s}; "
        return [sentence(say(text + "here {our_n_ctx} tokens, {our_turn_s}", **values))]
    text = "{our_n_ctx} tokens of context instead of fit's {fit_n_ctx}; a turn "
    if fit.n_ctx == ours.n_ctx:
        text = "with the same {our_n_ctx} tokens of context a turn "
    turns, rates = (_told(values, f"our_{name}", f"fit_{name}") for name in ("turn_s", "tokens_per_s"))
    same_turns, same_rates = turns[0] == turns[1], rates[0] == rates[1]
    if same_turns and same_rates:
        text += "is as fast, {our_turn_s}, {our_tokens_per_s}"
    else:
        text += "takes {our_turn_s} " + ("with both" if same_turns else "instead of {fit_turn_s}")
        text += ", {our_tokens_per_s} " + ("with both" if same_rates else "instead of {fit_tokens_per_s}")
    choices = say(text, **values)
    percent = round(100 * (fit.cost / ours.cost - 1))
    words = (
        "all in all {percent} % better for {intent}" if percent >= 0 else "all in all {percent} % dearer for {intent}"
    )
    why = _derived(search, fit, ours)
    return [sentence(choices, say(words + why.text, percent=abs(percent), intent=search.intent.name, **why.figures))]


def _neither(search: Search, fit: Side, ours: Side) -> list[Said]:
    """What both choices lack where advisor's does not fit, and how fast they would be."""
    over = next((short for short in ours.judged.shorts), None)
    if over is None:
        return []
    values: Figures = {
        "our_over_bytes": over.over_bytes, "our_n_ctx": ours.n_ctx, "our_turn_s": ours.turn_s,
        "our_tokens_per_s": rate_of(search, ours.speed), "fit_turn_s": fit.turn_s, "fit_n_ctx": fit.n_ctx,
        "fit_tokens_per_s": rate_of(search, fit.speed),
    }  # fmt: skip
    text = f"advisor's nearest, with {{our_n_ctx}} tokens, is {{our_over_bytes}} too much {on(over.device)}"
    text += "; a turn would take {our_turn_s} with it ({our_tokens_per_s}), {fit_turn_s} with fit's {fit_n_ctx} tokens "
    return [sentence(say(text + "({fit_tokens_per_s})", **values))]


def _told(values: Figures, *names: str) -> list[str]:
    """Figures as they will stand in the sentence."""
    return [written(name, float(values[name])) for name in names]


def _derived(search: Search, fit: Side, ours: Side) -> Said:
    """What fit's cost is a multiple of ours by, as the end of a template with its figures; nothing where by no part."""
    rules = (search.intent, search.policy, search.spec.n_ctx_train)
    factors = {"turn_factor": fit.turn_s / ours.turn_s, "context_factor": lack(fit.n_ctx, *rules)}
    factors["context_factor"] /= lack(ours.n_ctx, *rules)
    factors["rest_factor"] = fit.cost / ours.cost / (factors["turn_factor"] * factors["context_factor"])
    words = {
        "turn_factor": "for the turn", "context_factor": "for the context", "rest_factor": "for cache and micro-batch"
    }  # fmt: skip
    shown = {name: round(value, 2) for name, value in factors.items() if f"{value:.2f}" != "1.00"}
    parts = [f"{{{name}}} {words[name]}" for name in shown]
    return Said(f" (fit's cost is ours x {' x '.join(parts)})" if parts else "", shown)


def _beside(search: Search, fit: Side, ours: Side, over_bytes: int) -> list[Said]:
    """What fit does not look at, and what each keeps free."""
    told = []
    if over_bytes:
        text = "fit takes system memory as unlimited: its choice is {over_bytes} too much for it"
        told.append(sentence(say(text, over_bytes=over_bytes)))
    if not ours.judged.fits:
        told += _neither(search, fit, ours)
    turn = search.intent.turn.n_tokens
    if fit.n_ctx < turn <= ours.n_ctx and ours.judged.fits:
        text = "a turn with its history is {turn_tokens} tokens long, which fit's {fit_n_ctx} do not hold"
        told.append(sentence(say(text, turn_tokens=turn, fit_n_ctx=fit.n_ctx)))
    if fit.judged.plan.settings.cache_type_k != ours.judged.plan.settings.cache_type_k and ours.judged.fits:
        values: Figures = {"cache": cache_name(ours.judged)}
        values |= {"our_token_bytes": _cache_per_token(ours), "fit_token_bytes": _cache_per_token(fit)}
        text = "fit never changes the cache's types: in {cache} a token takes {our_token_bytes} instead of "
        told.append(sentence(say(text + "{fit_token_bytes}", **values)))
    margin = max((limit.margin_bytes for limit in search.evaluator.budget.devices), default=0)
    text = "fit keeps {fit_margin_bytes} of each GPU free, advisor {margin_bytes}"
    return [*told, sentence(say(text, fit_margin_bytes=MARGIN_BYTES, margin_bytes=margin))]


def _cache_per_token(side: Side) -> int:
    plan = side.judged.plan
    return (sum(device.cache_bytes for device in plan.devices) + plan.host.cache_bytes) // plan.settings.n_ctx
