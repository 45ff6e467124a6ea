"""From the models of the stores to models for a config: which ones, under which names, planned for the target."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from advisor.app import App
from advisor.errors import AdvisorError, RuleError
from advisor.gguf_header.shards import parse_shard_name
from advisor.outputs.ollama import SUFFIX
from advisor.outputs.types import OutputModel
from advisor.planner import Planner
from advisor.recommend.search import Wishes
from advisor.stores.types import StoredModel


class Wanted(NamedTuple):
    """One model with what is wished for it."""

    id: str
    model: StoredModel
    intent: str
    wishes: Wishes
    mode: str  # "exact" | "safe"
    projector: bool = False  # with the mmproj that lies beside it

    @property
    def key(self) -> tuple[object, ...]:
        """What the plan depends on."""
        parts = tuple(part.path for part in self.model.companions)
        return (self.id, self.model.path, self.model.identity, parts, *self[2:])


class Planned(NamedTuple):
    """A model's plan, or the sentence why it has none."""

    wanted: Wanted
    output: OutputModel | None
    problem: str | None
    summary: str = ""  # the recommendation in one line


def ollama_name(model: StoredModel) -> str | None:
    """What Ollama calls the model, None for one that it does not have; the tags that advisor made do not count."""
    names = [(model.store, model.name), *((seen.store, seen.name) for seen in model.also)]
    return next((name for store, name in names if store == "ollama" and not name.endswith(SUFFIX)), None)


def plain_id(model: StoredModel) -> str:
    """How engines are to list a model: an Ollama name without colons and slashes, otherwise its file's name."""
    if model.store == "ollama":
        return (ollama_name(model) or model.name).replace(":", "-").replace("/", "-")
    shard = parse_shard_name(model.path)
    return os.path.basename(shard[0] if shard else model.path.removesuffix(".gguf")) or model.name


def with_ids(models: Iterable[StoredModel]) -> list[tuple[str, StoredModel]]:
    """Each model with an id of its own; of two with the same name the later one gets its folder's name before it."""
    taken: dict[str, StoredModel] = {}
    for model in models:
        name = plain_id(model)
        if name in taken:
            name = f"{os.path.basename(os.path.dirname(model.path))}-{name}"
        number, first = 2, name
        while name in taken:
            name, number = f"{first}-{number}", number + 1
        taken[name] = model
    return list(taken.items())


class ModelPlans:
    """Plans models for one machine and engine, each once as long as its files and what is wished stay the same."""

    def __init__(self, app: App, planner: Planner) -> None:
        self._app, self._planner = app, planner
        self._known: dict[tuple[object, ...], Planned] = {}
        self._used: set[tuple[object, ...]] = set()

    def forget_unused(self) -> None:
        """Forget plans that nobody has asked for since the last time: of models that are gone or wished otherwise."""
        self._known = {key: self._known[key] for key in self._used & self._known.keys()}
        self._used = set()

    def plan(self, wanted: Wanted) -> Planned:
        """The plan; a model that cannot be planned is a problem and never an exception."""
        self._used.add(wanted.key)
        found = self._known.get(wanted.key)
        if found is None:
            try:
                found = self._plan(wanted)
            except RuleError as error:  # may be mended at any time: asked again
                return Planned(wanted, None, str(error))
            except AdvisorError as error:
                found = Planned(wanted, None, str(error))
            self._known[wanted.key] = found
        return found

    def _plan(self, wanted: Wanted) -> Planned:
        model, planner = wanted.model, self._planner
        pinned = wanted.wishes.pinned
        mmproj = next((part.path for part in model.companions if part.kind == "mmproj"), None)
        if wanted.projector and pinned.mmproj is None:
            pinned = pinned._replace(mmproj=mmproj)
        wishes = wanted.wishes._replace(pinned=pinned)
        spec = self._app.model(self._app.header(model.path))
        beside = self._app.beside(pinned, spec)
        answer, host = planner.recommend(spec, planner.intent(wanted.intent), wishes, beside)
        plan = answer.chosen.plan
        if plan.refused is not None:
            return Planned(wanted, None, f"{planner.engine.name} refuses these settings: {plan.refused}.")
        if answer.verdict == "does_not_fit":
            return Planned(wanted, None, answer.summary)
        output = OutputModel(
            id=wanted.id,
            model_path=os.path.abspath(model.path),
            plan=plan,
            options=tuple(planner.options(answer, spec, host, wishes, wanted.mode)),
            n_layer_all=spec.n_layer_all,
            description=answer.summary,
            store_name=ollama_name(model),
            architecture=spec.architecture,
        )
        return Planned(wanted, output, None, answer.summary)
