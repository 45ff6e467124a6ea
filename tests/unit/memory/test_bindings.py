"""What llama-cpp-python 0.3.36 reserves on the CPU, asked without allocating, against the prediction for it.

The figures are to a hundredth of a MiB, as it prints them; cache with the recurrent state in it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.app import App
from advisor.memory.plan import plan_memory
from advisor.memory.resolve import resolve_settings
from advisor.settings import RequestedSettings
from tests.tools.machines import spec

DATA = Path(__file__).parents[2] / "data" / "bindings.json"
CELLS: list[dict[str, Any]] = json.loads(DATA.read_text())
TYPES = {8: "q8_0"}


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell['model']}-{cell['settings']['n_ctx']}")
def test_a_context_of_the_bindings(cell: dict[str, Any]) -> None:
    asked = cell["settings"]
    engine = App().engine("llama-cpp-python")
    request = RequestedSettings(
        n_ctx=asked["n_ctx"],
        n_batch=asked["n_batch"],
        n_ubatch=asked["n_ubatch"],
        n_parallel=asked.get("n_seq_max"),
        flash_attn="on" if asked["flash_attn_type"] else None,
        cache_type_k=TYPES.get(asked.get("type_k")),
        cache_type_v=TYPES.get(asked.get("type_v")),
        swa_full=asked.get("swa_full"),
    )
    model = spec(cell["model"])
    host = plan_memory(model, resolve_settings(request, model, engine, tool="server", n_devices=0), engine, ()).host
    assert host.cache_bytes / 2**20 == pytest.approx(cell["cache_mib"], abs=0.02)
    assert host.compute.value / 2**20 == pytest.approx(cell["compute_mib"], abs=0.006)
