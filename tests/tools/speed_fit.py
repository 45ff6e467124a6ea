"""Constants of rules/speed.toml refitted to measured rows, and what they are without the rows of one device.

What all GPUs share in decoding is fitted first, every device counting the same; each class is then drawn from there by
its own devices, with the weight of one device pulling back. A class without rows keeps what all share and the published
seconds a block; it is neutral in what only its own rows can show. Prompts: peaks in rules/gpus.toml follow each
vendor's convention, so classes share nothing there; they start from the published efficiencies.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from advisor.speed import Constants, SpeedModel, Turn, class_of, constants_of
from tests.tools.speed_rows import Case

Values = dict[str, float]
# how far a class may lie from what it starts with, in logarithms
_SPREAD = {"efficiency": 0.1, "block_seconds": 0.5, "extra_steps": 1.2, "stacked": 0.5, "flash_efficiency_factor": 0.4,
           "slow_expert_seconds": 2.0, "prefill_efficiency": 0.3, "prefill_attention_factor": 0.7,
           "prefill_expert_rows": 0.7}  # fmt: skip
_NOISE, _SMOOTH = 0.1, 0.03  # of a row, in logarithms
_START: Values = {"efficiency": 0.8, "block_seconds": 60e-6, "extra_steps": 0.5, "stacked": 0.8}
_NEUTRAL: Values = {"flash_efficiency_factor": 1.0, "slow_expert_seconds": 0.0}
_PROMPTS: Values = {"prefill_expert_rows": 40.0}
# GeForce RTX 4080 Super, gpt-oss 20b: 8,171 tokens/s for 2,048 tokens and 6,739 for 32,768; assumed for the others
_ATTENTION = {"cuda": 1.0, "metal": 0.5, "rocm": 0.5, "vulkan": 0.5}
# of the fit to 169 public rows of 37 devices that this began with: seconds a block, and "eta" of prompts
_PUBLISHED = {"cuda": (60e-6, 0.43), "metal": (76e-6, 0.69), "rocm": (120e-6, 0.31), "vulkan": (68e-6, 0.27)}
_ENDLESS = 1e30


class Parts(NamedTuple):
    """What a row consists of, found by asking the model itself with one constant at a time."""

    case: Case
    kind: str
    stacked: bool
    weights_s: float  # at the whole bandwidth
    cache_s: float
    latent_s: float
    steps: float
    extra: float
    slow: float
    matrices_s: float  # a prompt's token at the whole peak
    expert_row_s: float  # and for each of prefill_expert_rows
    attention_s: float
    batch_s: float  # reading the weights for a batch, at the whole bandwidth

    def decode_s(self, v: Values) -> float:
        """Seconds a token: the sum that SpeedModel makes of its parts."""
        rate = v["efficiency"] * (v["stacked"] if self.stacked else 1.0)
        attending = max(self.cache_s / (rate * v["flash_efficiency_factor"]), self.latent_s)
        steps = v["block_seconds"] * (self.steps + v["extra_steps"] * self.extra)
        return self.weights_s / rate + attending + steps + v["slow_expert_seconds"] * self.slow

    def prefill_s(self, v: Values) -> float:
        """Seconds a token of a prompt."""
        computing = (self.matrices_s + self.expert_row_s * v["prefill_expert_rows"]) / v["prefill_efficiency"]
        attending = self.attention_s / (v["prefill_efficiency"] * v["prefill_attention_factor"])
        return max(computing, self.batch_s / v["efficiency"]) + attending


def parts_of(case: Case, rules: dict[str, Any]) -> Parts | None:
    """The parts of a row that ran on GPUs alone; None for others."""
    if not case.host.devices or case.plan.read_host_bytes:
        return None
    model = SpeedModel(case.spec, case.host, rules)
    base = constants_of(case.host, rules)
    kind = rules["classes"][class_of(case.host.devices[0])]
    stacked = case.host.devices[0].compute_capability in rules["stacked_memory"]["chips"]
    device = base.devices[0]
    peak = device.flops / kind["prefill_efficiency"]
    whole = device.read_bytes_per_s / kind["efficiency"]
    if stacked:
        whole /= rules["stacked_memory"]["efficiency_factor"]

    def decode(**changed: float) -> float:
        model.constants = _with(base, changed)
        return model.decode(case.plan, case.decode_depth, 1 << 62).seconds

    def prefill(**changed: float) -> float:
        model.constants = _with(base, changed)
        turn = Turn(case.prompt_tokens, case.prompt_depth, 0)
        return 1 / model.predict(case.plan, turn, 1 << 62).prefill_tokens_per_s.value

    steps = decode(step_seconds=1.0)
    matrices_s = prefill(flops=peak)
    return Parts(
        case, class_of(case.host.devices[0]), stacked,
        weights_s=decode(read_bytes_per_s=whole), cache_s=decode(cache_bytes_per_s=whole),
        latent_s=decode(flops=device.flops), steps=steps,
        extra=decode(step_seconds=1.0, extra_steps=1.0) - steps, slow=decode(slow_expert_seconds=1.0),
        matrices_s=matrices_s, expert_row_s=prefill(flops=peak, expert_rows=1.0) - matrices_s,
        attention_s=prefill(attention_flops=peak), batch_s=prefill(read_bytes_per_s=whole),
    )  # fmt: skip


def _with(base: Constants, changed: dict[str, float]) -> Constants:
    """Constants in which everything but `changed` costs nothing."""
    nothing: dict[str, Any] = {
        "read_bytes_per_s": _ENDLESS, "cache_bytes_per_s": _ENDLESS, "step_seconds": 0.0, "extra_steps": 0.0,
        "slow_expert_seconds": 0.0, "flops": _ENDLESS, "attention_flops": _ENDLESS, "expert_rows": 0.0,
    }  # fmt: skip
    devices = tuple(device._replace(**{**nothing, **changed}) for device in base.devices)
    return base._replace(devices=devices, hop_seconds=0.0)


def fit(parts: Sequence[Parts]) -> dict[str, Values]:
    """Constants per class."""
    rows = [part for part in parts if part.case.decode_tokens_per_s]
    shared = _search(rows, _START, _NEUTRAL, pull=False)
    return {kind: _fit_class(kind, parts, shared) for kind in _PUBLISHED}


def _fit_class(kind: str, parts: Sequence[Parts], shared: Values) -> Values:
    block_seconds, prefill_efficiency = _PUBLISHED[kind]
    own = [part for part in parts if part.kind == kind and part.case.decode_tokens_per_s]
    start = {**shared, "block_seconds": block_seconds}
    fixed = dict(_NEUTRAL)
    if not any(part.stacked for part in own):
        fixed["stacked"] = start.pop("stacked")
    if any(part.cache_s > 0.1 * part.weights_s and part.case.plan.flash_attn for part in own):
        start["flash_efficiency_factor"] = fixed.pop("flash_efficiency_factor")
    values = {**fixed, **_search(own, start, fixed)}
    slow = [part for part in own if part.slow > 0.5]
    if slow:
        values |= _search(slow, {"slow_expert_seconds": 300e-6}, values)
    read = [part for part in parts if part.kind == kind and part.case.prefill_tokens_per_s]
    start = {"prefill_efficiency": prefill_efficiency, **_PROMPTS}
    values["prefill_attention_factor"] = _ATTENTION[kind]
    if any(part.case.prompt_depth > 8192 for part in read):
        start["prefill_attention_factor"] = values.pop("prefill_attention_factor")
    return {**values, **_search(read, start, values, prompts=True)}


def _search(rows: list[Parts], start: Values, fixed: Values, *, pull: bool = True, prompts: bool = False) -> Values:
    """Least smoothed absolute error in logarithms, a device counting once, plus the pull; by steps that halve."""
    count = Counter(part.case.device for part in rows)
    seconds: Callable[[Parts, Values], float] = Parts.prefill_s if prompts else Parts.decode_s

    def loss(values: Values) -> float:
        total = sum((math.log(values[k] / start[k]) / _SPREAD[k]) ** 2 / 2 for k in start) if pull else 0.0
        for part in rows:
            truth = part.case.prefill_tokens_per_s if prompts else part.case.decode_tokens_per_s
            error = math.log(seconds(part, {**fixed, **values}) * (truth or 1.0))
            total += math.hypot(error, _SMOOTH) / count[part.case.device] / _NOISE
        return total

    values, best, step = dict(start), loss(start), 0.4
    while step > 0.004:
        moved = False
        for key in values:
            for factor in (math.exp(step), math.exp(-step)):
                tried = {**values, key: values[key] * factor}
                found = loss(tried)
                if found < best - 1e-9:
                    values, best, moved = tried, found, True
        if not moved:
            step /= 2
    return values


def with_values(rules: dict[str, Any], values: dict[str, Values]) -> dict[str, Any]:
    """`rules` with fitted constants in their places."""
    changed = copy.deepcopy(rules)
    changed["stacked_memory"]["efficiency_factor"] = values["cuda"]["stacked"]
    for kind, fitted in values.items():
        changed["classes"][kind].update({k: v for k, v in fitted.items() if k != "stacked"})
    return changed
