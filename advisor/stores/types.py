"""What a look into the stores gives: models with their files, and how each store went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.records import NamedTuple

STORES = ("folder", "ollama", "huggingface", "lmstudio", "jan", "gpt4all", "llama-cache", "textgen")


class FileIdentity(NamedTuple):
    """What tells a file from its successor under the same name."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int


class Companion(NamedTuple):
    """A file beside a model. `kind`: "mmproj" | "draft" | "adapter" | "imatrix"."""

    kind: str
    path: str


class Facts(NamedTuple):
    """What a model's headers say, all parts together. Text comes from the file: clean it before printing.

    `kind` is a key of advisor.model.kinds.KIND_TEXT; `n_ctx_train` is 0 where the file does not say.
    """

    kind: str
    architecture: str
    title: str  # general.name
    quantization: str
    n_ctx_train: int
    weights_bytes: int


class SeenAs(NamedTuple):
    """Another way to the same file."""

    store: str
    name: str
    path: str


class StoredModel(NamedTuple):
    """One model (or another GGUF, see `facts.kind`) of one store.

    `store` is one of STORES. `name` is what a person or an engine calls it: `name:tag` of Ollama, `org/repo:QUANT` of
    the Hugging Face cache, otherwise the path below the store's folder without `.gguf`. `path` is the file to give to
    an engine: of a split model its first part, of the Hugging Face cache the link in the snapshot; "" where there is
    none. `problem` is None or one sentence: then the model must be neither estimated nor written into a config.
    `facts` is None until the headers were read, and where there is a problem.
    """

    store: str
    name: str
    path: str
    paths: tuple[str, ...]
    file_bytes: int
    identity: tuple[FileIdentity, ...]  # of each of `paths` that is there
    companions: tuple[Companion, ...] = ()
    params: Mapping[str, Any] = {}
    problem: str | None = None
    facts: Facts | None = None
    also: tuple[SeenAs, ...] = ()

    @property
    def kind(self) -> str:
        """`facts.kind`; "" where nothing is known."""
        return self.facts.kind if self.facts is not None else ""


class StoreReport(NamedTuple):
    """How the look into one folder of one store went.

    `status`: "ok", "absent" (no such folder), "unreadable" (permissions), "failed" (anything else). `detail` is a
    sentence for people: the reason, or what was left out; "" where there is nothing to say.
    """

    store: str
    folder: str
    status: str
    detail: str
    models: tuple[StoredModel, ...]
