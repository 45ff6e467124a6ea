"""How far off speeds were before a calibration and are after it, by a model that the engine really runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from advisor.calibration import Calibration, with_run
from advisor.errors import AdvisorError
from advisor.records import NamedTuple

if TYPE_CHECKING:
    from advisor.app import App
    from advisor.cli.calibrating import Checked
    from advisor.cli.learning import Learned
    from advisor.engines.find import EngineBinary
    from advisor.host import HostSnapshot
    from advisor.model.spec import ModelSpec


class Figure(NamedTuple):
    """Tokens per second: the engine's, and what was and is predicted."""

    what: str  # "decode" | "prefill"
    depth: int
    measured: float
    before: float
    after: float


class Check(NamedTuple):
    """One model on one engine."""

    spec: ModelSpec
    binary: EngineBinary | None  # None: a server that was running already
    build: int | None
    device: str
    figures: tuple[Figure, ...]


def check_with(
    app: App,
    host: HostSnapshot,
    calibration: Calibration,
    engines: tuple[EngineBinary, ...],
    spec: ModelSpec | None,
    seconds: float,
) -> tuple[Check | None, Calibration, list[str]]:
    """(the check, `calibration` with the run that it was, sentences). No check without a model and an engine for it.

    `seconds`: what the engine's trials may take; the model's prompt takes a part of that.
    """
    from advisor.calibrated import calibrated

    if spec is None:
        return None, calibration, ["No model of 48 MiB to 3 GiB is at hand to check with; give one as MODEL."]
    said: list[str] = []
    before, after = host, calibrated(host, calibration)
    for binary in engines:
        try:
            check, learned = _check(app, before, after, binary, spec, _device(host, binary, spec), seconds)
        except AdvisorError as error:
            said.append(str(error))
            continue
        if learned.run is None:
            return check, calibration, [*said, learned.reason]
        return check, with_run(calibration, learned.run), said
    return None, calibration, said


def _device(host: HostSnapshot, binary: EngineBinary, spec: ModelSpec) -> str | None:
    """The id of the GPU that this engine would run the whole model on, None for the CPU."""
    from advisor.engines.serve import PACKAGE
    from advisor.hardware.engine_list import probe_engine_list

    if not host.devices or binary.kind == PACKAGE or spec.file_bytes > host.devices[0].free_bytes // 2:
        return None
    import os

    listed, _ = probe_engine_list(environ=os.environ, program=binary.path)
    first = host.devices[0]
    return next((device.id for device in listed if device.backend == first.backend), None)


def _check(
    app: App,
    before: HostSnapshot,
    after: HostSnapshot,
    binary: EngineBinary,
    spec: ModelSpec,
    device: str | None,
    seconds: float,
) -> tuple[Check, Learned]:
    from advisor.cli.calibrating import CHECK_PROMPT_S, check_model
    from advisor.cli.learning import LEAST_PROMPT_TOKENS, Predictor, learn
    from advisor.engines.timings import Timing
    from advisor.host import with_devices
    from advisor.settings import RequestedSettings

    layers = spec.n_layer_all + 1 if device is not None else 0

    def predictor(host: HostSnapshot, n_ctx: int) -> Predictor:
        request = RequestedSettings(n_ctx=n_ctx, n_parallel=1, n_gpu_layers=layers)
        return Predictor(app, with_devices(host, host.devices[:1] if layers else ()), spec, request, app.engine(None))

    expected = predictor(after, spec.n_ctx_train or 4096)
    done: Checked = check_model(
        binary, spec.path, spec.n_ctx_train, lambda n: n * expected.prefill_seconds(n),
        patience_s=min(CHECK_PROMPT_S, seconds / 2), layers=layers, device=device,
    )  # fmt: skip
    was, now = predictor(before, done.n_ctx), predictor(after, done.n_ctx)
    figures = [
        Figure("decode", at.depth, 1 / at.seconds, 1 / was.decode_seconds(at.depth), 1 / now.decode_seconds(at.depth))
        for at in done.at_depths
    ]
    prompt = done.prompt
    if prompt.prompt_tokens >= LEAST_PROMPT_TOKENS and prompt.prompt_seconds > 0:
        n = prompt.prompt_tokens
        rates = (n / prompt.prompt_seconds, 1 / was.prefill_seconds(n), 1 / now.prefill_seconds(n))
        figures.append(Figure("prefill", n, *rates))
    timings: list[Timing] = [Timing(0, 0.0, 1000, at.seconds * 1000, at.depth) for at in done.at_depths]
    learned = learn(now, [*timings, prompt._replace(steps=0)], done.build)
    return Check(spec, binary, done.build, now.device or "several", tuple(figures)), learned


def error_of(predicted: float, measured: float) -> float:
    """By how much a prediction is off, as a share of what was measured."""
    return predicted / measured - 1


def figure_shape(figure: Figure) -> dict[str, Any]:
    """As JSON."""
    return {
        "what": figure.what,
        "tokens": figure.depth,
        "measured_tokens_per_s": round(figure.measured, 3),
        "before_tokens_per_s": round(figure.before, 3),
        "before_error": round(error_of(figure.before, figure.measured), 4),
        "after_tokens_per_s": round(figure.after, 3),
        "after_error": round(error_of(figure.after, figure.measured), 4),
    }
