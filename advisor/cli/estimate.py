"""`advisor estimate MODEL [settings]` and `advisor estimate -- llama-server …`."""

from __future__ import annotations

from typing import Any

import click

from advisor.cli.numbers import whole
from advisor.cli.options import engine_options, hardware_options, settings_options
from advisor.llama_flags import Pasted
from advisor.settings import RequestedSettings

EXIT_STATUS = {"full": 0, "cpu": 0, "partial": 3, "does_not_fit": 4}

# \b alone on a line: click keeps the lines of that paragraph
_HELP = """Memory and speed of exactly these settings; what is not given has the engine's default.

Everything after -- is a pasted command line:

\b
advisor estimate -- llama-server -m model.gguf -c 32768 -ngl 20

Exit status: 0 fits, 3 fits with a part on the CPU, 4 does not fit, 2 wrong usage, 1 any other error.
"""


@click.command("estimate", help=_HELP, context_settings={"max_content_width": 100})
@click.argument("words", nargs=-1, metavar="MODEL | -- COMMAND...", type=click.UNPROCESSED)
@click.option("--depth", callback=whole(0), metavar="N", help="tokens in the context for the speed (default: 4000)")
@settings_options
@hardware_options
@engine_options
def command(words: tuple[str, ...], **values: Any) -> int:
    """Memory and speed of exactly these settings; what is not given has the engine's default."""
    from advisor.cli.judge_settings import judge_settings, not_used
    from advisor.memory.unused import unused_settings
    from advisor.recommend.cache_notes import pair_note, safety_notes
    from advisor.recommend.cache_safety import rows_for
    from advisor.recommend.explain import summarize
    from advisor.recommend.overflow import overflow_notes
    from advisor.recommend.recommendation import Note
    from advisor.recommend.warn import warnings
    from advisor.recommend.whole import verdict_of

    found = judge_settings(words, values)
    spec, engine, host, budget, policy = found.spec, found.engine, found.host, found.budget, found.policy
    request, pasted, judged = found.request, found.pasted, found.judged
    intent = policy.intent("balanced")
    if values["depth"] is not None:
        intent = intent._replace(turn=intent.turn._replace(depth_tokens=values["depth"], answer_tokens=0))
    backends = [device.backend for device in host.devices]
    rows = rows_for(policy.cache_safety, spec, engine, backends)
    found.evaluator.know(rows)
    speed = found.evaluator.when_full(judged, found.evaluator.speed(judged, intent))
    verdict = verdict_of(judged, judged.fits)
    notes = [*found.notes, *warnings(spec, engine, request, judged.plan, budget, speed, policy)]
    notes += safety_notes(rows, judged.plan, backends)
    notes += pair_note(found.evaluator, judged, request)
    if found.evaluator.beside is not None or judged.plan.settings.beside.mtp:
        from advisor.recommend.beside_notes import beside_notes

        notes = [*beside_notes(found.evaluator, judged), *notes]
    notes = [*overflow_notes(found.evaluator, judged, speed), *notes]
    notes += [Note(*unused) for unused in unused_settings(request, spec, len(host.devices))]
    if found.app.calibration_problem:
        notes.append(Note("calibration_unused", found.app.calibration_problem))
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
            "engine": shapes.engine_shape(engine, found.tool),
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
    lines += ["", screen.paint("Speed", "bold"), *speed_line(speed, screen, answers=spec.answers)]
    if notes:
        lines += ["", screen.paint("Mind", "bold"), *note_lines(notes, screen, "!", "yellow")]
    if ignored:
        lines.append("")
        for what, options in not_used(ignored).items():
            lines += screen.wrap(f"{what}: " + clean(", ".join(options), 600))
    print("\n".join([*lines, "", source_line(spec, engine, screen)]))
    return EXIT_STATUS[verdict]


def _fits_itself(request: RequestedSettings, pasted: Pasted | None) -> bool:
    """Whether a pasted command leaves layers or context to llama.cpp's own --fit."""
    if pasted is None or pasted.program is None:
        return False
    if not {"--fit off", "-fit off", "--fit=off", "LLAMA_ARG_FIT=off"}.isdisjoint(pasted.ignored):
        return False
    if request.tensor_split or request.tensor_overrides or request.split_mode in ("row", "tensor"):
        return False  # then it gives up
    return request.n_ctx in (None, 0) or request.n_gpu_layers is None
