"""The settings of a command line, its own or a pasted one, judged on a machine: what `estimate` and `check` share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from advisor.cli.options import take_hardware, take_settings
from advisor.errors import UsageError
from advisor.host import HostSnapshot, with_devices
from advisor.llama_flags import UNCOUNTED, Pasted, parse_command, split_command
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings

if TYPE_CHECKING:
    from advisor.app import App
    from advisor.memory.engine_spec import EngineSpec
    from advisor.model.spec import ModelSpec
    from advisor.recommend.budget import Budget
    from advisor.recommend.evaluate import Evaluator, Judged
    from advisor.recommend.policy import Policy
    from advisor.recommend.recommendation import Note

_TOOLS = {"llama-server": "server", "llama-cli": "cli", "llama-bench": "bench", "main": "cli", "server": "server"}


class JudgedSettings(NamedTuple):
    """One set of settings and everything that it was judged with."""

    app: App
    spec: ModelSpec
    engine: EngineSpec
    host: HostSnapshot
    budget: Budget
    policy: Policy
    evaluator: Evaluator
    request: RequestedSettings
    pasted: Pasted | None
    tool: str
    judged: Judged
    notes: tuple[Note, ...] = ()  # about settings that the engine chooses


def judge_settings(words: tuple[str, ...], values: dict[str, Any], *, now: bool = False) -> JudgedSettings:
    """Judge MODEL or pasted `words` with the options in `values`; `now` = for this minute whatever they say.

    Raises UsageError for settings that the engine refuses.
    """
    from advisor.app import App
    from advisor.planner import Planner
    from advisor.recommend.default_context import default_context_note, default_n_ctx

    hardware, given = take_hardware(values), take_settings(values)
    model, pasted = _split(words)
    request = _combine(given, pasted.settings) if pasted else given
    tool = values["tool"]
    if pasted and pasted.program:
        tool = _TOOLS.get(pasted.program.removesuffix(".exe"), tool)
    app = App(values["rules_folder"])
    request = app.drafting(request, wished=False)
    spec = app.model(app.header(model), load_mtp="draft-mtp" in request.spec_type)
    beside = app.beside(request, spec)
    engine = app.engine(values["engine"])
    host = app.host(
        gpus=hardware.gpus, no_gpu=hardware.no_gpu, ram=hardware.ram_bytes, hardware_file=hardware.hardware_file
    )
    if pasted is not None and pasted.devices is not None:
        host = _only(host, pasted.devices)
    planner = Planner(app, host, engine, tool=tool, now=now or hardware.now, keep_free_bytes=hardware.keep_free_bytes)
    evaluator = planner.evaluator(spec, beside)
    notes: tuple[Note, ...] = ()
    if request.n_ctx is None and (default := default_n_ctx(engine, spec, host, request.n_parallel)) is not None:
        request = request._replace(n_ctx=default)
        notes = (default_context_note(evaluator, request),)
    judged = evaluator.judge(request)
    if judged.plan.refused is not None:
        raise UsageError(f"{engine.name} refuses these settings: {judged.plan.refused}.")
    return JudgedSettings(
        app, spec, engine, host, evaluator.budget, planner.policy, evaluator, request, pasted, tool, judged, notes
    )


def not_used(ignored: Sequence[str]) -> dict[str, list[str]]:
    """The options of a pasted command that no figure rests on, under what is to be said of them."""
    found: dict[str, list[str]] = {}
    for option in ignored:
        counts = option.split()[0].partition("=")[0] in UNCOUNTED
        what = "May change memory, not counted" if counts else "Not used for these figures"
        found.setdefault(what, []).append(option)
    return dict(sorted(found.items()))


def _only(host: HostSnapshot, names: tuple[str, ...]) -> HostSnapshot:
    """`host` with the devices of --device alone, in its order."""
    known = {device.id.lower(): device for device in host.devices}
    for name in names:
        if name.lower() not in known:
            there = ", ".join(device.id for device in host.devices) or "no GPU"
            raise UsageError(f"--device {name} is not on this machine, which has {there}; name one of these.")
    return with_devices(host, tuple(known[name.lower()] for name in dict.fromkeys(names)))


def _split(words: tuple[str, ...]) -> tuple[str, Pasted | None]:
    """(MODEL, the pasted command). One word is a MODEL or a whole command in quotes; more are a command.

    A MODEL may stand before the command or before its options.
    """
    if not words:
        raise UsageError("there is no MODEL; give one, or a pasted command line after --.")
    if len(words) == 1:
        pieces = words[0].split()
        if len(pieces) < 2 or not any(_is_program(piece) for piece in pieces[:-1]):
            return words[0], None
        words = tuple(split_command(words[0]))
    if len(words) > 1 and _is_program(words[1]) and not words[0].startswith("-") and "=" not in words[0]:
        pasted = parse_command(words[1:])
        return pasted.model or words[0], pasted
    pasted = parse_command(words)
    if pasted.model is not None:
        return pasted.model, pasted
    if pasted.program is None or _is_program(words[0]) or not "".join(words[1:2]).startswith("-"):
        raise UsageError("the pasted command line names no model; add -m model.gguf to it.")
    return words[0], pasted._replace(program=None)


def _is_program(word: str) -> bool:
    """Whether a word of a pasted command line is the path or name of a program of llama.cpp."""
    return word.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".exe") in _TOOLS


def _combine(given: RequestedSettings, pasted: RequestedSettings) -> RequestedSettings:
    """Options before -- win over the pasted ones."""
    chosen = {f: getattr(given, f) for f in given._fields if getattr(given, f) not in (None, ())}
    return pasted._replace(**chosen)
