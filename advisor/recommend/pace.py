"""The least pace of an intent or a wish: how long a context it allows, and what lies exactly at it."""

from advisor.memory.placement import HOST
from advisor.recommend.evaluate import Judged
from advisor.recommend.fastest import micro_batches, rate
from advisor.recommend.recommendation import Note
from advisor.recommend.search import Ranked, Search
from advisor.settings import RequestedSettings

_NEAR = 1.5  # a choice that is quicker by more has been compared with what is slower
_FAR = 1.25  # dearer by more is not gone on with
_STEPS = 4  # parts below the first that fits


def quick_n_ctx(search: Search, request: RequestedSettings, low: int, high: int) -> int:
    """The longest context in [low, high], in whole steps, from which answers are quick enough.

    `high` where that is quick enough, or nothing is: the deeper in its context a model answers, the slower.
    """
    least = search.least_tokens_per_s

    def quick(n_ctx: int) -> bool:
        at = search.evaluator.least(search.shared(search.open_split(request)._replace(n_ctx=n_ctx)))
        return rate(search, at) >= least

    if not least or low >= high or quick(high) or not quick(low):
        return high
    first, last = low // search.step, high // search.step
    while first < last:
        middle = (first + last + 1) // 2
        first, last = (middle, last) if quick(max(middle * search.step, low)) else (first, middle - 1)
    return max(first * search.step, low)


def too_slow_for_intent(search: Search, best: Ranked) -> Note:
    """That the least pace of the intent cannot be had, where the user wished for none above it."""
    least, most = search.intent.least_tokens_per_s, search.pace(best.speed)
    unit = "token/s" if least == 1 else "tokens/s"
    text = (
        f"None of the settings looked at reaches {least:g} {unit}, the least that --for {search.intent.name} asks for"
    )
    return Note("below_pace", f"{text}; this gives about {most:.2f}, below which people give up.")


def at_the_pace(search: Search, best: Ranked) -> list[Judged]:
    """With as little on the GPUs as the least pace allows, of every cache type: what may be cheaper than `best`.

    More on the GPUs is quicker and leaves a shorter context. So it is walked down from the least that is quick enough
    in however long a context, to where the pace ends the context and not the memory. Every one of them is planned
    exactly: sketches of buffers may be further off than one part from the next.
    """
    least, found, lowest = search.least_tokens_per_s, list[Judged](), best.cost
    if search.wishes.pinned.n_ctx is not None or not search.evaluator.host.devices:
        return []
    if not least <= search.pace(best.speed) < _NEAR * least or not _away(best.judged):
        return []
    whole_turn = search.intent.turn.n_tokens * search.slots  # with room for it the context no longer sets the pace
    n_ctx = min(max(best.judged.plan.settings.n_ctx, whole_turn), search.unasked)
    for pair in search.cache_pairs():
        for n_ubatch in micro_batches(search):
            chain = search.chain(pair, search.floor, n_ubatch)
            low, high = chain.low, chain.high
            while low < high:
                middle = (low + high) // 2
                at = search.evaluator.least(search.shared(chain.make(middle)._replace(n_ctx=n_ctx)))
                low, high = (low, middle) if rate(search, at) >= least else (middle + 1, high)
            part, n_fitting, before = low, 0, lowest
            while part >= chain.low and n_fitting < _STEPS:
                request = chain.make(part)
                judged = search.longest(request, search.floor, search.unasked_of(request))
                slow = judged is not None and rate(search, judged) < least
                if judged is not None and slow:
                    quick = quick_n_ctx(search, request, search.floor, judged.plan.settings.n_ctx)
                    judged = search.longest(request, search.floor, quick)
                if judged is not None:
                    n_fitting += 1
                    found.append(judged)
                    lowest = min(lowest, search.cost(judged))
                if slow or (judged is not None and search.cost(judged) > _FAR * lowest):
                    break
                part -= 1
            if lowest == before and n_ubatch is None and all(search.cost(one) > _FAR * lowest for one in found):
                break
    return found


def _away(judged: Judged) -> bool:
    """Whether anything is read from system memory for every token."""
    return bool(judged.plan.host_expert_blocks) or HOST in judged.plan.placement
