"""`advisor compare MODEL...`: models, quantizations or cards side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from advisor.cli.machines import EACH_HELP
from advisor.cli.options import engine_options, hardware_options, settings_options, take_hardware, take_settings
from advisor.errors import UsageError

if TYPE_CHECKING:
    from advisor.app import App
    from advisor.cli.compare_columns import Column
    from advisor.model.spec import ModelSpec

MOST_COLUMNS = 24


@click.command("compare", context_settings={"max_content_width": 100})
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@click.option("--quant", "quants", multiple=True, metavar="NAME", help="a quantization to compare, on disk or not")
@click.option("--each", is_flag=True, help=EACH_HELP)
@click.option(
    "--for", "intent", default="balanced", metavar="INTENT", help="balanced, context, speed, quality or parallel[:N]"
)
@settings_options
@hardware_options
@engine_options
def command(models: tuple[str, ...], quants: tuple[str, ...], each: bool, **values: Any) -> int:
    """Models, quantizations (--quant, several times) or cards (--gpu, several times, with --each) side by side.

    For every combination: weights, cache, the longest context, the settings that recommend chooses, memory and
    tokens/s. Exit status: 0 they are compared, whatever fits, 2 wrong usage, 1 any other error.
    """
    from advisor.app import App
    from advisor.cli.compare_columns import make_column
    from advisor.cli.machines import machines
    from advisor.planner import Planner
    from advisor.recommend.search import Wishes

    hardware, pinned = take_hardware(values), take_settings(values)
    app = App(values["rules_folder"])
    pinned = app.drafting(pinned)
    hosts = machines(app, hardware, each=each)
    specs = [
        spec
        for model in models
        for spec in _quantized(app, app.model(app.header(model), load_mtp="draft-mtp" in pinned.spec_type), quants)
    ]
    _check(len(specs), hosts, each)
    engine, wishes = app.engine(values["engine"]), Wishes(pinned)
    columns: list[Column] = []
    for host in hosts:
        planner = Planner(
            app, host, engine, tool=values["tool"], now=hardware.now, keep_free_bytes=hardware.keep_free_bytes
        )
        intent = planner.intent(values["intent"], pinned.n_parallel)
        for spec in specs:
            columns.append(make_column(app, planner, spec, intent, wishes, requantized=bool(quants)))
    if values["as_json"]:
        import json

        from advisor.cli.compare_columns import column_shape
        from advisor.cli.shapes import engine_shape

        document = {
            "schema": "advisor.compare/1",
            "engine": engine_shape(engine, values["tool"]),
            "intent": intent.name,
            "columns": [column_shape(column) for column in columns],
        }
        print(json.dumps(document, indent=2))
        return 0
    from advisor.cli.render_compare import render_compare
    from advisor.cli.terminal import Screen

    print("\n".join(render_compare(columns, engine, Screen())))
    return 0


def _check(n_specs: int, hosts: list[Any], each: bool) -> None:
    count = n_specs * len(hosts)
    if count == 1:
        cards = "--gpu several times with --each" if not each else "--gpu several times"
        raise UsageError(f"there is nothing to compare it with; give several MODELs, several --quant, or {cards}.")
    if count > MOST_COLUMNS:
        raise UsageError(f"{count} combinations are too many to look at; give at most {MOST_COLUMNS}.")


def _quantized(app: App, spec: ModelSpec, names: tuple[str, ...]) -> list[ModelSpec]:
    """The model in each quantization, itself where none is named."""
    if not names:
        return [spec]
    from advisor.quants.requantize import requantized

    rules = app.quant_rules()
    known = {name.upper(): name for name in rules.quantizations}
    found = []
    for name in dict.fromkeys(names):
        if name.upper() not in known:
            raise UsageError(f"--quant '{name}' is no quantization of llama.cpp; choose one of {', '.join(known)}.")
        found.append(requantized(spec, known[name.upper()], rules))
    return found
