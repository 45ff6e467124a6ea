"""Asking an engine what `-fit on` chooses: it measures without loading a weight, says what it took, and is stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from advisor.engines.dry_run import environment, settings_words
from advisor.engines.find import BINDINGS, EngineBinary
from advisor.engines.fit_log import END, FitLog, parse_fit
from advisor.engines.process import run_until
from advisor.errors import EngineError
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings

TIME_LIMIT_S = 60.0  # a dozen looks at the model's header
_SERVER = ("--host", "127.0.0.1", "--port", "0", "--no-warmup")
_FIT = ("-fit", "on", "-v", "--log-colors", "off")


class FitRun(NamedTuple):
    """One answer and who gave it."""

    binary: EngineBinary
    log: FitLog
    seconds: float


def ask_fit(
    engines: Sequence[EngineBinary],
    model_path: str,
    asked: RequestedSettings,
    environ: Mapping[str, str],
    *,
    only_devices: Sequence[str] | None = None,
) -> FitRun:
    """What the first of `engines` that can be asked chooses beside `asked`. Raises EngineError with its reason.

    The bindings for Python have no fit. `only_devices` restricts the engine to some of its GPUs.
    """
    reason = "no llama-server or llama-fit-params was found, so fit's published rules are used."
    words = settings_words(asked, only_devices)
    for binary in engines:
        if binary.kind == BINDINGS:
            continue
        extra = _SERVER if binary.kind == "server" else ()
        command = [binary.path, "-m", model_path, *extra, *_FIT, *words]
        ran = run_until(command, environment(binary, environ), TIME_LIMIT_S, lambda tail: END in tail)
        log = parse_fit(ran.text)
        if log.ended and log.n_ctx is not None:
            return FitRun(binary, log, ran.seconds)
        reason = f"{binary.path} did not say what its fit chooses within {TIME_LIMIT_S:.0f} s"
        if ran.ended == "status":
            reason = f"{binary.path} ended with status {ran.status} and without a choice of its fit"
        reason += "; its published rules are used."
    raise EngineError(reason)
