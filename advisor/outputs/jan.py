"""Jan: our values in a model's `model.yml`, from which Jan makes its own llama-server preset when it starts.

Format facts: Jan's llama.cpp extension of the router era (2026), read, not run. The model's path, projector and what
concerns the engine (threads, mapping, devices, fit) stand elsewhere and are Jan's. Jan adds two hidden slots.
"""

from __future__ import annotations

from collections.abc import Mapping

from advisor.errors import OutputError
from advisor.outputs.base import Format
from advisor.outputs.carry import plain_file_name
from advisor.outputs.shape import LEAF, Keys, slots_in
from advisor.outputs.types import Gone, OutputModel, Slot, Value
from advisor.outputs.wanted import ALL_SETTINGS, Wanted
from advisor.outputs.yaml_text import data_of, edit_yaml, spelled_yaml

_SHAPE = Keys(LEAF)
_HIDDEN_SLOTS = 2
_AUTO_LAYERS = -1


class Jan(Format):
    """See the module."""

    name = "jan"
    title = "Jan"
    shares = "merge"
    per_model = True
    new_text = ""

    def expresses(self) -> frozenset[str]:
        """What model.yml has a key for."""
        return ALL_SETTINGS - {"kv_unified", "swa_full", "op_offload", "split_mode", "tensor_split", "main_gpu", "mmap",
                               "n_threads", "repack", "beside"}  # fmt: skip

    def fixed(self) -> Mapping[str, Value]:
        """One slot of the user's and two hidden ones, each with its own cache."""
        return {"n_parallel": 1 + _HIDDEN_SLOTS, "kv_unified": False}

    def file_name(self, model: OutputModel) -> str:
        """`ID/model.yml`; Jan's id of a model may have slashes."""
        parts = model.store_name.split("/") if model.store_name else [model.id]
        return "/".join([*(plain_file_name(part, "") for part in parts), "model.yml"])

    def _slots(self, model: OutputModel, _: frozenset[str] | None) -> dict[Slot, Value]:
        wanted = Wanted(model, self.title)
        settings = wanted.settings
        if settings.n_parallel <= _HIDDEN_SLOTS or settings.kv_unified:
            wanted.refuse("it adds two hidden slots with caches of their own; plan with --parallel 3 or more")
        wanted.one_device()
        wanted.drop("ctx-size", "flash-attn", "cache-type-k", "cache-type-v", "batch-size", "ubatch-size", "parallel",
                    "fit", "fit-target", "mmproj", "cache-ram", "ctx-checkpoints")  # fmt: skip
        found: dict[str, Value] = {"ctx_size": settings.n_ctx}
        layers = wanted.number("n-gpu-layers")
        found["n_gpu_layers"] = _AUTO_LAYERS if not wanted.exact else layers or 0
        found["flash_attn"] = "on" if model.plan.flash_attn else "off"
        found["cache_type_k"], found["cache_type_v"] = settings.cache_type_k, settings.cache_type_v
        found["parallel"] = settings.n_parallel - _HIDDEN_SLOTS
        found["batch_size"], found["ubatch_size"] = settings.n_batch, settings.n_ubatch
        experts, overrides = wanted.number("n-cpu-moe"), wanted.take("override-tensor")
        if wanted.switch("cpu-moe"):
            found["cpu_moe"] = True
        if experts:
            found["n_cpu_moe"] = experts
        if wanted.switch("no-kv-offload"):
            found["no_kv_offload"] = True
        if overrides is not None:
            found["override_tensor"] = overrides
        wanted.finish()
        return {(key,): value for key, value in found.items()}

    def _parse(self, text: str) -> dict[Slot, Value]:
        data = data_of(text, self.title)
        if not isinstance(data, dict):
            raise OutputError("this is no model.yml of Jan: it holds no map; give another file.")
        return slots_in(data, _SHAPE)

    def _edit(self, text: str, changes: Mapping[Slot, Value | Gone], spelled: Mapping[Slot, str]) -> str:
        return edit_yaml(text, changes, _SHAPE, self.title, spelled)

    def _spelled(self, text: str) -> dict[Slot, str]:
        return spelled_yaml(text, _SHAPE, self.title)

    def validate(self, text: str) -> None:
        """Also: it names a model, so Jan made it. Raises OutputError."""
        if not isinstance(self.parse(text).get(("model_path",)), str):
            raise OutputError("Jan makes model.yml itself; add the model in Jan first.")


OUTPUT = Jan()
