"""Architectures whose graph is not modelled: the interval of the estimate holds what the engine accounts for.

Chameleon 7B from its public configuration, measured with llama.cpp b11434 as the cells of tests/data/cases are.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from advisor.gguf_header import read_snapshot
from advisor.host import Device
from advisor.memory.plan import plan_memory
from advisor.memory.resolve import resolve_settings
from advisor.model.spec import ModelSpec
from tests.tools.cells import describe_header, engine, requested, snapshot
from tests.truth.shapes.build import build, row, typed


def chameleon() -> ModelSpec:
    norms = tuple((f"blk.{{i}}.attn_{side}_norm.{part}", f"hk {heads}")
                  for side, heads in (("q", "H"), ("k", "KV")) for part in ("weight", "bias"))  # fmt: skip
    made = build(row("chameleon-7b", "llama2-7b", 65536, "Q4_K_M", add=norms), snapshot("llama2-7b"))
    made["metadata"] = {key.replace("llama.", "chameleon."): item for key, item in made["metadata"].items()}
    made["metadata"]["general.architecture"] = typed("chameleon")
    return describe_header(read_snapshot(json.dumps(made).encode(), "chameleon"))


SETTINGS: dict[str, Any] = {"ngl": 33, "c": 65536, "ub": 2048, "np": 2, "kvu": 1, "fa": "1", "no": 2}


@pytest.mark.parametrize(
    ("changes", "n_gpus", "measured", "host"),
    [
        ({"ngl": 10, "c": 131072, "ub": 256, "kvu": 0, "ctk": "q4_0", "ctv": "q4_0"}, 2,
         (2814380544, 2197935232), 50422816),
        ({"ctk": "q8_0", "ctv": "f16"}, 3, (2181529600, 2013691904, 2013725184), 1409843328),
        ({"c": 2048, "ub": 256, "ctk": "f16", "ctv": "f16"}, 2, (105148416, 84201984), 46174336),
        ({"ngl": 0, "c": 2048, "ub": 256, "np": 4, "kvu": 0, "no": 0, "fa": "0", "ctk": "f16", "ctv": "f16"}, 0,
         (), 164143104),
    ],
)  # fmt: skip
def test_the_interval_holds_the_truth(
    changes: dict[str, Any], n_gpus: int, measured: tuple[int, ...], host: int
) -> None:
    model, devices = chameleon(), [Device(f"CUDA{i}", "cuda", f"CUDA{i}", 16 << 30, 16 << 30) for i in range(n_gpus)]
    assert not model.graph_modelled
    asked = requested({"settings": {**SETTINGS, **changes}})
    settings = resolve_settings(
        asked, model, engine(), tool="server" if changes.get("no", 2) else "cli", n_devices=n_gpus
    )
    plan = plan_memory(model, settings, engine(), devices)
    for device, true in zip(plan.devices, measured, strict=True):
        assert device.compute.low <= true <= device.compute.high
        assert device.compute.low < device.compute.high
    assert plan.host.compute.low <= host <= plan.host.compute.high
