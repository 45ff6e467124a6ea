"""The table of GPUs as shipped, and the folder of captured /proc and /sys trees."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomli

from advisor.hardware.gpu_table import GpuTable

REPOSITORY = Path(__file__).parents[3]
CASES = REPOSITORY / "tests" / "data" / "hardware"


@pytest.fixture(scope="session")
def table() -> GpuTable:
    return GpuTable.from_mapping(tomli.loads((REPOSITORY / "rules" / "gpus.toml").read_text()), "gpus.toml")
