"""What the timings in a log teach: requests that ran alone against the prediction, remembered for this machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from advisor.records import NamedTuple

if TYPE_CHECKING:
    from advisor.calibration import Run
    from advisor.engines.load_log import Load, LoadLog
    from advisor.engines.timings import SpeedLog
    from advisor.host import HostSnapshot
    from advisor.settings import RequestedSettings


class Observed(NamedTuple):
    """What was learned, or why nothing was."""

    run: Run | None
    n_requests: int  # that ran alone
    notes: tuple[str, ...]


def learn_from_log(
    speeds: SpeedLog,
    found: LoadLog,
    model: str | None,
    *,
    local: bool,
    engine_name: str | None,
    rules_folder: str | None,
) -> Observed | None:
    """Learn from the requests of a log; None where it tells of none.

    `local`: the log is known to be this machine's. Otherwise it must name a model that is here, and what it says of the
    machine must be true of this one.
    """
    from advisor.app import App
    from advisor.cli.learning import Predictor, keep_run, learn
    from advisor.state import state_folder

    n_requests = len(speeds.timings)
    if not n_requests and not speeds.n_disturbed:
        return None
    if not n_requests:
        return Observed(None, 0, ("Every request shared the engine with others, so their speed teaches nothing.",))
    if model is None:
        return Observed(None, n_requests, ("Its requests teach nothing without the model; give it with --model.",))
    app = App(rules_folder)
    spec = app.model(app.header(model))
    host = app.host()
    where, reason = _machine(speeds, found, host, local=local)
    if where is None:
        return Observed(None, n_requests, (reason,))
    name = engine_name or (f"llama.cpp@b{found.build}" if found.build else None)
    predictor = Predictor(app, where, spec, _settings(found.last), app.engine(name))
    learned = learn(predictor, speeds.timings, found.build)
    if learned.run is None:
        return Observed(None, n_requests, (learned.reason,))
    problem = keep_run(state_folder(os.environ), host, learned.run)
    return Observed(None, n_requests, (problem,)) if problem else Observed(learned.run, n_requests, ())


def _settings(load: Load | None) -> RequestedSettings:
    from advisor.cli.observed import settings_of
    from advisor.settings import RequestedSettings

    return settings_of(load) if load is not None else RequestedSettings(n_parallel=1)


def _machine(speeds: SpeedLog, found: LoadLog, host: HostSnapshot, *, local: bool) -> tuple[HostSnapshot | None, str]:
    """(`host` with the GPUs that the load used, "") or (None, why it is not known to be this machine)."""
    from advisor.cli.observed import used_devices
    from advisor.host import with_devices

    cores = speeds.logical_cores
    if cores is not None and cores != host.cpu.logical_cores:
        return None, f"The log is of a machine with {cores} threads, so its speed teaches nothing of this one."
    path = speeds.path or (found.last.path if found.last is not None else None)
    if not local and (path is None or not os.path.isabs(path) or not os.path.isfile(path)):
        return (
            None,
            "The log may be of another machine, so its speed teaches nothing; observe it with --unit, or there.",
        )
    load = found.last
    if load is None:
        if host.devices:
            return None, "The log does not say what was on the GPU, so its speed teaches nothing; use -lv 4."
        return host, ""
    names = {device.id: device.name for device in found.devices}
    wanted = used_devices(load)
    ours = [device for device in host.devices if device.id in wanted]
    if len(ours) != len(wanted) or any(names.get(device.id, device.name) != device.name for device in ours):
        return None, f"The load used {', '.join(wanted)} of another machine, so its speed teaches nothing of this one."
    return with_devices(host, tuple(ours)), ""


def observed_shape(observed: Observed | None) -> dict[str, Any] | None:
    """As JSON."""
    if observed is None:
        return None
    run = observed.run
    return {"requests": observed.n_requests, "learned": run._asdict() if run is not None else None}


def observed_line(observed: Observed) -> str:
    """As a sentence; "" where the notes say it."""
    run = observed.run
    if run is None:
        return ""
    pace = 1 / run.decode_factors[0]
    return (
        f"Speed: {run.n_seen} of {observed.n_requests} requests decoded at {pace:.2f} times the predicted pace; "
        f"remembered for {run.quantization} models of about this size on {run.device}."
    )
