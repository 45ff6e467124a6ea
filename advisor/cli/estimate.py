"""`advisor estimate MODEL [settings]` and `advisor estimate -- llama-server …`."""

from __future__ import annotations

from typing import Any

import click

from advisor.cli.options import engine_options, hardware_options, settings_options, take_hardware, take_settings
from advisor.errors import UsageError
from advisor.host import HostSnapshot, with_devices
from advisor.llama_flags import UNCOUNTED, Pasted, parse_command, split_command
from advisor.settings import RequestedSettings

EXIT_STATUS = {"full": 0, "cpu": 0, "partial": 3, "does_not_fit": 4}
_TOOLS = {"llama-server": "server", "llama-cli": "cli", "llama-bench": "bench", "main": "cli", "server": "server"}

# \b alone on a line: click keeps the lines of that paragraph
_HELP = """Memory and speed of exactly these settings; what is not given has the engine's default.

Everything after -- is a pasted command line:

\b
advisor estimate -- llama-server -m model.gguf -c 32768 -ngl 20

Exit status: 0 fits, 3 fits with a part on the CPU, 4 does not fit, 2 wrong usage, 1 any other error.
"""


@click.command("estimate", help=_HELP, context_settings={"max_content_width": 100})
@click.argument("words", nargs=-1, metavar="MODEL | -- COMMAND...", type=click.UNPROCESSED)
@settings_options
@hardware_options
@engine_options
def command(words: tuple[str, ...], **values: Any) -> int:
    """Memory and speed of exactly these settings; what is not given has the engine's default."""
    from advisor.app import App
    from advisor.memory.unused import unused_settings
    from advisor.recommend.budget import make_budget
    from advisor.recommend.evaluate import Evaluator
    from advisor.recommend.explain import summarize, verdict_of
    from advisor.recommend.policy import parse_policy
    from advisor.recommend.recommendation import Note
    from advisor.recommend.warn import warnings
    from advisor.speed import SpeedModel

    hardware, given = take_hardware(values), take_settings(values)
    model, pasted = _split(words)
    request = _combine(given, pasted.settings) if pasted else given
    tool = values["tool"]
    if pasted and pasted.program:
        tool = _TOOLS.get(pasted.program.removesuffix(".exe"), tool)
    app = App(values["rules_folder"])
    policy = parse_policy(app.required("policy.toml"))
    spec = app.model(app.header(model), load_mtp="draft-mtp" in request.spec_type)
    beside = app.beside(request, spec)
    engine = app.engine(values["engine"])
    host = app.host(
        gpus=hardware.gpus, no_gpu=hardware.no_gpu, ram=hardware.ram_bytes, hardware_file=hardware.hardware_file
    )
    if pasted is not None and pasted.devices is not None:
        host = _only(host, pasted.devices)
    budget = make_budget(host, policy, now=hardware.now, keep_free_bytes=hardware.keep_free_bytes)
    speeds = SpeedModel(spec, host, app.required("speed.toml"))
    evaluator = Evaluator(spec, host, engine, budget, speeds, tool, beside, app.overheads(host))
    judged = evaluator.judge(request)
    if judged.plan.refused is not None:
        raise UsageError(f"{engine.name} refuses these settings: {judged.plan.refused}.")
    speed = evaluator.speed(judged, policy.intent("balanced"))
    verdict = verdict_of(judged, judged.fits)
    notes = warnings(spec, engine, request, judged.plan, budget, speed, policy)
    notes += [Note(*unused) for unused in unused_settings(request, spec, len(host.devices))]
    ignored = pasted.ignored if pasted else ()
    if verdict == "does_not_fit" and _fits_itself(request, pasted):
        text = "The engine's own --fit is on by default: it lowers layers and context that are not given until it fits."
        notes.append(Note("engine_fits_itself", f"{text} 'advisor recommend' says to what."))
    if values["as_json"]:
        import json

        from advisor.cli import shapes

        document = {
            "schema": "advisor.estimate/1",
            "model": shapes.model_shape(spec),
            "engine": shapes.engine_shape(engine, tool),
            "settings": shapes.settings_shape(judged.plan),
            "devices": shapes.devices_shape(judged.plan, budget, host),
            "host": shapes.host_shape(judged.plan, budget),
            "speed": shapes.speed_shape(speed),
            "verdict": verdict,
            "warnings": shapes.notes_shape(notes),
            "ignored": list(ignored),
        }
        print(json.dumps(document, indent=2))
        return EXIT_STATUS[verdict]
    from advisor.cli.render_plan import headline, memory_lines, note_lines, source_line, speed_line
    from advisor.cli.terminal import Screen, clean

    screen = Screen()
    color = {"full": "green", "cpu": "green", "partial": "yellow", "does_not_fit": "red"}[verdict]
    summary = screen.wrap(summarize(spec, judged, speed, verdict))
    lines = [*headline(spec, host, budget, screen), "", *(screen.paint(line, "bold", color) for line in summary), ""]
    lines += memory_lines(judged.plan, budget, screen)
    lines += ["", screen.paint("Speed", "bold"), *speed_line(speed, screen, answers=spec.has_logits)]
    if notes:
        lines += ["", screen.paint("Mind", "bold"), *note_lines(notes, screen, "!", "yellow")]
    if ignored:
        uncounted = [option for option in ignored if option.split()[0].partition("=")[0] in UNCOUNTED]
        others = [option for option in ignored if option not in uncounted]
        lines.append("")
        if uncounted:
            lines += screen.wrap("May change memory, not counted: " + clean(", ".join(uncounted), 600))
        if others:
            lines += screen.wrap("Not used for these figures: " + clean(", ".join(others), 600))
    print("\n".join([*lines, "", source_line(spec, engine, screen)]))
    return EXIT_STATUS[verdict]


def _only(host: HostSnapshot, names: tuple[str, ...]) -> HostSnapshot:
    """`host` with the devices of --device alone, in its order."""
    known = {device.id.lower(): device for device in host.devices}
    for name in names:
        if name.lower() not in known:
            there = ", ".join(device.id for device in host.devices) or "no GPU"
            raise UsageError(f"--device {name} is not on this machine, which has {there}; name one of these.")
    return with_devices(host, tuple(known[name.lower()] for name in dict.fromkeys(names)))


def _fits_itself(request: RequestedSettings, pasted: Pasted | None) -> bool:
    """Whether a pasted command leaves layers or context to llama.cpp's own --fit."""
    if pasted is None or pasted.program is None:
        return False
    if not {"--fit off", "-fit off", "--fit=off", "LLAMA_ARG_FIT=off"}.isdisjoint(pasted.ignored):
        return False
    if request.tensor_split or request.tensor_overrides or request.split_mode in ("row", "tensor"):
        return False  # then it gives up
    return request.n_ctx in (None, 0) or request.n_gpu_layers is None


def _split(words: tuple[str, ...]) -> tuple[str, Pasted | None]:
    """(MODEL, the pasted command). One word is a MODEL or a whole command in quotes; more are a command.

    A MODEL may stand before the command or before its options.
    """
    if not words:
        raise UsageError("estimate needs a MODEL, or a pasted command line after --.")
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
