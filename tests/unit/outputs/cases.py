"""Models to write into configs: the small qwen3moe of the zoo, 12 blocks, on stand-in cards."""

from __future__ import annotations

import functools
import shlex
from typing import Any, NamedTuple

from advisor.app import App
from advisor.llama_flags import parse_command
from advisor.memory.plan import plan_memory
from advisor.memory.resolve import resolve_settings
from advisor.outputs.command import server_options
from advisor.outputs.registry import load
from advisor.outputs.types import Output, OutputModel
from tests.unit.outputs.test_command import GIB, ZOO, Card


@functools.cache
def _app() -> App:
    return App(None)


@functools.cache
def _spec() -> Any:
    return _app().model(_app().header(str(ZOO / "small-qwen3moe.json.gz")))


class Named(NamedTuple):
    """A card by its engine's name."""

    id: str
    backend: str
    free_bytes: int = 8 * GIB


@functools.cache
def _plan(request: str, engine: str, cards: int | tuple[Named, ...], mode: str) -> tuple[Any, tuple[Any, ...]]:
    spec, rules = _spec(), _app().engine(engine)
    devices = [Card(f"CUDA{number}") for number in range(cards)] if isinstance(cards, int) else cards
    asked = parse_command(shlex.split(request)).settings
    settings = resolve_settings(asked, spec, rules, tool="server", n_devices=len(devices))
    plan = plan_memory(spec, settings, rules, devices)
    options = server_options(plan, rules, mode=mode, n_layer_all=spec.n_layer_all, margin_bytes=GIB // 2)
    return plan, tuple(options)


def model(
    request: str = "-c 4096 -ngl 5 -np 1",
    *,
    model_id: str = "qwen3",
    path: str = "/srv/models/Qwen3-8B-Q4_K_M.gguf",
    engine: str = "llama.cpp",
    cards: int | tuple[Named, ...] = 1,
    mode: str = "exact",
    **more: Any,
) -> OutputModel:
    """A model with settings as llama.cpp's flags say them."""
    plan, options = _plan(request, engine, cards, mode)
    return OutputModel(model_id, path, plan, options, _spec().n_layer_all, **more)


# what every format takes, with the engine whose rules it is planned by
REQUESTS = {
    "ollama": "-c 4096 -ngl 5 -np 1",
    "llama-cpp-python": "-c 4096 -ngl 5 -np 1",
    "ramalama": "-c 4096 -ngl 5",
    "jan": "-c 4096 -ngl 5 -np 3",
}


def fitting(name: str, **more: Any) -> tuple[Output, OutputModel]:
    """An output and a model that it takes."""
    output = load(name)
    more.setdefault("store_name", "qwen3:8b")
    return output, model(REQUESTS.get(name, "-c 4096 -ngl 5 -np 1"), engine=output.engine, **more)
