"""One look at everything: which files should hold what, for each target, and what stands against it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence

from advisor.app import App
from advisor.configuration.types import ModelSet, matches
from advisor.engines.help_text import help_text
from advisor.errors import AdvisorError, EngineError, OutputError
from advisor.host import HostSnapshot
from advisor.keeper.constrain import constrained
from advisor.keeper.joint import JointPlans
from advisor.keeper.models import ModelPlans, Wanted, name_in, names_of
from advisor.keeper.targets import Target, files_beside, output_of
from advisor.outputs.help_options import options_of_help
from advisor.outputs.ollama import Ollama
from advisor.outputs.types import Output, OutputModel
from advisor.planner import Planner
from advisor.recommend.search import Wishes
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings
from advisor.slots import Slot, Value
from advisor.stores.types import StoredModel

# programs that know only the models of their own store
_FOR_LLAMA_SERVER = ("llama-server-preset", "env-file", "llama-config-ini", "llama-swap")
_OWN_STORE = {"ollama": "ollama", "lm-studio": "lmstudio", "jan": "jan"}


class ModelWish(NamedTuple):
    """What the configuration says about one model."""

    intent: str = "balanced"
    pinned: RequestedSettings = RequestedSettings()
    min_n_ctx: int | None = None
    max_n_ctx: int | None = None
    min_tokens_per_s: float | None = None
    excluded: bool = False


class WantedFile(NamedTuple):
    """One file and every value of ours that is to stand in it; by model id its path and what all its slots begin with.

    `request`: for Ollama what its interface is asked for besides.
    """

    path: str
    output: Output
    slots: Mapping[Slot, Value]
    models: Mapping[str, str]
    prefixes: Mapping[str, Slot]
    request: Mapping[str, Value] | None = None


class TargetPass(NamedTuple):
    """One target: its files, the models it cannot take with the reason each, and what makes all of it impossible."""

    target: Target
    files: tuple[WantedFile, ...] = ()
    problems: tuple[tuple[str, str], ...] = ()  # (model id, sentence)
    failure: str | None = None
    unsure: frozenset[str] = frozenset()  # ids of models that are there and could not be looked at
    notes: tuple[str, ...] = ()  # what is to be known of models that are planned together
    finished: bool = True  # False: stopped before every model was planned


class Passes:
    """Makes passes over targets; remembers the plans of models between them."""

    def __init__(
        self,
        app: App,
        host: HostSnapshot,
        environ: Mapping[str, str],
        *,
        keep_free_bytes: int | None = None,
        keep_free_ram_bytes: int | None = None,
    ) -> None:
        self._app, self._host, self._environ = app, host, environ
        self._keep_free_bytes, self._keep_free_ram_bytes = keep_free_bytes, keep_free_ram_bytes
        self._plans: dict[str, ModelPlans] = {}
        self._planners: dict[str, Planner] = {}
        self.looked_at: set[str] = set()  # files that passes rested on besides the models

    def make(
        self,
        target: Target,
        models: Sequence[tuple[str, StoredModel]],
        wish_of: Callable[[StoredModel], ModelWish],
        sets: Sequence[ModelSet] = (),
        should_stop: Callable[[], bool] = lambda: False,
    ) -> TargetPass:
        """What `target` is to hold of `models`. Nothing about a model or the target is raised."""
        try:
            output = output_of(target, self._environ)
            planner = self._planner(target.engine or output.engine)
            supported = self._supported(target)
        except AdvisorError as error:
            return TargetPass(target, failure=str(error))
        plans = self._plans[target.engine or output.engine]
        self.looked_at.update((os.path.dirname(target.path), *files_beside(target)))
        # rendered one by one: a thousand whole plans at a time are more memory than all else
        own: dict[str, dict[Slot, Value]] = {}
        paths: dict[str, str] = {}
        files: list[WantedFile] = []
        unsure = set()
        problems: list[tuple[str, str]] = []

        def wanted_of(name: str, model: StoredModel) -> Wanted | None:
            wish = wish_of(model)
            if wish.excluded or not _takes(target, model):
                return None
            pinned = constrained(wish.pinned, output, planner.engine)
            whole = "tensor_overrides" not in output.expresses()
            wishes = Wishes(pinned, wish.min_n_ctx, wish.max_n_ctx, wish.min_tokens_per_s, whole_blocks=whole)
            store = _OWN_STORE.get(target.format, "ollama")
            projector = "beside" in output.expresses()
            return Wanted(name, model, wish.intent, wishes, target.mode, projector, store)

        joint = JointPlans(target, models, sets, wanted_of, planner.policy.together["most_models"])
        for name, model in models:
            wanted = wanted_of(name, model)
            if wanted is None:
                continue
            if should_stop():
                return TargetPass(target, problems=tuple(problems), finished=False)
            self.looked_at.update(wanted.beside)
            planned = joint.plan(wanted, plans)
            if planned.output is None:
                problems.append((name, planned.problem or ""))
                unsure |= {name} if planned.failed else set()
                continue
            try:
                own[name] = output.one(planned.output, supported)
                if output.per_model:
                    files.append(_file_of(target, output, planned.output, own.pop(name)))
                else:
                    paths[name] = planned.output.model_path
            except OutputError as error:
                problems.append((name, str(error)))
                own.pop(name, None)
        try:
            if not output.per_model:
                prefixes = {name: _common_prefix(list(each)) for name, each in own.items()}
                groups, said = output.grouped(joint.resident(own))
                joint.notes += said
                files.append(WantedFile(target.path, output, {**output.together(own), **groups}, paths, prefixes))
        except OutputError as error:
            return TargetPass(target, problems=tuple(problems), failure=str(error))
        return TargetPass(target, tuple(files), tuple(problems), unsure=frozenset(unsure), notes=tuple(joint.notes))

    def forget_unused(self) -> None:
        """Forget plans that no target has asked for since the last time."""
        for plans in self._plans.values():
            plans.forget_unused()

    def _planner(self, engine: str) -> Planner:
        planner = self._planners.get(engine)
        if planner is None:
            planner = Planner(
                self._app,
                self._host,
                self._app.engine(engine),
                keep_free_bytes=self._keep_free_bytes,
                keep_free_ram_bytes=self._keep_free_ram_bytes,
            )
            self._planners[engine] = planner
            self._plans[engine] = ModelPlans(self._app, planner)
        return planner

    def _supported(self, target: Target) -> frozenset[str] | None:
        """The options of the llama-server that is named, else of the one on PATH; None where nobody can be asked."""
        self.looked_at.add(os.path.expanduser(target.binary or ""))
        if target.binary is not None:
            return options_of_help(help_text(os.path.expanduser(target.binary), self._environ))
        if target.format not in _FOR_LLAMA_SERVER:
            return None
        places = self._environ.get("PATH", "")
        self.looked_at.update(os.path.join(place, "llama-server") for place in places.split(os.pathsep))
        found = shutil.which("llama-server", path=places)
        try:
            return options_of_help(help_text(found, self._environ)) if found else None
        except EngineError:
            return None


def _takes(target: Target, model: StoredModel) -> bool:
    store = _OWN_STORE.get(target.format)
    if store is not None and name_in(model, store) is None:
        return False
    return matches(target.models, names_of(model))


def _file_of(target: Target, output: Output, model: OutputModel, slots: Mapping[Slot, Value]) -> WantedFile:
    path = target.file_of(output, model)
    request = output.create_request(model) if isinstance(output, Ollama) else None
    return WantedFile(path, output, slots, {model.id: model.model_path}, {model.id: ()}, request)


def _common_prefix(slots: Sequence[Slot]) -> Slot:
    if not slots:
        return ()
    least, most = min(slots), max(slots)
    n_same = next((i for i, (one, other) in enumerate(zip(least, most, strict=False)) if one != other), len(least))
    return least[:n_same]
