"""From the models of the stores to models for a config: which ones, under which names, planned for the target."""

from __future__ import annotations

import os
import pickle
import zlib
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256

from advisor.app import App
from advisor.errors import AdvisorError
from advisor.gguf_header.errors import excerpt
from advisor.gguf_header.shards import parse_shard_name
from advisor.outputs.ollama import SUFFIX
from advisor.outputs.types import OutputModel
from advisor.planner import Planner
from advisor.recommend.search import Wishes
from advisor.records import NamedTuple
from advisor.stores.types import StoredModel


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
    return name in stems or (bool(dash) and number.isdigit() and bare in stems)


class ModelPlans:
    """Plans models for one machine and engine, each once as long as its files and what is wished stay the same."""

    def __init__(self, app: App, planner: Planner) -> None:
        self._app, self._planner = app, planner
        # packed: a daemon keeps plans for days, and thousands of small objects in between hold on to far more memory
        self._known: dict[bytes, bytes] = {}
        self._used: dict[bytes, bytes] = {}

    def plan(self, wanted: Wanted) -> Planned:
        """The plan; a model that cannot be planned is a problem and never an exception."""
        key = sha256(repr(wanted.key).encode("utf-8", "surrogateescape")).digest()
        packed = self._used.get(key) or self._known.get(key)
        if packed is None:
            try:
                found = self._plan(wanted)
            except AdvisorError as error:  # may be mended at any time: asked again
                return Planned(None, str(error), failed=True)
            packed = zlib.compress(pickle.dumps(found, pickle.HIGHEST_PROTOCOL), 1)
        else:
            found = pickle.loads(zlib.decompress(packed))  # noqa: S301 - out of our own memory
        self._used[key] = packed
        return found

    def forget_unused(self) -> None:
        """Let go of the plans that nobody asked for since the last call: models come and go."""
        self._known, self._used = self._used, {}

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
            return Planned(None, f"{excerpt(wanted.id)}: {planner.engine.name} refuses these settings: {plan.refused}.")
        if answer.verdict == "does_not_fit":
            return Planned(None, f"{excerpt(wanted.id)}: {answer.summary[:1].lower()}{answer.summary[1:]}")
        output = OutputModel(
            id=wanted.id,
            model_path=os.path.abspath(model.path),
            plan=plan,
            options=tuple(planner.options(answer, spec, host, wishes, wanted.mode)),
            n_layer_all=spec.n_layer_all,
            description=answer.summary,
            store_name=name_in(model, wanted.store),
            architecture=spec.architecture,
        )
        return Planned(output)


def _stamp(path: str) -> tuple[int, int] | None:
    """What tells a file beside a model from its successor under the same name."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
