"""`advisor recommend MODEL MODEL... --together`: several models that are to be loaded at the same time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from advisor.app import App
from advisor.cli.options import take_hardware, take_settings
from advisor.cli.recommend import check_limits, model_file, write_output
from advisor.errors import UsageError
from advisor.gguf_header.types import GgufHeader
from advisor.joint import options_of, plan_jointly
from advisor.outputs.command import command_line
from advisor.planner import Planner
from advisor.recommend.search import Wishes
from advisor.settings import RequestedSettings
from advisor.together.types import Member, Together

EXIT_STATUS = {"full": 0, "partial": 3, "does_not_fit": 4}
_ALONE = ("what_gpu", "plot", "verify", "explain", "any_quant")


def answer_together(models: tuple[str, ...], values: dict[str, Any]) -> int:
    """Plan, print, and the exit status: 0 all wholly, 3 some in part, 4 not all fit."""
    hardware, pinned = take_hardware(values), take_settings(values)
    app = App(values["rules_folder"])
    pinned = app.drafting(pinned)
    engine = app.engine(values["engine"])
    host = app.host(
        gpus=hardware.gpus, no_gpu=hardware.no_gpu, ram=hardware.ram_bytes, hardware_file=hardware.hardware_file
    )
    planner = Planner(
        app, host, engine, tool=values["tool"], now=hardware.now, keep_free_bytes=hardware.keep_free_bytes
    )
    _check(models, values, planner.policy.together["most_models"])
    check_limits(values["min_ctx"], values["max_ctx"], values["min_tps"], pinned.n_ctx)
    headers = [app.header(model) for model in models]
    intents = [planner.intent(values["intent"], pinned.n_parallel), *[planner.intent("balanced")] * (len(models) - 1)]
    wishes = [
        Wishes(pinned, values["min_ctx"], values["max_ctx"], values["min_tps"]),
        *[Wishes(RequestedSettings())] * (len(models) - 1),
    ]
    specs = [
        app.model(header, load_mtp="draft-mtp" in wish.pinned.spec_type)
        for header, wish in zip(headers, wishes, strict=True)
    ]
    members = [
        Member(name, spec, intent, wish, app.beside(wish.pinned, spec))
        for name, spec, intent, wish in zip(_names(headers), specs, intents, wishes, strict=True)
    ]
    answer = plan_jointly(planner, members, app.quant_rules)
    for index, why in answer.refused.items():
        raise UsageError(f"{engine.name} refuses these settings of {answer.members[index].name}: {why}.")
    chosen = options_of(planner, answer)
    lines = [
        command_line(engine.program, model_file(header), options)
        if options is not None and engine.program == "llama-server"
        else None
        for header, options in zip(headers, chosen, strict=True)
    ]
    written = _write(values["output"], answer, headers, chosen, engine.program) if values["output"] else []
    if values["as_json"]:
        import json

        from advisor.cli.together_json import together_shape

        document = together_shape(answer, engine, values["tool"], host, lines, chosen, app.rules.digest())
        print(json.dumps(document, indent=2))
    else:
        from advisor.cli.render_together import render_together
        from advisor.cli.terminal import Screen

        print("\n".join(render_together(answer, host, engine, lines, Screen())))
    for text in written:
        click.echo(text, err=True)
    return EXIT_STATUS[answer.verdict]


def _write(
    path: str,
    answer: Together,
    headers: list[GgufHeader],
    chosen: list[list[tuple[str, str]] | None],
    program: str,
) -> list[str]:
    """A preset with a section for each model, and what it cannot say; nothing where not all fit."""
    from advisor.cli.terminal import clean
    from advisor.outputs.llama_server_preset import OUTPUT

    if answer.verdict == "does_not_fit":
        return [f"advisor: the models do not fit together, so {clean(path)} was not written."]
    said = [
        write_output(path, header, options, program)
        for header, options in zip(headers, chosen, strict=True)
        if options is not None
    ]
    _, more = OUTPUT.grouped({"of this command": [member.name for member in answer.members]})
    return [*said, *(f"advisor: {text}" for text in more)]


def _check(models: tuple[str, ...], values: dict[str, Any], most: int) -> None:
    if len(models) < 2:
        raise UsageError("--together plans several models; give two or more, the main one first.")
    if len(models) > most:
        raise UsageError(
            f"{len(models)} models are more than the {most} that are planned together; leave some out, or raise "
            "together.most_models in policy.toml."
        )
    for name in _ALONE:
        if values[name]:
            raise UsageError(f"--{name.replace('_', '-')} is about one model; leave it or --together away.")
    if values["mode"] == "safe":
        raise UsageError("--mode safe leaves the layers to the engine, which knows of no other model; give exact.")


def _names(headers: list[GgufHeader]) -> list[str]:
    """What the answer calls each model: its file's name, with a number where two have the same."""
    plain = [model_file(header).replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".gguf") for header in headers]
    counts, seen = Counter(plain), Counter[str]()
    names = []
    for name in plain:
        seen[name] += 1
        names.append(f"{name} ({seen[name]})" if counts[name] > 1 else name)
    return names
