"""`advisor verify MODEL`: predicted against what the user's own engine says, without loading weights."""

from __future__ import annotations

import os
from typing import Any

import click

from advisor.cli.options import engine_options, hardware_options, settings_options, take_hardware, take_settings
from advisor.errors import EngineError


@click.command("verify", context_settings={"max_content_width": 100})
@click.argument("model", metavar="MODEL")
@click.option(
    "--engine-binary",
    metavar="PATH",
    help="the llama-server or llama-fit-params to ask, or the word bindings (default: on PATH)",
)
@click.option("--fit", is_flag=True, help="show what -fit on chooses beside advisor's choice; needs no engine")
@settings_options
@hardware_options
@engine_options
def command(model: str, **values: Any) -> int:
    """Ask the installed engine what these settings take, and hold the prediction against it.

    No weights are loaded and it takes at most 10 seconds, with --fit a minute. The engine names the devices itself;
    --no-gpu keeps it on the CPU, the other hardware options change nothing here, but with --fit they are what is
    planned for, and no engine is asked. The difference is remembered per architecture and build.
    Exit status: 0 the engine agrees, 5 it does not, 1 there is no engine or another error, 2 wrong usage.
    """
    from advisor.app import App
    from advisor.cli.ask import ask
    from advisor.cli.measured import EXIT_DIFFERS, residuals
    from advisor.state import remember, state_folder

    hardware, request = take_hardware(values), take_settings(values)
    given = bool(hardware.gpus or hardware.hardware_file or hardware.ram_bytes)
    app = App(values["rules_folder"])
    header = app.header(model)
    spec = app.model(header)
    if values["fit"]:
        from advisor.cli.verify_fit import check_fit

        check_fit(request, values["tool"])
    notes: list[str] = []
    asked = path = None
    if not (values["fit"] and (given or header.source == "snapshot")):
        only = () if hardware.no_gpu else None
        try:
            asked = ask(
                app, spec, request, engine_name=values["engine"], binary=values["engine_binary"], only_devices=only
            )
        except EngineError as error:
            if not values["fit"] or values["engine_binary"] is not None:
                raise
            notes.append(str(error))
    if asked is not None:
        notes += asked.notes
        if given:
            notes.append(
                "the engine answers for the machine that it runs on; --gpu, --ram and --hardware change nothing."
            )
        if values["tool"] != "server":
            notes.append(f"the engine was asked as a server, not as {values['tool']}.")
        found = residuals(asked.rows, spec.architecture, asked.dry_run.build, "engine")
        path, problem = remember(state_folder(os.environ), found)
        if problem:
            notes.append(problem)
    report = None
    if values["fit"]:
        from advisor.cli.verify_fit import fit_report

        report = fit_report(app, spec, request, hardware, values, asked)
        if report is None:
            notes.append("without a GPU there is nothing for fit to place.")
    engine = asked.engine if asked is not None else app.engine(values["engine"])
    if values["as_json"]:
        _print_json(asked, engine, values, spec, notes, path, report)
    else:
        _print_text(asked, spec, notes, report)
    return 0 if asked is None or asked.agrees else EXIT_DIFFERS


def _print_json(
    asked: Any, engine: Any, values: dict[str, Any], spec: Any, notes: list[str], path: str | None, report: Any
) -> None:
    import json

    from advisor.cli import shapes
    from advisor.cli.measured import rows_shape

    dry_run = asked.dry_run if asked is not None else None
    binary = dry_run.binary if dry_run is not None else None
    document = {
        "schema": "advisor.verify/1",
        "model": shapes.model_shape(spec),
        "engine": {
            **shapes.engine_shape(engine, asked.tool if asked is not None else values["tool"]),
            "binary": binary.path if binary is not None else None,
            "binary_kind": binary.kind if binary is not None else None,
            "binary_origin": binary.origin if binary is not None else None,
            "binary_build": dry_run.build if dry_run is not None else None,
            "commit": dry_run.commit if dry_run is not None else None,
            "seconds": round(dry_run.seconds, 3) if dry_run is not None else None,
        },
        "settings": shapes.settings_shape(asked.plan) if asked is not None else None,
        "devices": rows_shape(asked.rows, "engine") if asked is not None else [],
        "agrees": asked.agrees if asked is not None else None,
        "settings_that_differ": list(asked.settings_differ) if asked is not None else [],
        "remembered_in": path,
        "notes": notes,
    }
    if values["fit"]:
        from advisor.cli.verify_fit import fit_shape

        document["fit"] = fit_shape(report) if report is not None else None
    print(json.dumps(document, indent=2))


def _version(dry_run: Any) -> str:
    from advisor.cli.terminal import clean

    version = clean(dry_run.commit or "unknown")
    return version if version.startswith("version ") else f"commit {version}"


def _print_text(asked: Any, spec: Any, notes: list[str], report: Any) -> None:
    from advisor.cli.terminal import Screen, clean

    screen = Screen()
    name = screen.paint(clean(spec.name), "bold")
    lines = screen.wrap(f"{name}: {clean(spec.architecture)} {spec.quantization}", "  ", "")
    if asked is not None:
        lines += _asked_lines(asked, screen)
    if report is not None:
        from advisor.cli.verify_fit import fit_lines

        lines += ["", *fit_lines(report, screen)]
    for note in [*(asked.settings_differ if asked is not None else ()), *notes]:
        lines += screen.wrap(clean(note, 400), "    ", "  - ")
    print("\n".join(lines))


def _asked_lines(asked: Any, screen: Any) -> list[str]:
    from advisor.cli.measured import rows_lines
    from advisor.cli.terminal import clean

    dry_run = asked.dry_run
    build = f"b{dry_run.build}" if dry_run.build is not None else _version(dry_run)
    lines: list[str] = screen.wrap(
        f"asked {clean(dry_run.binary.path)} ({build}), {dry_run.seconds:.1f} s, no weights loaded", "   ", ""
    )
    lines += ["", *rows_lines(asked.rows, "engine", screen), ""]
    if asked.agrees:
        return [*lines, screen.paint("The engine agrees: every figure lies in its stated range.", "bold", "green")]
    wrong = [f"{row.device} {row.component}" for row in asked.rows if not row.agrees]
    what = ", ".join(wrong) if wrong else "settings"
    return [*lines, *screen.wrap(screen.paint(f"The engine disagrees: {clean(what, 400)}.", "bold", "red"), "  ", "")]
