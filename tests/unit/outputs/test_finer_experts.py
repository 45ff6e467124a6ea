"""Experts by kind of tensor: every format that says it takes tensor overrides writes them, the others refuse."""

from __future__ import annotations

import pytest

from advisor.errors import OutputError
from advisor.outputs.registry import OUTPUTS
from tests.unit.outputs.cases import REQUESTS, fitting, model

FLAGS = "-ngl 99 -ncmoe 4 -ot blk.4.ffn_up_exps=CPU,blk.4.ffn_down_exps=CPU"
SHARED = ("llama-config-ini", "ollama-service")  # what holds for all models, no layers among it


@pytest.mark.parametrize("name", [name for name in OUTPUTS if name not in SHARED])
def test_what_a_format_says_it_takes_is_written(name):
    output, _ = fitting(name)
    slots = " ".join(REQUESTS.get(name, "-c 4096 -np 1").replace("-ngl 5", "").split())
    wanted = model(f"{slots} {FLAGS}", engine=output.engine, store_name="qwen3:8b")
    if "tensor_overrides" not in output.expresses():
        with pytest.raises(OutputError):
            output.one(wanted)
        return
    written = str(output.one(wanted))
    assert "blk.4.ffn_up_exps=CPU,blk.4.ffn_down_exps=CPU" in written
