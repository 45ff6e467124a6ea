"""Settings that change nothing are named, and what the engine does not take is refused."""

from __future__ import annotations

import pytest

from advisor.errors import UsageError
from advisor.memory.resolve import resolve_settings
from advisor.memory.unused import unused_settings
from advisor.settings import RequestedSettings, TensorOverride
from tests.tools.cells import spec
from tests.tools.machines import evaluator, machine


@pytest.mark.parametrize(
    ("model", "asked", "n_devices", "codes"),
    [
        ("llama3-8b", RequestedSettings(tensor_split=(1, 2, 3)), 1, ["tensor_split_ignored"]),
        ("llama3-8b", RequestedSettings(tensor_split=(1, 2, 3)), 2, ["tensor_split_ignored"]),
        ("llama3-8b", RequestedSettings(tensor_split=(1,)), 0, ["tensor_split_ignored"]),
        ("llama3-8b", RequestedSettings(tensor_split=(1, 2)), 2, []),
        ("llama3-8b", RequestedSettings(tensor_split=(1,)), 2, []),
        ("llama3-8b", RequestedSettings(n_cpu_moe=5), 1, ["no_experts"]),
        ("llama3-8b", RequestedSettings(cpu_moe=True), 1, ["no_experts"]),
        ("qwen3moe-30b", RequestedSettings(n_cpu_moe=5), 1, []),
        ("llama3-8b", RequestedSettings(n_cpu_moe=0), 1, []),
        ("llama3-8b", RequestedSettings(tensor_overrides=(TensorOverride("exps", "CPU"),)), 1,
         ["override_matches_nothing"]),
        ("qwen3moe-30b", RequestedSettings(tensor_overrides=(TensorOverride("exps", "CPU"),)), 1, []),
        ("llama3-8b", RequestedSettings(tensor_overrides=(TensorOverride(r"blk\.3\.ffn", "CPU"),)), 1, []),
        ("llama3-8b", RequestedSettings(), 0, []),
    ],
)  # fmt: skip
def test_settings_that_change_nothing(model: str, asked: RequestedSettings, n_devices: int, codes: list[str]) -> None:
    found = unused_settings(asked, spec(model), n_devices)
    assert [code for code, _ in found] == codes
    assert all(text.endswith(".") for _, text in found)


@pytest.mark.parametrize(
    ("n_devices", "given", "kept"),
    [(1, (1, 2, 3), None), (2, (1, 2, 3), (1, 2)), (2, (0, 0, 1), None), (3, (1, 2), (1, 2)), (0, (1,), None)],
)
def test_shares_beyond_the_devices_are_dropped(
    n_devices: int, given: tuple[float, ...], kept: tuple[float, ...] | None
) -> None:
    engine = evaluator("llama3-8b", machine()).engine
    asked = RequestedSettings(tensor_split=given)
    resolved = resolve_settings(asked, spec("llama3-8b"), engine, tool="server", n_devices=n_devices)
    assert resolved.tensor_split == kept


@pytest.mark.parametrize("tool", ["server", "cli", "bench"])
def test_the_engine_takes_256_sequences(tool: str) -> None:
    engine = evaluator("llama3-8b", machine()).engine

    def slots(n_parallel: int) -> int:
        asked = RequestedSettings(n_parallel=n_parallel)
        return resolve_settings(asked, spec("llama3-8b"), engine, tool=tool, n_devices=1).n_parallel

    assert slots(256) == 256
    for n_parallel in (257, 1000):
        with pytest.raises(UsageError, match=f"-np {n_parallel} is more than the 256 slots .* give at most 256."):
            slots(n_parallel)
