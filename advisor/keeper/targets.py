"""One target of the configuration as an output with everything around it that its format has to know."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from advisor.errors import OutputError
from advisor.gguf_header.errors import printable
from advisor.outputs import registry
from advisor.outputs.types import Output, OutputModel
from advisor.records import NamedTuple
from advisor.regular import read_regular

if TYPE_CHECKING:
    from advisor.outputs.llama_swap import Beside
    from advisor.outputs.ollama import Service

_MAX_CONFIG_BYTES = 4 << 20


class Target(NamedTuple):
    """Where to write what. `path` is a file, or for formats with a file per model their folder."""

    name: str
    format: str
    path: str
    enabled: bool = False
    mode: str = "exact"  # "exact" | "safe"
    models: tuple[str, ...] = ("*",)  # patterns of names
    engine: str | None = None  # NAME[@BUILD]; None = the format's own
    binary: str | None = None  # the llama-server whose --help decides about keys
    url: str | None = None  # where the running engine listens
    allow_remote: bool = False
    reload: bool = True

    def file_of(self, output: Output, model: OutputModel) -> str:
        """The file that holds `model`. Raises OutputError where its name makes none."""
        return os.path.join(self.path, output.file_name(model)) if output.per_model else self.path


def output_of(target: Target, environ: Mapping[str, str]) -> Output:
    """The target's output. Raises OutputError for an unknown format, and for files of the user's it cannot read."""
    output = registry.load(target.format)
    if target.format == "llama-swap":
        from advisor.outputs.llama_swap import LlamaSwap

        return LlamaSwap(target.binary or "llama-server", _beside(target))
    if target.format == "localai":
        from advisor.outputs.localai import LocalAI

        return LocalAI(target.path)
    if target.format == "ollama":
        from advisor.outputs.ollama import Ollama

        return Ollama(_ollama_service(environ))
    return output


def files_beside(target: Target) -> list[str]:
    """The user's own files that decide what may stand in the target's. Raises OutputError."""
    if target.format != "llama-swap":
        return []
    folder = os.path.dirname(target.path)
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise OutputError(f"{printable(folder)} cannot be listed ({error.strerror}); make it readable.") from None
    others = (os.path.join(folder, name) for name in names if name.endswith((".yml", ".yaml")))
    return [other for other in others if os.path.realpath(other) != os.path.realpath(target.path)]


def _beside(target: Target) -> Beside:
    """What the other files of llama-swap's config folder hold: an id in two files stops it."""
    from advisor.outputs.llama_swap import Beside

    found = Beside()
    for other in files_beside(target):
        try:
            text = read_regular(other, _MAX_CONFIG_BYTES)[0].decode()
        except (OSError, UnicodeDecodeError):
            raise OutputError(
                f"{printable(other)} cannot be read, and its model ids must not be used twice; make it readable."
            ) from None
        try:
            found = found.and_in(text)
        except OutputError as error:
            raise OutputError(f"{printable(other)}: {error}") from None
    return found


def _ollama_service(environ: Mapping[str, str]) -> Service:
    """What Ollama's service runs with, as far as this process can see: its own variables."""
    from advisor.outputs.ollama import Service

    slots = environ.get("OLLAMA_NUM_PARALLEL", "")
    kind = environ.get("OLLAMA_KV_CACHE_TYPE") or "f16"
    cache_ram = environ.get("LLAMA_ARG_CACHE_RAM", "")
    return Service(
        kind,
        int(slots) if slots.isdecimal() and 0 < int(slots) <= 256 else 1,
        int(cache_ram) if cache_ram.isdecimal() else None,
    )
