"""The whole answer for a set of models: seats for all, or the largest parts of the set that fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from advisor.host import Device, HostSnapshot, with_devices
from advisor.recommend.budget import Budget, Shortfall
from advisor.recommend.cards import by_number, used_by
from advisor.recommend.policy import Policy
from advisor.recommend.recommend import nearest_miss, recommend_found
from advisor.recommend.search import Found, Ranked, Search
from advisor.settings import RequestedSettings
from advisor.together.arrange import Arrangement, Arranger, EvaluatorFor, Seated
from advisor.together.notes import notes_of, without_alone
from advisor.together.placing import placed_as
from advisor.together.shares import less, total
from advisor.together.types import Lack, Member, Seat, Together
from advisor.together.whole import resident

if TYPE_CHECKING:
    from advisor.quants.rules import QuantRules


_STEP_BYTES = 16 << 20
_MOST_BYTES = 16 << 40  # no machine has more


def plan_together(
    members: Sequence[Member],
    host: HostSnapshot,
    budget: Budget,
    evaluator_for: EvaluatorFor,
    policy: Policy,
    quants: Callable[[], QuantRules] | None = None,
) -> Together:
    """Settings for every member so that all of them can be loaded at the same time.

    `evaluator_for(member, host, limits, like)` makes what judges one member on the GPUs of a host within limits.
    `quants` reads the rules of quantizations, to say what a smaller one would do where something does not fit.
    """
    members = tuple(map(resident, members))
    arranger = Arranger(members, host, budget, evaluator_for, policy)
    everyone = tuple(range(len(members)))
    arrangement = arranger.arrange(everyone)
    if arrangement is not None:
        seats = _grown(arranger, everyone, arrangement, quants)
        verdict = "full" if all(_as_wished(seats[index], host, members[index]) for index in everyone) else "partial"
        found = tuple(seats[index] for index in everyone)
        notes = notes_of(members, found, host, budget, arranger.engine)
        return Together(verdict, members, found, budget, (everyone,), None, (), notes)
    fitting = largest(everyone, arranger.arrange)
    refused = _refused(arranger, set(everyone).difference(*(who for who, _ in fitting)))
    lacks = tuple(
        _lack(arranger, who, arranged, index, quants)
        for who, arranged in fitting
        for index in everyone
        if index not in who and index not in refused
    )
    over = _over(arranger, everyone, lacks) if not refused else None
    left: tuple[Seat | None, ...] = (None,) * len(members)
    if fitting:
        who, arranged = fitting[0]
        seats = _grown(arranger, who, arranged, quants)
        left = tuple(seats.get(index) for index in everyone)
    notes = notes_of(members, left, host, budget, arranger.engine)
    subsets = tuple(who for who, _ in fitting)
    return Together("does_not_fit", members, left, budget, subsets, over, lacks, notes, refused)


def _refused(arranger: Arranger, nowhere: Iterable[int]) -> dict[int, str]:
    """Of the members that fit `nowhere` those that the engine refuses to run as they are pinned, and why."""
    devices, found = arranger.host.devices, dict[int, str]()
    for index in sorted(nowhere):
        search = arranger.search(index, devices, arranger.budget, arranger.members[index].wishes, whole=False)
        why = nearest_miss(search).plan.refused
        found |= {index: why} if why is not None else {}
    return found


def largest(
    everyone: Sequence[int], arrange: Callable[[Sequence[int]], Arrangement | None]
) -> list[tuple[tuple[int, ...], Arrangement]]:
    """The subsets that can be arranged and are part of no other that can.

    Those with the first member, the main one, come first, then the largest, then the first named.

    What fits, fits without some of its members too, so nothing below a subset that fits is looked at.
    """
    found: list[tuple[tuple[int, ...], Arrangement]] = []
    for size in range(len(everyone) - 1, 0, -1):
        for who in combinations(everyone, size):
            if any(set(who) <= set(larger) for larger, _ in found):
                continue
            arranged = arrange(who)
            if arranged is not None:
                found.append((who, arranged))
    return sorted(found, key=lambda each: everyone[0] not in each[0])  # stable


def _over(arranger: Arranger, everyone: Sequence[int], lacks: Sequence[Lack]) -> Shortfall | None:
    """The least system memory more with which the whole set fits, to 16 MiB; where none helps, what a member lacks.

    Whatever is on the GPUs could be in system memory, so that is where a set lacks unless something is pinned to GPUs.
    """
    nearest = min((lack.short for lack in lacks), key=lambda short: short.over_bytes, default=None)
    low, high = 0, max(_STEP_BYTES, nearest.over_bytes if nearest is not None else _STEP_BYTES)
    while not arranger.fits(everyone, high):
        low, high = high, 2 * high
        if high > _MOST_BYTES:
            return nearest
    while high - low > _STEP_BYTES:
        middle = (low + high) // 2
        if arranger.fits(everyone, middle):
            high = middle
        else:
            low = middle
    return Shortfall("host", high)


def _grown(
    arranger: Arranger, who: Sequence[int], arrangement: Arrangement, quants: Callable[[], QuantRules] | None
) -> dict[int, Seat]:
    """What is left shared out in the order of rank: each member with all that the others leave, explained."""
    seats: dict[int, Seated] = dict(arrangement.seats)
    answers: dict[int, Seat] = {}
    for index in who:
        seat = seats[index]
        limits = less(arranger.budget, total(seats[other].load for other in who if other != index))
        seat, search, pool = _without_empty_cards(arranger, index, limits, seat, *_pool(arranger, index, limits, seat))
        answer = recommend_found(search, Found(pool, search.floor, search.ceiling), quants)
        answers[index] = Seat(with_devices(arranger.host, seat.team), without_alone(answer))
        seats[index] = seat._replace(ranked=pool[0])
    return answers


def _pool(arranger: Arranger, index: int, limits: Budget, seat: Seated) -> tuple[Search, tuple[Ranked, ...]]:
    """What a member can have in its seat within limits, the cheapest first; what it has there is part of it."""
    wishes = placed_as(arranger.members[index].wishes, seat.ranked.judged.request)
    search = arranger.search(index, seat.team, limits, wishes, whole=seat.whole)
    found = search.run()
    judged = search.evaluator.judge(seat.ranked.judged.request)
    settled = search.rank([judged] if judged.fits or not found.pool else [])
    pool = sorted((*found.pool, *settled), key=lambda ranked: ranked.cost)  # stable: the longer one stays first
    return search, tuple(pool)


def _without_empty_cards(
    arranger: Arranger, index: int, limits: Budget, seat: Seated, search: Search, pool: tuple[Ranked, ...]
) -> tuple[Seated, Search, tuple[Ranked, ...]]:
    """The seat without the GPUs that the best of its pool puts nothing on, with the search and the pool there.

    The engine opens a context on every GPU that it sees, also where others have the memory for themselves.
    """
    while not by_number(arranger.members[index].wishes.pinned):
        used = used_by(pool[0].judged.plan, seat.team)
        if not 0 < len(used) < len(seat.team):
            break
        request = _only_on(used, pool[0].judged.request, seat.team)
        fewer = Seated(used, seat.whole, pool[0]._replace(judged=pool[0].judged._replace(request=request)))
        found = _pool(arranger, index, limits, fewer)
        if not found[1][0].judged.fits:
            break
        seat, (search, pool) = fewer, found
    return seat, search, pool


def _only_on(used: tuple[Device, ...], request: RequestedSettings, team: tuple[Device, ...]) -> RequestedSettings:
    """A request on a part of its GPUs, which have all of its layers."""
    split = zip(team, request.tensor_split or (), strict=False)
    shares = tuple(share for device, share in split if device in used)
    return request._replace(tensor_split=shares if len(used) > 1 and shares else None)


def _as_wished(seat: Seat, host: HostSnapshot, member: Member) -> bool:
    """Whether nothing is on the CPU that is not meant to be there."""
    wished = not host.devices or member.wishes.pinned.n_gpu_layers == 0
    return seat.answer.verdict == "full" or (seat.answer.verdict == "cpu" and wished)


def _lack(
    arranger: Arranger,
    who: tuple[int, ...],
    arranged: Arrangement,
    index: int,
    quants: Callable[[], QuantRules] | None,
) -> Lack:
    """What one member lacks beside others that have the least they need."""
    limits = less(arranger.budget, total(arranger.least_loads(arranged)))
    devices = arranger.host.devices
    search = arranger.search(index, devices, limits, arranger.placings(index, devices)[-1], whole=False)
    answer = recommend_found(search, Found((), search.floor, search.ceiling), quants)
    shorts = nearest_miss(search).shorts
    short = shorts[0] if shorts else Shortfall("host", 0)
    return Lack(index, who, short, tuple(fix for fix in answer.fixes if fix.enough))
