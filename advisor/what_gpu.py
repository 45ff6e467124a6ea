"""The reverse question: which classes of GPU hold all of a model at a wished context, and how fast they are.

A class is a product line ("desktop") and a size of memory. Of each vendor it names the slowest card of its newest
generation, of chips that share the machine's memory the newest, and the fastest of all. Prices are not in the rules,
so the order is: fewest cards, then least memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.errors import UsageError
from advisor.hardware.given import given_host
from advisor.hardware.gpu_parts import GpuPart
from advisor.hardware.gpu_table import GpuTable
from advisor.host import Cpu, Device, HostSnapshot, Ram
from advisor.memory.extras import Beside
from advisor.model.spec import ModelSpec
from advisor.planner import Planner
from advisor.recommend.budget import shortfalls
from advisor.recommend.evaluate import Judged
from advisor.recommend.policy import Intent
from advisor.recommend.search import Search, Wishes
from advisor.recommend.words import use_rate
from advisor.records import NamedTuple
from advisor.speed import Speed

SHARED = "shared memory"
# how many classes of each are listed, more where others have fewer, and how many cards one machine may have of it
LISTED = {"desktop": 6, "workstation": 2, "data centre": 2, SHARED: 2}
MOST_CARDS = {"desktop": 4, "workstation": 4, "data centre": 8, SHARED: 1}
_PLENTY = 1 << 44  # bytes of an imagined device that holds anything


class Offer(NamedTuple):
    """One card, or several equal ones, that hold everything."""

    name: str  # as --gpu takes it
    vendor: str
    n_cards: int
    memory_bytes: int  # of one
    bandwidth_bytes_per_s: int
    judged: Judged
    speed: Speed
    others: tuple[str, ...]  # cards of the same class that it stands for, which hold the same


class GpuClass(NamedTuple):
    """Offers of one class; `market` is "desktop", "workstation", "data centre" or "shared memory"."""

    market: str
    n_cards: int
    memory_bytes: int
    offers: tuple[Offer, ...]


class _Candidate(NamedTuple):
    """One size of a part, which stands for its vendor in a class."""

    market: str
    memory_bytes: int
    part: GpuPart
    spec: str
    others: tuple[str, ...]  # of the same vendor, backend and class


class WhatGpu:
    """Finds the classes for one model; the plan of a number of equal cards is worked out once for each backend."""

    def __init__(
        self, planner: Planner, table: GpuTable, base: HostSnapshot, spec: ModelSpec, intent: Intent, wishes: Wishes,
        beside: Beside | None = None,
    ) -> None:  # fmt: skip
        """`base` is a machine without GPUs; its system memory is that of the imagined ones."""
        self._planner, self._table, self._base = planner, table, base
        self._spec, self._intent, self._wishes, self._beside = spec, intent, wishes, beside
        self._searches: dict[tuple[str, int], Search] = {}
        self._plans: dict[tuple[str, int, tuple[str, str]], Judged] = {}

    def n_ctx(self) -> int:
        """The context that must fit, all slots together: the wished one, else what is comfortable."""
        search = self._search("cuda", 1)
        pinned = self._wishes.pinned.n_ctx
        if pinned is not None:
            return pinned or self._spec.n_ctx_train
        return max(search.comfortable, search.floor)

    def classes(self) -> tuple[GpuClass, ...]:
        """The classes, at most a dozen, market by market. Raises UsageError where the engine refuses the settings."""
        refused = self._plan("cuda", 1, self._search("cuda", 1).cache_pairs()[0]).plan.refused
        if refused is not None:
            raise UsageError(f"{self._planner.engine.name} refuses these settings: {refused}.")
        candidates = list(_candidates(self._table))
        found = {market: self._market(market, candidates, listed) for market, listed in LISTED.items()}
        for market, listed in LISTED.items():
            room = sum(LISTED.values()) - sum(len(classes) for classes in found.values())
            if room and len(found[market]) == listed:  # what the other markets leave
                found[market] = self._market(market, candidates, listed + room)
        return tuple([one for classes in found.values() for one in classes])

    def _market(self, market: str, candidates: list[_Candidate], listed: int) -> list[GpuClass]:
        """The first `listed` classes of a market, in order."""
        mine = [(count, one) for one in candidates if one.market == market and (count := self._fewest(one))]
        mine.sort(key=lambda each: (each[0], each[1].memory_bytes))
        lines: dict[tuple[int, int], list[Offer]] = {}
        for count, candidate in mine:
            key = (count, candidate.memory_bytes)
            if key not in lines and sum(other < key for other in lines) >= listed:
                break  # what follows comes later in the order, however many of it are needed
            offer = self._offer(candidate, count)
            if offer is not None:
                lines.setdefault((offer.n_cards, offer.memory_bytes), []).append(offer)
        return [GpuClass(market, *key, tuple(offers)) for key, offers in sorted(lines.items())][:listed]

    def _search(self, backend: str, count: int) -> Search:
        """On `count` equal devices that hold anything."""
        key = (backend, count)
        if key not in self._searches:
            devices = tuple(Device(f"{backend}{i}", backend, "", _PLENTY, _PLENTY) for i in range(count))
            host = HostSnapshot(devices, Ram(_PLENTY, _PLENTY), Cpu("", 1, 1))
            self._searches[key] = self._planner.search(self._spec, self._intent, self._wishes, host, self._beside)
        return self._searches[key]

    def _plan(self, backend: str, count: int, pair: tuple[str, str]) -> Judged:
        """Everything on `count` devices; the plan of one device does not depend on how large it is."""
        key = (backend, count, pair)
        if key not in self._plans:
            self._plans[key] = self._judge(self._search(backend, count), pair)
        return self._plans[key]

    def _judge(self, search: Search, pair: tuple[str, str]) -> Judged:
        return search.judge(
            search.base._replace(
                n_ctx=self.n_ctx(), n_gpu_layers=self._spec.n_layer_all + 1, cache_type_k=pair[0], cache_type_v=pair[1]
            )
        )

    def _pairs(self, backend: str) -> list[tuple[str, str]]:
        return self._search(backend, 1).cache_pairs()

    def _fewest(self, candidate: _Candidate) -> int | None:
        """How many of it are needed at least, with the smallest cache; None where that is too many."""
        budget = self._planner.budget(self._host(candidate, 1))
        counts = []
        for pair in self._pairs(candidate.part.backend):
            device = self._plan(candidate.part.backend, 1, pair).plan.devices[0]
            shared_out = device.weights_bytes + device.cache_bytes
            room = budget.devices[0].usable_bytes - device.overhead_bytes
            if candidate.market == SHARED:
                room = min(room, budget.ram_usable_bytes)
            if room > 0:
                counts.append(-(-shared_out // room))
        fewest = min(counts, default=0)
        return fewest if 0 < fewest <= MOST_CARDS[candidate.market] else None

    def _offer(self, candidate: _Candidate, fewest: int) -> Offer | None:
        """The least number of it that holds everything, with the first cache type that fits; None where none does."""
        for count in range(fewest, MOST_CARDS[candidate.market] + 1):
            host = self._host(candidate, count)
            evaluator = self._planner.evaluator(self._spec, self._beside, host)
            for pair in self._pairs(candidate.part.backend):
                judged = self._plan(candidate.part.backend, count, pair)
                if self._short(candidate, judged, host) and count > 1:
                    search = Search(evaluator, self._planner.policy, self._intent, self._wishes)
                    judged = self._judge(search, pair)  # dealt to what these cards have room for
                if self._short(candidate, judged, host):
                    continue
                speed = evaluator.speed(judged, self._intent)
                if self._rate(speed) < (self._wishes.min_tokens_per_s or 0.0):
                    return None
                part = candidate.part
                return Offer(
                    candidate.spec,
                    part.vendor,
                    count,
                    candidate.memory_bytes,
                    part.bandwidth_bytes_per_s,
                    judged,
                    speed,
                    candidate.others,
                )
        return None

    def _short(self, candidate: _Candidate, judged: Judged, host: HostSnapshot) -> bool:
        """Whether it lacks memory; of cards only their own counts, whatever this machine has."""
        short = shortfalls(judged.plan, self._planner.budget(host))
        return any(candidate.market == SHARED or each.device != "host" for each in short)

    def _rate(self, speed: Speed) -> float:
        return use_rate(self._spec, speed)

    def _host(self, candidate: _Candidate, count: int) -> HostSnapshot:
        return given_host([candidate.spec] * count, False, None, self._base, self._table)


def _candidates(table: GpuTable) -> Iterator[_Candidate]:
    """For each class and vendor the part that is named, and the fastest one where that is another."""
    order = {group: index for index, group in enumerate(dict.fromkeys(part.group for part in table.parts))}
    classes: dict[tuple[str, int, str], list[GpuPart]] = {}
    for part in table.parts:
        market = SHARED if part.memory_kind == "unified" else part.market
        if market in LISTED and not part.name.endswith("-core"):  # those are variants of a chip
            for size in part.memory_bytes:
                classes.setdefault((market, size, part.vendor), []).append(part)
    for (market, size, _), members in classes.items():
        newest = max(order[part.group] for part in members)
        latest = [part for part in members if order[part.group] == newest]
        named = latest[-1] if market == SHARED else min(latest, key=lambda part: part.bandwidth_bytes_per_s)
        fastest = max((named, *members), key=lambda part: part.bandwidth_bytes_per_s)
        others = [part for part in reversed(members) if part not in (named, fastest)]
        for part in dict.fromkeys((named, fastest)):
            same = tuple(each.name for each in others if each.backend == named.backend) if part is named else ()
            several = market == SHARED and len(part.memory_bytes) > 1
            yield _Candidate(market, size, part, f"{part.name} {size >> 30}GB" if several else part.name, same)
