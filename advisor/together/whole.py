"""A member that is wholly on its GPUs: the least that it needs there, and the best that it can have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt, prod

from advisor.ggml_types import BY_NAME
from advisor.recommend.embedding import reads_at_once, with_whole_texts
from advisor.recommend.evaluate import Judged
from advisor.recommend.search import Found, Search, Wishes
from advisor.recommend.wholes import everything_on_gpu
from advisor.settings import RequestedSettings
from advisor.together.types import Member


class WholeSearch(Search):
    """The search without anything left on the CPU."""

    def run(self, known_cost: float = float("inf"), *, whatever: bool = False) -> Found:  # noqa: ARG002 - little to leave out
        """All fitting candidates, the cheapest first."""
        found: dict[RequestedSettings, Judged] = {}
        for n_ubatch in (None, *self.larger_batches):
            if n_ubatch is not None and not self.spec.n_expert:
                continue  # larger batches are for experts
            for pair in self.cache_pairs():
                judged = everything_on_gpu(self, pair, n_ubatch)
                if judged is not None and judged.fits:
                    found.setdefault(judged.request, judged)
        return Found(tuple(self.rank(list(found.values()))), self.floor, self.ceiling)


def can_be_whole(member: Member) -> bool:
    """Whether nothing that is wished keeps a part of it on the CPU."""
    pinned = member.wishes.pinned
    layers = pinned.n_gpu_layers
    everything = layers is None or layers < 0 or layers > member.spec.n_layer_all
    away = member.spec.n_expert and (pinned.n_cpu_moe or pinned.cpu_moe)
    return everything and not away and not pinned.tensor_overrides and pinned.kv_offload is not False


def least_whole(search: Search) -> Judged | None:
    """The plan with everything on the GPUs that needs least: the shortest acceptable context, the smallest cache."""
    pinned, tried = search.wishes.pinned, []
    every = search.spec.n_layer_all + 1
    layers = every if pinned.n_gpu_layers is None else pinned.n_gpu_layers
    for pair in search.cache_pairs():
        request = search.base._replace(n_gpu_layers=layers, cache_type_k=pair[0], cache_type_v=pair[1])
        judged = search.longest(request, search.floor, search.floor)
        if judged is not None:
            tried.append(judged)
    return min(tried, key=need_bytes, default=None)


def need_on_gpus(judged: Judged) -> int:
    """What a plan takes of GPUs."""
    return sum(device.planned_bytes for device in judged.plan.devices)


def need_bytes(judged: Judged) -> int:
    """Everything that a plan takes anywhere."""
    return need_on_gpus(judged) + judged.plan.host.planned_bytes


def resident(member: Member) -> Member:
    """`member` with what being resident asks of it: an embedding model takes texts as long as it was trained for."""
    spec, wishes = member.spec, member.wishes
    if not reads_at_once(spec) or not spec.n_ctx_train:
        return member
    wishes = wishes._replace(pinned=with_whole_texts(wishes.pinned, spec, wishes.max_n_ctx))
    if wishes.pinned.n_ctx is None:
        n_ctx = min(spec.n_ctx_train, wishes.max_n_ctx or spec.n_ctx_train)
        wishes = wishes._replace(min_n_ctx=max(n_ctx, wishes.min_n_ctx or 0))
    return member._replace(wishes=wishes)


def to_comfort(member: Member) -> Wishes:
    """The wishes with no more context than is comfortable for the intent; more is shared out when all have that."""
    wishes, intent = member.wishes, member.intent
    most = max(intent.comfortable_n_ctx, wishes.min_n_ctx or 0)
    return wishes._replace(max_n_ctx=min(wishes.max_n_ctx or most, most))


def in_small_cache(member: Member) -> Member:
    """The member with the smallest type of cache that its intent allows, unless types are asked for."""
    wishes, pinned = member.wishes, member.wishes.pinned
    if pinned.cache_type_k or pinned.cache_type_v:
        return member
    small = min(member.intent.cache_types, key=lambda name: BY_NAME[name].block_bytes / BY_NAME[name].block_elements)
    return member._replace(wishes=wishes._replace(pinned=pinned._replace(cache_type_k=small, cache_type_v=small)))


def halfway(member: Member) -> Wishes:
    """The wishes with no more context than halfway, in doublings, from the shortest acceptable to the comfortable."""
    wishes, most = member.wishes, to_comfort(member).max_n_ctx or 0
    trained = member.spec.n_ctx_train or most
    middle = isqrt(min(most, trained) * (at_floor(member).max_n_ctx or 0)) // 256 * 256
    return wishes._replace(max_n_ctx=max(middle, at_floor(member).max_n_ctx or 0))


def at_floor(member: Member) -> Wishes:
    """The wishes with no more than the shortest acceptable context."""
    wishes, floor = member.wishes, max(member.wishes.min_n_ctx or member.intent.floor_n_ctx, 256)
    return wishes._replace(max_n_ctx=min(wishes.max_n_ctx or floor, floor))


def weighed(costs: Sequence[float], away: Sequence[bool]) -> list[float]:
    """The members' costs in the order of rank, for comparison one after the other.

    Members that are whole count together with the next that is not (`away`), as a product: what their contexts and
    caches take are that one's layers, and half a context must buy of it what it must buy within one model.
    """
    found: list[float] = []
    waiting: list[float] = []
    for cost, is_away in zip(costs, away, strict=True):
        waiting.append(cost)
        if is_away:
            found.append(prod(waiting))
            waiting = []
    return [*found, *waiting]


# How much context a member may take, the most first; from the second on in the smallest cache that the engine takes.
CAPS: tuple[Callable[[Member], Wishes], ...] = (to_comfort, to_comfort, halfway, at_floor)
LEAN = len(CAPS) - 1
