"""After files were written: the running engine is told where it has a way, and what it then says is read back."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from advisor.engines.http import Address, parse_address
from advisor.engines.reload import (
    Reloaded,
    TakenTagError,
    create_ollama,
    delete_ollama,
    reload_llama_server,
    reload_localai,
)
from advisor.errors import EngineError
from advisor.keeper.changes import Applied
from advisor.keeper.passes import TargetPass
from advisor.keeper.targets import Target
from advisor.managed.change import Pinned
from advisor.managed.records import FileRecord
from advisor.outputs.ollama import derived_tag
from advisor.slots import GONE, Value

NEW = "?"  # owed: a tag that advisor has not made yet, and that must not be there
# what a person has to do where nobody can be told
BY_HAND = {
    "llama-server-preset": "restart the router, or set its url in the configuration so that it is told.",
    "env-file": "restart the service that reads the file.",
    "llama-config-ini": "this counts when a llama.cpp program starts.",
    "llama-swap": "with -watch-config llama-swap reads it by itself; otherwise send it SIGHUP.",
    "ollama": "run 'ollama create' with the Modelfile, or set Ollama's url in the configuration so that it is told.",
    "llama-cpp-python": "restart the server.",
    "koboldcpp": "start KoboldCpp with the file.",
    "localai": "restart LocalAI, or set its url in the configuration so that it is told.",
    "ramalama": "this counts when RamaLama starts a model.",
    "text-generation-webui": "restart the web UI before it saves its settings.",
    "lm-studio": "this counts when LM Studio loads the model again.",
    "jan": "this counts when Jan starts.",
}


def tell_engine(
    target: Target,
    made: TargetPass,
    applied: Sequence[Applied],
    owed: dict[str, str],
    progress: Callable[[], object] = lambda: None,
) -> Reloaded:
    """Tell the target's engine about what is owed to it, and take that out of `owed` (see `Seen`).

    Raises EngineError when it does not do it.
    """
    if target.url is None or not target.reload or target.format not in ("llama-server-preset", "localai", "ollama"):
        gone = [tag for tag in owed.values() if tag not in ("", NEW)]
        texts = [f"run 'ollama rm {' '.join(gone)}'."] if gone else []
        if any(one.written and one.change.planned.after is not None for one in applied):
            texts.append(BY_HAND[target.format])
        owed.clear()
        return Reloaded(" ".join(texts))
    if not owed:
        return Reloaded("")
    progress()
    address = parse_address(target.url, allow_remote=target.allow_remote)
    if target.format == "ollama":
        return _tell_ollama(address, made, applied, owed, progress)
    if target.format == "localai":
        done = reload_localai(address, progress)
    else:
        wanted: dict[str, dict[str, str]] = {}
        for file in made.files:
            for slot, value in file.slots.items():
                if slot[1] != "model":
                    wanted.setdefault(slot[0], {})[slot[1]] = str(value)
        for pin in (pin for one in applied for pin in one.change.planned.pinned):
            wanted.get(pin.slot[0], {}).pop(pin.slot[-1], None)
        done = reload_llama_server(address, wanted, progress)
    owed.clear()
    return done


def owed_for(one: Applied) -> str:
    """What is owed to the engine after a file was written, as `Seen.owed` has it."""
    planned = one.change.planned
    if one.change.models:
        ollama = planned.format is not None and planned.format.name == "ollama"
        return NEW if ollama and planned.known is None else ""
    return "" if planned.known is None else tag_of(planned.known)


def tag_of(record: FileRecord) -> str:
    """The tag in Ollama that belongs to a Modelfile, "" for other files."""
    base = record.wrote.get(("FROM",)) if record.format == "ollama" else None
    return derived_tag(base.value) if base is not None and isinstance(base.value, str) else ""


def _tell_ollama(
    address: Address,
    made: TargetPass,
    applied: Sequence[Applied],
    owed: dict[str, str],
    progress: Callable[[], object],
) -> Reloaded:
    """Make the tags of Modelfiles, and remove those whose Modelfile was removed."""
    texts: list[str] = []
    differs: list[str] = []
    refused: list[str] = []
    by_path = {file.path: file for file in made.files}
    pinned = {one.change.planned.path: one.change.planned.pinned for one in applied}
    for path, tag in list(owed.items()):
        progress()
        file = by_path.get(path)
        if tag not in ("", NEW):
            delete_ollama(address, tag, progress)
            texts.append(f"{address.shown} no longer holds {tag}")
        elif file is not None:
            body = file.request
            assert body is not None
            parameters = _with_pins(body["parameters"], pinned.get(path, ()))
            try:
                done = create_ollama(
                    address, str(body["model"]), str(body["from"]), parameters, progress, new=tag == NEW
                )
            except TakenTagError as error:  # the others are made all the same
                refused.append(str(error))
                continue
            texts.append(done.text)
            differs += done.differs
        del owed[path]
    if refused:
        raise EngineError(" ".join(refused))
    return Reloaded("; ".join(texts), tuple(differs))


def _with_pins(parameters: Mapping[str, Value], pinned: Sequence[Pinned]) -> dict[str, Value]:
    """The parameters of a tag with those that the user changed in its Modelfile."""
    found = dict(parameters)
    for pin in pinned:
        if pin.slot[0] != "PARAMETER" or pin.slot[-1] not in found:
            continue
        if pin.theirs is GONE:
            del found[pin.slot[-1]]
        elif isinstance(pin.theirs, str):
            text = pin.theirs.strip()
            is_number = re.fullmatch(r"-?[0-9]{1,18}", text) is not None
            found[pin.slot[-1]] = int(text) if is_number else {"true": True, "false": False}.get(text, text)
    return found
