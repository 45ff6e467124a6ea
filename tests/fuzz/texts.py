"""Targets: what engines, stores and people write, as the readers get it: logs, answers, manifests, configuration."""

from __future__ import annotations

import functools
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from advisor import rule_folders
from advisor.app import App, check
from advisor.configuration.edit import set_key, unset_key
from advisor.configuration.read import load_configuration
from advisor.engines import dry_run, reload
from advisor.engines.find import EngineBinary
from advisor.engines.http import Address, Answer, parse_address
from advisor.engines.load_log import MAX_ITEMS, MAX_LOADS, parse_load_log, totals
from advisor.engines.process import Ran
from advisor.hardware.engine_list import parse_device_list
from advisor.hardware.snapshot_file import from_json, to_json
from advisor.outputs.help_options import options_of_help
from advisor.rulebook import RuleDocument
from advisor.settings import RequestedSettings
from advisor.stores import jan, ollama
from tests.fuzz.laws import Choices, hold, judged, plain

_HERE = Address("127.0.0.1", 1, False, "")
_BINARY = EngineBinary("/bin/llama-server", "server", "given")
_FIT = EngineBinary("/bin/llama-fit-params", "fit-params", "given")
_BLOB = "a" * 64


def log(data: bytes) -> None:
    """A log: nothing is raised for any line, whatever it holds."""
    found = parse_load_log(data.decode("utf-8", "replace").split("\n"))
    hold(len(found.loads) <= MAX_LOADS and len(found.tables) <= MAX_LOADS, "bounded", len(found.loads))
    for load in found.loads:
        for context in load.contexts:
            hold(len(context.buffers) <= MAX_ITEMS, "bounded", len(context.buffers))
            hold(all(n_bytes >= 0 for n_bytes, _ in totals(context.buffers).values()), "sizes", context.buffers)
    hold(found.last is None or found.last in found.loads, "the load that counts", found.last)


def engine_output(data: bytes) -> None:
    """What a program prints that is asked for its memory; the first byte says which program and how it ended."""
    choices = Choices(data)
    binary = choices.pick((_BINARY, _FIT))
    ended, status = choices.pick((("enough", None), ("status", 0), ("status", 1), ("time", None), ("size", None)))
    text = choices.rest().decode("utf-8", "replace")
    options_of_help(text)
    parse_device_list(text)
    before = dry_run.run_until
    dry_run.run_until = lambda *_: Ran(text, status, ended, 0.1)  # type: ignore[assignment]
    try:
        judged(lambda: dry_run.ask_engine((binary,), "/m.gguf", RequestedSettings(n_ctx=512), {}))
    finally:
        dry_run.run_until = before


def http_answer(data: bytes) -> None:
    """The JSON of an engine that was told to reload."""
    choices = Choices(data)
    status, act = choices.pick((200, 500, 404, 0)), choices.number(5)
    try:
        body = json.loads(choices.rest())
    except (ValueError, RecursionError):
        body = None
    before = reload.ask
    reload.ask = lambda *_, **__: Answer(status, body)  # type: ignore[assignment]
    try:
        if act == 0:
            judged(lambda: reload.reload_llama_server(_HERE, {"a": {"ctx-size": "1"}, "b": {"fit": ""}}))
        elif act == 1:
            judged(lambda: reload.reload_localai(_HERE))
        elif act == 2:
            judged(lambda: reload.create_ollama(_HERE, "t", "b", {"num_ctx": 4096}, new=True))
        elif act == 3:
            judged(lambda: reload.delete_ollama(_HERE, "t"))
    finally:
        reload.ask = before


def address(data: bytes) -> None:
    """The address of an engine; without permission never another machine's."""
    text = data.decode("utf-8", "surrogateescape")
    found = judged(lambda: parse_address(text))
    hold(found is None or found.host.lower() == "localhost" or found.host.startswith("127.") or ":" in found.host,
         "loopback", found)  # fmt: skip


@functools.cache
def _store() -> Path:
    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="advisor-fuzz-", dir=shared if shared.is_dir() else None))
    (folder / "manifests/registry.ollama.ai/library/m").mkdir(parents=True)
    (folder / "blobs").mkdir()
    (folder / f"blobs/sha256-{_BLOB}").write_bytes(b"{}")
    (folder / "llamacpp/models/m").mkdir(parents=True)
    return folder


def manifest(data: bytes) -> None:
    """A manifest of Ollama's: no path that it names lies outside the blobs."""
    store = _store()
    path = store / "manifests/registry.ollama.ai/library/m/latest"
    path.write_bytes(data)
    report = ollama.list_models(str(store))
    hold(report.status == "ok" and len(report.models) == 1, "listed", report)
    places = [*report.models[0].paths, *(companion.path for companion in report.models[0].companions)]
    hold(all(os.path.dirname(place) == str(store / "blobs") for place in places if place), "outside", places)
    hold((report.models[0].problem or "x").isprintable(), "printable", report.models[0].problem)


def jan_model(data: bytes) -> None:
    """A model.yml of Jan's."""
    (_store() / "llamacpp/models/m/model.yml").write_bytes(data)
    report = jan.list_models(str(_store()))
    hold(all((model.problem or "x").isprintable() for model in report.models), "printable", report)
    jan.outside_folders(str(_store()))


SETTINGS = (
    ("folders", '["/x"]'), ("daemon.quiet_hours", "22:00-07:00"), ("engine.x.kind", "ollama"),
    ("model.*.intent", "balanced"), ("target.a.enabled", "true"),
)  # fmt: skip


def configuration(data: bytes) -> None:
    """config.toml, read; then a key set in it, and it is set and nothing else."""
    choices = Choices(data)
    own = (choices.some(20).decode("utf-8", "replace"), choices.some(9).decode("latin-1"))
    key, value = choices.pick((*SETTINGS, own))
    try:
        text = choices.rest().decode()
    except UnicodeDecodeError:
        return
    file = "/nowhere/advisor/config.toml"
    plain(lambda: load_configuration("/nowhere/advisor", texts={file: text}))
    after = judged(lambda: set_key(text, file, key, value))
    if after is not None:
        judged(lambda: load_configuration("/nowhere/advisor", texts={file: after}))
        judged(lambda: unset_key(after, file, key))
    judged(lambda: unset_key(text, file, key))


@functools.cache
def _shipped() -> App:
    return App(None)


RULES = (
    "arch/gemma3.toml", "engines/llama_cpp.toml", "engines/ollama.toml", "policy.toml", "quants.toml", "speed.toml",
    "gpus.toml", "arch/llama.toml",
)  # fmt: skip


def rules(data: bytes) -> None:
    """A user's rule file over the shipped one, held against its schema."""
    choices = Choices(data)
    name = choices.pick(RULES)
    content = choices.rest()
    document = judged(lambda: rule_folders._parse(content, "/r/x.toml"))
    if document is None:
        return
    shipped = _shipped().rules.document(name)
    layers: list[Any] = list(shipped.layers) if shipped is not None else []
    judged(lambda: check(RuleDocument(name, (*layers, ("/r/x.toml", document)))))
    judged(lambda: check(RuleDocument(name, (("/r/x.toml", document),))))


def hardware(data: bytes) -> None:
    """A hardware snapshot; what was read is written and read the same."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return
    host = judged(lambda: from_json(document, "h.json"))
    if host is not None:
        hold(from_json(json.loads(json.dumps(to_json(host))), "h.json") == host, "written and read", host)
