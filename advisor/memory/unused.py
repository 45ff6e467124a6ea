"""Settings that the engine takes and that change nothing for this model and these devices.

Source: llama.cpp b11434 src/llama-model.cpp (tensor_split is read up to the number of devices) and common/arg.cpp.
"""

from __future__ import annotations

import re

from advisor.model.spec import ModelSpec
from advisor.settings import RequestedSettings


def unused_settings(asked: RequestedSettings, spec: ModelSpec, n_devices: int) -> list[tuple[str, str]]:
    """(code, sentence) of every setting that was asked for and does nothing."""
    found = []
    shares = len(asked.tensor_split or ())
    if shares > max(n_devices, 1) or (shares and n_devices == 0):
        text = f"-ts gives {shares} shares for {n_devices} GPUs; the engine reads the first {n_devices}."
        if n_devices < 2:
            text = f"-ts changes nothing: it splits between GPUs, and there is {'one' if n_devices else 'none'}."
        found.append(("tensor_split_ignored", text))
    if (asked.cpu_moe or asked.n_cpu_moe) and not any(layer.n_ff_expert for layer in spec.layers):
        flag = "--cpu-moe" if asked.cpu_moe else f"--n-cpu-moe {asked.n_cpu_moe}"
        found.append(("no_experts", f"{flag} changes nothing: this model has no experts; leave it out."))
    for override in asked.tensor_overrides:
        pattern = re.compile(override.pattern)
        if not any(pattern.search(tensor.name) for tensor in spec.tensors if tensor.place != "skipped"):
            text = f"-ot {override.pattern}={override.buffer} changes nothing: no tensor of this model has such a name."
            found.append(("override_matches_nothing", text))
    return found
