"""An answer explained: the ladder to it, the next steps up, what would help, and the line to repeat to a friend."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from advisor.host import Device, HostSnapshot
from advisor.recommend.cures import Cure, Cures, SearchIn
from advisor.recommend.ladder import Walk
from advisor.recommend.more_memory import more_memory
from advisor.recommend.recommendation import Recommendation
from advisor.recommend.rungs import Rung, context_of, dear, lacking, outcome, places_of, rate_of, where
from advisor.recommend.said import Said, capital, say, sentence
from advisor.recommend.search import Search
from advisor.recommend.steps import Step, next_steps
from advisor.recommend.whole import whole_request
from advisor.recommend.words import cache_name, on
from advisor.records import NamedTuple

if TYPE_CHECKING:
    from advisor.quants.rules import QuantRules
    from advisor.recommend.siblings import Sibling


class Explained(NamedTuple):
    """What `advisor recommend --explain` adds; the last rung is the answer."""

    rungs: tuple[Rung, ...]
    steps: tuple[Step, ...]
    cures: tuple[Cure, ...]
    friend: Said


def explain(
    search: Search, answer: Recommendation, host: HostSnapshot, search_in: SearchIn, quants: "Callable[[], QuantRules]",
    siblings: "Siblings | None" = None,
) -> Explained:  # fmt: skip
    """`search`: on the cards that the answer takes; `host`: the whole machine; `search_in` searches on another one.

    `siblings`: other quantizations on disk, each of which is a rung before the answer.
    """

    def search_on(devices: tuple[Device, ...]) -> Search:
        return search_in(host._replace(devices=devices), search.wishes)

    def quality(cache_type: str) -> Said | None:
        return published(quants(), cache_type)

    steps = next_steps(search, answer.chosen)
    rungs = Walk(search, answer.chosen, host.devices, search_on, steps, quality).rungs()
    if siblings is not None:
        rungs = (*rungs[:-1], *sibling_rungs(siblings), rungs[-1])
    cures = Cures(search, answer, search_in, quality, quants, steps).all()
    return Explained(rungs, steps, cures, friend(search, answer, rungs))


class Siblings(NamedTuple):
    """The file that the answer is for, and the others, each with the search on the cards that its answer takes."""

    chosen: "Sibling"
    others: "tuple[tuple[Sibling, Search], ...]"


def sibling_rungs(siblings: Siblings) -> tuple[Rung, ...]:
    """What each other quantization would be, and what it costs beside the answer with its published loss counted."""
    mine, rungs = siblings.chosen, []
    for other, search in sorted(siblings.others, key=lambda pair: pair[0].cost):
        judged = other.answer.chosen
        (layers, a), (context, b) = where(search, judged), context_of(judged)
        if cache_name(judged) != cache_name(mine.answer.chosen):  # its context would not be with the answer's
            context, b = f"{context} in {{cache}}", {**b, "cache": cache_name(judged)}
        what = say(f"or as {{file}}: {layers}, {context}", file=other.name, **a, **b)
        loss = None
        if other.loss.kld != mine.loss.kld:
            loss = say("published KL divergence {kld} instead of {chosen_kld}",
                       kld=round(other.loss.kld, 4), chosen_kld=round(mine.loss.kld, 4))  # fmt: skip
        price = _price(other, mine) if other.fits and mine.fits else None
        told = capital(sentence(what, outcome(search, judged), loss, price))
        speed = other.answer.speed if other.fits else None
        rungs.append(Rung("quantization", False, judged, places_of(search, judged), speed, told))
    return tuple(rungs)


def _price(other: "Sibling", mine: "Sibling") -> Said | None:
    """What a file costs all in all, as a part or a multiple of the answer's cost; or that it is too slow."""
    intent, ratio = mine.answer.intent, other.cost / mine.cost
    if other.fast_enough != mine.fast_enough:
        if other.fast_enough:
            return None  # that the answer is too slow is said of the answer
        who = "asked for" if other.asked else "that are the least for {intent}"
        return say(f"below the {{least_tokens}} tokens/s {who}", least_tokens=other.least_tokens_per_s, intent=intent)
    if ratio >= 2:
        return dear(ratio, intent)
    percent = abs(round(100 * (ratio - 1)))
    if not percent:
        return None
    word = "dearer" if ratio >= 1 else "cheaper"
    return say(f"{{percent}} % {word} for {{intent}}", percent=percent, intent=intent)


def published(rules: "QuantRules", cache_type: str) -> Said | None:
    """What was measured of a cache type's loss, on whatever model it was; perplexity where there is one."""
    from advisor.quants.quality import cache_quality

    figures = cache_quality(rules, cache_type)
    figure = next((one for one in figures if one.measure.startswith("perplexity")), figures[0] if figures else None)
    if figure is None:
        return None
    if figure.measure.startswith("perplexity"):
        text = "published: perplexity {cache_loss} more than with f16 ({of})"
    else:
        text = "published: {measure} {cache_loss} ({of})"
    return say(text, cache_loss=figure.value, measure=figure.measure, of=figure.model)


def friend(search: Search, answer: Recommendation, rungs: tuple[Rung, ...]) -> Said:
    """The one line that a person would repeat."""
    chosen = answer.chosen
    used = [plan.weights_bytes + plan.cache_bytes > 0 for plan in chosen.plan.devices]
    names = [one.name for one, holds in zip(search.evaluator.host.devices, used, strict=True) if holds or not any(used)]
    on_gpus = "the {card}" if len(names) == 1 else "{n_gpus} GPUs" if names else "the CPU"
    (layers, a), (context, b) = where(search, chosen), context_of(chosen)
    a = {"n_gpus": len(names), "card": names[0] if names else "", "name": search.spec.name, **a}
    if not chosen.fits:
        lacks, c = lacking(rungs[-1].places)
        return sentence(say(f"{{name}} does not fit {on_gpus}: even with {context} it lacks {lacks}", **a, **b, **c))
    whole = answer.verdict == "full"
    how = f"runs whole on {on_gpus}" if whole else f"runs with {layers}" if names else f"runs on {on_gpus}"
    if len(names) == 1:
        how = how.replace("the GPU", on_gpus)
    verb = how if search.spec.answers else how.replace("runs", "embeds")
    line = say(f"{{name}} {verb}, {context}, {{tokens_per_s}}", **a, **b,
               tokens_per_s=rate_of(search, answer.speed))  # fmt: skip
    wish = next((rung for rung in rungs if not rung.judged.fits and rung.taken), None)
    if wish is None:
        return sentence(line)
    (lacks, d), (more, c) = lacking(wish.places), context_of(wish.judged, "wished_n_ctx")
    cache = "" if cache_name(wish.judged) == cache_name(chosen) else " in {wished_cache}"
    if wish.judged.plan.settings.n_ctx == chosen.plan.settings.n_ctx and not whole and names:
        wished = whole_request(search.evaluator, chosen.request, search.wishes.pinned)
        needs = more_memory(search, wished)  # with its own cache, as the fixes say
        if needs is not None and needs.enough and len(needs.devices) == 1:
            (device,) = needs.devices
            text = "with {over_bytes} more {place} it would run whole"
            return sentence(line, say(text, over_bytes=needs.more_bytes, place=on(device)))
    all_of_it = "" if whole or not names else "all of it with "
    text = f"for {all_of_it}{more}{cache} it lacks {lacks}"
    return sentence(line, say(text, **c, **d, wished_cache=cache_name(wish.judged)))
