"""`advisor recommend MODEL`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from advisor.cli.siblings import Files
    from advisor.recommend.siblings import Sibling

EXIT_STATUS = {"full": 0, "cpu": 0, "partial": 3, "does_not_fit": 4}
UNMET = ("below_min_tps", "below_min_ctx")  # a wish that nothing meets


@click.command("recommend", context_settings={"max_content_width": 100})
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
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
@click.option("--explain", is_flag=True, help="walk the ladder: what was tried, what it lacked, what would help")
@click.option("--any-quant", is_flag=True, help="choose among MODEL and its other quantizations beside it on disk")
@click.option(
    "--together", is_flag=True, help="several MODELs that are to be loaded at the same time, the main one first"
)
@click.option("--plot", is_flag=True, help="also draw memory against context and speed against layers")
@click.option("--verify", is_flag=True, help="ask the installed engine about the answer, plan again where it differs")
@click.option("--engine-binary", metavar="PATH", help="the llama-server to ask with --verify (default: on PATH)")
@settings_options
@hardware_options
@engine_options
def command(models: tuple[str, ...], **values: Any) -> int:
    """Settings for MODEL on this machine: what fits, how fast, why, and what else was tried.

    MODEL is a .gguf file, any shard, a folder, a header snapshot, an Ollama name:tag or a Hugging Face org/repo:QUANT.
    Exit status: 0 fits, 3 fits only in part or a wish (--min-tps, --min-ctx) is not met, 4 does not fit, 2 wrong usage,
    1 any other error.

    Of several quantizations of one model, several files or a folder with nothing else in it, the one is chosen that is
    best for the intent, its loss of quality counted; of one MODEL only with --any-quant, else a better one beside it is
    named.

    With --together several models share the machine, each with settings of its own; wishes and settings given here are
    for the first, the main one. Exit status: 0 all fit wholly, 3 some only in part, 4 not all fit.
    """
    from advisor.app import App
    from advisor.memory.unused import unused_settings
    from advisor.planner import Planner
    from advisor.recommend.search import Wishes

    if values["together"]:
        from advisor.cli.together import answer_together

        return answer_together(models, values)
    hardware, pinned = take_hardware(values), take_settings(values)
    app = App(values["rules_folder"])
    pinned = app.drafting(pinned)
    wishes = Wishes(pinned, values["min_ctx"], values["max_ctx"], values["min_tps"])
    asked = wishes
    if values["mode"] == "safe":
        _check_safe(pinned)
    if values["what_gpu"]:
        _check_what_gpu(hardware, pinned, values)
        hardware = hardware._replace(no_gpu=True)
    if values["plot"] and values["as_json"]:
        raise UsageError("--plot draws, --json does not; 'advisor plot MODEL --json' gives the points.")
    check_limits(wishes.min_n_ctx, wishes.max_n_ctx, wishes.min_tokens_per_s, pinned.n_ctx)
    load_mtp, files = "draft-mtp" in pinned.spec_type, None
    if len(models) > 1 or values["any_quant"] or os.path.isdir(models[0]):
        files = _quantizations(app, models, load_mtp, values)
    header = files.files[0].header if files is not None else app.header(models[0])
    spec = files.files[0].spec if files is not None else app.model(header, load_mtp=load_mtp)
    beside = app.beside(pinned, spec)
    engine = app.engine(values["engine"])
    host = app.host(
        gpus=hardware.gpus, no_gpu=hardware.no_gpu, ram=hardware.ram_bytes, hardware_file=hardware.hardware_file
    )
    planner = Planner(
        app, host, engine, tool=values["tool"], now=hardware.now, keep_free_bytes=hardware.keep_free_bytes
    )
    intent = planner.intent(values["intent"], pinned.n_parallel)
    if values["what_gpu"]:
        from advisor.cli.what_gpu import answer_what_gpu

        return answer_what_gpu(app, planner, spec, intent, wishes, beside, values)
    n_devices = len(host.devices)
    family = None
    if files is not None:
        from advisor.cli.siblings import choose

        (_, header, spec), family = choose(app, planner, files, intent, wishes, beside)
    answer, host = planner.recommend(spec, intent, wishes, beside, smaller=True)
    if beside is not None:  # whatever is asked from here on is about the places that were chosen
        from advisor.together.placing import placed_as

        wishes = placed_as(wishes, answer.chosen.request)
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
    near = None
    if files is None and header.source != "snapshot":
        from advisor.stores.siblings import beside as files_near

        near = files_near(header.path, models[0])
    if near is not None and near.files:
        from advisor.cli.siblings import files_beside, judge_beside

        found = files_beside(app, header, spec, near, load_mtp=load_mtp)
        every = values["as_json"] or values["explain"]
        family = judge_beside(app, planner, found, answer, host, intent, asked, beside, every=every)
    better = None
    if family is not None:
        from advisor.cli.siblings import with_notes

        answer, better = with_notes(answer, family, chosen=files is not None)
    unused = [Note(*each) for each in unused_settings(pinned, spec, n_devices)]
    unused += [Note("calibration_unused", text) for text in (app.calibration_problem,) if text]
    answer = answer._replace(warnings=(*answer.warnings, *unused))

    from advisor.outputs.command import command_line

    if engine.program != "llama-server" and answer.verdict != "does_not_fit":
        answer = answer._replace(reasons=(*answer.reasons, *_own_names(answer, spec, host, engine)))
    options = planner.options(answer, spec, host, wishes, values["mode"])

    def command_of(file: str, its: Recommendation, options: list[tuple[str, str]]) -> str | None:
        runs = engine.program == "llama-server" and its.verdict != "does_not_fit"
        return command_line(engine.program, file, options) if runs else None

    def sibling_command(one: Sibling) -> str | None:
        return command_of(one.path, one.answer, planner.options(one.answer, one.spec, one.host, asked, values["mode"]))

    line = command_of(model_file(header), answer, options)
    from advisor.cli.terminal import clean

    written = None
    if values["output"] and answer.verdict == "does_not_fit":
        written = f"advisor: nothing that fits was found, so {clean(values['output'])} was not written."
    elif values["output"]:
        written = write_output(values["output"], header, options, engine.program)
    why = None
    if values["explain"]:
        from advisor.cli.explaining import explained, explained_lines, explained_shape

        why = explained(planner, spec, intent, wishes, beside, answer, host, app.quant_rules, family)
    if values["as_json"]:
        from advisor.cli.recommend_json import print_json, siblings_shape

        more = siblings_shape(family, better, sibling_command)
        more |= {"explain": explained_shape(why)} if why is not None else {}
        kept = planner.limited(answer, wishes)
        print_json(answer, spec, host, engine, values["tool"], line, options, app.rules.digest(), more, kept)
    else:
        from advisor.cli.render_recommend import render_recommendation
        from advisor.cli.terminal import Screen

        screen = Screen()
        lines = render_recommendation(answer, spec, host, engine, line, screen)
        other_line = sibling_command(better) if better is not None else None
        if better is not None and other_line is not None:
            title = screen.paint(f"Command for {clean(better.name)}", "bold")
            lines = [*lines[:-1], title, f"  {other_line}", "", lines[-1]]
        if why is not None:
            lines = [*lines[:-1], *explained_lines(why, screen)[1:], "", lines[-1]]
        if values["plot"]:
            from advisor.cli.render_curves import curve_lines
            from advisor.recommend.curves import memory_curves, speed_curves

            search = planner.search(spec, intent, wishes, host, beside)
            drawn = curve_lines(memory_curves(search, answer.chosen), speed_curves(search, answer.chosen), screen)
            lines = [*lines[:-1], *drawn, "", lines[-1]]  # where the figures come from stays last
        print("\n".join(lines))
    if written:
        click.echo(written, err=True)
    return exit_status(answer, gpu_idle=n_devices > 0 and pinned.n_gpu_layers != 0)


def exit_status(answer: Recommendation, *, gpu_idle: bool) -> int:
    """The command's; `gpu_idle`: there is a GPU, which an answer on the CPU alone could not use."""
    kept = not any(note.code in UNMET for note in answer.warnings)
    in_part = answer.verdict != "does_not_fit" and (not kept or (answer.verdict == "cpu" and gpu_idle))
    return EXIT_STATUS["partial" if in_part else answer.verdict]


def _own_names(answer: Recommendation, spec: Any, host: Any, engine: Any) -> list[Note]:
    """What an engine without llama.cpp's options must be told, and the context it would take by itself."""
    from advisor.recommend.default_context import default_n_ctx

    notes = []
    default = default_n_ctx(engine, spec, host, answer.chosen.plan.settings.n_parallel)
    if default is not None and default != answer.chosen.plan.settings.n_ctx:
        text = f"Not told otherwise, {engine.name} takes {default:,} tokens here, whatever the model was trained for."
        notes.append(Note("default_context", text, f"{engine.name.replace('-', '_')}.toml: defaults.n_ctx_by_vram"))
    if engine.program == "ollama":
        from advisor.outputs.ollama import in_ollamas_words

        notes.append(Note("ollama_settings", in_ollamas_words(answer.chosen.plan)))
    return notes


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
        "--explain": values["explain"],
        "--verify": values["verify"],
        "--output": values["output"],
        "--any-quant": values["any_quant"],
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


def _quantizations(app: Any, models: tuple[str, ...], load_mtp: bool, values: dict[str, Any]) -> Files | None:
    """The files to choose from; None where there is only one. Raises UsageError where one is asked about."""
    if values["what_gpu"]:
        if len(models) > 1:
            raise UsageError(f"--what-gpu looks for cards for one model, {len(models)} are given; give one.")
        return None
    from advisor.cli.siblings import files_given

    return files_given(app, models, any_quant=values["any_quant"], load_mtp=load_mtp)


def check_limits(min_ctx: int | None, max_ctx: int | None, min_tps: float | None, n_ctx: int | None) -> None:
    """Raise UsageError for limits that contradict each other, or the context that is asked for, or are none."""
    if n_ctx and min_ctx and min_ctx > n_ctx:
        raise UsageError(f"--min-ctx {min_ctx} is above -c {n_ctx}; leave one of them away.")
    if n_ctx and max_ctx and max_ctx < n_ctx:
        raise UsageError(f"--max-ctx {max_ctx} is below -c {n_ctx}; leave one of them away.")
    if min_ctx and max_ctx and min_ctx > max_ctx:
        raise UsageError(f"--min-ctx {min_ctx} is above --max-ctx {max_ctx}; give a smaller one.")
    if max_ctx and max_ctx < 256:  # llama-context.cpp rounds every context up to that
        raise UsageError(f"--max-ctx {max_ctx} is less than the engine's shortest context of 256 tokens; give more.")
    if min_tps is not None and not 0 <= min_tps < 1e6:
        raise UsageError(f"--min-tps {min_tps} is no speed; give tokens per second, such as 10.")


def model_file(header: GgufHeader) -> str:
    """The file that the engine loads; a header snapshot stands for one whose place nobody knows here."""
    if header.source != "snapshot":
        return header.path
    name = header.path.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".gz").removesuffix(".json")
    return f"{name}.gguf"


def write_output(path: str, header: GgufHeader, options: list[tuple[str, str]], program: str) -> str:
    """Put the model's section into the preset; what was done. Raises UsageError, and OutputError as `write_preset`."""
    from advisor.outputs.preset_ini import write_preset

    if program != "llama-server":
        raise UsageError(f"--output writes llama-server presets, not files for {program}; leave --engine away.")
    if header.source == "snapshot":
        raise UsageError(f"{header.path} is a header snapshot, which no engine can load; give the model for --output.")
    return write_preset(path, header.path, options)
