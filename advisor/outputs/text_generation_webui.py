"""text-generation-webui: our values in the user's `config-user.yaml`, one map for each model file.

Format facts: text-generation-webui 4.7.3, read, not run. Its keys are regular expressions, matched in lower case
against the file's name in lower case; the program writes them unescaped, and writes the whole file anew at times.
gpu_layers of 0 and more switches llama-server's fit off. Flash attention is always on. `extra_flags` that begin with a
dash are split like a shell does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from advisor.errors import OutputError
from advisor.outputs.base import Format
from advisor.outputs.carry import check_printable
from advisor.outputs.command import quote
from advisor.outputs.option_names import known_to
from advisor.outputs.shape import LEAF, Keys, slots_in
from advisor.outputs.types import Gone, OutputModel, Slot, Value
from advisor.outputs.wanted import ALL_SETTINGS, Wanted
from advisor.outputs.yaml_text import data_of, edit_yaml, spelled_yaml

_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_META = re.compile(r"[*+?{}\[\]()|^$]")


def pattern_of(file_name: str) -> str:
    """The key of a model file: it matches whether or not the program lowers its case."""
    return re.escape(file_name.lower()) + "$"


def same_pattern(key: str) -> str:
    """Our spelling of a key that names one file: escaped or not, in any case. Other expressions are themselves."""
    body = key.removesuffix("$")
    plain = _ESCAPED.sub("", body)
    if body == key or _META.search(plain) or re.search(r"\\[A-Za-z0-9]", body):
        return key
    return pattern_of(_ESCAPED.sub(r"\1", body))


_SHAPE = Keys(Keys(LEAF), same=same_pattern)


class TextGenerationWebui(Format):
    """See the module."""

    name = "text-generation-webui"
    title = "text-generation-webui"
    shares = "merge"
    new_text = ""

    def expresses(self) -> frozenset[str]:
        """Everything: what has no key is passed on to llama-server."""
        return ALL_SETTINGS - {"flash_attn"}

    def fixed(self) -> Mapping[str, Value]:
        """Flash attention is on."""
        return {"flash_attn": "on"}

    def _slots(self, model: OutputModel, supported: frozenset[str] | None) -> dict[Slot, Value]:
        wanted = Wanted(model, self.title)
        settings = wanted.settings
        file_name = wanted.gguf_name()
        check_printable(file_name, "file name", model.id)
        if not model.plan.flash_attn:
            wanted.refuse("flash attention is always on there; plan with -fa on")
        if settings.cache_type_k != settings.cache_type_v:
            wanted.refuse("K and V cache share one type there; plan with the same for both")
        wanted.drop("ctx-size", "flash-attn", "cache-type-k", "cache-type-v", "batch-size", "ubatch-size", "parallel")
        found: dict[str, Value] = {"loader": "llama.cpp", "ctx_size": settings.n_ctx}
        if wanted.take("fit") == "on":
            found["gpu_layers"], found["fit_target"] = -1, wanted.number("fit-target")
        else:
            found["gpu_layers"] = wanted.number("n-gpu-layers") or 0
        found["cache_type"] = settings.cache_type_k
        found["batch_size"], found["ubatch_size"] = settings.n_batch, settings.n_ubatch
        found["parallel"] = settings.n_parallel
        threads = wanted.number("threads")
        if threads is not None and threads > 0:
            found["threads"] = threads
        if wanted.switch("no-mmap") or wanted.take("load-mode") == "none":
            found["no_mmap"] = True
        if wanted.switch("cpu-moe"):
            found["cpu_moe"] = True
        for name, key in (("tensor-split", "tensor_split"), ("split-mode", "split_mode"), ("mmproj", "mmproj"),
                          ("spec-draft-model", "model_draft"), ("spec-type", "spec_type")):  # fmt: skip
            value = wanted.take(name)
            if value is not None:
                found[key] = value
        words = []
        for name, value in known_to(wanted.rest(), supported, model.id):
            check_printable(value, name, model.id)
            words += [f"--{name}", *([quote(value)] if value else [])]
        if words:
            found["extra_flags"] = " ".join(words)
        return {(pattern_of(file_name), key): value for key, value in found.items()}

    def _parse(self, text: str) -> dict[Slot, Value]:
        data = data_of(text, self.title)
        if not isinstance(data, dict):
            raise OutputError("this is no config-user.yaml: it holds no map; give another file.")
        return slots_in(data, _SHAPE)

    def _edit(self, text: str, changes: Mapping[Slot, Value | Gone], spelled: Mapping[Slot, str]) -> str:
        return edit_yaml(text, changes, _SHAPE, self.title, spelled)

    def _spelled(self, text: str) -> dict[Slot, str]:
        return spelled_yaml(text, _SHAPE, self.title)

    def validate(self, text: str) -> None:
        """Also: every key is a regular expression. Raises OutputError."""
        for key in {slot[0] for slot in self.parse(text)}:
            try:
                re.compile(key)
            except (re.error, RecursionError, OverflowError):
                raise OutputError(f"'{key[:80]!a}' is no regular expression; correct it.") from None


OUTPUT = TextGenerationWebui()
