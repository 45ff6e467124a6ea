"""The drop-in for Ollama's system service, which belongs to root: a text, and the commands that install it."""

from __future__ import annotations

from advisor.errors import OutputError
from advisor.ggml_types import CACHE_TYPES
from advisor.gguf_header.errors import excerpt
from advisor.outputs.command import quote
from advisor.outputs.ollama import Service

DROP_IN = "/etc/systemd/system/ollama.service.d/50-advisor.conf"


def drop_in_text(service: Service) -> str:
    """The unit's drop-in with what holds for all models. Raises OutputError for a cache type that does not exist.

    A cache type other than f16 needs flash attention. Ollama passes its environment on to llama-server, from which
    LLAMA_ARG_CACHE_RAM comes.
    """
    if service.kv_cache_type not in CACHE_TYPES:
        raise OutputError(
            f"'{excerpt(service.kv_cache_type)}' is no cache type; choose one of {', '.join(CACHE_TYPES)}."
        )
    lines = ["# managed by advisor; edits are detected and kept", "[Service]"]
    if service.kv_cache_type != "f16":
        lines += ["Environment=OLLAMA_FLASH_ATTENTION=1", f"Environment=OLLAMA_KV_CACHE_TYPE={service.kv_cache_type}"]
    lines.append(f"Environment=OLLAMA_NUM_PARALLEL={service.num_parallel}")
    if service.cache_ram_mib is not None:
        lines.append(f"Environment=LLAMA_ARG_CACHE_RAM={service.cache_ram_mib}")
    return "\n".join(lines) + "\n"


def install_commands(path: str) -> list[str]:
    """What root runs to install the drop-in that was written to `path`."""
    return [
        f"sudo install -D -m 644 {quote(path)} {DROP_IN}",
        "sudo systemctl daemon-reload",
        "sudo systemctl restart ollama",
    ]
