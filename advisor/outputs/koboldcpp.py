"""KoboldCpp: one .kcpps file for each model, a flat JSON of its options.

Format facts: KoboldCpp 1.117.1 (options) and 1.76 (loader), read, not run. Keys are not checked by it; `onready` is
a shell command and is never written. One cache type for both K and V, one batch size, one slot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from advisor.errors import OutputError
from advisor.gguf_header.errors import excerpt
from advisor.outputs.base import Format
from advisor.outputs.carry import plain_file_name
from advisor.outputs.json_text import data_of, edit_json, spelled_json
from advisor.outputs.shape import LEAF, Keys, slots_in
from advisor.outputs.types import Gone, OutputModel, Slot, Value
from advisor.outputs.wanted import ALL_SETTINGS, Wanted

_SHAPE = Keys(LEAF)
_CACHE_TYPES = ("f16", "bf16", "q8_0", "q5_1", "q4_0")
_BATCHES = tuple(16 << step for step in range(9))  # 16 to 4096
_MIN_CTX, _MAX_CTX = 256, 524288
_DEVICE = re.compile(r"([A-Za-z]+)([0-9]+)")


class KoboldCpp(Format):
    """See the module."""

    name = "koboldcpp"
    title = "KoboldCpp"
    engine = "koboldcpp"
    per_model = True
    new_text = "{}\n"

    def expresses(self) -> frozenset[str]:
        """What it has an option for."""
        return ALL_SETTINGS - {"n_parallel", "kv_unified", "split_mode", "tensor_split", "main_gpu", "op_offload",
                               "repack"}  # fmt: skip

    def fixed(self) -> Mapping[str, Value]:
        """One slot."""
        return {"n_parallel": 1}

    def file_name(self, model: OutputModel) -> str:
        """`ID.kcpps`."""
        return plain_file_name(model.id, ".kcpps")

    def _slots(self, model: OutputModel, _: frozenset[str] | None) -> dict[Slot, Value]:
        wanted = Wanted(model, self.title)
        settings = wanted.settings
        wanted.only("n_parallel", 1, "it is planned with one slot; plan with --parallel 1")
        wanted.drop("ctx-size", "n-gpu-layers", "batch-size", "ubatch-size", "flash-attn", "cache-type-k",
                    "cache-type-v", "parallel", "kv-unified", "fit", "cache-ram", "ctx-checkpoints")  # fmt: skip
        if settings.cache_type_k != settings.cache_type_v or settings.cache_type_k not in _CACHE_TYPES:
            wanted.refuse(f"K and V cache share one type of {', '.join(_CACHE_TYPES)}")
        if settings.n_batch != settings.n_ubatch or settings.n_batch not in _BATCHES:
            wanted.refuse("it has one batch size, a power of two from 16 to 4096; give -b and -ub the same")
        if not _MIN_CTX <= settings.n_ctx <= _MAX_CTX:
            wanted.refuse(f"its context is {_MIN_CTX} to {_MAX_CTX:,} tokens; choose one of that size")
        wanted.one_device()
        found: dict[str, Value] = {"model_param": model.model_path, "contextsize": settings.n_ctx}
        found["gpulayers"] = (settings.n_gpu_layers if wanted.exact else -1) if model.plan.devices else 0
        if not wanted.exact:
            found["autofit"] = True
            found["autofitpadding"] = wanted.number("fit-target")
        found.update(_device(wanted))
        found.update(
            quantkv=settings.cache_type_k, noflashattention=not model.plan.flash_attn, batchsize=settings.n_batch
        )
        threads = wanted.number("threads")
        if threads is not None and threads > 0:
            found["threads"] = threads
        found["usemmap"] = not (wanted.switch("no-mmap") or wanted.take("load-mode") == "none")
        found["usemlock"] = False
        experts = wanted.number("n-cpu-moe")
        found["moecpu"] = model.n_layer_all if wanted.switch("cpu-moe") else experts or 0
        overrides = wanted.take("override-tensor")
        if overrides is not None:
            found["overridetensors"] = overrides
        if wanted.switch("swa-full"):
            found["noswa"] = True
        if wanted.switch("no-kv-offload"):
            found["lowvram"] = True
        found.update(_beside(wanted))
        wanted.finish()
        return {(key,): value for key, value in found.items()}

    def _parse(self, text: str) -> dict[Slot, Value]:
        data = data_of(text, self.title)
        if not isinstance(data, dict):
            raise OutputError("this is no .kcpps file: it holds no object; give another file.")
        return slots_in(data, _SHAPE)

    def _edit(self, text: str, changes: Mapping[Slot, Value | Gone], spelled: Mapping[Slot, str]) -> str:
        if ("onready",) in changes:
            raise OutputError("onready is a command for a shell; advisor never writes it.")
        return edit_json(text, changes, _SHAPE, self.title, spelled)

    def _spelled(self, text: str) -> dict[Slot, str]:
        return spelled_json(text, _SHAPE, self.title)

    def validate(self, text: str) -> None:
        """Also: context, batch and cache type are ones that it takes. Raises OutputError."""
        parsed = self.parse(text)
        context = parsed.get(("contextsize",), _MIN_CTX)
        allowed = (
            isinstance(context, int) and _MIN_CTX <= context <= _MAX_CTX,
            parsed.get(("batchsize",), -1) in (-1, *_BATCHES),
            parsed.get(("quantkv",), "f16") in (*_CACHE_TYPES, 0, 1, 2),
        )
        if not all(allowed):
            raise OutputError("KoboldCpp does not take this contextsize, batchsize or quantkv; correct it.")


def _device(wanted: Wanted) -> dict[str, Value]:
    devices = wanted.model.plan.devices
    match = _DEVICE.fullmatch(devices[0].id) if devices else None
    if match is None:
        return {}
    if match[1] in ("CUDA", "ROCm"):
        return {"usecuda": [match[2]]}
    if match[1] == "Vulkan":
        return {"usevulkan": [int(match[2])]}
    if match[1] not in ("Metal", "MTL"):
        wanted.refuse(f"it has no backend for {excerpt(devices[0].id)}; plan for another device")
    return {}


def _beside(wanted: Wanted) -> dict[str, Value]:
    found: dict[str, Value] = {}
    mmproj, draft, layers = wanted.take("mmproj"), wanted.take("spec-draft-model"), wanted.take("spec-draft-ngl")
    if mmproj is not None:
        found["mmproj"] = mmproj
    if wanted.switch("no-mmproj-offload"):
        found["mmprojcpu"] = True
    if draft is not None:
        found["draftmodel"] = draft
    if layers is not None and layers.isdecimal():
        found["draftgpulayers"] = int(layers)
    return found


OUTPUT = KoboldCpp()
