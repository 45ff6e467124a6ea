"""`advisor calibrate --url`: what a running llama-server is asked, and what is learned from its answers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from advisor.errors import EngineError
from advisor.records import NamedTuple

if TYPE_CHECKING:
    from advisor.app import App
    from advisor.calibration import Run
    from advisor.cli.checking import Figure
    from advisor.cli.learning import Predictor
    from advisor.engines.http import Address
    from advisor.engines.timings import Metrics
    from advisor.host import HostSnapshot
    from advisor.model.spec import ModelSpec
    from advisor.settings import RequestedSettings

_DEPTH_TOKENS = 1000
_STEADY = 0.15  # of the speed, by which it may fall over the depths that a server has seen
_ALONE = 1.05  # slots that were busy at once, on average
_MAX_CTX, _MAX_SLOTS = 1 << 28, 4096
_LEAST_TOKENS = 200  # that a server must have answered with for its averages to mean something


class Served(NamedTuple):
    """What a server says of itself."""

    path: str
    build: int | None
    n_ctx: int  # of one slot
    n_slots: int


def learn_from_server(app: App, url: str, model: str | None, folder: str, *, as_json: bool) -> int:
    """Ask the server at `url`, compare with what is predicted for it, remember the factor. Raises EngineError."""
    from advisor.cli.checking import Figure
    from advisor.cli.learning import Predictor, keep_run, learn
    from advisor.engines.http import is_this_machine, parse_address
    from advisor.engines.timings import Timing
    from advisor.engines.trial import time_model

    address = parse_address(url, allow_remote=True)
    if not is_this_machine(address.host):
        raise EngineError(
            f"{address.host} is another machine; run 'advisor calibrate' there, it teaches nothing of this."
        )
    served = _served(address, model)
    spec = app.model(app.header(served.path))
    host = app.host()
    notes: list[str] = []
    request, used, certain = _settings(address, served, host, notes)
    predictor = Predictor(app, used, spec, request, app.engine(None))
    figures: list[Figure] = []
    timings: list[Timing] = []
    metrics = _metrics(address)
    _refuse_busy(address)
    depths = (0, _DEPTH_TOKENS) if served.n_ctx >= _DEPTH_TOKENS + 64 else (0,)
    at_depths, prompt = time_model(address, depths)
    for at in at_depths:
        timings.append(Timing(0, 0.0, 1000, at.seconds * 1000, at.depth))
        now = 1 / predictor.decode_seconds(at.depth)
        figures.append(Figure("decode", at.depth, 1 / at.seconds, now, now))
    timings.append(prompt._replace(steps=0))
    if metrics is not None:
        timing, said = _from_metrics(metrics, predictor)
        notes.append(said)
        timings += [timing] if timing is not None else []
    learned = learn(predictor, timings, served.build)
    run = learned.run if certain else None
    if not certain:
        notes.append("What runs on the GPU is not known from the server's command line, so nothing is learned.")
    elif run is not None:
        problem = keep_run(folder, host, run)
        if problem is not None:
            run = None
            notes.append(problem)
        else:
            factor = run.decode_factors[0]
            figures = [figure._replace(after=figure.before / factor) for figure in figures]
    else:
        notes.append(learned.reason)
    _print(address, spec, served, predictor, figures, run, notes, as_json=as_json)
    return 0


def _served(address: Address, model: str | None) -> Served:
    from advisor.engines.http import ask
    from advisor.engines.trial import build_of

    props = ask(address, "GET", "/props")
    body = props.body if isinstance(props.body, dict) else {}
    settings = body.get("default_generation_settings")
    n_ctx = settings.get("n_ctx") if isinstance(settings, dict) else None
    slots = body.get("total_slots")
    if type(n_ctx) is not int or type(slots) is not int or not 0 < n_ctx < _MAX_CTX or not 0 < slots < _MAX_SLOTS:
        raise EngineError(
            f"{address.shown} does not answer like a llama-server with a model; give the address of one "
            "(of a router, that of the server it has started)."
        )
    path = model if model is not None else body.get("model_path")
    if not isinstance(path, str) or (model is None and not os.path.isfile(path)):
        raise EngineError(f"the model of {address.shown} is not at hand; give its file as MODEL.")
    return Served(path, build_of(address), n_ctx, slots)


def _settings(
    address: Address, served: Served, host: HostSnapshot, notes: list[str]
) -> tuple[RequestedSettings, HostSnapshot, bool]:
    """(the server's settings, `host` with the GPUs that it may use, whether that is known).

    By its command line where that can be read, else as it says itself.
    """
    from advisor.hardware.engine_processes import command_line_at
    from advisor.host import with_devices
    from advisor.llama_flags import parse_command
    from advisor.settings import ALL_LAYERS, AUTO_LAYERS, RequestedSettings

    words = command_line_at(address.port)
    pasted = parse_command(words) if words else None
    known = pasted.settings if pasted is not None else RequestedSettings()
    certain = pasted is not None or not host.devices
    if pasted is not None and pasted.devices is not None:
        used = tuple(device for device in host.devices if device.id in pasted.devices)
        certain = len(used) == len(pasted.devices)
        host = with_devices(host, used)
    layers = known.n_gpu_layers
    if host.devices and certain and layers in (None, AUTO_LAYERS):
        notes.append("The engine chose the layers on the GPU itself; all of them are taken to be there.")
        layers = ALL_LAYERS
    n_ctx = served.n_ctx * (1 if known.kv_unified else served.n_slots)
    return known._replace(n_ctx=n_ctx, n_parallel=served.n_slots, n_gpu_layers=layers), host, certain


def _refuse_busy(address: Address) -> None:
    from advisor.engines.http import ask

    slots = ask(address, "GET", "/slots").body
    if isinstance(slots, list) and any(isinstance(slot, dict) and slot.get("is_processing") for slot in slots):
        raise EngineError(f"{address.shown} is answering somebody else; try again when it is idle.")


def _metrics(address: Address) -> Metrics | None:
    from advisor.engines.http import ask
    from advisor.engines.timings import parse_metrics

    answer = ask(address, "GET", "/metrics")
    return parse_metrics(answer.text) if answer.status == 200 else None


def _from_metrics(metrics: Metrics, predictor: Predictor) -> tuple[Any, str]:
    """(a timing that stands for all requests since the server's start, what is to be said of them).

    The depth of these requests is not told: they count only where it hardly matters.
    """
    from advisor.engines.timings import Timing

    rate = metrics.decode_tokens_per_s
    if rate is None or metrics.predicted_tokens < _LEAST_TOKENS:
        return None, "/metrics tells of too few tokens to learn from."
    said = f"/metrics: {metrics.predicted_tokens:,} tokens at {rate:.1f} tokens/s"
    if metrics.busy_slots is not None and metrics.busy_slots > _ALONE:
        return None, f"{said}, of several slots at once; not learned from."
    if metrics.largest_depth is None:
        return None, f"{said}, at depths that are not told; not learned from."
    empty, full = predictor.decode_seconds(0), predictor.decode_seconds(metrics.largest_depth)
    if full > empty * (1 + _STEADY):
        return None, f"{said}, at up to {metrics.largest_depth:,} tokens of context; not learned from."
    return Timing(0, 0.0, metrics.predicted_tokens, metrics.predicted_tokens / rate, metrics.largest_depth // 2), said


def _print(
    address: Address, spec: ModelSpec, served: Served, predictor: Predictor, figures: list[Figure], run: Run | None,
    notes: list[str], *, as_json: bool,
) -> None:  # fmt: skip
    import json

    from advisor.cli.checking import Check, figure_shape
    from advisor.cli.render_calibrate import check_lines
    from advisor.cli.terminal import Screen, clean

    if as_json:
        document = {
            "schema": "advisor.calibrate/1",
            "url": address.shown,
            "model": {"path": spec.path, "name": spec.name, "quantization": spec.quantization},
            "build": served.build,
            "device": predictor.device,
            "figures": [figure_shape(figure) for figure in figures],
            "learned": run._asdict() if run is not None else None,
            "notes": notes,
        }
        print(json.dumps(document, indent=2))
        return
    screen = Screen()
    check = Check(spec, None, served.build, predictor.device or "several devices", tuple(figures))
    lines = [f"{clean(address.shown)} on {clean(check.device)}", "", *check_lines(check, screen), ""]
    for note in notes:
        lines += screen.wrap(clean(note, 400), "    ", "  - ")
    lines += screen.wrap(
        "Remembered for models of this quantization and about this size." if run is not None else "", ""
    )
    print("\n".join(lines).rstrip())
