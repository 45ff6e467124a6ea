"""Where the engine's programs are: the one that is named, PATH, Ollama's library folders."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from advisor.errors import EngineError
from advisor.records import NamedTuple

BINDINGS = "bindings"  # the kind, and the word that names them for --engine-binary
_SERVERS = ("llama-server", "llama-server-vulkan", "llama-server-cuda", "llama-server-rocm")
_FIT_PARAMS = ("llama-fit-params",)
_SUFFIXES = ("", ".exe")
_OLLAMA_FOLDERS = ("/usr/local/lib/ollama", "/usr/lib/ollama", "/opt/ollama/lib/ollama",
                   "/Applications/Ollama.app/Contents/Resources")  # fmt: skip


class EngineBinary(NamedTuple):
    """What can be asked: a program of llama.cpp, or this Python where llama-cpp-python is installed."""

    path: str
    kind: str  # "server" | "fit-params" | BINDINGS
    origin: str  # "given" | "PATH" | "Ollama" | "Python"


def find_engines(given: str | None, environ: Mapping[str, str]) -> tuple[EngineBinary, ...]:
    """Programs that can be asked, the best first. Raises EngineError when the given one is none, or none is there."""
    if given == BINDINGS:
        bindings = _bindings()
        if bindings is None:
            raise EngineError("llama-cpp-python is not installed beside advisor; pip install 'gguf-advisor[engine]'.")
        return (bindings,)
    if given is not None:
        return (_given(given),)
    path = [folder for folder in environ.get("PATH", "").split(os.pathsep) if folder]
    found = [EngineBinary(file, "server", "PATH") for file in _programs(path, _SERVERS)]
    found += [EngineBinary(file, "fit-params", "PATH") for file in _programs(path, _FIT_PARAMS)]
    found += [EngineBinary(file, "server", "Ollama") for file in _programs(_ollama_folders(path, environ), _SERVERS)]
    bindings = _bindings()
    if bindings is not None:
        found.append(bindings)
    if not found:
        raise EngineError(
            "no llama.cpp engine was found on PATH, in Ollama's folders or beside advisor in Python; give one with "
            "--engine-binary /path/to/llama-server."
        )
    return tuple(found)


def _bindings() -> EngineBinary | None:
    from importlib.util import find_spec

    if not sys.executable or find_spec("llama_cpp") is None:
        return None
    return EngineBinary(sys.executable, BINDINGS, "Python")


def kind_of_program(path: str) -> str:
    """What a program of this name is taken for."""
    return "fit-params" if "fit-params" in os.path.basename(path) else "server"


def _given(path: str) -> EngineBinary:
    if os.path.isdir(path):
        programs = _programs([path], (*_SERVERS, *_FIT_PARAMS))
        if not programs:
            raise EngineError(f"{path} holds no llama-server; give the program itself with --engine-binary.")
        path = programs[0]
    if not os.path.exists(path):
        raise EngineError(f"{path} does not exist; give an existing llama-server with --engine-binary.")
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        raise EngineError(f"{path} is not a program that can be run; give a llama-server with --engine-binary.")
    return EngineBinary(os.path.abspath(path), kind_of_program(path), "given")


def _programs(folders: list[str], names: tuple[str, ...]) -> list[str]:
    found = []
    for name in names:
        for folder in folders:
            for suffix in _SUFFIXES if sys.platform == "win32" else ("",):
                file = os.path.join(folder, name + suffix)
                if os.path.isfile(file) and os.access(file, os.X_OK) and file not in found:
                    found.append(file)
    return found


def _ollama_folders(path: list[str], environ: Mapping[str, str]) -> list[str]:
    """Ollama ships llama-server in lib/ollama beside its bin folder."""
    folders = [folder for folder in environ.get("OLLAMA_LIBRARY_PATH", "").split(os.pathsep) if folder]
    for folder in path:
        program = os.path.join(folder, "ollama")
        if os.path.isfile(program):
            prefix = os.path.dirname(os.path.dirname(os.path.realpath(program)))
            folders.append(os.path.join(prefix, "lib", "ollama"))
    return [*folders, *_OLLAMA_FOLDERS]
