"""From the models of the stores to models for a config: which ones, under which names, planned for the target."""

from __future__ import annotations

import os
import pickle
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import TypeVar

from advisor.app import App
from advisor.errors import AdvisorError
from advisor.gguf_header.errors import excerpt
from advisor.gguf_header.shards import parse_shard_name
from advisor.outputs.ollama import SUFFIX
from advisor.outputs.types import OutputModel
from advisor.planner import Planner
from advisor.recommend.recommendation import Recommendation
from advisor.recommend.search import Wishes
from advisor.records import NamedTuple
from advisor.stores.types import StoredModel
from advisor.together.types import Member
from advisor.units import format_bytes

T = TypeVar("T")


class Wanted(NamedTuple):
    """One model with what is wished for it."""

    id: str
    model: StoredModel
    intent: str
    wishes: Wishes
    mode: str  # "exact" | "safe"
    projector: bool = False  # with the mmproj that lies beside it
    store: str = "ollama"  # whose name for it counts

    @property
    def beside(self) -> list[str]:
        """The files that may be loaded beside the model."""
        pinned = self.wishes.pinned
        paths = [*(part.path for part in self.model.companions), *pinned.lora, pinned.mmproj, pinned.draft_model]
        return [path for path in paths if path]

    @property
    def key(self) -> tuple[object, ...]:
        """What the plan depends on."""
        parts = tuple((path, _stamp(path)) for path in self.beside)
        return (self.id, self.model.path, self.model.identity, parts, *self[2:])


class Planned(NamedTuple):
    """A model's plan, or the sentence why it has none; `failed`: that is an error and says nothing about the model."""

    output: OutputModel | None
    problem: str | None = None
    failed: bool = False


def name_in(model: StoredModel, store: str) -> str | None:
    """What a store calls the model, None for one that it does not have; the tags that advisor made do not count."""
    names = [(model.store, model.name), *((seen.store, seen.name) for seen in model.also)]
    return next((name for of, name in names if of == store and not (of == "ollama" and name.endswith(SUFFIX))), None)


def names_of(model: StoredModel) -> list[str]:
    """All that people call a model by: patterns of the configuration are held against these."""
    return [model.name, model.path, *(name for seen in model.also for name in (seen.name, seen.path))]


def is_own_tag(model: StoredModel) -> bool:
    """Whether only a tag that advisor made still holds the model: its base was removed from Ollama."""
    return {model.store, *(seen.store for seen in model.also)} == {"ollama"} and name_in(model, "ollama") is None


def plain_id(model: StoredModel) -> str:
    """How engines are to list a model: by its file, or by its name where the store gives its files none of theirs."""
    if model.store in ("ollama", "jan"):
        return (name_in(model, model.store) or model.name).replace(":", "-").replace("/", "-")
    shard = parse_shard_name(model.path)
    return os.path.basename(shard[0] if shard else model.path.removesuffix(".gguf")) or model.name


def with_ids(
    models: Iterable[StoredModel], known: Mapping[str, str] = {}, reserved: Collection[str] = ()
) -> list[tuple[str, StoredModel]]:
    """Each model with an id of its own; of two with the same name the later one gets its folder's name before it.

    People call models by these, so one keeps the id that it has in the configs (`known`, by path), whatever comes
    beside it; `reserved` are the ids of models that are away.
    """
    models = list(models)
    names: dict[int, str] = {}
    taken = set(reserved)
    for number, model in enumerate(models):
        name = known.get(model.path)
        if name is not None and name not in taken and _may_be_called(model, name):
            names[number] = name
            taken.add(name)
    for number, model in enumerate(models):
        if number not in names:
            name = plain_id(model)
            if name in taken:
                name = _longer_id(model)
            more, first = 2, name
            while name in taken:
                name, more = f"{first}-{more}", more + 1
            names[number] = name
            taken.add(name)
    return [(names[number], model) for number, model in enumerate(models)]


def _longer_id(model: StoredModel) -> str:
    return f"{os.path.basename(os.path.dirname(model.path))}-{plain_id(model)}"


def _may_be_called(model: StoredModel, name: str) -> bool:
    """Whether a model could have got this id, which it could not under another name in its store."""
    bare, dash, number = name.rpartition("-")
    stems = (plain_id(model), _longer_id(model))
    return name in stems or (bool(dash) and number.isdecimal() and bare in stems)


class ModelPlans:
    """Plans models for one machine and engine, each once as long as its files and what is wished stay the same."""

    def __init__(self, app: App, planner: Planner) -> None:
        self._app, self._planner = app, planner
        # packed: a daemon keeps plans for days, and thousands of small objects in between hold on to far more memory
        self._known: dict[bytes, bytes] = {}
        self._used: dict[bytes, bytes] = {}

    def plan(self, wanted: Wanted) -> Planned:
        """The plan; a model that cannot be planned is a problem and never an exception."""
        try:
            return self._remembered(wanted.key, lambda: self._plan(wanted))
        except AdvisorError as error:  # may be mended at any time: asked again
            return Planned(None, str(error), failed=True)

    def plan_set(self, wanted: Sequence[Wanted]) -> list[Planned]:
        """The plans of models that are to be resident together, the main one first.

        Who does not fit beside the others, or cannot be planned at all, has no output but the sentence why.
        """
        try:
            return self._remembered(("set", *(one.key for one in wanted)), lambda: self._plan_set(wanted))
        except AdvisorError:  # one of them is broken: the others are planned without it
            return self._without_broken(wanted)

    def _without_broken(self, wanted: Sequence[Wanted]) -> list[Planned]:
        found: dict[int, Planned] = {}
        for index, one in enumerate(wanted):
            try:
                self._member(one)
            except AdvisorError as error:
                found[index] = Planned(None, str(error), failed=True)
        whole = [index for index in range(len(wanted)) if index not in found]
        if len(whole) == len(wanted):  # it is not the files
            return [self.plan(one) for one in wanted]
        planned = self.plan_set([wanted[index] for index in whole]) if len(whole) > 1 else []
        found |= zip(whole, planned or [self.plan(wanted[index]) for index in whole], strict=True)
        return [found[index] for index in range(len(wanted))]

    def _remembered(self, what: tuple[object, ...], make: Callable[[], T]) -> T:
        key = sha256(repr(what).encode("utf-8", "surrogateescape")).digest()
        packed = self._used.get(key) or self._known.get(key)
        if packed is None:
            found = make()
            packed = zlib.compress(pickle.dumps(found, pickle.HIGHEST_PROTOCOL), 1)
        else:
            found = pickle.loads(zlib.decompress(packed))  # noqa: S301 - out of our own memory
        self._used[key] = packed
        return found

    def forget_unused(self) -> None:
        """Let go of the plans that nobody asked for since the last call: models come and go."""
        self._known, self._used = self._used, {}

    def _member(self, wanted: Wanted) -> Member:
        """The model read, with its wishes."""
        pinned = self._app.drafting(wanted.wishes.pinned)
        spec = self._app.model(self._app.header(wanted.model.path), load_mtp="draft-mtp" in pinned.spec_type)
        mmproj = next((part.path for part in wanted.model.companions if part.kind == "mmproj"), None)
        if wanted.projector and pinned.mmproj is None and mmproj and self._app.takes_projector(spec, mmproj):
            pinned = pinned._replace(mmproj=mmproj)
        wishes = wanted.wishes._replace(pinned=pinned)
        return Member(wanted.id, spec, self._planner.intent(wanted.intent), wishes, self._app.beside(pinned, spec))

    def _plan(self, wanted: Wanted) -> Planned:
        planner, one = self._planner, self._member(wanted)
        answer, host = planner.recommend(one.spec, one.intent, one.wishes, one.beside)
        if answer.verdict == "does_not_fit" and answer.chosen.plan.refused is None:
            return Planned(None, f"{excerpt(wanted.id)}: {answer.summary[:1].lower()}{answer.summary[1:]}")
        return self._output(wanted, one, answer, planner.options(answer, one.spec, host, one.wishes, wanted.mode))

    def _plan_set(self, wanted: Sequence[Wanted]) -> list[Planned]:
        from advisor.joint import options_of, plan_jointly

        planner = self._planner
        answer = plan_jointly(planner, [self._member(one) for one in wanted])
        lacks = {lack.member: lack for lack in reversed(answer.lacks)}
        found = []
        for index, (one, options) in enumerate(zip(wanted, options_of(planner, answer), strict=True)):
            seat = answer.seats[index]
            if seat is not None and options is not None:
                found.append(self._output(one, answer.members[index], seat.answer, options))
                continue
            if index in answer.refused:
                found.append(self._refused(one, answer.refused[index]))
                continue
            beside = ", ".join(excerpt(wanted[other].id) for other in lacks[index].beside) if index in lacks else ""
            over = f": {format_bytes(lacks[index].short.over_bytes)} too little" if index in lacks else ""
            found.append(Planned(None, f"{excerpt(one.id)} does not fit beside {beside or 'the others'}{over}"))
        return found

    def _output(
        self, wanted: Wanted, one: Member, answer: Recommendation, options: Sequence[tuple[str, str]]
    ) -> Planned:
        plan = answer.chosen.plan
        if plan.refused is not None:
            return self._refused(wanted, plan.refused)
        return Planned(
            OutputModel(
                id=wanted.id,
                model_path=os.path.abspath(wanted.model.path),
                plan=plan,
                options=tuple(options),
                n_layer_all=one.spec.n_layer_all,
                description=answer.summary,
                store_name=name_in(wanted.model, wanted.store),
                architecture=one.spec.architecture,
            )
        )

    def _refused(self, wanted: Wanted, why: str) -> Planned:
        return Planned(None, f"{excerpt(wanted.id)}: {self._planner.engine.name} refuses these settings: {why}.")


def _stamp(path: str) -> tuple[int, int] | None:
    """What tells a file beside a model from its successor under the same name."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
