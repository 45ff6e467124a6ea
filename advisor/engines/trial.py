"""Timing an engine with one model: a short prompt, single tokens, and single tokens behind a long prompt."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from advisor.engines.find import EngineBinary
from advisor.engines.http import Address, ask
from advisor.engines.serve import running
from advisor.engines.timings import Timing, timing_of
from advisor.engines.trial_file import write_trial
from advisor.errors import EngineError
from advisor.records import NamedTuple
from advisor.speed.trials import DEPTH_TOKENS, PROMPT_TOKENS, Timed, Trial
from advisor.units import round_up

STEPS = 12  # tokens that are timed at once
_REPEATS = (5, 15)  # at least, and at most where the machine is not quiet
_PATIENCE_S = 8.0  # for all of them
_QUIET = 0.03  # between the best and the middle repeat
_FIRST_TOKEN = 300  # of the prompts: an ordinary one in every vocabulary
_ANSWER_LIMIT_S = 120.0


def run_trial(binary: EngineBinary, trial: Trial, folder: str, environ: Mapping[str, str]) -> tuple[Timed, int | None]:
    """(its times, the engine's build) of `trial`, whose file is made in `folder` and removed again.

    Raises EngineError, and OSError when the file cannot be made.
    """
    path = os.path.join(folder, "trial.gguf")
    n_ctx = round_up(DEPTH_TOKENS + 2 * STEPS, 1024) if trial.deep else 256
    try:
        write_trial(trial, path, n_ctx)
        with running(binary, path, n_ctx, environ) as address:
            with contextlib.suppress(OSError):  # loaded: its room is given back even when advisor is killed
                os.unlink(path)
            return _time_trial(address, trial), build_of(address)
    finally:
        if os.path.exists(path):
            os.unlink(path)


def _time_trial(address: Address, trial: Trial) -> Timed:
    decode = typical(lambda: step_seconds(complete(address, prompt(2), STEPS + 1)))
    prefill = deep = deep_prefill = None
    if trial.what == "type":
        prefill = typical(lambda: _prompt_seconds(complete(address, prompt(PROMPT_TOKENS), 1, cached=False)))
    if trial.deep:
        deep_prefill = _prompt_seconds(complete(address, prompt(DEPTH_TOKENS), 1, cached=False))
        deep = typical(lambda: step_seconds(complete(address, prompt(DEPTH_TOKENS), STEPS + 1)))
    return Timed(trial, decode, prefill, deep, deep_prefill)


def build_of(address: Address) -> int | None:
    """The build that the server at `address` says it is; None where it does not know."""
    answer = ask(address, "GET", "/props")
    said = answer.body.get("build_info") if isinstance(answer.body, dict) else None
    match = re.match(r"b(\d{2,8})\b", said) if isinstance(said, str) else None
    return int(match[1]) if match else None


class AtDepth(NamedTuple):
    """Seconds per token with that many tokens in the cache."""

    depth: int
    seconds: float


def time_model(address: Address, depths: Sequence[int]) -> tuple[list[AtDepth], Timing]:
    """(decode at each depth, the timing of the longest prompt) of the server at `address`. Raises EngineError."""
    complete(address, prompt(PROMPT_TOKENS), 2, cached=False)  # what was not yet in memory is now
    found: list[AtDepth] = []
    longest = Timing(0, 0.0, 0, 0.0, None)
    for depth in depths:
        first = complete(address, prompt(max(depth, 2)), 2)
        longest = max(longest, first, key=lambda timing: timing.prompt_tokens)
        seconds = typical(lambda: step_seconds(complete(address, prompt(max(depth, 2)), 2 * STEPS + 1)))  # noqa: B023
        found.append(AtDepth(depth + STEPS, seconds))
    return found, longest


def prompt(n_tokens: int) -> list[int]:
    """Tokens that say nothing; a shorter prompt is the beginning of a longer one."""
    return [_FIRST_TOKEN + number * 7919 % 200 for number in range(n_tokens)]


def complete(address: Address, tokens: Sequence[int], n_predict: int, *, cached: bool = True) -> Timing:
    """One request without sampling. Raises EngineError when it is not answered with its timing."""
    body: dict[str, Any] = {
        "prompt": list(tokens), "n_predict": n_predict, "temperature": 0, "ignore_eos": True, "cache_prompt": cached,
    }  # fmt: skip
    answer = ask(address, "POST", "/completion", body, seconds=_ANSWER_LIMIT_S)
    timing = timing_of(answer.body) if answer.status == 200 else None
    if timing is None:
        detail = answer.body.get("error") if isinstance(answer.body, dict) else None
        reason = detail.get("message") if isinstance(detail, dict) else f"status {answer.status}"
        timings = answer.body.get("timings") if isinstance(answer.body, dict) else None
        if isinstance(timings, dict) and timings.get("draft_n"):
            reason = "it drafts several tokens a step; start it without a draft model and --spec-type"
        raise EngineError(f"{address.shown} gives no timing of an answer that can be used ({reason!s:.200}).")
    return timing


def step_seconds(timing: Timing) -> float:
    """Of one decoded token. Raises EngineError where none was."""
    if not timing.steps or timing.seconds <= 0:
        raise EngineError("the engine ended its answer at once, so nothing was timed.")
    return timing.seconds / timing.steps


def _prompt_seconds(timing: Timing) -> float:
    if not timing.prompt_tokens or timing.prompt_seconds <= 0:
        raise EngineError("the engine read no prompt, so nothing was timed.")
    return timing.prompt_seconds / timing.prompt_tokens


def typical(once: Callable[[], float]) -> float:
    """The median of several times, of more where other programs disturb, of fewer where they take long."""
    values: list[float] = []
    deadline = time.monotonic() + _PATIENCE_S
    while len(values) < _REPEATS[1] and (not values or time.monotonic() < deadline):
        values = sorted((*values, once()))
        if len(values) >= _REPEATS[0] and values[len(values) // 2] <= values[0] * (1 + _QUIET):
            break
    return values[len(values) // 2]
