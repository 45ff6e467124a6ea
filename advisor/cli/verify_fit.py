"""`advisor verify --fit`: what the engine's own fit chooses on the same devices beside our choice."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from advisor.cli.options import HardwareChoice
from advisor.errors import EngineError, UsageError
from advisor.records import NamedTuple
from advisor.settings import AUTO_LAYERS, RequestedSettings

if TYPE_CHECKING:
    from advisor.app import App
    from advisor.cli.ask import Asked
    from advisor.cli.terminal import Screen
    from advisor.engines.fit_run import FitRun
    from advisor.host import HostSnapshot
    from advisor.model.spec import ModelSpec
    from advisor.recommend.beside_fit import BesideFit
    from advisor.recommend.engine_fit import Fitted
    from advisor.recommend.recommendation import Recommendation
    from advisor.recommend.search import Search

RULES = "its published rules"


class FitReport(NamedTuple):
    """The comparison with what is needed to show it. `run` is None where the published rules spoke for the engine."""

    beside: BesideFit
    answer: Recommendation
    whole: Search
    used: Search
    run: FitRun | None
    rules_agree: bool | None
    note: str | None


def check_fit(request: RequestedSettings, tool: str) -> None:
    """Fit gives up where layers are placed by hand (llama.cpp common/fit.cpp). Raises UsageError."""
    placed = {
        "-ngl": request.n_gpu_layers not in (None, AUTO_LAYERS), "-ts": request.tensor_split,
        "-ot": request.tensor_overrides, "-sm": request.split_mode not in (None, "layer"),
        "--n-cpu-moe": request.n_cpu_moe, "--cpu-moe": request.cpu_moe,
    }  # fmt: skip
    for flag, given in placed.items():
        if given:
            raise UsageError(f"--fit shows how the engine places layers by itself, {flag} places them; leave it away.")
    for flag, beside in (
        ("--lora", request.lora),
        ("--mmproj", request.mmproj),
        ("-md", request.draft_model),
        ("--spec-type", request.spec_type),
    ):
        if beside:
            raise UsageError(f"--fit plans the model alone, without what {flag} loads beside it; leave it away.")
    if tool != "server":
        raise UsageError(f"--fit is about llama-server, not {tool}; leave --tool away.")


def fit_report(
    app: App, spec: ModelSpec, request: RequestedSettings, hardware: HardwareChoice, values: dict[str, Any],
    asked: Asked | None,
) -> FitReport | None:  # fmt: skip
    """The comparison; `asked` is what a real engine on this machine has answered. None without a GPU."""
    from advisor.planner import Planner
    from advisor.recommend.beside_fit import beside_fit, fit_base, fit_by_rules
    from advisor.recommend.search import Wishes

    request = request._replace(n_gpu_layers=None)
    engine = asked.engine if asked is not None else app.engine(values["engine"])
    host = app.host(
        gpus=hardware.gpus, no_gpu=hardware.no_gpu, ram=hardware.ram_bytes, hardware_file=hardware.hardware_file
    )
    if asked is not None:
        host = _as_engine_sees(host, asked)
    if not host.devices:
        return None
    planner = Planner(
        app, host, engine, now=hardware.now or asked is not None, keep_free_bytes=hardware.keep_free_bytes
    )
    intent, wishes = planner.intent("balanced"), Wishes(request)
    answer, used_host = planner.recommend(spec, intent, wishes)
    if answer.chosen.plan.refused is not None:
        raise UsageError(f"{engine.name} refuses these settings: {answer.chosen.plan.refused}.")
    whole, used = (planner.search(spec, intent, wishes, machine) for machine in (host, used_host))
    by_rules = fit_by_rules(whole, [device.free_bytes for device in asked.devices] if asked is not None else None)
    run, note, agree = None, None, None
    fitted = by_rules
    if asked is not None:
        try:
            told = _ask(spec, fit_base(whole), values["engine_binary"], asked)
            fitted = _fitted(told, whole)
            run, agree = told, fitted.request == by_rules.request
        except EngineError as error:
            note = str(error)
    return FitReport(beside_fit(whole, answer, used, fitted), answer, whole, used, run, agree, note)


def _as_engine_sees(host: HostSnapshot, asked: Asked) -> HostSnapshot:
    """`host` with the engine's devices and their free memory, and what is known of the same cards otherwise."""
    known = {device.id: device for device in host.devices}
    devices = []
    for device in asked.devices:
        overhead = asked.engine.backends[device.backend].overhead_bytes  # taken already when the engine looks
        free = min(device.free_bytes + overhead, max(device.total_bytes, device.free_bytes))
        same = known.get(device.id, device)
        if same.backend != device.backend:
            same = device
        devices.append(same._replace(name=device.name, total_bytes=device.total_bytes, free_bytes=free,
                                     used_by_engines_bytes=0, source="engine"))  # fmt: skip
    return host._replace(devices=tuple(devices))


def _ask(spec: ModelSpec, base: RequestedSettings, binary: str | None, asked: Asked) -> FitRun:
    from advisor.engines.find import find_engines
    from advisor.engines.fit_run import ask_fit

    only = [device.id for device in asked.devices]
    found = [engine for engine in find_engines(binary, os.environ) if engine.path == asked.dry_run.binary.path]
    run = ask_fit(found, spec.path, base, os.environ, only_devices=only)
    if run.log.failed is not None:
        raise EngineError(f"the engine's fit gave up: {run.log.failed}; its published rules are used.")
    return run


def _fitted(run: FitRun, whole: Search) -> Fitted:
    """The engine's choice as a request. Raises EngineError where it used devices in another order."""
    from advisor.recommend.beside_fit import fit_base
    from advisor.recommend.engine_fit import Fitted, Share, request_of

    ids = [device.id for device in whole.evaluator.host.devices]
    base = fit_base(whole)._replace(n_ctx=run.log.n_ctx)
    if not run.log.devices:
        return Fitted(base, ())
    if [filled.device for filled in run.log.devices] != ids:
        raise EngineError("the engine's fit names other devices than its dry run; its published rules are used.")
    shares = tuple(
        Share(one.n_layer, one.n_part, one.kept, one.kept != "moe" and index + 1 < len(ids))
        for index, one in enumerate(run.log.devices)
    )
    return Fitted(request_of(base, whole.spec, shares, ids), shares)


def fit_shape(report: FitReport) -> dict[str, Any]:
    """The key `fit` of the JSON answer."""
    from advisor.cli import shapes
    from advisor.engines.dry_run import settings_words
    from advisor.recommend.engine_fit import MARGIN_BYTES

    beside, run, budget = report.beside, report.run, report.whole.evaluator.budget
    fit, host = beside.fit.judged.plan, report.whole.evaluator.host
    return {
        "source": "engine" if run is not None else "published rules",
        "seconds": round(run.seconds, 3) if run is not None else None,
        "rules_agree": report.rules_agree,
        "note": report.note,
        "margin_bytes": MARGIN_BYTES,
        "better": beside.better,
        "leave_it_to_the_engine": beside.leave,
        "fit": {
            "arguments": settings_words(beside.fitted.request),
            "settings": shapes.settings_shape(fit),
            "devices": shapes.devices_shape(fit, budget, host),
            "host": shapes.host_shape(fit, budget),
            "host_expert_blocks": fit.host_expert_blocks,
            "used_bytes": {one.device: one.used_bytes for one in run.log.devices} if run is not None else None,
            "speed": shapes.speed_shape(beside.fit.speed),
        },
        "ours": {
            "verdict": report.answer.verdict,
            "arguments": settings_words(report.answer.chosen.request),
            "settings": shapes.settings_shape(report.answer.chosen.plan),
            "devices": shapes.devices_shape(
                report.answer.chosen.plan, report.answer.budget, report.used.evaluator.host
            ),
            "host": shapes.host_shape(report.answer.chosen.plan, report.answer.budget),
            "host_expert_blocks": report.answer.chosen.plan.host_expert_blocks,
            "speed": shapes.speed_shape(beside.ours.speed),
        },
        "sentences": [{"text": said.text, "figures": dict(said.figures)} for said in beside.said],
    }


def fit_lines(report: FitReport, screen: Screen) -> list[str]:
    """Both choices side by side, and which is better by what."""
    from advisor.cli.terminal import clean, columns

    beside = report.beside
    who = RULES if report.run is None else clean(report.run.binary.path)
    lines = screen.wrap(f"{screen.paint('What -fit on chooses', 'bold')}, by {who}", "  ", "")
    rows = [["", "-fit on", "advisor"], *_rows(report)]
    table = ["  " + line for line in columns(rows, right=(1, 2), gap=3)]
    lines += [screen.paint(table[0], "dim"), *table[1:], ""]
    color = {"ours": "green", "fit": "yellow"}.get(beside.better)
    for index, said in enumerate(beside.said):
        wrapped = screen.wrap(clean(said.text, 400), "  ", "")
        lines += [screen.paint(line, "bold", color) for line in wrapped] if color and not index else wrapped
    if report.rules_agree is not None:
        agree = "come to the same" if report.rules_agree else "come to something else"
        lines += screen.wrap(f"Its published rules over advisor's figures {agree}.", "  ", "")
    return [*lines, *(screen.wrap(clean(report.note, 400), "  ", "") if report.note else [])]


def _rows(report: FitReport) -> list[list[str]]:
    from advisor.recommend.words import cache_name, layers_text, use_rate
    from advisor.units import format_bytes

    beside, spec = report.beside, report.whole.spec
    sides = (beside.fit, beside.ours)
    plans = [side.judged.plan for side in sides]
    several = " a slot" if report.whole.slots > 1 else ""
    rows = [
        ["context", *(f"{side.n_ctx:,}{several}" for side in sides)],
        ["layers", *(layers_text(spec, side.judged).partition(",")[0] for side in sides)],
        ["cache", *(cache_name(side.judged) for side in sides)],
        ["micro-batch", *(str(plan.settings.n_ubatch) for plan in plans)],
    ]
    if any(plan.host_expert_blocks for plan in plans):
        rows.insert(2, ["experts on the CPU", *(f"{plan.host_expert_blocks} blocks" for plan in plans)])
    for device in plans[0].devices:
        needs = [{one.id: one.planned_bytes for one in plan.devices}.get(device.id, 0) for plan in plans]
        rows.append([device.id, *(format_bytes(need) if need else "unused" for need in needs)])
    rows.append(["host", *(format_bytes(plan.host.planned_bytes) for plan in plans)])
    rows.append(["tokens/s", *(f"{use_rate(spec, side.speed):,.1f}" for side in sides)])
    rows.append(["seconds a turn", *(f"{side.turn_s:,.1f}" for side in sides)])
    return rows
