"""Sets of zoo models planned together, and what an independent estimate makes of the answer."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from math import prod

from advisor.host import HostSnapshot
from advisor.memory.plan import plan_memory
from advisor.memory.resolve import resolve_settings
from advisor.memory.types import MemoryPlan
from advisor.recommend.budget import Budget, make_budget
from advisor.recommend.cards import recommend_on
from advisor.recommend.evaluate import Evaluator
from advisor.recommend.policy import lack
from advisor.recommend.recommendation import Recommendation
from advisor.recommend.search import Wishes
from advisor.settings import RequestedSettings
from advisor.speed import SpeedModel
from advisor.together.plan import plan_together
from advisor.together.shares import Load, less, load_of, only, total
from advisor.together.types import Member, Seat, Together
from tests.tools.cells import engine, spec
from tests.tools.machines import machine, policy, quant_rules, speed_rules

MODELS = (
    "bert-large", "gemma-embedding", "llama3-1b", "llama32-3b", "llama3-8b", "qwen3-8b", "gemma3-12b", "granite33-8b",
    "mistral-small-24b", "qwen3moe-30b", "gpt-oss-20b", "gpt-oss-120b", "mamba-2.8b", "ds2-lite", "llama33-70b-q4_k_m",
)  # fmt: skip
CARDS = ((), (4,), (8,), (12,), (24,), (8, 12), (24, 12), (24, 24), (6, 8, 12))


def unified(host: HostSnapshot, own_gib: int) -> HostSnapshot:
    """The cards of `host` as GPUs that work in system memory, but for a carve-out."""
    devices = tuple(
        card._replace(
            memory_kind="unified", integrated=True, total_bytes=host.ram.total_bytes, free_bytes=host.ram.total_bytes,
            shared_bytes=host.ram.total_bytes - (own_gib << 30),
        )
        for card in host.devices[:1]
    )  # fmt: skip
    return host._replace(devices=devices)


def drawn(seed: int) -> tuple[HostSnapshot, list[str]]:
    """A machine and two or three models."""
    dice = random.Random(seed)
    host = machine(
        *dice.choice(CARDS), ram_gib=dice.choice((16, 32, 64, 96)), bandwidth=dice.choice((360, 936)) * 10**9
    )
    if host.devices and dice.random() < 0.2:
        host = unified(host, dice.choice((0, 2)))
    return host, dice.sample(MODELS, dice.choice((2, 2, 3)))


def member(name: str, intent: str = "balanced", **pins: object) -> Member:
    """A zoo model with an intent and pinned settings."""
    return Member(name, spec(name), policy().intent(intent), Wishes(RequestedSettings(**pins)))  # type: ignore[arg-type]


def evaluator_for(one: Member, host: HostSnapshot, limits: Budget, like: Evaluator | None) -> Evaluator:
    """What judges one member within limits."""
    speed = SpeedModel(one.spec, host, speed_rules())
    return Evaluator(one.spec, host, engine(), limits, speed, "server", one.beside, like=like)


def together(host: HostSnapshot, *members: Member | str) -> Together:
    """The answer for a set."""
    whole = [one if isinstance(one, Member) else member(one) for one in members]
    return plan_together(whole, host, make_budget(host, policy()), evaluator_for, policy(), quant_rules)


def planned_anew(one: Member, seat: Seat) -> MemoryPlan:
    """The member's settings, estimated by themselves on its GPUs."""
    request = seat.answer.chosen.request
    devices = seat.host.devices
    settings = resolve_settings(request, one.spec, engine(), tool="server", n_devices=len(devices))
    return plan_memory(one.spec, settings, engine(), devices, beside=one.beside)


def sums(answer: Together) -> tuple[Mapping[str, int], int]:
    """(bytes by GPU, bytes of system memory) of all members, each estimated by itself."""
    devices: dict[str, int] = {}
    host_bytes = 0
    for one, seat in zip(answer.members, answer.seats, strict=True):
        if seat is None:
            continue
        plan = planned_anew(one, seat)
        host_bytes += plan.host.planned_bytes
        for device in plan.devices:
            devices[device.id] = devices.get(device.id, 0) + device.planned_bytes
    return devices, host_bytes


def over_budget(answer: Together, host: HostSnapshot) -> list[str]:
    """Every place of the machine that the members overdraw, from first principles."""
    devices, ram = sums(answer)
    found = []
    for device in host.devices:
        margin = policy().margins[device.backend]
        need = devices.get(device.id, 0)
        if need > max(device.free_bytes - margin, 0):
            found.append(device.id)
        if device.memory_kind == "unified":
            own = 0 if device.shared_bytes is None else device.total_bytes - device.shared_bytes
            ram += max(need - own, 0)
    unified = any(device.memory_kind == "unified" for device in host.devices)
    margin = policy().host["unified_margin_bytes" if unified else "margin_bytes"]
    return [*found, *(["host"] if ram > max(host.ram.available_bytes - margin, 0) else [])]


def named(answer: Together, who: Sequence[int]) -> tuple[str, ...]:
    """The names of some members."""
    return tuple(answer.members[index].name for index in who)


def one_after_the_other(members, host, order) -> list[Recommendation] | None:
    """Each with the best that it finds in what those before it left; None where one finds nothing."""
    answers: dict[int, Recommendation] = {}
    loads: list[Load] = []
    for index in order:
        one = members[index]
        limits = less(make_budget(host, policy()), total(loads))

        def judge(some, one=one, limits=limits):
            return evaluator_for(one, some, only(limits, some.devices), None)

        answer, _ = recommend_on(host, judge, policy(), one.intent, one.wishes)
        if answer.verdict == "does_not_fit":
            return None
        answers[index] = answer
        loads.append(load_of(answer.chosen.plan))
    return [answers[index] for index in range(len(members))]


def worth(members: tuple[Member, ...], answers: list[Recommendation]) -> tuple[float, ...]:
    """What policy.toml orders sets by: how many members are not wholly on GPUs and which, then each member's cost.

    Of those that are wholly on GPUs multiplied with the next that is not. A longer than comfortable context counts for
    no more than a comfortable one.
    """
    costs = []
    for one, answer in zip(members, answers, strict=True):
        settings = answer.chosen.plan.settings
        n_ctx = min(settings.n_ctx_seq, one.intent.comfortable_n_ctx)
        lossy = max(policy().cache_factor[kind] for kind in (settings.cache_type_k, settings.cache_type_v))
        usual = min(512, settings.n_ctx)
        unusual = 1.0 if settings.n_ubatch == usual else policy().search["unusual_n_ubatch_factor"]
        missing = lack(n_ctx, one.intent, policy(), one.spec.n_ctx_train)
        costs.append(answer.speed.turn_seconds.value * missing * lossy * unusual)
    away = [answer.verdict != "full" for answer in answers]
    ends = [index + 1 for index, is_away in enumerate(away) if is_away]
    parts = [prod(costs[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
    return (sum(away), *away, *parts, *costs[ends[-1] if ends else 0 :])


def answers_of(answer: Together) -> list[Recommendation]:
    return [seat.answer for seat in answer.seats if seat is not None]
