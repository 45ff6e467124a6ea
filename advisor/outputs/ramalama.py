"""RamaLama: a drop-in of our own in ramalama.conf.d. Its settings hold for every model.

Format facts: RamaLama 0.24.0, read, not run: `[ramalama]` ctx_size and threads, `[ramalama.runtimes.llama_cpp]` ngl and
ncmoe. Slots, cache types and batches cannot be said; they are llama-server's defaults.
"""

from __future__ import annotations

from collections.abc import Mapping

from advisor.errors import OutputError
from advisor.gguf_header.errors import excerpt
from advisor.outputs.base import Format
from advisor.outputs.line_text import edit_lines, spelled_lines
from advisor.outputs.toml_text import GRAMMAR, data_of, leaves
from advisor.outputs.types import Gone, OutputModel, Slot, Value
from advisor.outputs.wanted import Wanted

_LAYERS = ("ramalama", "runtimes", "llama_cpp", "ngl")
_EXPERTS = ("ramalama", "runtimes", "llama_cpp", "ncmoe")
_DEFAULTS = {"cache_type_k": "f16", "cache_type_v": "f16", "n_ubatch": 512, "n_parallel": 4, "kv_unified": True}


class RamaLama(Format):
    """See the module."""

    name = "ramalama"
    title = "RamaLama"
    new_text = "# managed by advisor; edits are detected and kept\n"

    def expresses(self) -> frozenset[str]:
        """What it has a setting for."""
        return frozenset(("n_ctx", "n_threads", "n_gpu_layers", "n_cpu_moe"))

    def fixed(self) -> Mapping[str, Value]:
        """llama-server's defaults."""
        return dict(_DEFAULTS)

    def together(self, own: Mapping[str, Mapping[Slot, Value]]) -> dict[Slot, Value]:
        """The values that hold for all models. Raises OutputError for the first model that needs other ones."""
        found: dict[Slot, Value] = {}
        for model_id, each in own.items():
            if found and each != found:
                raise OutputError(
                    f"{excerpt(model_id)}: RamaLama's settings hold for every model, and this one needs other ones "
                    f"than {excerpt(next(iter(own)))}; give one model."
                )
            found = dict(each)
        return found

    def _slots(self, model: OutputModel, _: frozenset[str] | None) -> dict[Slot, Value]:
        wanted = Wanted(model, self.title)
        for setting, default in _DEFAULTS.items():
            wanted.only(setting, default, f"{setting} is always {default} there; plan with that")
        wanted.only("n_batch", min(2048, wanted.settings.n_ctx), "its batch is always 2048; plan with that")
        if not wanted.exact:
            wanted.refuse("it cannot leave the layers to the engine; choose the exact mode")
        wanted.one_device()
        wanted.drop(
            "ctx-size", "flash-attn", "parallel", "kv-unified", "batch-size", "fit", "cache-ram", "ctx-checkpoints"
        )
        if dict(model.options).get("flash-attn") == "off":
            wanted.refuse("flash attention cannot be switched off there; plan with -fa auto")
        found: dict[Slot, Value] = {("ramalama", "ctx_size"): wanted.settings.n_ctx}
        threads = wanted.number("threads")
        if threads is not None and threads > 0:
            found["ramalama", "threads"] = threads
        found[_LAYERS] = wanted.number("n-gpu-layers") or 0
        experts = wanted.number("n-cpu-moe")
        found[_EXPERTS] = model.n_layer_all if wanted.switch("cpu-moe") else experts or 0
        wanted.finish()
        return found

    def _parse(self, text: str) -> dict[Slot, Value]:
        return leaves(data_of(text, self.title))

    def _edit(self, text: str, changes: Mapping[Slot, Value | Gone], spelled: Mapping[Slot, str]) -> str:
        return edit_lines(text, changes, GRAMMAR, spelled)

    def _spelled(self, text: str) -> dict[Slot, str]:
        return spelled_lines(text, GRAMMAR)


OUTPUT = RamaLama()
