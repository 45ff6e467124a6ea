"""LocalAI: one YAML file for each model in its models folder.

Format facts: LocalAI v4.9, read, not run. `options` is a list of "key:value"; those that begin with "--" go to
llama-server's parser as they are. The model's path is below the models folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from advisor.errors import OutputError
from advisor.gguf_header.errors import excerpt
from advisor.outputs.base import Format
from advisor.outputs.carry import plain_file_name, without_controls
from advisor.outputs.option_names import known_to
from advisor.outputs.shape import LEAF, Keys, Listed, slots_in
from advisor.outputs.types import Gone, OutputModel, Slot, Value
from advisor.outputs.wanted import ALL_SETTINGS, Wanted
from advisor.outputs.yaml_text import data_of, edit_yaml, spelled_yaml

_NAMED_OPTIONS = {  # llama-server's option -> key of `options`
    "parallel": "parallel", "n-cpu-moe": "n_cpu_moe", "override-tensor": "override_tensor", "cache-ram": "cache_ram",
    "device": "devices", "split-mode": "split_mode", "spec-type": "spec_type", "fit-target": "fit_params_target",
}  # fmt: skip
_SWITCHES = {"swa-full": "swa_full", "kv-unified": "kv_unified"}


def _split(item: Any) -> tuple[str, Any] | None:
    if not isinstance(item, str):
        return None
    key, colon, value = item.partition(":")
    return key, value if colon else None


def _join(key: str, value: Any) -> str:
    return key if value is None else f"{key}:{value}"


_SHAPE = Keys(LEAF, {"parameters": Keys(LEAF), "options": Listed(_split, _join, (), LEAF)})


class LocalAI(Format):
    """See the module. `folder`: LocalAI's models folder; without it, models are named by their file alone."""

    name = "localai"
    title = "LocalAI"
    per_model = True
    new_text = "# managed by advisor; edits are detected and kept\n"

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder

    def below(self, folder: str) -> LocalAI:
        """The same for a models folder."""
        return LocalAI(folder)

    def expresses(self) -> frozenset[str]:
        """Everything: what has no key is passed on to llama-server."""
        return ALL_SETTINGS

    def file_name(self, model: OutputModel) -> str:
        """`ID.yaml`."""
        return plain_file_name(model.id, ".yaml")

    def _slots(self, model: OutputModel, supported: frozenset[str] | None) -> dict[Slot, Value]:
        wanted = Wanted(model, self.title)
        settings = wanted.settings
        wanted.drop("ctx-size", "flash-attn", "cache-type-k", "cache-type-v", "batch-size", "ubatch-size")
        found: dict[Slot, Value] = {
            ("name",): model.id, ("backend",): "llama-cpp", ("parameters", "model"): self._relative(wanted),
            ("context_size",): settings.n_ctx,
        }  # fmt: skip
        if model.description:
            found[("description",)] = without_controls(model.description)
        layers = wanted.number("n-gpu-layers")
        if layers is not None or not model.plan.devices:
            found[("gpu_layers",)] = layers or 0
        found[("flash_attention",)] = dict(model.options).get("flash-attn", "auto")
        found[("cache_type_k",)], found[("cache_type_v",)] = settings.cache_type_k, settings.cache_type_v
        found[("batch",)] = settings.n_batch
        found[("mmap",)] = not (wanted.switch("no-mmap") or wanted.take("load-mode") == "none")
        for name, key in (("threads", "threads"), ("main-gpu", "main_gpu"), ("tensor-split", "tensor_split"),
                          ("mmproj", "mmproj"), ("spec-draft-model", "draft_model")):  # fmt: skip
            value = wanted.take(name)
            if value is not None:
                found[(key,)] = int(value) if name == "threads" else value
        if wanted.switch("embeddings"):
            found[("embeddings",)] = True
        drafted = wanted.number("spec-draft-n-max")
        if drafted is not None:
            found[("n_draft",)] = drafted
        options = {"n_ubatch": str(settings.n_ubatch)}
        fit = wanted.take("fit")
        options["fit_params"] = "true" if fit == "on" else "false"
        for name, key in _NAMED_OPTIONS.items():
            value = wanted.take(name)
            if value is not None:
                options[key] = value
        options |= {key: "true" for name, key in _SWITCHES.items() if wanted.switch(name)}
        passed = {f"--{name}": value or None for name, value in known_to(wanted.rest(), supported, model.id)}
        return found | {("options", key): value for key, value in {**options, **passed}.items()}

    def _relative(self, wanted: Wanted) -> str:
        path = wanted.model.model_path
        if self._folder is None:
            return os.path.basename(path)
        relative = os.path.relpath(path, self._folder)
        if relative.startswith(".."):
            wanted.refuse(f"it reads models below {excerpt(self._folder)} only; link the file there")
        return relative

    def _parse(self, text: str) -> dict[Slot, Value]:
        data = data_of(text, self.title)
        if not isinstance(data, dict):
            raise OutputError("this is no model file of LocalAI: it holds no map; give another file.")
        return slots_in(data, _SHAPE)

    def _edit(self, text: str, changes: Mapping[Slot, Value | Gone], spelled: Mapping[Slot, str]) -> str:
        return edit_yaml(text, changes, _SHAPE, self.title, spelled)

    def _spelled(self, text: str) -> dict[Slot, str]:
        return spelled_yaml(text, _SHAPE, self.title)

    def validate(self, text: str) -> None:
        """Also: it has a name and a model. Raises OutputError."""
        parsed = self.parse(text)
        for slot in (("name",), ("parameters", "model")):
            if not isinstance(parsed.get(slot), str):
                raise OutputError(f"LocalAI skips a model file without {'.'.join(slot)}; give it one.")


OUTPUT = LocalAI()
