"""What the files beside a model may cost together, and that what is kept of them is enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.app import App
from advisor.cli import siblings
from advisor.gguf_header import read_snapshot
from advisor.gguf_header.types import ArraySummary
from advisor.host import Cpu, Device, HostSnapshot, Ram
from advisor.model.slim import slim
from advisor.planner import Planner
from advisor.recommend.search import Wishes
from advisor.settings import RequestedSettings
from advisor.stores.siblings import beside
from tests.hostile.models import document
from tests.tools.gguf_files import array, kv
from tests.tools.tiny_models import tiny_model, write

GIB = 1 << 30


def near(folder: Path, more: list[bytes]) -> siblings.Files:
    paths = [write(folder / f"m-{quant}.gguf", tiny_model(more=more)) for quant in ("Q8_0", "Q4_0", "Q6_K")]
    app = App(None)
    header = app.header(str(paths[0]))
    return siblings.files_beside(app, header, app.model(header), beside(header.path), load_mtp=False)


@pytest.mark.parametrize(("limit", "value"), [("_KEPT_BYTES", 12_000), ("_CPU_S", -1.0)])
def test_what_is_cut_is_counted(tmp_path, monkeypatch, limit, value):
    assert (len(near(tmp_path, []).files), near(tmp_path, []).n_left_out) == (3, 0)
    monkeypatch.setattr(siblings, limit, value)
    found = near(tmp_path, [])
    assert found.n_left_out == 3 - len(found.files) > 0
    assert found.skipped == ()


def test_a_header_far_larger_than_any_model_s_is_said_and_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(siblings, "_HEADER_BYTES", 1 << 20)
    found = near(tmp_path, [kv("x", "string", "a" * (1 << 19))])
    assert len(found.files) == 1
    assert all("more than 1 MiB of metadata" in why for _, why in found.skipped)
    assert len(found.skipped) == 2


def test_texts_and_lists_are_not_kept(tmp_path):
    entries = [
        kv("general.description", "string", "d" * 5000), kv("k" * 300, "uint8", 1),
        array("long", "uint8", [1] * 2049), array("short", "uint8", [1] * 2048), array("texts", "string", ["a"]),
    ]  # fmt: skip
    for file in near(tmp_path, entries).files:
        kept = file.spec.metadata
        assert (len(kept["general.description"]), "k" * 300 in kept, kept["short"]) == (256, False, (1,) * 2048)
        assert (kept["long"], kept["texts"]) == (ArraySummary("int", 2049), ArraySummary("str", 1))
        assert (file.header.metadata, file.header.tensors) == ({}, ())


@pytest.mark.parametrize("model", ["small-llama", "small-qwen3moe", "small-gemma3", "mamba-2.8b"])
def test_a_model_is_planned_the_same(model):
    app = App(None)
    card = Device("CUDA0", "cuda", "card", 2 * GIB, 2 * GIB)
    host = HostSnapshot((card,), Ram(32 * GIB, 32 * GIB), Cpu("cpu", 8, 16), "linux")
    planner = Planner(app, host, app.engine(None))
    header = read_snapshot(document(model), "m.json")
    spec = app.model(header)
    _, small, _ = slim(header, spec)
    wishes = Wishes(RequestedSettings(n_ctx=2048))
    one, two = (planner.recommend(each, planner.intent("balanced"), wishes) for each in (spec, small))
    assert one[0].chosen.plan == two[0].chosen.plan
    assert (one[0].summary, one[0].warnings) == (two[0].summary, two[0].warnings)
