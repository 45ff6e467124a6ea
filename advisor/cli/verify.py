"""`advisor verify MODEL`: predicted against what the user's own engine says, without loading weights."""

from __future__ import annotations

import os
from typing import Any

import click

from advisor.cli.options import engine_options, hardware_options, settings_options, take_hardware, take_settings


@click.command("verify", context_settings={"max_content_width": 100})
@click.argument("model", metavar="MODEL")
@click.option(
    "--engine-binary",
    metavar="PATH",
    help="the llama-server or llama-fit-params to ask, or the word bindings (default: on PATH)",
)
@settings_options
@hardware_options
@engine_options
def command(model: str, **values: Any) -> int:
    """Ask the installed engine what these settings take, and hold the prediction against it.

    No weights are loaded and it takes at most 10 seconds. The engine names the devices itself; --no-gpu keeps it on the
    CPU, the other hardware options change nothing here. The difference is remembered per architecture and build.
    Exit status: 0 the engine agrees, 5 it does not, 1 there is no engine or another error, 2 wrong usage.
    """
    from advisor.app import App
    from advisor.cli.ask import ask
    from advisor.cli.measured import EXIT_DIFFERS, residuals
    from advisor.state import remember, state_folder

    hardware, request = take_hardware(values), take_settings(values)
    app = App(values["rules_folder"])
    spec = app.model(app.header(model))
    only = () if hardware.no_gpu else None
    asked = ask(app, spec, request, engine_name=values["engine"], binary=values["engine_binary"], only_devices=only)
    notes = list(asked.notes)
    if hardware.gpus or hardware.hardware_file or hardware.ram_bytes:
        notes.append("the engine answers for the machine that it runs on; --gpu, --ram and --hardware change nothing.")
    if values["tool"] != "server":
        notes.append(f"the engine was asked as a server, not as {values['tool']}.")
    found = residuals(asked.rows, spec.architecture, asked.dry_run.build, "engine")
    path, problem = remember(state_folder(os.environ), found)
    if problem:
        notes.append(problem)
    if values["as_json"]:
        _print_json(asked, spec, notes, path)
    else:
        _print_text(asked, spec, notes)
    return 0 if asked.agrees else EXIT_DIFFERS


def _print_json(asked: Any, spec: Any, notes: list[str], path: str) -> None:
    import json

    from advisor.cli import shapes
    from advisor.cli.measured import rows_shape

    dry_run = asked.dry_run
    document = {
        "schema": "advisor.verify/1",
        "model": shapes.model_shape(spec),
        "engine": {
            **shapes.engine_shape(asked.engine, asked.tool),
            "binary": dry_run.binary.path,
            "binary_kind": dry_run.binary.kind,
            "binary_origin": dry_run.binary.origin,
            "binary_build": dry_run.build,
            "commit": dry_run.commit,
            "seconds": round(dry_run.seconds, 3),
        },
        "settings": shapes.settings_shape(asked.plan),
        "devices": rows_shape(asked.rows, "engine"),
        "agrees": asked.agrees,
        "settings_that_differ": list(asked.settings_differ),
        "remembered_in": path,
        "notes": notes,
    }
    print(json.dumps(document, indent=2))


def _version(dry_run: Any) -> str:
    from advisor.cli.terminal import clean

    version = clean(dry_run.commit or "unknown")
    return version if version.startswith("version ") else f"commit {version}"


def _print_text(asked: Any, spec: Any, notes: list[str]) -> None:
    from advisor.cli.measured import rows_lines
    from advisor.cli.terminal import Screen, clean

    screen, dry_run = Screen(), asked.dry_run
    build = f"b{dry_run.build}" if dry_run.build is not None else _version(dry_run)
    name = screen.paint(clean(spec.name), "bold")
    lines = screen.wrap(f"{name}: {clean(spec.architecture)} {spec.quantization}", "  ", "")
    lines += screen.wrap(
        f"asked {clean(dry_run.binary.path)} ({build}), {dry_run.seconds:.1f} s, no weights loaded", "   ", ""
    )
    lines += ["", *rows_lines(asked.rows, "engine", screen), ""]
    if asked.agrees:
        lines.append(screen.paint("The engine agrees: every figure lies in its stated range.", "bold", "green"))
    else:
        wrong = [f"{row.device} {row.component}" for row in asked.rows if not row.agrees]
        what = ", ".join(wrong) if wrong else "settings"
        lines += screen.wrap(screen.paint(f"The engine disagrees: {clean(what, 400)}.", "bold", "red"), "  ", "")
    for note in [*asked.settings_differ, *notes]:
        lines += screen.wrap(clean(note, 400), "    ", "  - ")
    print("\n".join(lines))
