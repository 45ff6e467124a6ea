"""Graphs with context and micro-batch left open: what is read off is what building the graph for the values gives."""

from __future__ import annotations

import random

import pytest

from advisor.ggml_types import BY_NAME
from advisor.memory import graph
from advisor.memory.graph import CPU, GraphPlacement, GraphSettings, Hyper, compute_bytes
from advisor.memory.graph.unknowns import left_open
from advisor.memory.placement import EXPERTS
from tests.tools.cells import cells, engine, graph_inputs

CARDS = [engine().backends[name] for name in ("cuda", "vulkan", "metal")]
TYPES = [BY_NAME[name].id for name in ("f16", "q8_0", "q4_0", "bf16")]
COUNT = 300


@pytest.fixture(scope="module")
def models() -> list[dict]:
    """One accepted cell of every model."""
    found = {cell["model"]: cell for cell in (*cells("grid"), *cells("grid-cpu")) if "bufs" in cell}
    return [found[name] for name in sorted(found)]


def drawn(chooser: random.Random, h: Hyper, settings: GraphSettings) -> GraphSettings:
    """Settings as the engine rounds them, often with a context or batch that is as wide as something in the model."""
    n_seq, unified = chooser.choice((1, 1, 1, 2, 3, 4, 8)), chooser.random() < 0.4
    n_ubatch = chooser.choice((64, 128, 256, 512, 512, 768, 1024, 2048, 4096))
    n_batch = max(n_ubatch, chooser.choice((512, 2048)))
    wide = chooser.choice((h.d, 2 * h.d, max(h.ff) or 256, h.window or 1024, (h.window or 1024) + n_ubatch))
    n_ctx = chooser.choice((chooser.randrange(1, 1200) * 256, -(-wide // 256) * 256))
    kind = chooser.choice(TYPES)
    together = n_ctx * (1 if unified else n_seq)
    return settings._replace(
        n_ctx=together, n_ctx_seq=n_ctx, n_batch=min(n_batch, together), n_ubatch=min(n_ubatch, together), n_seq=n_seq,
        unified=unified, flash=chooser.choice(("on", "on", "auto", "off")), type_k=kind,
        type_v=chooser.choice((kind, kind, *TYPES)), swa_full=chooser.random() < 0.2,
        kv_offload=chooser.random() < 0.9, n_outputs=chooser.choice((0, 1, n_seq)),
    )  # fmt: skip


def placed(chooser: random.Random, h: Hyper) -> GraphPlacement:
    """None to three cards, some layers and some experts on the host."""
    n_gpu, count = chooser.choice((0, 1, 1, 2, 2, 3)), h.n_layer_all + 1
    on_host = chooser.choice((0, 0, chooser.randrange(count))) if n_gpu else count
    ends = sorted(chooser.choices(range(on_host, count + 1), k=n_gpu - 1)) if n_gpu else []
    layers = [CPU if i < on_host else sum(i >= end for end in ends) for i in range(count)]
    away = "|".join(map(str, range(chooser.randrange(1, count))))
    experts = h.n_expert and n_gpu and chooser.random() < 0.6
    return GraphPlacement(n_gpu, tuple(layers), ((rf"blk\.({away}){EXPERTS}", CPU),) if experts else ())


def test_read_off_is_as_built(models, monkeypatch):
    chooser = random.Random(256)
    opened = 0
    for number in range(COUNT):
        inputs = graph_inputs(chooser.choice(models))
        h, model = inputs.model.hyper, inputs.model.graph
        settings, placement = drawn(chooser, h, inputs.settings), placed(chooser, h)
        asked = (model, settings, placement, [chooser.choice(CARDS)] * placement.n_gpu, h)
        opened += left_open(h, settings) is not None
        read = compute_bytes(*asked)
        with monkeypatch.context() as only:
            only.setattr(graph, "left_open", lambda *_: None)
            model.traces.clear()
            assert read == compute_bytes(*asked), asked[1:3]
        if number % 10 == 0:
            assert read == compute_bytes(*asked, full=True), asked[1:3]
    assert opened > COUNT // 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"n_ctx": 1024, "n_ctx_seq": 1024}, "a context below the batch shortens it"),
        ({"n_ctx": 4000, "n_ctx_seq": 4000}, "sizes are padded"),
        ({"flash": "off", "type_v": 8}, "rows as long as the context are padded to the backend's own multiple"),
    ],
)
def test_what_bounds_a_graph_is_not_left_open(models, change, why):
    inputs = graph_inputs(next(cell for cell in models if cell["model"] == "llama3-8b"))
    settings = inputs.settings._replace(n_ctx=4096, n_ctx_seq=4096, n_batch=2048, n_ubatch=512, unified=True)
    assert left_open(inputs.model.hyper, settings) is not None
    assert left_open(inputs.model.hyper, settings._replace(**change)) is None, why


def test_a_batch_that_slots_do_not_divide_stays_as_it_is(models):
    inputs = graph_inputs(next(cell for cell in models if cell["model"] == "llama3-8b"))
    settings = inputs.settings._replace(n_ctx=12288, n_ctx_seq=4096, n_batch=2048, n_ubatch=512, unified=False)
    opened = left_open(inputs.model.hyper, settings._replace(n_seq=3))
    assert opened is not None
    assert (opened.n_ubatch, opened.n_batch) == (512, 2048)
    assert opened.n_ctx == 3 * opened.n_ctx_seq > 1 << 200
