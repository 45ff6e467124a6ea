"""How much more memory of the GPUs would hold all of a model: of several GPUs the lack of all counts.

With one GPU it is what is lacking there. With several the first is given more until everything, dealt anew, fits; where
the user dealt the layers, each is given what it lacks. Either way the larger cards are planned, not supposed.
"""

from advisor.recommend.evaluate import Evaluator, Judged
from advisor.recommend.search import Search
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings
from advisor.units import GIB, MIB, format_bytes, round_up

_TRIES = 8  # each adds all that still lacks, and twice what the one before it did


class MoreMemory(NamedTuple):
    """`more_bytes` in all; `text` begins with the card or cards: a card with 1.62 GiB more memory."""

    more_bytes: int
    text: str
    enough: bool  # False where system memory lacks too
    devices: dict[str, int]  # how much more on each


def more_memory(search: Search, wished: RequestedSettings) -> MoreMemory | None:
    """What the GPUs lack for `wished`; None where they lack nothing, or where no memory would help."""
    before = search.judge(wished)
    lacking = {short.device: short.over_bytes for short in before.shorts if short.device != "host"}
    if not lacking or before.plan.refused is not None:
        return None
    if len(search.evaluator.host.devices) == 1:
        (lack,) = lacking.values()
        text = f"a card with {format_bytes(lack)} more memory"
        return MoreMemory(lack, text, len(before.shorts) == 1, lacking)
    first = search.evaluator.host.devices[0].id
    grown, more = None, 0
    if not search.wishes.pinned.tensor_split and not wished.split_mode:
        more, grown = _of_first(search, wished, first, _shown(sum(lacking.values())))
    needs = {first: more} if grown is not None else {name: _shown(lack) for name, lack in lacking.items()}
    if grown is None:
        grown = _on_larger(search, wished, needs)
    if not grown.fits_devices:
        return None
    parts = [f"{name} with {format_bytes(n_bytes)}" for name, n_bytes in sorted(needs.items())]
    return MoreMemory(sum(needs.values()), f"{' and '.join(parts)} more memory", grown.fits, needs)


def _of_first(search: Search, wished: RequestedSettings, first: str, least: int) -> tuple[int, Judged | None]:
    """How much more the first GPU needs, to within `step`, and the plan on it; None where that does not end."""
    more = low = least
    added = 0
    for _ in range(_TRIES):
        judged = _on_larger(search, wished, {first: more})
        if judged.fits_devices:
            break
        low = more
        lacking = sum(short.over_bytes for short in judged.shorts if short.device != "host")
        added = max(2 * added, lacking)  # on others than the first nothing changes until a whole layer moves
        more = _shown(more + added)
    else:
        return 0, None
    step = 32 * MIB
    while more - low > step:
        middle = _shown((low + more) // 2)
        if not low < middle < more:
            break
        tried = _on_larger(search, wished, {first: middle})
        low, more, judged = (low, middle, tried) if tried.fits_devices else (middle, more, judged)
    return more, judged


def _on_larger(search: Search, wished: RequestedSettings, more: dict[str, int]) -> Judged:
    """`wished`, dealt anew, on GPUs with so much more memory."""
    evaluator = larger(search.evaluator, more)
    again = Search(evaluator, search.policy, search.intent, search.wishes)
    return again.judge(search.open_split(wished))


def larger(evaluator: Evaluator, more: dict[str, int]) -> Evaluator:
    """The same model, engine and limits on GPUs with so many bytes more, by their ids."""
    devices = tuple(
        device._replace(
            total_bytes=device.total_bytes + more.get(device.id, 0),
            free_bytes=device.free_bytes + more.get(device.id, 0),
        )
        for device in evaluator.host.devices
    )
    limits = tuple(
        limit._replace(
            total_bytes=limit.total_bytes + more.get(limit.id, 0),
            free_bytes=limit.free_bytes + more.get(limit.id, 0),
            usable_bytes=max(limit.free_bytes + more.get(limit.id, 0) - limit.margin_bytes, 0),
        )
        for limit in evaluator.budget.devices
    )
    return evaluator.on(evaluator.host._replace(devices=devices), evaluator.budget._replace(devices=limits))


def _shown(n_bytes: int) -> int:
    """Rounded up to what is shown, so that the figure that a person reads is enough."""
    if n_bytes < GIB:
        return round_up(n_bytes, MIB)
    return GIB * -(-n_bytes * 100 // GIB) // 100
