"""After files were written: the running engine is told where it has a way, and what it then says is read back."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.engines.http import Address, parse_address
from advisor.engines.reload import Reloaded, create_ollama, delete_ollama, reload_llama_server, reload_localai
from advisor.keeper.changes import Applied
from advisor.keeper.passes import TargetPass
from advisor.keeper.targets import Target

# what a person has to do where nobody can be told
BY_HAND = {
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


def tell_engine(target: Target, made: TargetPass, applied: Sequence[Applied]) -> Reloaded:
    """Tell the target's engine about the files that were written. Raises EngineError when it does not do it."""
    if not any(one.written for one in applied):
        return Reloaded("")
    if target.url is None or not target.reload or target.format not in ("llama-server-preset", "localai", "ollama"):
        return Reloaded(BY_HAND[target.format])
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
    return _tell_ollama(address, made, applied)


def _tell_ollama(address: Address, made: TargetPass, applied: Sequence[Applied]) -> Reloaded:
    """Make the tags of the written Modelfiles, and remove those whose Modelfile was removed."""
    from advisor.outputs.ollama import Ollama, derived_tag

    texts: list[str] = []
    differs: list[str] = []
    by_path = {file.path: file for file in made.files}
    for one in applied:
        path, before = one.change.planned.path, one.change.planned.before
        if not one.written:
            continue
        file = by_path.get(path)
        if file is not None:
            assert isinstance(file.output, Ollama)
            (model,) = file.models.values()
            body = file.output.create_request(model)
            done = create_ollama(address, str(body["model"]), str(body["from"]), body["parameters"])
            texts.append(done.text)
            differs += done.differs
        elif before is not None:
            base = Ollama().parse(before.decode(errors="replace")).get(("FROM",))
            if isinstance(base, str):
                delete_ollama(address, derived_tag(base))
                texts.append(f"{address.shown} no longer holds {derived_tag(base)}")
    return Reloaded("; ".join(texts), tuple(differs))
