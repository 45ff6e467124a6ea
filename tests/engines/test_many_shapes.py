"""The prediction against loads of many shapes by a real engine on the CPU, every component.

A GGUF of full shape without contents is mapped, so weights take no memory; the engine is killed once it has reserved
its buffers. It prints hundredths of a MiB per buffer, and that is all by which a figure may differ.

Here: 20 shapes, at least 4 settings each, 87 cells.
With partial offload the Vulkan server's own dry run is asked in test_verify_for_real.py: 5 shapes, at least 6 settings
each, 33 cells.
"""

from __future__ import annotations

import functools
import importlib.metadata
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from advisor.memory.engine_spec import EngineSpec
from advisor.memory.plan import Planner
from advisor.memory.resolve import resolve_settings
from advisor.memory.types import MemoryPlan
from advisor.settings import RequestedSettings
from tests.engines.test_verify_for_real import cells as dry_run_cells
from tests.tools.cells import DATA, engine, spec
from tests.tools.empty_gguf import write_empty_gguf
from tests.tools.engines import load_on_cpu

pytestmark = pytest.mark.engine

MIB = 1 << 20
HALF_HUNDREDTH = 0.005 * MIB + 1  # bytes by which a printed figure can be off

# by size, 0.2 to 9 GB
SHAPES = (
    "small-falconh1",  # attention and state side by side
    "bert-large",  # encoder, no head
    "gemma-embedding",  # encoder with a window
    "small-qwen3next",  # linear attention, experts
    "small-qwen3moe",
    "lfm2-1.2b",  # short convolutions
    "llama3-1b",
    "small-ds2",  # latent attention, experts
    "small-gptoss",  # window, sinks, experts
    "gpt2-xl",  # learned positions
    "mamba-2.8b",
    "phi2",  # blocks in parallel; heads of 80
    "rwkv7-2.9b",
    "granitemoe-3b",
    "gemma3-4b",
    "minicpm3-4b",  # latent attention
    "gemma3n-e4b",  # blocks that share a cache, rows per block
    "gemma4-e4b",
    "gemma2-9b",
    "nemotron-h-9b",  # attention in some blocks, state in others
)
SLOTS: dict[str, Any] = {"n_ctx": 2048}  # the server's own number of slots
QUANTIZED: dict[str, Any] = {"n_ctx": 2048, "n_parallel": 1, "cache_type_k": "q8_0", "cache_type_v": "q8_0"}
NO_FLASH: dict[str, Any] = {"n_ctx": 2048, "n_parallel": 1, "flash_attn": "off", "n_ubatch": 256}
STREAMS: dict[str, Any] = {"n_ctx": 3000, "n_parallel": 3, "kv_unified": False}  # 1,000 a slot are rounded up
SHARED: dict[str, Any] = {"n_ctx": 2048, "n_parallel": 2, "kv_unified": True, "n_ubatch": 128}
WINDOWS: dict[str, Any] = {"n_ctx": 2048, "n_parallel": 2, "swa_full": True}
UNEVEN: dict[str, Any] = {"n_ctx": 1300, "n_parallel": 1, "n_ubatch": 2048}
REPACKED: dict[str, Any] = {"n_ctx": 2048, "n_parallel": 1, "n_batch": 1024, "repack": True}

WITH_WINDOW = ("small-gptoss", "gemma3-4b", "gemma3n-e4b", "gemma4-e4b", "gemma2-9b")
TO_REPACK = ("small-falconh1", "small-qwen3next", "small-qwen3moe", "lfm2-1.2b", "llama3-1b", "small-ds2")
NO_CACHE = ("bert-large", "gemma-embedding")


def cells() -> list[tuple[str, dict[str, Any]]]:
    """Four settings per shape; five for those whose weights are small enough to be copied for repacking."""
    found = []
    for model in SHAPES:
        second = SHARED if model == "phi2" else QUANTIZED  # see test_a_cache_that_both_refuse
        fourth = WINDOWS if model in WITH_WINDOW else STREAMS
        found += [(model, settings) for settings in (SLOTS, second, NO_FLASH, fourth)]
        if model in TO_REPACK:
            found.append((model, REPACKED))
    return [*found, ("llama3-1b", UNEVEN)]


def words(value: object) -> str | None:
    """A test's name for its settings."""
    return " ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else None


class Model(NamedTuple):
    """A zoo model with its empty file."""

    name: str
    path: Path


@pytest.fixture(scope="module")
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    pytest.importorskip("xllamacpp")
    path = tmp_path_factory.mktemp("empty") / f"{request.param}.gguf"
    write_empty_gguf(DATA / "zoo" / f"{request.param}.json.gz", path)
    yield Model(request.param, path)
    path.unlink()  # its pages leave the page cache


@functools.cache
def rules() -> EngineSpec:
    """Of the build that is installed: the last number of the package's version."""
    return engine(int(importlib.metadata.version("xllamacpp").rpartition(".")[2]))


def predict(name: str, asked: dict[str, Any]) -> MemoryPlan:
    request = RequestedSettings(**{"load_mode": "mmap", "repack": False, **asked})
    settings = resolve_settings(request, spec(name), rules(), tool="server", n_devices=0)
    return Planner(spec(name), rules(), []).plan(settings)


def load(model: Model, plan: MemoryPlan, asked: dict[str, Any]) -> str:
    """The engine's log; it is told what was asked, and slots as the server, unlike its bindings, chooses them."""
    slots = {"n_parallel": plan.settings.n_parallel, "kv_unified": plan.settings.kv_unified}
    return load_on_cpu({"model": model.path, "load_mode": "mmap", "repack": False, "verbosity": 4, **asked, **slots})


def figures(log: str, buffer: str, kinds: str) -> list[float]:
    """MiB of every '<buffer> <kind> buffer size' line."""
    return [float(mib) for mib in re.findall(rf": +{buffer} +(?:{kinds}) buffer size = +(\d+\.\d+) MiB", log)]


class Part(NamedTuple):
    """One component: predicted bytes, and the MiB of every line that the engine printed for it."""

    predicted: int
    printed: list[float]

    @property
    def wrong(self) -> bool:
        """Whether the prediction is not the sum of the lines, each rounded."""
        return abs(self.predicted - sum(self.printed) * MIB) > HALF_HUNDREDTH * max(len(self.printed), 1)


def parts(plan: MemoryPlan, log: str) -> dict[str, Part]:
    host = plan.host
    return {
        "weights": Part(host.mapped_bytes, figures(log, "CPU_Mapped", "model")),
        "repacked": Part(host.repack_bytes, figures(log, "CPU_REPACK", "model")),
        "cache": Part(host.cache_bytes, figures(log, "CPU", "KV|RS")),
        "compute": Part(host.compute.value, figures(log, "CPU", "compute")),
        "output": Part(host.output_bytes, figures(log, "CPU", "output")),
    }


def context(log: str) -> dict[str, str]:
    return dict(re.findall(r"llama_context: (n_ctx|n_ctx_seq|n_batch|n_ubatch|n_seq_max|kv_unified) += (\S+)", log))


@pytest.mark.parametrize(("model", "asked"), cells(), ids=words, indirect=["model"])
def test_every_buffer_is_as_predicted(model, asked):
    plan = predict(model.name, asked)
    assert plan.refused is None
    assert plan.devices == ()
    log = load(model, plan, asked)

    run, ran = plan.settings, context(log)
    assert ran == {
        "n_ctx": str(run.n_ctx),
        "n_ctx_seq": str(run.n_ctx_seq),
        "n_batch": str(run.n_batch),
        "n_ubatch": str(run.n_ubatch),
        "n_seq_max": str(run.n_parallel),
        "kv_unified": str(run.kv_unified).lower(),
    }

    compared = parts(plan, log)
    assert [(name, part) for name, part in compared.items() if part.wrong] == []
    assert plan.host.compute.low <= plan.host.compute.value <= plan.host.compute.high

    # no comparison of nothing with nothing, and no buffer beside those compared
    empty = {name for name, part in compared.items() if not part.printed}
    assert empty == {
        *(["repacked"] if asked is not REPACKED else []),
        *(["cache"] if model.name in NO_CACHE else []),
    }
    assert sum(compared["weights"].printed) * MIB > model.path.stat().st_size * 0.9
    assert log.count(" buffer size = ") == sum(len(part.printed) for part in compared.values())


@pytest.mark.parametrize("model", ["phi2"], indirect=True)
def test_a_cache_that_both_refuse(model):
    plan = predict(model.name, QUANTIZED)
    assert plan.refused is not None
    with pytest.raises(RuntimeError, match="failed to create context"):
        load(model, plan, QUANTIZED)


def test_there_are_as_many_cells_as_said():
    here, dry_run = (Counter(name for name, _ in found) for found in (cells(), dry_run_cells()))
    assert (len(here), min(here.values()), here.total()) == (20, 4, 87)
    assert (len(dry_run), min(dry_run.values()), dry_run.total()) == (5, 6, 33)
