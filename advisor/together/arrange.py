"""Which member lies on which GPUs with which settings: the objective of rules/policy.toml, table [together], searched.

Wherever a member is planned, the others' plans or what is reserved for them come off the budget first, so that the sum
is never over it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations

from advisor.host import Device, HostSnapshot, with_devices
from advisor.memory.engine_spec import EngineSpec
from advisor.recommend.budget import Budget
from advisor.recommend.cards import by_number, groups
from advisor.recommend.evaluate import Evaluator, Judged
from advisor.recommend.policy import Policy
from advisor.recommend.search import Ranked, Search, Wishes
from advisor.records import NamedTuple
from advisor.together.placing import Placing, placings
from advisor.together.shares import Load, less, load_of, only, over, total
from advisor.together.types import Member
from advisor.together.whole import (
    CAPS,
    LEAN,
    WholeSearch,
    can_be_whole,
    in_small_cache,
    least_whole,
    need_bytes,
    need_on_gpus,
    weighed,
)

Team = tuple[Device, ...]
EvaluatorFor = Callable[[Member, HostSnapshot, Budget, Evaluator | None], Evaluator]
_NOTHING = Load({}, 0)


class Seated(NamedTuple):
    """One member's GPUs, whether it must be wholly on them, and the best that was found for it there."""

    team: Team
    whole: bool
    ranked: Ranked

    @property
    def load(self) -> Load:
        """What it takes."""
        return load_of(self.ranked.judged.plan)


class Arrangement(NamedTuple):
    """A seat for every member; `key` orders arrangements, the smallest first."""

    seats: Mapping[int, Seated]
    key: tuple[float, ...]


class Arranger:
    """Seats members on one machine; remembers what it has searched."""

    def __init__(
        self,
        members: Sequence[Member],
        host: HostSnapshot,
        budget: Budget,
        evaluator_for: EvaluatorFor,
        policy: Policy,
    ) -> None:
        self.members, self.host, self.budget, self.policy = tuple(members), host, budget, policy
        self._evaluator_for = evaluator_for
        self._evaluators: dict[tuple[int, Team], Evaluator] = {}  # one of each, for what all of them share
        self._found: dict[tuple[object, ...], Ranked | None] = {}
        self._least: dict[tuple[object, ...], Judged | None] = {}

    @property
    def engine(self) -> EngineSpec:
        """What all of them are planned for, once something was searched."""
        return next(iter(self._evaluators.values())).engine

    def search(self, index: int, team: Team, limits: Budget, wishes: Wishes, *, whole: bool) -> Search:
        """The search for one member on some GPUs within `limits`, which are of the whole machine."""
        member = self.members[index]
        evaluator = self._evaluator_for(
            member, with_devices(self.host, team), only(limits, team), self._evaluators.get((index, team))
        )
        self._evaluators.setdefault((index, team), evaluator)
        kind = WholeSearch if whole else Search
        return kind(evaluator, self.policy, member.intent, wishes)

    def placings(self, index: int, team: Team, cap: int = 0, *, small: bool = False) -> list[Wishes]:
        """The member's wishes with each place that what is beside it may have; contexts as CAPS[`cap`] allows."""
        member = in_small_cache(self.members[index]) if small else self.members[index]
        every = placings(member.wishes, member.beside) if team else [member.wishes]
        return [CAPS[cap](member._replace(wishes=wishes)) for wishes in every]

    def best(self, index: int, team: Team, limits: Budget, *, whole: bool, cap: int = 0) -> Ranked | None:
        """The best that one member can have there with no more context than is comfortable, None where nothing fits.

        `cap`: or than CAPS says, where more would be at the cost of others.
        """
        key = (index, team, only(limits, team), whole, cap)
        if key not in self._found:
            found: list[Ranked] = []
            for small in (True, False) if cap else (False,):
                for wishes in () if found else self.placings(index, team, cap, small=small):
                    search = self.search(index, team, limits, wishes, whole=whole)
                    found += [self.priced(index, search, ranked) for ranked in search.run().pool[:1]]
            self._found[key] = min(found, key=lambda ranked: ranked.cost, default=None)
        return self._found[key]

    def priced(self, index: int, search: Search, ranked: Ranked) -> Ranked:
        """A candidate with what the place of its projector and its draft model does to a turn."""
        member, evaluator = self.members[index], search.evaluator
        if member.beside is None:
            return ranked
        placing = Placing(member.spec, member.beside, evaluator.constants, evaluator.engine, self.policy, member.intent)
        factor = placing.factor(ranked.judged.plan.settings.beside, ranked.speed)
        return ranked._replace(cost=ranked.cost * factor)

    def teams(self, index: int) -> list[Team]:
        """The sets of GPUs that a member may get, none of them empty."""
        devices, pinned = self.host.devices, self.members[index].wishes.pinned
        if not devices or pinned.n_gpu_layers == 0:
            return []
        if len(devices) == 1 or by_number(pinned):
            return [devices]
        return [*((device,) for device in devices), *groups(devices), devices]

    def arrange(self, who: Sequence[int]) -> Arrangement | None:
        """The best seats for these members, in the order of their rank; None where they do not all fit.

        As many as possible are wholly on GPUs, those named first; of several ways that which is best for the first
        member, then for the second and so on (`weighed`), then that where fewer members share a GPU, and at last that
        which leaves the first most.
        """
        able = [index for index in who if self.teams(index) and can_be_whole(self.members[index])]
        for n_whole in range(len(able), -1, -1):
            best: Arrangement | None = None
            for whole in combinations(able, n_whole):
                best = self._with_whole(who, whole, best)
            if best is not None:
                return best
        return None

    def fits(self, who: Sequence[int], more_ram_bytes: int = 0) -> bool:
        """Whether these members fit in some way, with so much more system memory."""
        budget = self.budget._replace(ram_available_bytes=self.budget.ram_available_bytes + more_ram_bytes)
        other = Arranger(self.members, self.host, budget, self._evaluator_for, self.policy)
        other._evaluators = self._evaluators
        able = [index for index in who if self.teams(index) and can_be_whole(self.members[index])]
        ways = (whole for n_whole in range(len(able), -1, -1) for whole in combinations(able, n_whole))
        return any(other._with_whole(who, whole, None, lean=True) is not None for whole in ways)

    def _with_whole(
        self, who: Sequence[int], whole: tuple[int, ...], best: Arrangement | None, *, lean: bool = False
    ) -> Arrangement | None:
        """The better one of `best` and the best arrangement in which exactly these are wholly on GPUs.

        `lean`: any that fits will do.
        """
        others = [index for index in who if index not in whole]
        lacking = any(index < other for index in whole for other in others)  # what the first take, the others lack
        caps = (LEAN,) if lean else range(len(CAPS)) if lacking else (0,)
        for teams, reserved in self._reservations(whole):
            held = self._with_aside(reserved, others)
            by_size = sorted(who, key=lambda index: (index in held, -self.members[index].spec.file_bytes))
            found = None
            for cap in caps:
                found = self._allocate(who, teams, held, found or best, cap=cap, everyone=lean) or found
            if found is None and best is None and others:  # those first for whom nothing could be held back
                for order, cap in ((by_size, caps[0]), (who, LEAN), (by_size, LEAN)):
                    found = found or self._allocate(who, teams, held, best, order, cap=cap, everyone=True)
            if lean and found is not None:
                return found
            best = found or best
        return best

    def _with_aside(self, reserved: Mapping[int, Load], others: Sequence[int]) -> dict[int, Load]:
        """What is held back for members, those that cannot be whole by what they need in system memory.

        As many of these as there is memory for: the largest go without.
        """
        aside = {index: load for index in others if (load := self._aside(index)) is not None}
        for index in sorted(aside, key=lambda index: -aside[index].host_bytes):
            if not over(self.budget, total((*reserved.values(), *aside.values()))):
                break
            del aside[index]
        return {**reserved, **aside}

    def _reservations(self, whole: tuple[int, ...]) -> Iterator[tuple[dict[int, Team], dict[int, Load]]]:
        """Every way to put these members wholly on GPUs, each with the least that they need there."""
        for wide in (False, True):
            any_found = False
            options = {index: self._likely(index) if not wide else self.teams(index) for index in whole}
            for ways in self._seated(list(whole), options, {}, {}):
                any_found = True
                yield ways
            if any_found or options == {index: self.teams(index) for index in whole}:
                return

    def _likely(self, index: int) -> list[Team]:
        """The single GPUs that hold the member with a comfortable context by themselves; where none does, all teams."""
        singles = [team for team in self.teams(index) if len(team) == 1]
        comfortable = self.members[index].intent.comfortable_n_ctx

        def holds(team: Team) -> bool:
            ranked = self.best(index, team, self.budget, whole=True)
            wished = min(comfortable, self.members[index].spec.n_ctx_train or comfortable)
            return ranked is not None and ranked.judged.plan.settings.n_ctx_seq >= wished

        return [team for team in singles if holds(team)] or self.teams(index)

    def _seated(
        self, left: list[int], options: Mapping[int, list[Team]], teams: dict[int, Team], taken: dict[int, Load]
    ) -> Iterator[tuple[dict[int, Team], dict[int, Load]]]:
        if not left:
            yield dict(teams), dict(taken)
            return
        index, rest = left[0], left[1:]
        for team in options[index]:
            judged = self._least_on(index, team, less(self.budget, total(taken.values())))
            if judged is None:
                continue
            load = load_of(judged.plan)
            if not over(self.budget, total((*taken.values(), load))):
                yield from self._seated(rest, options, {**teams, index: team}, {**taken, index: load})

    def _least_on(self, index: int, team: Team, limits: Budget) -> Judged | None:
        """The least that a member needs wholly on these GPUs; on several its layers are dealt by what is left."""
        alone = len(team) == 1
        key = (index, team, None if alone else only(limits, team))
        if key not in self._least:
            within = self.budget if alone else limits
            ways = (
                least_whole(self.search(index, team, within, wishes, whole=True))
                for wishes in self.placings(index, team)
            )
            self._least[key] = min((way for way in ways if way is not None), key=need_on_gpus, default=None)
        return self._least[key]

    def _aside(self, index: int) -> Load | None:
        """What a member needs in system memory alone, None where that is too much."""
        key = (index, ())
        if key not in self._least:
            search = self.search(index, (), self.budget, self.placings(index, ())[0], whole=False)
            tried = [
                search.longest(
                    search.base._replace(n_gpu_layers=0, cache_type_k=k, cache_type_v=v), search.floor, search.floor
                )
                for k, v in search.cache_pairs()
            ]
            fitting = [judged for judged in tried if judged is not None]
            self._least[key] = min(fitting, key=need_bytes, default=None)
        judged = self._least[key]
        return load_of(judged.plan) if judged is not None else None

    def least_loads(self, arrangement: Arrangement) -> list[Load]:
        """What the members of an arrangement take when each has as little as it needs, on GPUs if it is whole."""
        found = []
        for index, seat in arrangement.seats.items():
            least = self._least.get((index, seat.team, None)) if seat.whole else self._least.get((index, ()))
            found.append(load_of(least.plan) if least is not None else seat.load)
        return found

    def _allocate(
        self,
        who: Sequence[int],
        teams: Mapping[int, Team],
        reserved: Mapping[int, Load],
        best: Arrangement | None,
        order: Sequence[int] | None = None,
        *,
        cap: int = 0,
        everyone: bool = False,
    ) -> Arrangement | None:
        """Seats in this order, each within what the others have or hold; None where one finds none, or not a better.

        `cap` is of the contexts of those with a team, or of `everyone`.
        """
        seats: dict[int, Seated] = {}
        for index in order or who:
            held = [seats[other].load if other in seats else reserved.get(other, _NOTHING) for other in who]
            limits = less(self.budget, total(load for other, load in zip(who, held, strict=True) if other != index))
            seat = self._seat(index, teams.get(index), limits, cap if everyone or index in teams else 0)
            if seat is None:
                return None
            seats[index] = seat
            costs = [float(False)] * len(who) + [seats[i].ranked.cost for i in who[: len(seats)] if i in seats]
            if best is not None and order is None and len(teams) == len(who) and tuple(costs) > best.key[: len(costs)]:
                return None
        left = less(self.budget, total(seat.load for seat in seats.values()))
        spare = (-sum(limit.usable_bytes for limit in only(left, seats[index].team).devices) for index in who)
        costs = [seats[index].ranked.cost for index in who]
        away = [index not in teams for index in who]
        found = Arrangement(seats, (*away, *weighed(costs, away), _n_shared(seats), *spare))
        return found if best is None or found.key < best.key else None

    def _seat(self, index: int, team: Team | None, limits: Budget, cap: int) -> Seated | None:
        if team is not None:
            ranked = self.best(index, team, limits, whole=True, cap=cap)
            return Seated(team, True, ranked) if ranked is not None else None
        found: Seated | None = None
        for some in (*self.teams(index), ()):
            ranked = self.best(index, some, limits, whole=False, cap=cap)
            if ranked is not None and (found is None or ranked.cost < found.ranked.cost):
                found = Seated(some, False, ranked)
        return found


def _n_shared(seats: Mapping[int, Seated]) -> int:
    """How many pairs of members have a GPU in common: they slow each other when both answer."""
    used = [set(seat.load.devices) for seat in seats.values()]
    return sum(bool(one & other) for one, other in combinations(used, 2))
