"""The server of llama-cpp-python: one JSON file with all models, of which one at a time is loaded.

Format facts: llama-cpp-python 0.3.36 llama_cpp/server/settings.py; an unknown key, a wrong type or range ends it. No
slots, no experts on the CPU, no tensor overrides, no unified cache; use_mlock is on unless switched off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.errors import OutputError
from advisor.gguf_header.errors import excerpt
from advisor.outputs.base import Format
from advisor.outputs.json_text import data_of, edit_json, spelled_json
from advisor.outputs.shape import LEAF, Keys, Listed, slots_in
from advisor.outputs.types import Gone, OutputModel, Slot, Value
from advisor.outputs.wanted import ALL_SETTINGS, Wanted

_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20, "bf16": 30}  # ggml.h
_SPLIT_MODES = {"none": 0, "layer": 1, "row": 2}
_NEEDED: dict[str, type | tuple[type, ...]] = {
    "model": str, "model_alias": str, "n_ctx": int, "n_gpu_layers": int, "n_batch": int, "n_ubatch": int,
    "n_threads": int, "n_threads_batch": int, "flash_attn": bool, "type_k": int, "type_v": int, "use_mmap": bool,
    "use_mlock": bool, "offload_kqv": bool, "embedding": bool, "main_gpu": int, "split_mode": int, "tensor_split": list,
    "lora_path": str,
}  # fmt: skip


def _named(item: Any) -> tuple[str, Any] | None:
    name = item.get("model_alias") if isinstance(item, dict) else None
    return (name, item) if isinstance(name, str) else None


_SHAPE = Keys(
    None,
    {
        "models": Listed(
            _named, lambda name, content: {"model_alias": name, **content}, (), Keys(LEAF, {"model_alias": None}),
            stays=True,
        )
    },
)  # fmt: skip


class LlamaCppPython(Format):
    """See the module."""

    name = "llama-cpp-python"
    title = "llama-cpp-python's server"
    engine = "llama-cpp-python"
    new_text = '{\n  "host": "127.0.0.1",\n  "port": 8000,\n  "models": []\n}\n'

    def expresses(self) -> frozenset[str]:
        """What its settings have a field for."""
        return ALL_SETTINGS - {
            "n_parallel", "kv_unified", "n_cpu_moe", "tensor_overrides", "swa_full", "op_offload", "repack", "beside",
        }  # fmt: skip

    def fixed(self) -> Mapping[str, Value]:
        """One sequence."""
        return {"n_parallel": 1}

    def _slots(self, model: OutputModel, _: frozenset[str] | None) -> dict[Slot, Value]:
        wanted = Wanted(model, self.title)
        settings = wanted.settings
        wanted.only("n_parallel", 1, "it has one slot; plan with --parallel 1")
        if not wanted.exact:
            wanted.refuse("it cannot leave the layers to the engine; choose the exact mode")
        if wanted.take("device") not in (None, "none"):
            wanted.refuse("it cannot be told which of several GPUs to use; plan for all of them")
        wanted.drop("ctx-size", "n-gpu-layers", "batch-size", "ubatch-size", "flash-attn", "cache-type-k",
                    "cache-type-v", "parallel", "kv-unified", "fit", "cache-ram", "ctx-checkpoints")  # fmt: skip
        kinds = [_TYPES.get(kind) for kind in (settings.cache_type_k, settings.cache_type_v)]
        if None in kinds:
            wanted.refuse("it does not know this cache type; choose another")
        found: dict[str, Value] = {
            "model": model.model_path, "n_ctx": settings.n_ctx,
            "n_gpu_layers": settings.n_gpu_layers if model.plan.devices else 0,
            "n_batch": settings.n_batch, "n_ubatch": settings.n_ubatch, "flash_attn": model.plan.flash_attn,
            "type_k": kinds[0], "type_v": kinds[1],
        }  # fmt: skip
        threads = wanted.number("threads")
        if threads is not None and threads > 0:
            found["n_threads"] = threads
        if wanted.switch("embeddings"):
            found["embedding"] = True
        if wanted.switch("no-kv-offload"):
            found["offload_kqv"] = False
        if wanted.switch("no-mmap") or wanted.take("load-mode") == "none":
            found["use_mmap"] = False
        found["use_mlock"] = False
        split = wanted.take("tensor-split")
        if split:
            found["tensor_split"] = [float(part) for part in split.split(",")]
        mode = wanted.take("split-mode")
        if mode is not None:
            if mode not in _SPLIT_MODES:
                wanted.refuse(f"it does not know split mode {excerpt(mode)}; choose layer, row or none")
            found["split_mode"] = _SPLIT_MODES[mode]
        main = wanted.number("main-gpu")
        if main is not None:
            found["main_gpu"] = main
        lora = wanted.take("lora")
        if lora is not None:
            if "," in lora:
                wanted.refuse("it loads one adapter at most; leave one")
            found["lora_path"] = lora
        wanted.finish()
        return {("models", model.id, key): value for key, value in found.items()}

    def _parse(self, text: str) -> dict[Slot, Value]:
        return slots_in(data_of(text, self.title), _SHAPE)

    def _edit(self, text: str, changes: Mapping[Slot, Value | Gone], spelled: Mapping[Slot, str]) -> str:
        return edit_json(text, changes, _SHAPE, self.title, spelled)

    def _spelled(self, text: str) -> dict[Slot, str]:
        return spelled_json(text, _SHAPE, self.title)

    def validate(self, text: str) -> None:
        """Also: a map with a list of models, whose known fields have the right type. Raises OutputError."""
        data = data_of(text.removeprefix("\ufeff"), self.title)
        models = data.get("models", []) if isinstance(data, dict) else None
        if not isinstance(models, list) or not all(isinstance(model, dict) for model in models):
            raise OutputError("this is no config of llama-cpp-python's server: 'models' is no list of models.")
        for model in models:
            for key, value in model.items():
                kind = _NEEDED.get(key)
                if kind is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is int)):
                    raise OutputError(f"llama-cpp-python's server refuses {key} = {excerpt(str(value))}; correct it.")
            if model.get("n_threads", 1) < 1 or not isinstance(model.get("model"), str):
                raise OutputError("llama-cpp-python's server needs 'model', and n_threads of at least 1; correct it.")


OUTPUT = LlamaCppPython()
