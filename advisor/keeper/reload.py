"""After files were written: the running engine is told where it has a way, and what it then says is read back."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.engines.http import parse_address
from advisor.engines.reload import Reloaded, create_ollama, reload_llama_server, reload_localai
from advisor.errors import EngineError
from advisor.keeper.passes import TargetPass
from advisor.keeper.targets import Target

# what a person has to do where nobody can be told
_BY_HAND = {
    "llama-server-preset": "give the router's address as url to have it read the preset again, or restart it",
    "env-file": "restart the service that reads it",
    "llama-config-ini": "takes effect when a llama.cpp program starts",
    "llama-swap": "llama-swap reads it by itself when it runs with -watch-config; otherwise send it SIGHUP",
    "ollama": "give Ollama's address as url to have the tag made, or run 'ollama create' with the Modelfile",
    "llama-cpp-python": "restart the server",
    "koboldcpp": "start KoboldCpp with it",
    "localai": "give LocalAI's address as url to have it read the file, or restart it",
    "ramalama": "takes effect when RamaLama starts a model",
    "text-generation-webui": "restart the web UI before it saves its settings",
    "lm-studio": "takes effect when LM Studio loads the model again",
    "jan": "takes effect when Jan starts",
}


def tell_engine(target: Target, made: TargetPass, written: Sequence[str]) -> Reloaded:
    """Tell the target's engine that the files `written` changed. Raises EngineError when it does not do it."""
    if not written:
        return Reloaded("")
    if target.url is None or not target.reload or target.format not in ("llama-server-preset", "localai", "ollama"):
        return Reloaded(_BY_HAND[target.format])
    address = parse_address(target.url, allow_remote=target.allow_remote)
    if target.format == "localai":
        return reload_localai(address)
    if target.format == "llama-server-preset":
        wanted: dict[str, dict[str, str]] = {}
        for file in made.files:
            for slot, value in file.slots.items():
                if slot[1] != "model":
                    wanted.setdefault(slot[0], {})[slot[1]] = str(value)
        return reload_llama_server(address, wanted)
    texts: list[str] = []
    differs: list[str] = []
    for file in made.files:
        if file.path in written:
            from advisor.outputs.ollama import Ollama

            assert isinstance(file.output, Ollama)
            (model,) = file.models.values()
            body = file.output.create_request(model)
            done = create_ollama(address, str(body["model"]), str(body["from"]), body["parameters"])
            texts.append(done.text)
            differs += done.differs
    return Reloaded("; ".join(texts), tuple(differs))


__all__ = ["EngineError", "tell_engine"]
