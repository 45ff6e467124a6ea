"""With a context that is asked for, layers are still dealt as well as can be, also where a first look is wrong."""

from __future__ import annotations

import pytest

from tests.tools.machines import advise, machine


@pytest.mark.parametrize(
    ("model", "host", "n_ctx", "n_gpu_layers"),
    [
        ("command-r", machine(12, 24, 8, ram_gib=12), 30000, 37),  # 64 heads of keys: buffers are gigabytes
        ("command-r", machine(12, 24, 8, ram_gib=128), 30000, 37),
        ("llama2-7b", machine(11, 24, ram_gib=16), 100000, 32),
    ],
)
def test_no_number_of_layers_that_is_asked_for_beats_the_choice(model, host, n_ctx, n_gpu_layers):
    free = advise(model, host, "speed", n_ctx=n_ctx)
    asked = advise(model, host, "speed", n_ctx=n_ctx, n_gpu_layers=n_gpu_layers)
    assert asked.chosen.fits
    assert free.chosen.fits
    assert free.cost <= asked.cost * 1.001
