"""Ollama: a derived tag of a model (POST /api/create, or a Modelfile), and what only the whole service can be told.

Format facts: Ollama 0.33.0-rc2, read, not run. It runs llama-server with -c num_ctx * slots, -b and -ub both num_batch,
-ngl num_gpu (its own fit without), -t num_thread; cache type (one for K and V), flash attention and slots come from
the service's variables. A derived tag shares the layers of its base; FROM with a path would copy the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from advisor.errors import OutputError
from advisor.gguf_header.errors import excerpt
from advisor.memory.types import MemoryPlan
from advisor.outputs.base import Format
from advisor.outputs.carry import plain_file_name
from advisor.outputs.line_text import edit_lines, spelled_lines
from advisor.outputs.modelfile_text import GRAMMAR
from advisor.outputs.types import Gone, OutputModel, Slot, Value
from advisor.outputs.wanted import Wanted
from advisor.records import NamedTuple

SUFFIX = "-advisor"
# Ollama runs these with one slot, whatever the service says (server/sched.go)
_ONE_SLOT = ("mllama", "qwen3vl", "qwen35", "qwen3next", "lfm2", "nemotron_h")
_NAME = re.compile(r"[A-Za-z0-9._/-]+(?::[A-Za-z0-9._-]+)?")


class Service(NamedTuple):
    """What the service is told by its variables, for all models alike."""

    kv_cache_type: str = "f16"
    num_parallel: int = 1
    cache_ram_mib: int | None = None


def in_ollamas_words(plan: MemoryPlan) -> str:
    """The settings of a plan as Ollama spells them: parameters of the model, variables of the service."""
    settings = plan.settings
    own = {
        "num_ctx": settings.n_ctx // settings.n_parallel,
        "num_gpu": settings.n_gpu_layers if plan.devices else 0,
        "num_batch": settings.n_batch,
    }
    service = {"OLLAMA_NUM_PARALLEL": str(settings.n_parallel)}
    if settings.cache_type_k != "f16" or settings.cache_type_v != "f16":
        service = {"OLLAMA_FLASH_ATTENTION": "1", "OLLAMA_KV_CACHE_TYPE": settings.cache_type_k, **service}
    if not settings.beside.mmproj_offload:  # llama-server inherits the service's variables
        service["LLAMA_ARG_MMPROJ_OFFLOAD"] = "false"
    words = (", ".join(f"{name} {value}" for name, value in own.items()),
             ", ".join(f"{name}={value}" for name, value in service.items()))  # fmt: skip
    return f"In Ollama: {words[0]}; for the service {words[1]}."


def derived_tag(base: str) -> str:
    """The tag that advisor makes of the model `base`."""
    return base + SUFFIX if ":" in base else f"{base}:latest{SUFFIX}"


class Ollama(Format):
    """The Modelfile of one model; `service`: what the service runs with."""

    name = "ollama"
    title = "Ollama"
    engine = "ollama"
    per_model = True
    new_text = "# managed by advisor; edits are detected and kept\n"

    def __init__(self, service: Service = Service()) -> None:  # noqa: B008 - a value
        self._service = service

    def with_service(self, service: Service) -> Ollama:
        """The same for a service with other variables."""
        return Ollama(service)

    def expresses(self) -> frozenset[str]:
        """What a model's parameters can say; the service's variables are in `fixed`."""
        return frozenset(
            ("n_ctx", "n_batch", "n_ubatch", "n_gpu_layers", "n_threads", "mmap", "main_gpu", "split_mode")
        )

    def fixed(self) -> Mapping[str, Value]:
        """What the service decides for all models."""
        kind, slots = self._service.kv_cache_type, self._service.num_parallel
        return {"cache_type_k": kind, "cache_type_v": kind, "n_parallel": slots, "kv_unified": False}

    def file_name(self, model: OutputModel) -> str:
        """`ID.Modelfile`."""
        return plain_file_name(model.id, ".Modelfile")

    def parameters(self, model: OutputModel) -> dict[str, Value]:
        """The parameters of the derived tag, as /api/create takes them. Raises OutputError."""
        wanted = Wanted(model, self.title)
        settings = wanted.settings
        self._check_service(wanted)
        if settings.n_batch != settings.n_ubatch:
            wanted.refuse("its num_batch is both batch and micro-batch; give -b and -ub the same")
        wanted.drop("ctx-size", "flash-attn", "cache-type-k", "cache-type-v", "batch-size", "ubatch-size", "parallel",
                    "kv-unified", "fit", "fit-target", "cache-ram", "ctx-checkpoints", "mmproj",
                    "embeddings")  # fmt: skip
        found: dict[str, Value] = {"num_ctx": settings.n_ctx // settings.n_parallel}
        layers = wanted.number("n-gpu-layers")
        if wanted.exact:
            found["num_gpu"] = layers or 0
        found["num_batch"] = settings.n_batch
        threads = wanted.number("threads")
        if threads is not None and threads > 0:
            found["num_thread"] = threads
        if wanted.switch("no-mmap") or wanted.take("load-mode") == "none":
            found["use_mmap"] = False
        mode, main = wanted.take("split-mode"), wanted.number("main-gpu")
        if mode not in (None, "none") or (mode is None and main is not None):
            wanted.refuse("it splits over GPUs by layers, or takes the one named by main_gpu; plan with one of the two")
        if mode == "none":
            found["main_gpu"] = main or 0
        if not model.plan.devices:
            wanted.drop("device")
        wanted.finish()
        return found

    def _check_service(self, wanted: Wanted) -> None:
        settings, service = wanted.settings, self._service
        kind = service.kv_cache_type
        if (settings.cache_type_k, settings.cache_type_v) != (kind, kind):
            wanted.refuse(f"the service's cache type is {excerpt(kind)} for every model; plan with that, or change it")
        one_slot = wanted.model.architecture.replace("-", "_").startswith(_ONE_SLOT)
        slots = 1 if one_slot or wanted.take("embeddings") is not None else service.num_parallel
        if settings.n_parallel != slots:
            wanted.refuse(f"it runs this model with {slots} slot(s); plan with --parallel {slots}")
        if settings.kv_unified and slots > 1:
            wanted.refuse("each of its slots has its own cache; plan with --no-kv-unified")
        if dict(wanted.model.options).get("flash-attn") == "off":
            wanted.refuse("flash attention is a matter of the whole service; plan with -fa auto")

    def base_name(self, model: OutputModel) -> str:
        """The model that the tag derives from. Raises OutputError for one that is not in Ollama's store."""
        name = model.store_name or ""
        if not _NAME.fullmatch(name) or name.startswith(("/", ".", "-")):
            raise OutputError(
                f"{excerpt(model.id)}: Ollama would copy a model that is not in its own store; "
                f"pull it with Ollama first."
            )
        return name

    def tag(self, model: OutputModel) -> str:
        """The derived tag, one of our own: pulling the base again leaves it alone."""
        return derived_tag(self.base_name(model))

    def create_request(self, model: OutputModel) -> dict[str, Value]:
        """The body of POST /api/create. Raises OutputError."""
        parameters = self.parameters(model)
        return {"model": self.tag(model), "from": self.base_name(model), "parameters": parameters, "stream": False}

    def _slots(self, model: OutputModel, _: frozenset[str] | None) -> dict[Slot, Value]:
        found: dict[Slot, Value] = {("FROM",): self.base_name(model)}
        for name, value in self.parameters(model).items():
            found["PARAMETER", name] = str(value).lower()
        return found

    def _parse(self, text: str) -> dict[Slot, Value]:
        return {slot: row.value for slot, row in GRAMMAR.winners(GRAMMAR.scan(text)).items()}

    def _edit(self, text: str, changes: Mapping[Slot, Value | Gone], spelled: Mapping[Slot, str]) -> str:
        return edit_lines(text, changes, GRAMMAR, spelled)

    def _spelled(self, text: str) -> dict[Slot, str]:
        return spelled_lines(text, GRAMMAR)

    def validate(self, text: str) -> None:
        """Also: it has a FROM. Raises OutputError."""
        if ("FROM",) not in self.parse(text):
            raise OutputError("a Modelfile needs a FROM line; give it one.")


OUTPUT = Ollama()
