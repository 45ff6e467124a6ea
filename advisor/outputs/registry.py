"""The outputs by name; a module is imported when its output is asked for."""

from __future__ import annotations

import importlib
import sys

from advisor.errors import OutputError
from advisor.gguf_header.errors import excerpt
from advisor.outputs.base import forget_parsed
from advisor.outputs.types import Output

OUTPUTS = {
    "llama-server-preset": "advisor.outputs.llama_server_preset",
    "env-file": "advisor.outputs.env_file",
    "llama-config-ini": "advisor.outputs.llama_config_ini",
    "llama-swap": "advisor.outputs.llama_swap",
    "ollama": "advisor.outputs.ollama",
    "llama-cpp-python": "advisor.outputs.llama_cpp_python",
    "koboldcpp": "advisor.outputs.koboldcpp",
    "localai": "advisor.outputs.localai",
    "ramalama": "advisor.outputs.ramalama",
    "text-generation-webui": "advisor.outputs.text_generation_webui",
    "lm-studio": "advisor.outputs.lm_studio",
    "jan": "advisor.outputs.jan",
}


def forget_texts() -> None:
    """Let go of the texts that were parsed last; between two passes of the daemon nobody asks for them."""
    forget_parsed()
    nodes = sys.modules.get("advisor.outputs.yaml_nodes")
    if nodes is not None:
        nodes.document.cache_clear()
        nodes.piece.cache_clear()


def load(name: str) -> Output:
    """The output of that name. Raises OutputError for an unknown one."""
    module = OUTPUTS.get(name)
    if module is None:
        raise OutputError(f"'{excerpt(name)}' is no config format; choose one of {', '.join(OUTPUTS)}.")
    output: Output = importlib.import_module(module).OUTPUT
    return output
