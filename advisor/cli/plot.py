"""`advisor plot MODEL -o FILE`: memory against context and tokens/s against layers as a picture or a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from advisor.cli.machines import EACH_HELP
from advisor.cli.options import engine_options, hardware_options, settings_options, take_hardware, take_settings
from advisor.errors import OutputError, UsageError

if TYPE_CHECKING:
    from advisor.plots.page import Page

ENDINGS = (".svg", ".png", ".html")


@click.command("plot", context_settings={"max_content_width": 100})
@click.argument("model", metavar="MODEL")
@click.option("-o", "--out", metavar="FILE", help="where to write it: .svg, .png or .html")
@click.option("--force", is_flag=True, help="replace FILE if it exists")
@click.option("--each", is_flag=True, help=EACH_HELP)
@click.option(
    "--for", "intent", default="balanced", metavar="INTENT", help="balanced, context, speed, quality or parallel[:N]"
)
@settings_options
@hardware_options
@engine_options
def command(model: str, out: str | None, force: bool, each: bool, **values: Any) -> int:
    """Memory against context for each cache type with the card's limit, and tokens/s against layers on the GPU.

    An .html page has the figures as tables too and fetches nothing; a .png needs Pillow (gguf-advisor[plot]).
    --json prints the points. Exit status: 0 it is drawn, whether the model fits or not, 2 wrong usage, 1 other errors.
    """
    from advisor.app import App
    from advisor.cli.machines import machine_name, machines
    from advisor.cli.shapes import engine_shape, model_shape
    from advisor.cli.shapes_curves import curves_shape
    from advisor.cli.terminal import clean
    from advisor.planner import Planner
    from advisor.plots.page import Page, section
    from advisor.recommend.curves import memory_curves, speed_curves
    from advisor.recommend.search import Wishes

    as_json = values["as_json"]
    if out is None and not as_json:
        raise UsageError("there is no file to write; give one with -o, as in -o plot.svg, or --json for the figures.")
    ending = _check(out, force) if out is not None else ""
    hardware, pinned = take_hardware(values), take_settings(values)
    app = App(values["rules_folder"])
    pinned = app.drafting(pinned)
    spec = app.model(app.header(model), load_mtp="draft-mtp" in pinned.spec_type)
    beside, engine, wishes = app.beside(pinned, spec), app.engine(values["engine"]), Wishes(pinned)
    sections, shapes = [], []
    for machine in machines(app, hardware, each=each):
        planner = Planner(
            app, machine, engine, tool=values["tool"], now=hardware.now, keep_free_bytes=hardware.keep_free_bytes
        )
        intent = planner.intent(values["intent"], pinned.n_parallel)
        answer, host = planner.recommend(spec, intent, wishes, beside)
        if answer.chosen.plan.refused is not None:
            raise UsageError(f"{engine.name} refuses these settings: {answer.chosen.plan.refused}.")
        search = planner.search(spec, intent, wishes, host, beside)
        memory, speed = memory_curves(search, answer.chosen), speed_curves(search, answer.chosen)
        left = [note.text for note in answer.reasons if note.code == "cards_left_out"]
        said = clean(" ".join([answer.summary, *left]), 600)
        sections.append(section(clean(machine_name(machine)), said, memory, speed))
        shapes.append(
            {"name": machine_name(machine), "verdict": answer.verdict, "summary": answer.summary}
            | curves_shape(memory, speed)
        )
    source = f"Figures: formula for {engine.name} b{engine.build}; architecture {spec.architecture} {spec.confidence}."
    page = Page(f"{clean(spec.name)} {spec.quantization}", tuple(sections), clean(source))
    if out is not None:
        _write(out, _draw(page, ending), force)
    if as_json:
        import json

        document = {
            "schema": "advisor.plot/1",
            "model": model_shape(spec),
            "engine": engine_shape(engine, values["tool"]),
            "machines": shapes,
            "file": out,
        }
        print(json.dumps(document, indent=2))
    else:
        print(f"wrote {clean(out or '', 1000)}")
    return 0


def _check(out: str, force: bool) -> str:
    """The ending of a file that may be written. Raises UsageError and OutputError, before anything is worked out."""
    import os

    ending = os.path.splitext(out)[1].lower()
    if ending not in ENDINGS:
        raise UsageError(f"-o {out}: give a name that ends in .svg, .png or .html, which says what to draw.")
    if os.path.lexists(out):
        if not force:
            raise OutputError(f"{out} exists and is left alone; give --force to replace it, or another name.")
        if not os.path.isfile(out):
            raise OutputError(f"{out} is no file that could be replaced; give another name.")
    return ending


def _draw(page: Page, ending: str) -> bytes:
    if ending == ".html":
        from advisor.plots.html import html

        return html(page).encode()
    from advisor.plots.page import sheet

    if ending == ".png":
        from advisor.plots.png import png

        return png(sheet(page))
    from advisor.plots.svg import svg

    return svg(sheet(page)).encode()


def _write(out: str, data: bytes, force: bool) -> None:
    """Write the file in one step; one that appeared meanwhile is left alone unless --force is given."""
    import os

    from advisor.managed.atomic import Standing, replace_file

    replace_file(out, data, None if force else Standing(out, os.path.realpath(out), None, None))
