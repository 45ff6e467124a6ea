"""`advisor quants MODEL`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from advisor.cli.options import engine_options, hardware_options, settings_for, take_hardware, take_settings
from advisor.errors import UsageError

if TYPE_CHECKING:
    from advisor.cli.quants_rows import Table


@click.command("quants", context_settings={"max_content_width": 100})
@click.argument("model", metavar="MODEL")
@settings_for("n_ctx", "cache_type_k", "cache_type_v")
@hardware_options
@engine_options
def command(model: str, **values: Any) -> int:
    """Every quantization that llama.cpp makes, of MODEL, also those that are not on disk.

    For each: bytes of the weights, whether it fits at the context shown (-c), the longest context, tokens/s, and what
    it costs in quality as published for another model. Files of the same model in the same store or folder are marked;
    one whose tensors are a mix of its own has a row of its own.
    Exit status: 0 one fits, 3 only with a part on the CPU, 4 none fits, 2 wrong usage, 1 any other error.
    """
    from advisor.app import App
    from advisor.cli.progress import Progress
    from advisor.cli.quants_rows import files_of, make_table
    from advisor.planner import Planner

    hardware, pinned = take_hardware(values), take_settings(values)
    app = App(values["rules_folder"])
    header = app.header(model)
    spec = app.model(header)
    engine = app.engine(values["engine"])
    host = app.host(
        gpus=hardware.gpus, no_gpu=hardware.no_gpu, ram=hardware.ram_bytes, hardware_file=hardware.hardware_file
    )
    planner = Planner(
        app, host, engine, tool=values["tool"], now=hardware.now, keep_free_bytes=hardware.keep_free_bytes
    )
    with Progress() as progress:
        files = files_of(app, header, spec, progress)
        table = make_table(app, planner, spec, files, pinned, progress)
    _check(table, engine.name)
    if values["as_json"]:
        import json

        from advisor.cli.quants_json import document

        print(
            json.dumps(document(table, app.quant_rules(), spec, engine, values["tool"], app.rules.digest()), indent=2)
        )
    else:
        from advisor.cli.render_quants import render_quants
        from advisor.cli.terminal import Screen

        print("\n".join(render_quants(table, app.quant_rules(), spec, host, engine, Screen())))
    verdicts = {row.fit.verdict for row in table.rows if row.fit is not None}
    if "full" in verdicts or ("cpu" in verdicts and not host.devices):
        return 0
    return 3 if verdicts & {"partial", "cpu"} else 4


def _check(table: Table, engine: str) -> None:
    """A UsageError where the engine takes what is pinned for no quantization at all."""
    refusals = [row.fit.judged.plan.refused for row in table.rows if row.fit is not None]
    if refusals and all(refusals):
        raise UsageError(f"{engine} refuses these settings: {refusals[0]}.")
