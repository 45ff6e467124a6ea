"""LM Studio: our values among the per-model defaults, one JSON file for each model file.

Format facts: the keys from lmstudio-js release-55; the file's place and layout are not documented by the vendor and
come from many agreeing notes; not run. `autoFit` must be off for offloadRatio to count.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

from advisor.errors import OutputError
from advisor.outputs.base import Format
from advisor.outputs.carry import plain_file_name
from advisor.outputs.json_text import data_of, edit_json, spelled_json
from advisor.outputs.shape import LEAF, Keys, Listed, slots_in
from advisor.outputs.types import Gone, OutputModel, Slot, Value
from advisor.outputs.wanted import ALL_SETTINGS, Wanted

_CACHE_TYPES = frozenset(("f32", "f16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"))
_LLAMA = "llm.load.llama."


def _split(item: Any) -> tuple[str, Any] | None:
    if not isinstance(item, dict) or not isinstance(item.get("key"), str) or "value" not in item:
        return None
    return item["key"], item["value"]


_FIELDS = Listed(_split, lambda key, value: {"key": key, "value": value}, ("value",), LEAF, stays=True)
_SHAPE = Keys(None, {"load": Keys(None, {"fields": _FIELDS}, stays=True)})


def share(count: int, total: int) -> float:
    """`count` of `total` as a fraction that gives `count` again, rounded down or to the nearest."""
    return min(math.ceil(count * 1_000_000 / total) / 1_000_000, 1.0)


class LmStudio(Format):
    """See the module."""

    name = "lm-studio"
    title = "LM Studio"
    shares = "merge"
    per_model = True
    new_text = '{\n  "preset": "",\n  "operation": {\n    "fields": []\n  },\n  "load": {\n    "fields": []\n  }\n}\n'

    def expresses(self) -> frozenset[str]:
        """What its load settings have a key for."""
        return ALL_SETTINGS - {"tensor_overrides", "split_mode", "tensor_split", "main_gpu", "swa_full", "op_offload",
                               "repack"}  # fmt: skip

    def fixed(self) -> Mapping[str, Value]:
        """A projector is on the GPU."""
        return {"mmproj_offload": True}

    def file_name(self, model: OutputModel) -> str:
        """`PUBLISHER/REPO/FILE.gguf.json`, from the model's place in LM Studio's folder."""
        parts = model.model_path.split(os.sep)
        if len(parts) < 4:
            raise OutputError(
                f"{plain_file_name(model.id, '')}: LM Studio's models lie in PUBLISHER/REPO; move it there."
            )
        publisher, repository, file = (plain_file_name(part, "") for part in parts[-3:])
        return os.path.join(publisher, repository, plain_file_name(file, ".json"))

    def _slots(self, model: OutputModel, _: frozenset[str] | None) -> dict[Slot, Value]:
        wanted = Wanted(model, self.title)
        wanted.gguf_name()
        settings = wanted.settings
        kinds = (settings.cache_type_k, settings.cache_type_v)
        if not _CACHE_TYPES.issuperset(kinds):
            wanted.refuse("it does not know this cache type; choose another")
        wanted.one_device()
        wanted.drop("ctx-size", "flash-attn", "cache-type-k", "cache-type-v", "batch-size", "ubatch-size", "parallel",
                    "kv-unified", "fit", "fit-target", "n-gpu-layers", "cache-ram", "ctx-checkpoints")  # fmt: skip
        mmproj = wanted.take("mmproj")
        if mmproj is not None and os.path.dirname(mmproj) != os.path.dirname(model.model_path):
            wanted.refuse("it loads a projector from the model's own folder only; link it there")
        found: dict[str, Value] = {"llm.load.contextLength": settings.n_ctx}
        if wanted.exact:
            found[_LLAMA + "autoFit"] = False
            found[_LLAMA + "acceleration.offloadRatio"] = _offload(wanted)
        else:
            found[_LLAMA + "autoFit"] = True
            found["llm.load.autoFitMinContextLength"] = settings.n_ctx
        for side, kind in zip("kv", kinds, strict=True):
            found[f"{_LLAMA}{side}CacheQuantizationType"] = {"checked": kind != "f16", "value": kind}
        found[_LLAMA + "flashAttention"] = model.plan.flash_attn
        found[_LLAMA + "evalBatchSize"], found[_LLAMA + "physicalBatchSize"] = settings.n_batch, settings.n_ubatch
        found["llm.load.numParallelSessions"] = settings.n_parallel
        found["llm.load.useUnifiedKvCache"] = settings.kv_unified
        if wanted.switch("no-kv-offload"):
            found["llm.load.offloadKVCacheToGpu"] = False
        found[_LLAMA + "tryMmap"] = not (wanted.switch("no-mmap") or wanted.take("load-mode") == "none")
        threads = wanted.number("threads")
        if threads is not None and threads > 0:
            found[_LLAMA + "cpuThreadPoolSize"] = threads
        experts = wanted.number("n-cpu-moe")
        if wanted.switch("cpu-moe"):
            found["llm.load.numCpuExpertLayersRatio"] = 1
        elif experts:
            found["llm.load.numCpuExpertLayersRatio"] = share(experts, model.n_layer_all)
        wanted.finish()
        return {("load", "fields", key): value for key, value in found.items()}

    def _parse(self, text: str) -> dict[Slot, Value]:
        data = data_of(text, self.title)
        if not isinstance(data, dict):
            raise OutputError("this is no config of LM Studio: it holds no object; give another file.")
        return slots_in(data, _SHAPE)

    def _edit(self, text: str, changes: Mapping[Slot, Value | Gone], spelled: Mapping[Slot, str]) -> str:
        return edit_json(text, changes, _SHAPE, self.title, spelled)

    def _spelled(self, text: str) -> dict[Slot, str]:
        return spelled_json(text, _SHAPE, self.title)


def _offload(wanted: Wanted) -> Value:
    """All layers, none, or the share of them; the output counts as a layer, so that it is never more than planned."""
    if not wanted.model.plan.devices or not wanted.settings.n_gpu_layers:
        return "off"
    return "max" if wanted.takes_all else share(wanted.settings.n_gpu_layers, wanted.model.n_layer_all + 1)


OUTPUT = LmStudio()
