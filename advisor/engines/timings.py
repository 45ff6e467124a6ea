"""What an engine says of its own speed: the `timings` of an answer, /metrics, and the lines of a log.

The first token of an answer comes out of the prompt's own computation, so n tokens take n - 1 steps. llama-server's
`predicted_per_second` divides by n in builds before October 2026 and by n - 1 since; the milliseconds are the same.
Source: tools/server/server-common.h, server-context.cpp and server-task.cpp of llama.cpp b11434.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from advisor.engines.log_filter import GAP
from advisor.records import NamedTuple

MAX_TIMINGS = 10_000  # of a log, the newest
_MAX_LINE, _MAX_PATH_LINE = 500, 5000
_MAX_TOKENS = 1 << 31
_SECONDS_A_TOKEN = (1e-7, 1e5)  # no engine is quicker, nobody waits longer


class Timing(NamedTuple):
    """One request. Counts are tokens, `steps` the tokens that were decoded one by one."""

    prompt_tokens: int  # computed; those that were in the cache already are not counted
    prompt_seconds: float
    steps: int
    seconds: float  # of the steps
    depth: int | None  # tokens in the cache in the middle of the steps; None where it is not told


def timing_of(answer: Any) -> Timing | None:
    """The timing in an answer of /completion; None where it holds none."""
    try:
        timings = answer["timings"]
        prompt, cached = _count(timings["prompt_n"]), _count(timings.get("cache_n") or 0)
        predicted = _count(timings["predicted_n"])
        if timings.get("draft_n"):  # several tokens a step
            return None
        prompt_s, seconds = _milliseconds(timings["prompt_ms"]), _milliseconds(timings["predicted_ms"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    if not (is_plausible(prompt, prompt_s) and is_plausible(max(predicted - 1, 0), seconds)):
        return None
    return Timing(prompt, prompt_s, max(predicted - 1, 0), seconds, cached + prompt + predicted // 2)


def is_plausible(tokens: int, seconds: float) -> bool:
    """Whether so many tokens can take so long; nothing in no time says nothing."""
    low, high = _SECONDS_A_TOKEN
    return not tokens or not seconds or low * tokens <= seconds <= high * tokens


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MAX_TOKENS:
        raise ValueError("no count")
    return value


def _milliseconds(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1e12:
        raise ValueError("no time")
    return float(value) / 1000


class Metrics(NamedTuple):
    """What llama-server's /metrics tells of all requests since its start."""

    decode_tokens_per_s: float | None
    predicted_tokens: int
    largest_depth: int | None  # the most tokens that a sequence had
    busy_slots: float | None  # on average, for each computation


_METRIC = re.compile(r"^llamacpp:(\w+) +([0-9.eE+-]+)\s*$")


def parse_metrics(text: str) -> Metrics | None:
    """The figures of a Prometheus page; None where there are none."""
    found: dict[str, float] = {}
    for line in text.split("\n")[:5000]:
        match = _METRIC.match(line[:200])
        if match:
            try:
                found[match[1]] = float(match[2])
            except ValueError:
                continue
    predicted = found.get("tokens_predicted_total", 0.0)
    if not 0 <= predicted < 1e15:
        return None
    return Metrics(
        _ratio(found, "tokens_predicted_total", "tokens_predicted_seconds_total"),
        int(predicted),
        int(found["n_tokens_max"]) if 0 < found.get("n_tokens_max", 0) < _MAX_TOKENS else None,
        found.get("n_busy_slots_per_decode"),
    ) if found else None  # fmt: skip


def _ratio(found: Mapping[str, float], tokens: str, seconds: str) -> float | None:
    value = found[tokens] / found[seconds] if found.get(seconds, 0) > 0 and found.get(tokens, 0) > 0 else None
    return value if value is not None and 1e-5 < value < 1e7 else None


# ---------------------------------------------------------------- a log

# a line that says something of speed holds one of these
MARKS = (
    b"processing task", b"draft acceptance", b"eval time", b"print_timing", b"stop processing", b"n_threads",
    b"loading model '",
)  # fmt: skip
_TASK = re.compile(r"\bid +(\d+) \| task +(\d+) \|")
_EVAL = re.compile(r"eval time += +(\d+(?:\.\d*)?) ms / +(\d+) (tokens|runs)")
_RELEASED = re.compile(r"stop processing: n_tokens = (\d+)|n_past = (\d+)")
_SYSTEM = re.compile(r"system[ _]info.*?n_threads[ =:]+(\d+).*?(?:/ (\d+)|total_threads = (\d+))")


class SpeedLog(NamedTuple):
    """The requests of a log that ran alone, and what it says of the model and the machine that they ran on."""

    timings: tuple[Timing, ...]
    n_disturbed: int  # requests that shared the engine with others, or decoded several tokens a step
    logical_cores: int | None
    path: str | None  # of the model that was loaded last


class _Task:
    def __init__(self) -> None:
        self.prompt: tuple[int, float] | None = None
        self.predicted: tuple[int, float] | None = None
        self.alone = True


class SpeedReader:
    """Takes the lines of llama-server, llama-cli and llama-completion in turn; what it does not know it ignores."""

    def __init__(self) -> None:
        """Nothing read yet."""
        self.tasks: dict[str, _Task] = {}  # those that run, by slot
        self.timings: deque[Timing] = deque(maxlen=MAX_TIMINGS)
        self.n_disturbed = 0
        self.logical_cores: int | None = None
        self.path: str | None = None
        self.single = _Task()  # a program that answers one request
        self.told = ""  # the slot that the next lines tell of, in builds before 2026

    def watch(self, lines: Iterable[str]) -> Iterator[str]:
        """The same lines for another reader."""
        for line in lines:
            self.line(line[:_MAX_PATH_LINE] if "loading model '" in line else line[:_MAX_LINE])
            yield line

    @property
    def log(self) -> SpeedLog:
        """What the lines so far tell."""
        return SpeedLog(tuple(self.timings), self.n_disturbed, self.logical_cores, self.path)

    def line(self, line: str) -> None:
        """One more line."""
        if line == GAP:  # what ran there has ended meanwhile
            self.tasks.clear()
            self.told = ""
            return
        match = _TASK.search(line[:250]) if "task" in line else None
        slot = match[1] if match else ""
        if slot and "processing task" in line and "launch" in line:
            self._begin(slot)
        elif slot in self.tasks and "draft acceptance" in line:  # several tokens a step
            self.tasks[slot].alone = False
        elif "eval time" in line:
            self._timed(line, slot or self.told)
        elif slot and "print_timing" in line:
            self.told = slot
        elif slot and "stop processing" in line:
            self.told = ""
            released = _RELEASED.search(line)
            self._end(slot, int(released[1] or released[2]) if released and len(released[0]) < 40 else None)
        elif "system" in line and "n_threads" in line and (system := _SYSTEM.search(line[:300])):
            digits = system[2] or system[3]
            self.logical_cores = int(digits) if len(digits) < 6 else None
        elif "loading model '" in line:  # another model: what came before tells of the one before
            path = line.partition("loading model '")[2].rpartition("'")[0]
            if self.path is not None and path != self.path:
                self.timings.clear()
            self.path = path or None

    def _begin(self, slot: str) -> None:
        if len(self.tasks) >= 1000:
            return
        self.tasks[slot] = _Task()
        if len(self.tasks) > 1:
            for task in self.tasks.values():
                task.alone = False

    def _timed(self, line: str, slot: str) -> None:
        match = _EVAL.search(line)
        if match is None or len(match[2]) > 9 or len(match[1]) > 15:
            return
        count, seconds = int(match[2]), float(match[1]) / 1000
        task = self.tasks.get(slot) if slot else self.single
        if task is None or not count or seconds <= 0 or not is_plausible(count, seconds):
            return
        if line.endswith("prompt ", 0, match.start()):
            task.prompt = (count, seconds)
        else:
            task.predicted = (count - (match[3] == "tokens"), seconds)
            if not slot:  # a program that ends with these lines
                depth = (task.prompt[0] if task.prompt else 0) + count // 2
                self._keep(task, depth)
                self.single = _Task()

    def _end(self, slot: str, n_tokens: int | None) -> None:
        task = self.tasks.pop(slot, None)
        if task is None or task.predicted is None:
            return
        if not task.alone:
            self.n_disturbed += 1
            return
        self._keep(task, None if n_tokens is None else max(n_tokens - task.predicted[0] // 2, 0))

    def _keep(self, task: _Task, depth: int | None) -> None:
        if task.predicted is not None:
            prompt = task.prompt or (0, 0.0)
            self.timings.append(Timing(*prompt, *task.predicted, depth))
