"""Drawn cases of model, machine and intent, and the judges of an answer: exact arithmetic and an exhaustive grid."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from advisor.host import Cpu, Device, HostSnapshot, Ram, with_devices
from advisor.memory.plan import plan_memory
from advisor.memory.resolve import resolve_settings
from advisor.recommend.budget import shortfalls
from advisor.recommend.cards import distinct, groups
from advisor.recommend.chain import Chain
from advisor.recommend.engine_fit import engine_fit
from advisor.recommend.evaluate import Judged
from advisor.recommend.recommendation import Recommendation
from advisor.recommend.search import Search, Wishes
from advisor.settings import RequestedSettings
from tests.tools.cells import DATA, engine
from tests.tools.machines import advise, evaluator, policy

GIB = 1 << 30
GB = 10**9
INTENTS = ("balanced", "context", "speed", "quality", "parallel:2", "parallel:4")
CARDS = (  # GiB, GB/s, TFLOP/s of half precision
    (4, 128, 12.0), (6, 336, 26.0), (8, 448, 80.0), (10, 760, 119.0), (12, 360, 51.0), (16, 288, 88.0),
    (16, 960, 176.0), (24, 936, 142.0), (24, 1008, 330.0), (32, 1792, 419.0), (48, 768, 309.0), (80, 2039, 312.0),
)  # fmt: skip
SETS = ((), *((card,) for card in CARDS), *((a, b) for a in CARDS[1:10:2] for b in CARDS[2:11:2]),
        (CARDS[7], CARDS[7], CARDS[4]), (CARDS[4], CARDS[2], CARDS[1]), (CARDS[8],) * 2, (CARDS[4],) * 3)  # fmt: skip
RAM_GIB = (16, 32, 64, 128, 256)


class Case(NamedTuple):
    """One question."""

    model: str
    host: HostSnapshot
    intent: str

    @property
    def text(self) -> str:
        """Model, machine and intent in a few words."""
        cards = "+".join(f"{device.total_bytes / GIB:g}" for device in self.host.devices) or "no GPU"
        return f"{self.model} {cards}/{self.host.ram.total_bytes / GIB:g} {self.intent}"


def draw(count: int, seed: int) -> list[Case]:
    """So many cases, the same for the same seed."""
    chance = random.Random(seed)
    models = sorted(path.name.removesuffix(".json.gz") for path in Path(DATA / "zoo").glob("*.json.gz"))
    return [
        Case(chance.choice(models), _machine(chance.choice(SETS), chance.choice(RAM_GIB)), chance.choice(INTENTS))
        for _ in range(count)
    ]


def _machine(cards: tuple[tuple[int, int, float], ...], ram_gib: int) -> HostSnapshot:
    devices = tuple(
        Device(
            f"CUDA{index}", "cuda", f"{size} GiB, {rate} GB/s", size * GIB, size * GIB, f16_tflops=flops,
            bandwidth_bytes_per_s=rate * GB, link_bytes_per_s=16 * GB, compute_capability="8.6",
        )
        for index, (size, rate, flops) in enumerate(cards)
    )  # fmt: skip
    ram = Ram(ram_gib * GIB, ram_gib * GIB, bandwidth_bytes_per_s=70 * GB)
    return HostSnapshot(devices, ram, Cpu("test", 8, 16, ("avx2",)), origin="given")


class Answer(NamedTuple):
    """An answer with what judges it on the cards that it takes."""

    case: Case
    given: Recommendation
    search: Search
    cost: float


def ask(case: Case) -> Answer:
    """Our answer."""
    given = advise(case.model, case.host, case.intent)
    ids = [device.id for device in given.chosen.plan.devices]
    devices = tuple(device for device in case.host.devices if device.id in ids)
    search = search_on(case, devices)
    cost = search.cost(given.chosen) if given.verdict != "does_not_fit" else float("inf")
    return Answer(case, given, search, cost)


def search_on(case: Case, devices: tuple[Device, ...]) -> Search:
    """The search on some of the cards."""
    judge = evaluator(case.model, with_devices(case.host, devices))
    return Search(judge, policy(), policy().intent(case.intent), Wishes(RequestedSettings()))


def exactly(search: Search, request: RequestedSettings) -> Judged:
    """A candidate by the exact arithmetic alone, nothing remembered from others."""
    devices, model = search.evaluator.host.devices, search.spec
    settings = resolve_settings(request, model, engine(), tool="server", n_devices=len(devices))
    plan = plan_memory(model, settings, engine(), devices)
    return Judged(request, plan, shortfalls(plan, search.evaluator.budget))


def wrong_need(answer: Answer) -> str | None:
    """Over the budget, or less predicted than needed; None when neither."""
    chosen = answer.given.chosen
    if answer.given.verdict == "does_not_fit":
        return None
    truth = exactly(answer.search, chosen.request)
    if truth.shorts:
        return f"{truth.shorts[0].device} over by {truth.shorts[0].over_bytes >> 20} MiB"
    for said, device in zip(chosen.plan.devices, truth.plan.devices, strict=True):
        if said.planned_bytes < device.planned_bytes:
            return f"{device.id} needs {device.planned_bytes - said.planned_bytes} bytes more than was said"
    if chosen.plan.host.planned_bytes < truth.plan.host.planned_bytes:
        return "system memory needs more than was said"
    return None


def wasted(answer: Answer) -> str | None:
    """What memory allows and was not taken: less than 95 % used, and a step up that is no dearer fits."""
    chosen, search = answer.given.chosen, answer.search
    settings = chosen.plan.settings
    if answer.given.verdict in ("does_not_fit", "cpu"):
        return None
    used = [
        device.planned_bytes / limit.usable_bytes
        for device, limit in zip(chosen.plan.devices, search.evaluator.budget.devices, strict=True)
    ]
    if max(used) >= 0.95:
        return None
    steps = {}
    if settings.n_ctx < search.ceiling:
        steps["a longer context"] = chosen.request._replace(n_ctx=settings.n_ctx + 256 * search.slots)
    if settings.n_cpu_moe:
        steps["the experts of one more block"] = chosen.request._replace(n_cpu_moe=settings.n_cpu_moe - 1)
    elif 0 < settings.n_gpu_layers <= search.spec.n_layer_all:
        steps["one more layer"] = chosen.request._replace(n_gpu_layers=settings.n_gpu_layers + 1)
    for words, step in steps.items():
        judged = exactly(search, search.shared(search.open_split(step)))
        if judged.fits and search.cost(judged) <= answer.cost and on_gpus(judged) > on_gpus(chosen):
            return f"{max(used):.0%} used, {words} fits"
    return None


def on_gpus(judged: Judged) -> int:
    """Bytes on all GPUs: with no block there, experts of one block less on the CPU change nothing."""
    return sum(device.planned_bytes for device in judged.plan.devices)


def beaten(answer: Answer, granularity: float) -> str | None:
    """A candidate of the grid that fits and costs less by more than `granularity`, None without one.

    The grid: sets of cards x contexts in steps of a quarter more x cache types x micro-batches x every number of layers
    or expert blocks on the GPUs x ways to deal them: ours, the engine's, and ours with one or two layers moved to a
    faster card. More on the GPUs costs less and needs more there, so of the last only the fewest that
    would be cheaper enough are judged, and the next two. With every block on the CPU no context beyond the comfortable
    one counts: everything else needs that memory too.
    """
    limit = answer.cost * (1 - granularity)
    for search in _searches(answer.case):
        for chain in _chains(search):
            for request in _fewest_below(search, chain, limit):
                for asked in (search.shared(request), request, *_leaning(search, search.shared(request))):
                    if asked.n_gpu_layers in (0, 1) and (asked.n_ctx or 0) > search.comfortable:
                        continue
                    judged = search.evaluator.judge(asked)
                    if judged.fits and search.cost(judged) < limit:
                        gain = 1 - search.cost(judged) / answer.cost
                        return f"{gain:.1%} dearer than {describe(judged)}"
    return None


def _searches(case: Case) -> Iterator[Search]:
    devices = case.host.devices
    sets = {(device,) for device in distinct(devices)} | set(groups(devices)) | {devices}
    for team in sorted(sets, key=lambda team: [device.id for device in team]):
        yield search_on(case, team)


def _chains(search: Search) -> Iterator[Chain]:
    n_ctx: float = search.floor
    contexts = []
    while n_ctx < search.ceiling and n_ctx <= 1 << 21:
        contexts.append(int(n_ctx))
        n_ctx *= 1.25
    for wished in (*contexts, search.ceiling):
        for pair in search.cache_pairs():
            for n_ubatch in (None, 1024, 2048):
                yield search.chain(pair, wished, n_ubatch)


def _leaning(search: Search, request: RequestedSettings) -> Iterator[RequestedSettings]:
    """With one or two more layers on a faster card."""
    counts, rates = request.tensor_split or (), search.evaluator.read_rates
    for slow in range(len(counts)):
        for fast in range(len(counts)):
            for n_layers in (1.0, 2.0) if rates[fast] > rates[slow] else ():
                moved = list(counts)
                moved[slow] -= n_layers
                moved[fast] += n_layers
                if moved[slow] >= 0:
                    yield request._replace(tensor_split=tuple(moved))


def _fewest_below(search: Search, chain: Chain, limit: float) -> Iterator[RequestedSettings]:
    """Of a chain, with everything on the GPUs as its end, the first that is cheaper than `limit`, and two more."""
    low, high = 0, chain.high + (1 if chain.experts else 0)
    if not search.evaluator.host.devices:
        high = 0

    def cheap(index: int) -> bool:
        return search.cost(search.evaluator.least(chain.make(index))) < limit

    if not cheap(high):
        return
    while low < high:
        middle = (low + high) // 2
        if cheap(middle):
            high = middle
        else:
            low = middle + 1
    last = chain.high + (1 if chain.experts else 0) if search.evaluator.host.devices else 0
    for index in range(low, min(low + 2, last) + 1):
        if search.may_fit(chain.make(index)):
            yield chain.make(index)


def describe(judged: Judged) -> str:
    """A candidate in a few words."""
    s = judged.plan.settings
    cards = "+".join(device.id for device in judged.plan.devices if device.planned_bytes)
    experts = f"-{judged.plan.host_expert_blocks}x" if judged.plan.host_expert_blocks else ""
    split = f" split {s.tensor_split}" if s.tensor_split else ""
    return f"{cards} -ngl {s.n_gpu_layers}{experts} -c {s.n_ctx} {s.cache_type_k} -ub {s.n_ubatch}{split}"


class FitBeside(NamedTuple):
    """What the engine's own fit would choose for the same question, and what that costs for the intent."""

    judged: Judged
    cost: float
    turn_s: float


def fit_beside(answer: Answer) -> FitBeside | None:
    """The engine's fit by its rules, None without a GPU or an answer. `fits` is meant within its own margin."""
    case = answer.case
    if not case.host.devices or answer.given.verdict == "does_not_fit":
        return None
    search = search_on(case, case.host.devices)
    judge = search.evaluator
    overhead = judge.engine.backends["cuda"].overhead_bytes  # what the backend takes before free memory is read
    fitted = engine_fit(
        lambda request: judge.judge(request).plan,
        judge.spec,
        RequestedSettings(n_parallel=search.slots, kv_unified=False),
        [device.free_bytes - overhead for device in case.host.devices],
        [device.id for device in case.host.devices],
    )
    judged = judge.judge(fitted.request)
    return FitBeside(judged, search.cost(judged), judge.speed(judged, search.intent).turn_seconds.value)
