"""Everything on GPUs of different speeds: a shorter context leaves room for more layers on the faster ones."""

from advisor.memory.placement import HOST
from advisor.recommend.context_border import context_border
from advisor.recommend.evaluate import Judged
from advisor.recommend.search import Ranked, Search
from advisor.recommend.solve import everywhere, settle
from advisor.settings import RequestedSettings

_STEP = 2 ** (1 / 6)  # from one context that is dealt for to the next
_ROUGHLY = 3  # so many of them are ruled out at once, before any buffer is known
_CLOSE = 1.002  # sketches are no further off
_WITHIN = 1.25  # a cache type that is dearer than the best by more is not looked into


def leaned(search: Search, ranked: list[Ranked], known_cost: float = float("inf")) -> list[Judged]:
    """Fitting candidates that are cheaper than the best of `ranked` with their cache types.

    Contexts at which nothing can be cheaper than `known_cost` either are left out.

    Each way to deal the layers, from that for the floor to that for the longest context, gets the longest context that
    fits beside it, as far as it can be cheaper by what sketches say.
    """
    found: list[Judged] = []
    least = ranked[0].cost
    seen = set()
    for one in ranked:
        plan, pair = one.judged.plan, (one.judged.request.cache_type_k, one.judged.request.cache_type_v)
        if pair in seen or HOST in plan.placement or plan.host_expert_blocks or one.cost > _WITHIN * ranked[0].cost:
            continue
        seen.add(pair)
        judged = _leaned(search, one.judged, least, known_cost)
        if judged is not None:
            found.append(judged)
            least = search.cost(judged)
        least = min([least, *(search.cost(each) for each in _moved(search, judged or one.judged, least, found))])
    return found


def _moved(search: Search, best: Judged, least: float, found: list[Judged]) -> list[Judged]:
    """What is cheaper than `least` with one layer after another moved to another GPU; added to `found`.

    A faster one for speed, a slower one for context: layers are dealt by what buffers leave, which is known only
    roughly before.
    """
    rates, steps = search.evaluator.read_rates, list[Judged]()
    pairs = [(to, away) for to, a in enumerate(rates) for away, b in enumerate(rates) if a != b]
    trying = True
    while trying:
        trying = False
        split, n_ctx = best.request.tensor_split or (), best.plan.settings.n_ctx
        for to, away in pairs:
            if not split or not split[away]:
                continue
            counts = list(split)
            counts[to], counts[away] = counts[to] + 1, counts[away] - 1
            most = n_ctx if rates[to] > rates[away] else search.unasked
            moved = best.request._replace(tensor_split=tuple(counts))
            border = context_border(search, moved, search.floor, most, most, n_ctx)
            if not border.judged.fits or search.cost(border.judged) >= least:
                continue
            judged = settle(search.evaluator, border, everywhere)
            if judged is not None and search.cost(judged) < least:
                best, least, trying = judged, search.cost(judged), True
                steps.append(judged)
                break
    found += steps
    return steps


def _leaned(search: Search, whole: Judged, least: float, known_cost: float) -> Judged | None:
    """The cheapest of one cache type, None where nothing is cheaper than `least`."""
    longest = 2 * whole.plan.settings.n_ctx  # it was dealt for without knowing all buffers
    last: dict[RequestedSettings, int] = {}  # the longest context for which a split was dealt
    n_ctx: float = search.floor
    number, may_gain = 0, True
    while n_ctx < min(longest, search.unasked):
        asked = search.open_split(whole.request._replace(n_ctx=int(n_ctx)))
        if number % _ROUGHLY == 0:
            may_gain = _least(search, asked, int(n_ctx * _STEP ** (_ROUGHLY + 1))) < _CLOSE * min(least, known_cost)
        if may_gain:
            dealt = search.shared(asked)
            last[dealt._replace(n_ctx=None)] = int(n_ctx)
        number += 1
        n_ctx *= _STEP
    last[whole.request._replace(n_ctx=None)] = whole.plan.settings.n_ctx  # it may end where another way was dealt
    bounds = []
    for split, at in last.items():  # it is cheaper by no more than the context that it may have beyond that
        cost = search.cost(search.evaluator.sketch(split._replace(n_ctx=at)))
        bounds.append((cost * search.lack(int(at * _STEP)) / search.lack(at), at, split))
    best = None
    for bound, at, split in sorted(bounds, key=lambda entry: entry[:2]):
        if bound >= _CLOSE * least:
            break
        border = context_border(search, split, search.floor, search.unasked, search.unasked, at)
        if not border.judged.fits or search.cost(border.judged) >= _CLOSE * least:
            continue
        judged = settle(search.evaluator, border, everywhere)
        if judged is not None and search.cost(judged) < least:
            best, least = judged, search.cost(judged)
    return best


def _least(search: Search, asked: RequestedSettings, longer: int) -> float:
    """What is dealt for this context or a longer one costs no less with up to `longer` tokens.

    As if nothing but layers took room.
    """
    judged = search.evaluator.least(search.evaluator.dealt_without_buffers(asked))
    n_ctx = judged.plan.settings.n_ctx
    return search.cost(judged) * search.lack(max(min(longer, search.unasked), n_ctx)) / search.lack(n_ctx)
