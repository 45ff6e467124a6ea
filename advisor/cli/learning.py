"""What an engine did, held against what is predicted for it: the factor that is remembered for models like it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from advisor.calibration import CPU, Calibration, Run, device_key, median
from advisor.records import NamedTuple

if TYPE_CHECKING:
    from advisor.app import App
    from advisor.engines.timings import Timing
    from advisor.host import HostSnapshot
    from advisor.memory.engine_spec import EngineSpec
    from advisor.model.spec import ModelSpec
    from advisor.settings import RequestedSettings

_LEAST_STEPS = 8  # tokens; a request with fewer tells of its beginning
_LEAST_STEPS_IN_ALL = 64
LEAST_PROMPT_TOKENS = 64
_SANE_FACTOR = 20.0  # beyond that something else was measured: another device, a debugger


class Predictor:
    """Predicts one model with one set of settings; what runs have shown so far is left out of it."""

    def __init__(
        self, app: App, host: HostSnapshot, spec: ModelSpec, request: RequestedSettings, engine: EngineSpec
    ) -> None:
        from advisor.planner import Planner

        calibration = host.calibration
        if calibration is not None:
            host = host._replace(calibration=calibration._replace(runs=()))
        planner = Planner(app, host, engine)
        self.spec = spec
        self._evaluator = planner.evaluator(spec)
        self._judged = self._evaluator.judge(request)
        self._intent = planner.intent("balanced")
        self._devices = host.devices

    @property
    def device(self) -> str | None:
        """Where everything happens: `CPU`, one GPU, or None for more than one place."""
        plan = self._judged.plan
        used = [index for index, n_bytes in enumerate(plan.read_device_bytes) if n_bytes]
        if not used:
            return CPU
        if len(used) > 1 or plan.read_host_bytes:
            return None
        return device_key(self._devices[used[0]].backend, self._devices[used[0]].name)

    @property
    def prompts_here(self) -> bool:
        """Whether prompts are computed on `device` too: beside a GPU the engine lends the CPU's weights to it."""
        return self.device != CPU or not self._devices

    def decode_seconds(self, depth: int) -> float:
        """One token with `depth` tokens in the cache."""
        return 1 / self._evaluator.tokens_per_s(self._judged, depth)

    def prefill_seconds(self, prompt_tokens: int, depth: int = 0) -> float:
        """One token of a prompt with `depth` tokens before it."""
        from advisor.speed import Turn

        intent = self._intent._replace(turn=Turn(prompt_tokens, depth, 0))
        return 1 / self._evaluator.speed(self._judged, intent).prefill_tokens_per_s.value


class Learned(NamedTuple):
    """One run to remember, from how many requests, and why there is none."""

    run: Run | None
    n_requests: int
    reason: str  # "" with a run; otherwise a sentence


def learn(predictor: Predictor, timings: Sequence[Timing], build: int | None) -> Learned:
    """The medians over `timings` as one run."""
    from advisor.speed.measured import run_name, weights_bytes

    spec = predictor.spec
    if predictor.device is None:
        return Learned(None, 0, "The model runs in more than one place, so its speed tells of none of them.")
    decode, prefill, n_steps = [], [], 0
    for timing in timings:
        if timing.depth is None:
            continue
        if timing.steps >= _LEAST_STEPS and timing.seconds > 0:
            decode.append(timing.seconds / timing.steps / predictor.decode_seconds(timing.depth))
            n_steps += timing.steps
        if timing.prompt_tokens >= LEAST_PROMPT_TOKENS and timing.prompt_seconds > 0 and predictor.prompts_here:
            before = max(timing.depth - timing.steps // 2 - timing.prompt_tokens, 0)
            expected = predictor.prefill_seconds(timing.prompt_tokens, before)
            prefill.append(timing.prompt_seconds / timing.prompt_tokens / expected)
    if n_steps < _LEAST_STEPS_IN_ALL:
        return Learned(None, 0, f"{n_steps} tokens that were decoded alone are too few to learn from.")
    factors = [median(tuple(values)) for values in (decode, prefill) if values]
    for factor in factors:
        if not 1 / _SANE_FACTOR <= factor <= _SANE_FACTOR:
            reason = f"It took {factor:.2g} times the predicted time, so something else than this device was timed."
            return Learned(None, len(decode), reason)
    run = Run(
        predictor.device, spec.quantization, build, run_name(spec), max(weights_bytes(spec), 1), (factors[0],),
        (factors[1],) if len(factors) > 1 else (), len(decode),
    )  # fmt: skip
    return Learned(run, len(decode), "")


def keep_run(folder: str, host: HostSnapshot, run: Run) -> str | None:
    """Add `run` to what is known of this machine; a sentence when it cannot be kept.

    A file that cannot be used, of another machine too, is not written over: only a new calibration replaces it.
    """
    import time

    from advisor.calibrated import current_calibration, machine_of
    from advisor.calibration import with_run
    from advisor.calibration_file import save_calibration

    calibration, problem = current_calibration(folder, host)
    if problem is not None:
        return f"Nothing is remembered: {problem}"
    if calibration is None:
        calibration = Calibration(machine_of(host), time.strftime("%Y-%m-%d"))
    return save_calibration(folder, with_run(calibration, run))
