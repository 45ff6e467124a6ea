"""`advisor observe LOG`: what the log of a real load says about memory, held against the prediction."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from advisor.errors import EngineError, UsageError
from advisor.memory.types import Interval

if TYPE_CHECKING:
    from advisor.cli.observed_speed import Observed
    from advisor.engines.load_log import Load, LoadLog
    from advisor.engines.log_source import LogLines


@click.command("observe", context_settings={"max_content_width": 100})
@click.argument("log", metavar="LOG", required=False)
@click.option("--unit", metavar="NAME", help="read the journal of this systemd unit, the user's or the system's")
@click.option("--model", metavar="MODEL", help="the model that was loaded (default: the file that the log names)")
@click.option("--engine", metavar="NAME[@BUILD]", help="the engine that wrote the log (default: as the log says)")
@click.option("--rules", "rules_folder", metavar="DIR", help="a folder of rules that wins over the shipped ones")
@click.option("--json", "as_json", is_flag=True, help="machine-readable output")
def command(log: str | None, **values: Any) -> int:
    """Read buffer sizes from the log of a load (LOG is a file, or - for a pipe) and compare with the prediction.

    llama-server prints buffer sizes with -lv 4, older builds always. The last real load of the log counts; probes of
    --fit, draft models and projectors are told apart. The difference is remembered per architecture and build.
    Requests that the engine timed teach how fast this machine is, as 'advisor calibrate' does.
    Exit status: 0 as predicted or nothing to compare, 5 it differs, 1 the log tells of no load, 2 wrong usage.
    """
    from advisor.cli.measured import EXIT_DIFFERS
    from advisor.cli.observed import predict_load
    from advisor.cli.observed_speed import learn_from_log
    from advisor.engines.load_log import parse_load_log
    from advisor.engines.log_source import existing, file_lines, unit_lines
    from advisor.engines.timings import SpeedReader

    if (log is None) == (values["unit"] is None):
        raise UsageError("observe needs a LOG, - for a pipe, or --unit NAME, one of them.")
    text = unit_lines(values["unit"], os.environ) if log is None else file_lines(log)
    reader = SpeedReader()
    found = parse_load_log(reader.watch(text.lines))
    load, speeds = found.last, reader.log
    if load is None and not found.tables and not speeds.timings and not speeds.n_disturbed:
        probes = " but the probe of --fit" if found.loads else ""
        raise EngineError(
            f"{log or values['unit']} tells of no load{probes}; llama-server prints buffer sizes with -lv 4."
            + (f" {text.note[:1].upper()}{text.note[1:]}" if text.note else "")
        )
    notes: list[str] = [text.note] if text.note else []
    rows: tuple[Any, ...] = ()
    spec = path = None
    model = values["model"] or existing(load.path if load else speeds.path, log)
    if load is None and not found.tables:
        notes.append("the log tells of requests alone; the engine prints buffer sizes with -lv 4.")
    elif load is None:
        notes.append("the log holds only the table of whole MiB; run the engine with -lv 4 for every buffer.")
    elif model is None:
        notes.append("the model is not at hand; give it with --model to compare with the prediction.")
    else:
        spec, rows, said, path = predict_load(
            load, found, model, engine_name=values["engine"], rules_folder=values["rules_folder"]
        )
        notes += said
    notes += _advice(found, load, values["rules_folder"])
    overheads, problem = remember_overheads_of(found)
    notes += [problem] if problem else []
    learned = learn_from_log(
        speeds, found, model, local=values["unit"] is not None, engine_name=values["engine"],
        rules_folder=values["rules_folder"],
    )  # fmt: skip
    notes += learned.notes if learned else ()
    agrees = all(row.agrees for row in rows) if rows else None
    if values["as_json"]:
        _print_json(text, found, load, spec, rows, agrees, notes, path, overheads, learned)
    else:
        _print_text(found, load, spec, rows, agrees, notes, learned)
    return EXIT_DIFFERS if agrees is False else 0


def _advice(found: LoadLog, load: Load | None, rules_folder: str | None) -> list[str]:
    """What the log tells of the build and the driver that has a cure."""
    on_gpus, layers = load.offloaded if load is not None and load.offloaded else (0, 0)
    blas = found.blas and 0 < on_gpus < layers
    if not blas and not found.failures:
        return []
    from advisor.app import App
    from advisor.engines.load_log import backend_of
    from advisor.recommend.words import blas_text
    from advisor.units import format_bytes

    engine = App(rules_folder).engine(None)
    notes = [f"{blas_text(engine)}."] if blas else []
    for device, n_bytes in found.failures[:1]:
        rules = engine.backends.get(backend_of(device) or "")
        if rules is None or n_bytes <= min((most for _, most in rules.largest_allocations), default=n_bytes):
            continue
        drivers = ", ".join(f"{driver} {format_bytes(most)}" for driver, most in rules.largest_allocations)
        text = f"{format_bytes(n_bytes)} at once may be more than {device}'s driver gives in one piece, however much is"
        notes.append(f"{text} free (at most: {drivers}): a smaller -ub, or -fa on, or another driver.")
    return notes


def remember_overheads_of(found: LoadLog) -> tuple[list[dict[str, Any]], str | None]:
    """What the last memory breakdown leaves unaccounted per GPU, remembered; (figures, a sentence when that failed)."""
    from advisor.engines.load_log import backend_of
    from advisor.overheads import remember_overheads
    from advisor.state import state_folder

    if found.last is None or not found.tables:
        return [], None
    names = {device.id: device.name for device in found.devices}
    figures: list[dict[str, Any]] = [
        {"device": row.name, "backend": backend, "name": names[row.name], "bytes": row.unaccounted_bytes}
        for row in found.tables[-1]
        if row.unaccounted_bytes is not None and row.name in names and (backend := backend_of(row.name)) is not None
    ]
    seen = {(str(figure["backend"]), str(figure["name"])): figure["bytes"] for figure in figures}
    return figures, remember_overheads(state_folder(os.environ), seen)


def sums(load: Load) -> dict[tuple[str, str], Interval]:
    """(device, component) of the first context as bounds; KV and state together are the cache."""
    from advisor.engines.load_log import totals

    buffers = [*load.weights, *(load.contexts[0].buffers if load.contexts else ())]
    figures: dict[tuple[str, str], Interval] = {}
    for (device, kind), (n_bytes, slack) in totals(buffers).items():
        component = "cache" if kind in ("kv", "state") else kind
        low, value, high = figures.get((device, component), (0, 0, 0))
        figures[device, component] = Interval(low + n_bytes - slack, value + n_bytes, high + n_bytes + slack)
    return figures


def _print_json(
    text: LogLines,
    found: LoadLog,
    load: Load | None,
    spec: Any,
    rows: tuple[Any, ...],
    agrees: bool | None,
    notes: list[str],
    path: str | None,
    overheads: list[dict[str, Any]],
    learned: Observed | None,
) -> None:
    import json

    from advisor.cli import shapes
    from advisor.cli.measured import rows_shape
    from advisor.cli.observed_speed import observed_shape

    document = {
        "schema": "advisor.observe/1",
        "build": found.build,
        "commit": found.commit,
        "model": shapes.model_shape(spec) if spec else None,
        "load": _load_shape(load) if load else None,
        "drafts": [_load_shape(draft) for draft in found.drafts],
        "probes": sum(other.probe for other in found.loads),
        "loads": sum(not other.probe and other.role == "main" for other in found.loads),
        "breakdown": [row._asdict() for row in found.tables[-1]] if found.tables else [],
        "failed_allocations": [{"device": device, "bytes": n_bytes} for device, n_bytes in found.failures[:100]],
        "devices": rows_shape(rows, "observed"),
        "agrees": agrees,
        "remembered_in": path,
        "overheads": overheads,
        "speed": observed_shape(learned),
        "log_bytes": text.n_bytes,
        "left_out_bytes": text.left_out_bytes,
        "notes": notes,
    }
    print(json.dumps(document, indent=2))


def _load_shape(load: Load) -> dict[str, Any]:
    return {
        "path": load.path,
        "architecture": load.facts.get("arch"),
        "name": load.facts.get("general.name"),
        "offloaded_layers": load.offloaded[0] if load.offloaded else None,
        "total_layers": load.offloaded[1] if load.offloaded else None,
        "weights": [_buffer_shape(buffer) for buffer in load.weights],
        "contexts": [
            {
                "role": context.role,
                "settings": context.settings,
                "buffers": [_buffer_shape(buffer) for buffer in context.buffers],
                "caches": [cache._asdict() for cache in context.caches],
            }
            for context in load.contexts
        ],
        "projector": [_buffer_shape(buffer) for buffer in load.projector],
    }


def _buffer_shape(buffer: Any) -> dict[str, Any]:
    return {"buffer": buffer.name, "kind": buffer.kind, "bytes": buffer.n_bytes}


def _print_text(
    found: LoadLog, load: Load | None, spec: Any, rows: tuple[Any, ...], agrees: bool | None, notes: list[str],
    learned: Observed | None,
) -> None:  # fmt: skip
    from advisor.cli.measured import rows_lines
    from advisor.cli.observed_speed import observed_line
    from advisor.cli.terminal import Screen, clean, columns
    from advisor.units import MIB, format_bytes

    screen = Screen()
    lines: list[str] = []
    if load is not None:
        name = (spec.name if spec else None) or load.facts.get("general.name") or load.path or "a model"
        layers = f", {load.offloaded[0]} of {load.offloaded[1]} layers on GPUs" if load.offloaded else ""
        arch = load.facts.get("arch", spec.architecture if spec else "unknown architecture")
        lines += screen.wrap(f"{screen.paint(clean(name), 'bold')}: {clean(arch)}{layers}", "  ", "")
    if rows:
        lines += ["", *rows_lines(rows, "observed", screen)]
    elif load is not None:
        table = [[clean(d, 40), c, f"{f.value / MIB:,.2f} MiB"] for (d, c), f in sorted(sums(load).items())]
        lines += ["", *("  " + line for line in columns(table, right=(2,)))]
    extras = [("projector", buffer) for buffer in (load.projector if load else ())]
    for context in load.contexts[1:] if load else ():
        extras += [(f"{context.role} context", buffer) for buffer in context.buffers]
    for draft in found.drafts:
        extras += [("draft model", buffer) for buffer in draft.weights]
        extras += [("draft context", buffer) for context in draft.contexts for buffer in context.buffers]
    if extras:
        table = [[who, clean(b.name, 40), b.kind, f"{b.n_bytes / MIB:,.2f} MiB"] for who, b in extras[:60]]
        lines += ["", "  Beside it:", *("  " + line for line in columns(table, right=(3,)))]
    if found.tables and load is None:
        table = [
            [clean(row.name, 40), *(format_bytes(n) for n in (row.weights_bytes, row.context_bytes, row.compute_bytes))]
            for row in found.tables[-1][:60]
        ]
        lines += ["  " + line for line in columns([["", "weights", "cache", "compute"], *table], right=(1, 2, 3))]
    for device, n_bytes in found.failures[:5]:
        lines.append(f"  An allocation of {format_bytes(n_bytes)} failed on {clean(device, 40)}.")
    if agrees is not None:
        lines.append("")
        word = "As predicted: every figure lies in its stated range." if agrees else "It differs from the prediction."
        lines.append(screen.paint(word, "bold", "green" if agrees else "red"))
    said = observed_line(learned) if learned is not None else ""
    lines += screen.wrap(clean(said, 400), "  ", "") if said else []
    for note in notes:
        lines += screen.wrap(clean(note, 400), "    ", "  - ")
    print("\n".join(lines))
