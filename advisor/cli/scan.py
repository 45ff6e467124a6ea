"""`advisor scan`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from advisor.cli.options import engine_options, hardware_options, take_hardware

if TYPE_CHECKING:
    from advisor.cli.progress import Progress
    from advisor.cli.scan_plan import Answer, RememberingPlanner
    from advisor.stores.types import StoreReport


@click.command("scan", context_settings={"max_content_width": 100})
@click.argument("folders", nargs=-1, metavar="[FOLDER]...")
@click.option(
    "--for", "intent", default="balanced", metavar="INTENT", help="balanced, context, speed, quality or parallel[:N]"
)
@click.option("--no-cache", is_flag=True, help="read and plan everything anew, and remember nothing")
@hardware_options
@engine_options
def command(folders: tuple[str, ...], intent: str, no_cache: bool, **values: Any) -> int:
    """Every model on this machine with its verdict: does it fit, how long a context, how fast.

    Looks into Ollama, the Hugging Face and llama.cpp caches, LM Studio, Jan, GPT4All and the folders of the
    configuration, or into the FOLDERs alone, which may be plain or laid out as one of these. 'advisor recommend MODEL'
    says more about one model.
    Exit status: 0, 1 when a FOLDER cannot be read, 2 wrong usage.
    """
    from advisor.app import App
    from advisor.cli.progress import Progress
    from advisor.cli.scan_plan import Question, RememberingPlanner
    from advisor.keeper import read_settings
    from advisor.recommend.policy import parse_policy
    from advisor.steady import steady
    from advisor.stores.cache import Cache, cache_folder
    from advisor.stores.scan import scan_stores

    hardware = take_hardware(values)
    settings = read_settings(os.environ) if not folders else None
    app = App(values["rules_folder"])
    parse_policy(app.required("policy.toml")).intent(intent)
    engine = app.engine(values["engine"])
    host = app.host(
        gpus=hardware.gpus, no_gpu=hardware.no_gpu, ram=hardware.ram_bytes, hardware_file=hardware.hardware_file
    )
    with Cache(None if no_cache else cache_folder(os.environ)) as cache, Progress() as progress:
        if not hardware.now:
            probed = hardware.hardware_file is None
            host = steady(
                host,
                cache,
                devices=probed and not hardware.gpus and not hardware.no_gpu,
                ram=probed and hardware.ram_bytes is None,
            )
        question = Question(host, engine, values["tool"], intent, hardware.now, hardware.keep_free_bytes)
        reports = scan_stores(
            os.environ,
            settings.folders if settings is not None else folders,
            include_defaults=settings.stores if settings is not None else False,
            cache=cache,
            progress=lambda done, n: progress.show("reading models", done, n),
        )
        planned = _plan(reports, RememberingPlanner(app, question, cache), progress)
    if values["as_json"]:
        import json

        from advisor.cli.scan_json import document

        print(json.dumps(document(reports, planned, question, app.rules.fingerprint()), indent=2))
    else:
        from advisor.cli.render_scan import render_scan
        from advisor.cli.terminal import Screen

        lines = render_scan(reports, planned, question, Screen(), given=bool(folders))
        print("\n".join(lines))
    return 1 if folders and any(report.status != "ok" for report in reports) else 0


def _plan(
    reports: tuple[StoreReport, ...], planner: RememberingPlanner, progress: Progress
) -> list[list[Answer | None]]:
    """An answer per model of each report, None for what is not planned: problems and what is no language model."""
    answers = [
        [planner.known(model) if model.kind == "model" else None for model in report.models] for report in reports
    ]
    waiting = [
        (index, at)
        for index, report in enumerate(reports)
        for at, model in enumerate(report.models)
        if model.kind == "model" and answers[index][at] is None
    ]
    for n_done, (index, at) in enumerate(waiting):
        progress.show("planning", n_done, len(waiting))
        answers[index][at] = planner.plan(reports[index].models[at])
    return answers
