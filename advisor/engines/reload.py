"""Telling a running engine that its configuration changed, and reading back what it then says.

llama-server in router mode (b11434): `GET /models?reload=1` reads the preset again; models whose section changed are
unloaded, a preset it cannot read gives status 500 and leaves the old list. LocalAI 4.9: `POST /models/reload`.
llama-swap with -watch-config notices by itself. Ollama has no file: its tag is made through the interface itself.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from advisor.engines.http import Address, ask
from advisor.errors import EngineError
from advisor.records import NamedTuple


class TakenTagError(EngineError):
    """A tag that was to be made is there already, made by somebody else."""


Waiting = Callable[[], object]  # see advisor.engines.http.ask


class Reloaded(NamedTuple):
    """What the engine says after a reload: a sentence, and what it says otherwise than was written."""

    text: str
    differs: tuple[str, ...] = ()


def reload_llama_server(
    address: Address, wanted: Mapping[str, Mapping[str, str]], waiting: Waiting | None = None
) -> Reloaded:
    """Make a router read its preset again; `wanted` = options by model as they were written. Raises EngineError."""
    answer = ask(address, "GET", "/models?reload=1", waiting=waiting)
    if answer.status != 200:
        raise EngineError(
            f"{address.shown} refused the changed preset (status {answer.status}{_said(answer.body)}) and keeps the "
            "old one; 'advisor undo' takes the change back."
        )
    arguments = _arguments(answer.body)
    differs = []
    for model, options in wanted.items():
        if model not in arguments:
            differs.append(f"{model} is not listed; is the server started with --models-preset and this file?")
            continue
        words = arguments[model]
        for name, value in options.items():
            if words is not None and not _stands(words, name, value):
                differs.append(f"{model}: --{name} {value} is not in force; the router's own command line wins.")
    models = f"{len(arguments)} model{'' if len(arguments) == 1 else 's'}"
    return Reloaded(f"{address.shown} read the preset again and lists {models}.", tuple(differs))


def reload_localai(address: Address, waiting: Waiting | None = None) -> Reloaded:
    """Make LocalAI read its model files again. Raises EngineError."""
    answer = ask(address, "POST", "/models/reload", {}, waiting=waiting)
    if not 200 <= answer.status < 300:
        raise EngineError(f"{address.shown} did not reload (status {answer.status}{_said(answer.body)}).")
    return Reloaded(f"{address.shown} read its model files again.")


def create_ollama(
    address: Address,
    tag: str,
    base: str,
    parameters: Mapping[str, Any],
    waiting: Waiting | None = None,
    *,
    new: bool = False,
) -> Reloaded:
    """Make or renew the derived tag `tag` from `base` and read its parameters back.

    Raises EngineError, also when a `new` one is there already: then somebody else made it.
    """
    if new and ask(address, "POST", "/api/show", {"model": tag}, waiting=waiting).status == 200:
        raise TakenTagError(
            f"{address.shown} has a {tag} that advisor did not make; give it another name or remove it."
        )
    body = {"model": tag, "from": base, "parameters": dict(parameters), "stream": False}
    answer = ask(address, "POST", "/api/create", body, seconds=30.0, waiting=waiting)
    if answer.status != 200:
        raise EngineError(f"{address.shown} did not make {tag} (status {answer.status}{_said(answer.body)}).")
    shown = ask(address, "POST", "/api/show", {"model": tag}, waiting=waiting)
    lines = shown.body.get("parameters", "") if isinstance(shown.body, dict) else ""
    said = dict(line.split(None, 1) for line in str(lines).split("\n") if len(line.split(None, 1)) == 2)
    differs = [
        f"{tag}: {name} is {said.get(name, 'not set')} instead of {value}"
        for name, value in parameters.items()
        if said.get(name, "").strip() != str(value).lower()
    ]
    return Reloaded(f"{address.shown} holds {tag}", tuple(differs))


def delete_ollama(address: Address, tag: str, waiting: Waiting | None = None) -> None:
    """Remove a derived tag; one that is gone already is fine. Raises EngineError."""
    answer = ask(address, "DELETE", "/api/delete", {"model": tag}, waiting=waiting)
    if answer.status not in (200, 404):
        raise EngineError(f"{address.shown} did not remove {tag} (status {answer.status}{_said(answer.body)}).")


def _arguments(body: object) -> dict[str, list[str] | None]:
    """The command line of each listed model, None where the engine does not tell."""
    found: dict[str, list[str] | None] = {}
    data = body.get("data") if isinstance(body, dict) else None
    for entry in data if isinstance(data, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("id"), str):
            status = entry.get("status")
            words = status.get("args") if isinstance(status, dict) else None
            found[entry["id"]] = [str(word) for word in words] if isinstance(words, list) else None
    return found


def _stands(words: Sequence[str], name: str, value: str) -> bool:
    """Whether the option stands in a command line with this value; a bare option has an empty one."""
    if f"--{name}" not in words:
        return False
    if value in ("", "true"):
        return True
    at = words.index(f"--{name}") + 1
    return at < len(words) and words[at] == value


def _said(body: object) -> str:
    """The engine's own words about an error, shortened, in a form that follows a status."""
    message = body.get("error") if isinstance(body, dict) else None
    if isinstance(message, dict):
        message = message.get("message")
    return f": {message[:200]}" if isinstance(message, str) and message else ""
