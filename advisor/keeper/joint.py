"""The sets of the configuration in one target: which models are in them, planned together, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from advisor.configuration.types import ModelSet, matches
from advisor.gguf_header.errors import excerpt
from advisor.keeper.models import ModelPlans, Planned, Wanted, names_of
from advisor.keeper.targets import Target
from advisor.stores.types import StoredModel

WantedOf = Callable[[str, StoredModel], Wanted | None]


class JointPlans:
    """Plans the models of one target, those of a set jointly; `most`: as many are planned together."""

    def __init__(
        self,
        target: Target,
        models: Sequence[tuple[str, StoredModel]],
        sets: Sequence[ModelSet],
        wanted_of: WantedOf,
        most: int,
    ) -> None:
        self.notes: list[str] = []
        self._members: dict[str, list[Wanted]] = {}  # by the name of the set, the main one first
        self._set_of: dict[str, str] = {}  # by the id of the model
        self._planned: dict[str, Planned] = {}
        self._left_out: set[str] = set()
        mine = [each for each in sets if each.targets is None or target.name in each.targets]
        if mine and target.mode == "safe":
            self.notes.append(
                f"{_sets(mine)} not planned together: mode safe leaves the layers to the engine, which knows of no "
                'other model; write mode = "exact".'
            )
            mine = []
        for each in mine:
            self._add(each, models, wanted_of, most)

    def _add(self, each: ModelSet, models: Sequence[tuple[str, StoredModel]], wanted_of: WantedOf, most: int) -> None:
        found: list[Wanted] = []
        for pattern in each.models:
            for name, model in models:
                if not matches((pattern,), names_of(model)) or any(name == one.id for one in found):
                    continue
                wanted = wanted_of(name, model)
                if wanted is None:
                    continue
                if name in self._set_of:
                    other = self._set_of[name]
                    self.notes.append(
                        f"the set {excerpt(each.name)} goes without {excerpt(name)}, which has its settings from the "
                        f"set {excerpt(other)}."
                    )
                    continue
                found.append(wanted)
        if len(found) > most:
            self.notes.append(
                f"the set {excerpt(each.name)} has {len(found)} models, of which the first {most} are planned "
                "together; name fewer in it."
            )
            found = found[:most]
        if len(found) < 2:
            there = f"only {excerpt(found[0].id)}" if found else "none"
            self.notes.append(f"the set {excerpt(each.name)} needs two models: of its own {there} is here.")
            return
        self._members[each.name] = found
        self._set_of |= {one.id: each.name for one in found}

    def plan(self, wanted: Wanted, plans: ModelPlans) -> Planned:
        """The plan of one model: within its set, by itself without one or where it does not fit beside the others."""
        name = self._set_of.get(wanted.id)
        if name is None:
            return plans.plan(wanted)
        if wanted.id not in self._planned:
            members = self._members[name]
            for one, planned in zip(members, plans.plan_set(members), strict=True):
                self._planned[one.id] = planned
                if planned.output is None and not planned.failed:
                    self._left_out.add(one.id)
                    why = (planned.problem or "").removesuffix(".")
                    self.notes.append(
                        f"the set {excerpt(name)} goes without {excerpt(one.id)}, which is planned alone: {why}."
                    )
        planned = self._planned.pop(wanted.id)
        return plans.plan(wanted) if wanted.id in self._left_out else planned

    def resident(self, written: Collection[str]) -> Mapping[str, Sequence[str]]:
        """The sets by name, with the ids of those that fit beside each other and are `written`."""
        found = {
            name: [one.id for one in members if one.id in written and one.id not in self._left_out]
            for name, members in self._members.items()
        }
        return {name: ids for name, ids in found.items() if len(ids) > 1}


def _sets(sets: Sequence[ModelSet]) -> str:
    names = ", ".join(excerpt(each.name) for each in sets)
    return f"the set {names} is" if len(sets) == 1 else f"the sets {names} are"
