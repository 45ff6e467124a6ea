"""`advisor recommend MODEL`."""

from __future__ import annotations

from typing import Any

import click

from advisor.cli.numbers import whole
from advisor.cli.options import (
    HardwareChoice,
    engine_options,
    hardware_options,
    settings_options,
    take_hardware,
    take_settings,
)
from advisor.errors import UsageError
from advisor.gguf_header.types import GgufHeader
from advisor.recommend.budget import Budget
from advisor.recommend.recommendation import Note, Recommendation
from advisor.settings import RequestedSettings

EXIT_STATUS = {"full": 0, "cpu": 0, "partial": 3, "does_not_fit": 4}


@click.command("recommend", context_settings={"max_content_width": 100})
@click.argument("model", metavar="MODEL")
@click.option(
    "--for", "intent", default="balanced", metavar="INTENT", help="balanced, context, speed, quality or parallel[:N]"
)
@click.option("--min-ctx", callback=whole(1), metavar="N", help="least tokens of context per slot")
@click.option("--max-ctx", callback=whole(1), metavar="N", help="most tokens of context per slot")
@click.option("--min-tps", type=float, metavar="X", help="least tokens per second")
@click.option(
    "--mode",
    type=click.Choice(["exact", "safe"]),
    default="exact",
    help="exact: every setting; safe: the engine fits the layers",
)
@click.option("--output", metavar="FILE", help="also write a llama-server model preset (.ini)")
@click.option(
    "--what-gpu", is_flag=True, help="the classes of GPU that hold all of it at the wished context, fewest cards first"
)
@click.option("--plot", is_flag=True, help="also draw memory against context and speed against layers")
@click.option("--verify", is_flag=True, help="ask the installed engine about the answer, plan again where it differs")
@click.option("--engine-binary", metavar="PATH", help="the llama-server to ask with --verify (default: on PATH)")
@settings_options
@hardware_options
@engine_options
def command(model: str, **values: Any) -> int:
    """Settings for MODEL on this machine: what fits, how fast, why, and what else was tried.

    MODEL is a .gguf file, any shard, a folder, a header snapshot, an Ollama name:tag or a Hugging Face org/repo:QUANT.
    Exit status: 0 fits, 3 fits only in part, 4 does not fit, 2 wrong usage, 1 any other error.
    """
    from advisor.app import App
    from advisor.memory.unused import unused_settings
    from advisor.planner import Planner
    from advisor.recommend.search import Wishes

    hardware, pinned = take_hardware(values), take_settings(values)
    app = App(values["rules_folder"])
    wishes = Wishes(pinned, values["min_ctx"], values["max_ctx"], values["min_tps"])
    if values["mode"] == "safe":
        _check_safe(pinned)
    if values["what_gpu"]:
        _check_what_gpu(hardware, pinned, values)
        hardware = hardware._replace(no_gpu=True)
    if values["plot"] and values["as_json"]:
        raise UsageError("--plot draws, --json does not; 'advisor plot MODEL --json' gives the points.")
    _check(wishes.min_n_ctx, wishes.max_n_ctx, wishes.min_tokens_per_s)
    header = app.header(model)
    spec = app.model(header, load_mtp="draft-mtp" in pinned.spec_type)
    beside = app.beside(pinned, spec)
    engine = app.engine(values["engine"])
    host = app.host(
        gpus=hardware.gpus, no_gpu=hardware.no_gpu, ram=hardware.ram_bytes, hardware_file=hardware.hardware_file
    )
    planner = Planner(
        app, host, engine, tool=values["tool"], now=hardware.now, keep_free_bytes=hardware.keep_free_bytes
    )
    intent = planner.intent(values["intent"])
    if values["what_gpu"]:
        from advisor.cli.what_gpu import answer_what_gpu

        return answer_what_gpu(app, planner, spec, intent, wishes, beside, values)
    n_devices = len(host.devices)
    answer, host = planner.recommend(spec, intent, wishes, beside, smaller=True)
    if answer.chosen.plan.refused is not None:  # what is pinned leaves nothing that the engine takes
        raise UsageError(f"{engine.name} refuses these settings: {answer.chosen.plan.refused}.")
    if values["verify"]:
        from advisor.cli.verify_answer import verify_answer

        def again(wider: Budget) -> Recommendation:
            return planner.recommend_within(spec, intent, wishes, host, wider, beside)

        answer = verify_answer(
            app,
            spec,
            answer,
            again,
            engine_name=values["engine"],
            binary=values["engine_binary"],
            only_devices=len(host.devices) < n_devices,
        )
    unused = [Note(*each) for each in unused_settings(pinned, spec, n_devices)]
    answer = answer._replace(warnings=(*answer.warnings, *unused))

    from advisor.outputs.command import command_line

    line = None
    options = planner.options(answer, spec, host, wishes, values["mode"])
    if engine.program == "llama-server" and answer.verdict != "does_not_fit":
        line = command_line(engine.program, _model_file(header), options)
    written = None
    if values["output"] and answer.verdict == "does_not_fit":
        from advisor.cli.terminal import clean

        written = f"advisor: nothing that fits was found, so {clean(values['output'])} was not written."
    elif values["output"]:
        written = _write(values["output"], header, options, engine.program)
    if values["as_json"]:
        kept = planner.limited(answer, wishes)
        _print_json(answer, spec, host, engine, values["tool"], line, app.rules.digest(), kept)
    else:
        from advisor.cli.render_recommend import render_recommendation
        from advisor.cli.terminal import Screen

        screen = Screen()
        lines = render_recommendation(answer, spec, host, engine, line, screen)
        if values["plot"]:
            from advisor.cli.render_curves import curve_lines
            from advisor.recommend.curves import memory_curves, speed_curves

            search = planner.search(spec, intent, wishes, host, beside)
            drawn = curve_lines(memory_curves(search, answer.chosen), speed_curves(search, answer.chosen), screen)
            lines = [*lines[:-1], *drawn, "", lines[-1]]  # where the figures come from stays last
        print("\n".join(lines))
    if written:
        click.echo(written, err=True)
    if answer.verdict == "cpu" and n_devices and pinned.n_gpu_layers != 0:
        return EXIT_STATUS["partial"]  # there is a GPU, and it could not be used
    return EXIT_STATUS[answer.verdict]


def _check_safe(pinned: RequestedSettings) -> None:
    """llama.cpp's fit gives up where layers are placed by hand (common/fit.cpp, common_fit_params)."""
    for flag in _placed(pinned):
        raise UsageError(f"--mode safe leaves the layers to the engine's own fit, {flag} places them; give one.")


def _check_what_gpu(hardware: HardwareChoice, pinned: RequestedSettings, values: dict[str, Any]) -> None:
    given = {
        "--gpu": hardware.gpus,
        "--no-gpu": hardware.no_gpu,
        "--hardware": hardware.hardware_file,
        "--plot": values["plot"],
        "--verify": values["verify"],
        "--output": values["output"],
    }
    for flag in [*(flag for flag, value in given.items() if value), *_placed(pinned)]:
        raise UsageError(f"--what-gpu looks for cards that hold everything, which {flag} contradicts; leave it away.")


def _placed(pinned: RequestedSettings) -> list[str]:
    """The flags given that place layers or experts."""
    placed = {
        "-ngl": pinned.n_gpu_layers is not None,
        "-ts": pinned.tensor_split,
        "-ot": pinned.tensor_overrides,
        "-sm": pinned.split_mode,
        "-mg": pinned.main_gpu,
        "--n-cpu-moe": pinned.n_cpu_moe,
        "--cpu-moe": pinned.cpu_moe,
    }
    return [flag for flag, given in placed.items() if given]


def _check(min_ctx: int | None, max_ctx: int | None, min_tps: float | None) -> None:
    if min_ctx and max_ctx and min_ctx > max_ctx:
        raise UsageError(f"--min-ctx {min_ctx} is above --max-ctx {max_ctx}; give a smaller one.")
    if min_tps is not None and not 0 <= min_tps < 1e6:
        raise UsageError(f"--min-tps {min_tps} is no speed; give tokens per second, such as 10.")


def _model_file(header: GgufHeader) -> str:
    """The file that the engine loads; a header snapshot stands for one whose place nobody knows here."""
    if header.source != "snapshot":
        return header.path
    name = header.path.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".gz").removesuffix(".json")
    return f"{name}.gguf"


def _write(path: str, header: GgufHeader, options: list[tuple[str, str]], program: str) -> str:
    from advisor.outputs.preset_ini import write_preset

    if program != "llama-server":
        raise UsageError(f"--output writes llama-server presets, not files for {program}; leave --engine away.")
    if header.source == "snapshot":
        raise UsageError(f"{header.path} is a header snapshot, which no engine can load; give the model for --output.")
    return write_preset(path, header.path, options)


def _print_json(
    answer: Recommendation, spec: Any, host: Any, engine: Any, tool: str, line: str | None, digest: str,
    kept: dict[str, int],
) -> None:  # fmt: skip
    import json

    from advisor.cli import shapes

    document = {
        "schema": "advisor.recommend/1",
        "model": shapes.model_shape(spec),
        "engine": shapes.engine_shape(engine, tool),
        "settings": shapes.settings_shape(answer.chosen.plan),
        "devices": shapes.devices_shape(answer.chosen.plan, answer.budget, host),
        "host": shapes.host_shape(answer.chosen.plan, answer.budget, kept),
        "speed": shapes.speed_shape(answer.speed),
        "verdict": answer.verdict,
        "warnings": shapes.notes_shape(answer.warnings),
        "ignored": [],
        **shapes.recommendation_shape(answer, host),
        "command": line,
        "rulebook": digest,
    }
    print(json.dumps(document, indent=2))
