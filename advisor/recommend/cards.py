"""Which GPUs take part: a small or busy card can cost more than it brings."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from advisor.host import Device, HostSnapshot, with_devices
from advisor.memory.types import MemoryPlan
from advisor.recommend.bounds import least_cost, pooled
from advisor.recommend.evaluate import Evaluator, Judged
from advisor.recommend.policy import Intent, Policy
from advisor.recommend.recommend import recommend_found
from advisor.recommend.recommendation import Note, Recommendation
from advisor.recommend.search import Found, Search, Wishes
from advisor.recommend.wholes import everything_on_gpu
from advisor.recommend.words import layers_text, pace_text, tokens_text
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings
from advisor.units import format_bytes

if TYPE_CHECKING:
    from advisor.quants.rules import QuantRules


# For context the last looks find what sketches did not, and they start from what was settled; fewer cards need not do
# better than more.
_SLACK = 1.15
_SHORT = 0.75  # judgement: of 660 drawn cases hardly one with less of the longest context was better on fewer cards
_MORE = 1.03  # judgement: and no more than so many times what they did for the cards before


class Team(NamedTuple):
    """One set of GPUs with what the search found on it."""

    devices: tuple[Device, ...]
    search: Search
    found: Found

    @property
    def cost(self) -> float:
        """Of the best candidate; without one infinite."""
        return self.found.pool[0].cost if self.found.pool else float("inf")

    @property
    def idle(self) -> int:
        """GPUs that the best candidate gives nothing."""
        used = set(self.found.pool[0].judged.plan.placement) if self.found.pool else set()
        return sum(index not in used for index in range(len(self.devices)))

    @property
    def short(self) -> bool:
        """Whether every one holds layers and their context is so far from the longest that fewer have no longer one."""
        pool, search = self.found.pool, self.search
        if not search.far_apart or not pool or self.idle or search.wishes.pinned.n_ctx is not None:
            return False
        return pool[0].judged.plan.settings.n_ctx < _SHORT * search.unasked

    @property
    def used(self) -> tuple[Device, ...]:
        """The GPUs that the best candidate puts something on."""
        return used_by(self.found.pool[0].judged.plan, self.devices) if self.found.pool else ()


def recommend_on(
    host: HostSnapshot,
    evaluator_for: Callable[[HostSnapshot], Evaluator],
    policy: Policy,
    intent: Intent,
    wishes: Wishes,
    quants: "Callable[[], QuantRules] | None" = None,
) -> tuple[Recommendation, HostSnapshot]:
    """The best answer over the sets of GPUs worth a try, and the machine with the GPUs left out among its idle ones.

    `quants` reads the rules of quantizations, to say what a smaller one would do; None = it is not said.
    Settings that speak of devices by number, and nothing on the GPUs by wish, leave all of them in.
    """
    pinned = wishes.pinned

    searches: dict[tuple[Device, ...], Search] = {}
    tried: list[Team] = []

    def search_on(devices: tuple[Device, ...]) -> Search:
        if devices not in searches:
            evaluator = evaluator_for(with_devices(host, devices))
            for other in searches.values():
                evaluator.share(other.evaluator)
                break
            searches[devices] = Search(evaluator, policy, intent, wishes)
        return searches[devices]

    def cheapest() -> float:
        return min((one.cost for one in tried), default=float("inf"))

    def searched(devices: tuple[Device, ...], *, whatever: bool = False) -> Team:
        known = cheapest()
        if whatever or intent.least_tokens_per_s:
            gains = [_MORE / one.found.refined_by for one in tried if one.search.far_apart]
            known *= min(_SLACK, max(gains, default=_SLACK))
        # of the whole machine something is told even where some of its cards do better
        found = search_on(devices).run(known, whatever=devices == host.devices)
        return Team(devices, search_on(devices), found)

    def bound(devices: tuple[Device, ...], *, roughly: bool = False, enough: float = 0.0) -> float:
        evaluator = search_on(devices).evaluator
        one = pooled(evaluator.host, evaluator.budget, evaluator.read_rates)
        return least_cost(search_on(one.devices), roughly=roughly, enough=enough) if one is not None else 0.0

    def beyond(least: float) -> bool:
        return any(one.cost <= least for one in tried if one.found.pool)

    numbered = by_number(pinned)
    if len(host.devices) > 1 and not numbered and pinned.n_gpu_layers != 0:
        teams = [(device,) for device in distinct(host.devices)] + groups(host.devices)
        rough: set[tuple[Device, ...]] = set()
        if search_on(host.devices).far_apart:  # before something is known a bound says little; more cards, more context
            bounds = {host.devices: bound(host.devices, roughly=True)}
            if bounds[host.devices] < float("inf"):
                tried.append(searched(host.devices))
            if not (tried and tried[0].short):
                bounds |= {team: bound(team, enough=cheapest()) for team in teams}
        else:
            teams.append(host.devices)
            bounds = {team: bound(team, roughly=True) for team in teams}
            told = list(bounds.values())
            rough = {team for team, least in bounds.items() if told.count(least) == 1}  # enough to tell it from others
            bounds |= {team: bound(team) for team in teams if team not in rough}
        for team in sorted(bounds, key=lambda team: (bounds[team], len(team))):
            if (
                any(team == one.devices for one in tried)
                or beyond(bounds[team])
                or (tried and team in rough and beyond(bound(team)))
            ):
                continue
            if bounds[team] == float("inf"):  # nothing can fit
                search = search_on(team)
                tried.append(Team(team, search, Found((), search.floor, search.ceiling)))
            else:
                tried.append(searched(team))
    else:
        tried.append(searched(host.devices))
    if host.devices and not any(one.found.pool for one in tried) and not numbered and not pinned.n_gpu_layers:
        alone = searched(())
        if alone.found.pool:
            tried.append(alone)
    best = min(tried, key=lambda one: (one.cost, one.idle, -len(one.devices)))
    if not numbered and 0 < len(best.used) < len(best.devices):
        # an empty card would still hold a backend, and make all hold copies of the inputs
        fewer = searched(best.used, whatever=True)  # as good is good enough
        if fewer.cost <= best.cost:
            best = fewer
            tried.append(fewer)
    if not best.found.pool:
        best = next((one for one in tried if one.devices == host.devices), best)
    # nothing on the GPUs: what a smaller quantization could do there is still worth a word
    wide = tried[0].search if host.devices and not best.devices else None
    answer = recommend_found(best.search, best.found, quants, wide)
    left = [device for device in host.devices if device not in best.devices]
    if left and best.found.pool:
        whole = next((one for one in tried if one.devices == host.devices), None)
        more = None
        if whole is None and answer.chosen.plan.settings.n_ctx < best.search.ceiling and pinned.n_ctx is None:
            more = everything_on_gpu(search_on(host.devices), ("f16", "f16"))
        answer = answer._replace(reasons=(*answer.reasons, _left_out(left, best, whole, more)))
    return answer, with_devices(host, best.devices)


def by_number(pinned: RequestedSettings) -> bool:
    """Whether settings speak of devices by number, so that none of them can be left out."""
    return bool(pinned.tensor_split or pinned.main_gpu or pinned.split_mode or pinned.tensor_overrides)


def used_by(plan: MemoryPlan, devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """Those of `devices`, for which the plan was made, that it puts something on."""
    return tuple(device for device, part in zip(devices, plan.devices, strict=True) if part.planned_bytes)


def distinct(devices: tuple[Device, ...]) -> list[Device]:
    """One device of each kind: of twins the one with the most free memory."""
    kinds: dict[tuple[object, ...], Device] = {}
    for device in sorted(devices, key=lambda device: -device.free_bytes):
        kinds.setdefault((device.backend, device.name, device.total_bytes, device.bandwidth_bytes_per_s), device)
    return list(kinds.values())


def groups(devices: tuple[Device, ...]) -> list[tuple[Device, ...]]:
    """Two and more but not all, in their order: those with the most free memory, and the fastest."""
    by_size = sorted(devices, key=lambda device: -device.free_bytes)
    by_speed = sorted(by_size, key=lambda device: -(device.bandwidth_bytes_per_s or 0))
    orders = (order[:count] for count in range(2, len(devices)) for order in (by_size, by_speed))
    return list(dict.fromkeys(tuple(device for device in devices if device in order) for order in orders))


def _left_out(left: list[Device], best: Team, whole: Team | None, more: Judged | None) -> Note:
    """Why some cards are left out; `whole` is the team of all cards if it was tried, `more` its longest context."""
    names = " and ".join(f"{device.id} ({device.name})" for device in left)
    them = "them" if len(left) > 1 else "it"
    if whole is None:
        why = f"{best.devices[0].id} alone holds everything"
        if more is not None and more.plan.settings.n_ctx > best.found.pool[0].judged.plan.settings.n_ctx:
            why += f"; with {them} {tokens_text(more.plan.settings)} would fit, ask with -c"
    elif not whole.found.pool:
        why = f"with {them} nothing fits"
    else:
        other = whole.found.pool[0]
        layers = layers_text(best.search.spec, other.judged)
        why = f"with {them} {layers}, {tokens_text(other.judged.plan.settings)}, {pace_text(other.speed)}"
        ids = {device.id for device in left}
        fixed = sum(p.compute.high + p.overhead_bytes for p in other.judged.plan.devices if p.id in ids)
        if fixed:
            why += f", and {format_bytes(fixed)} of {them} would go to buffers and the backend whatever lies there"
        else:
            why = f"the model would put nothing on {them}"
    return Note("cards_left_out", f"{names} {'are' if len(left) > 1 else 'is'} left out: {why}.")
