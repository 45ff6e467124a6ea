"""The options of one model, each taken once: what nobody took is what a format cannot say, and refuses the model."""

from __future__ import annotations

import os
from typing import NoReturn

from advisor.errors import OutputError
from advisor.gguf_header.errors import excerpt
from advisor.outputs.carry import check_text
from advisor.outputs.types import OutputModel
from advisor.settings import RunSettings

# what every llama.cpp server can be told; formats take away what they cannot say
ALL_SETTINGS = frozenset(RunSettings._fields) - {"n_ctx_seq", "n_outputs", "n_rollback"}
_FILES = frozenset(("lora", "mmproj", "spec-draft-model"))  # programs run in a folder of their own


class Wanted:
    """One model's options on their way into the config of `title`."""

    def __init__(self, model: OutputModel, title: str) -> None:
        """Raises OutputError for text that no config can hold, and for a plan that the engine refuses."""
        self.model, self.settings, self.title = model, model.plan.settings, title
        self._rest = dict(model.options)
        if model.plan.refused:
            self.refuse(f"the engine refuses its settings ({excerpt(model.plan.refused)}); choose others")
        for what, text in (("name", model.id), ("path", model.model_path), *self._rest.items()):
            check_text(text, what, model.id)
        if not model.id or not os.path.isabs(model.model_path):
            self.refuse("a config needs a name and a whole path; this is an error of advisor")

    @property
    def exact(self) -> bool:
        """Whether the settings are all written; otherwise the layers are left to the engine's fit."""
        return dict(self.model.options).get("fit") != "on"

    @property
    def takes_all(self) -> bool:
        """Whether every layer goes to the GPU."""
        return self.settings.n_gpu_layers > self.model.n_layer_all

    def refuse(self, why: str) -> NoReturn:
        """Raise OutputError naming the model and the format."""
        raise OutputError(f"{excerpt(self.model.id)}: {self.title} cannot take this model: {why}.")

    def take(self, name: str) -> str | None:
        """The value of an option, "" for one without value, None when it is not asked for."""
        value = self._rest.pop(name, None)
        if value and name in _FILES:
            return ",".join(os.path.abspath(file) for file in (value.split(",") if name == "lora" else [value]))
        return value

    def number(self, name: str) -> int | None:
        """The value of an option that is a whole number."""
        value = self.take(name)
        return None if value is None else int(value)

    def switch(self, name: str) -> bool:
        """Whether an option without value is asked for."""
        return self.take(name) is not None

    def drop(self, *names: str) -> None:
        """Options that mean nothing for this format, or say what it does anyway."""
        for name in names:
            self._rest.pop(name, None)

    def rest(self) -> list[tuple[str, str]]:
        """Everything that is left, taken."""
        return [(name, self.take(name) or "") for name in list(self._rest)]

    def only(self, setting: str, value: object, why: str) -> None:
        """Raise OutputError unless the setting has this value."""
        if getattr(self.settings, setting) != value:
            self.refuse(why)

    def one_device(self) -> None:
        """Raise OutputError for plans that rest on a choice among several GPUs."""
        if len(self.model.plan.devices) > 1 or self.take("device") not in (None, "none"):
            self.refuse("it cannot be told to which of several GPUs the layers go; plan for one GPU")
        self.drop("tensor-split", "main-gpu", "split-mode")

    def gguf_name(self) -> str:
        """The file's name, for programs that know models by it. Raises OutputError unless it ends in .gguf."""
        name = os.path.basename(self.model.model_path)
        if not name.lower().endswith(".gguf"):
            self.refuse(f"it finds only files that end in .gguf, not '{excerpt(name)}'; link it under such a name")
        return name

    def finish(self) -> None:
        """Raise OutputError when something is left that the format has no word for."""
        if self._rest:
            names = ", ".join(f"--{name}" for name in self._rest)
            self.refuse(f"it has no setting for {excerpt(names)}, on which the plan rests; plan without")


def spelled_out(model: OutputModel) -> list[tuple[str, str]]:
    """The model's llama-server options, and those too that only say the engine's default.

    A `[*]` section, a variable or llama.cpp's own config file may hold another default than the engine's.
    """
    settings = model.plan.settings
    given = [(name, value) for name, value in model.options]
    names = {name for name, _ in given}
    defaults = [
        ("cache-type-k", settings.cache_type_k), ("cache-type-v", settings.cache_type_v),
        ("batch-size", str(settings.n_batch)), ("ubatch-size", str(settings.n_ubatch)),
    ]  # fmt: skip
    if settings.n_parallel > 1 and not settings.kv_unified:
        defaults.append(("no-kv-unified", ""))
    missing = [(name, value) for name, value in defaults if name not in names]
    end = next((index for index, (name, _) in enumerate(given) if name == "fit"), len(given))
    return [*given[:end], *missing, *given[end:]]
