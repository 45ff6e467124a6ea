"""`recommend --what-gpu`: what it lists holds everything, and the order is the one that it states."""

from __future__ import annotations

import functools
import json
import resource
import subprocess
import sys

import pytest

from advisor.app import App
from advisor.planner import Planner
from advisor.recommend.recommendation import Recommendation
from advisor.recommend.search import Wishes
from advisor.settings import ALL_LAYERS, RequestedSettings
from advisor.what_gpu import LISTED, GpuClass, WhatGpu
from tests.unit.cli.test_bad_input import ROOT, advisor, assert_one_sentence
from tests.unit.outputs.test_command import ZOO

GIB = 1 << 30
MODELS = ("llama3-8b", "gemma3-12b", "llama33-70b-q4_k_m", "mixtral", "bert-large")


@functools.cache
def found(model: str, n_ctx: int | None = None) -> tuple[WhatGpu, tuple[GpuClass, ...]]:
    app = App()
    spec = app.model(app.header(str(ZOO / f"{model}.json.gz")))
    base = app.host(no_gpu=True, ram=64 * GIB)
    planner = Planner(app, base, app.engine(None))
    wishes = Wishes(RequestedSettings(n_ctx=n_ctx))
    finder = WhatGpu(planner, app.gpu_table(), base, spec, planner.intent("balanced"), wishes)
    return finder, finder.classes()


def runs(model: str, names: list[str], n_ctx: int, kind: str = "f16") -> Recommendation:
    """What `recommend` says of a machine with these cards, every layer on them."""
    app = App()
    spec = app.model(app.header(str(ZOO / f"{model}.json.gz")))
    host = app.host(gpus=names, ram=None if names[0].endswith("GB") else 64 * GIB)
    planner = Planner(app, host, app.engine(None))
    pinned = RequestedSettings(n_ctx=n_ctx, n_gpu_layers=ALL_LAYERS, cache_type_k=kind, cache_type_v=kind)
    return planner.recommend(spec, planner.intent("balanced"), Wishes(pinned))[0]


@pytest.mark.parametrize("model", MODELS)
def test_the_list_is_short_and_in_its_order(model):
    _, classes = found(model)
    assert 0 < len(classes) <= 12
    markets = [each.market for each in classes]
    assert markets == sorted(markets, key=list(LISTED).index)
    for market in LISTED:
        mine = [(each.n_cards, each.memory_bytes) for each in classes if each.market == market]
        assert mine == sorted(set(mine))
    for each in classes:
        for offer in each.offers:
            assert offer.n_cards == each.n_cards
            for device in offer.judged.plan.devices:
                assert device.planned_bytes < each.memory_bytes
            assert offer.judged.plan.settings.n_gpu_layers == found(model)[0]._spec.n_layer_all + 1


@pytest.mark.parametrize("model", ["llama3-8b", "llama33-70b-q4_k_m"])
def test_recommend_agrees_with_what_is_listed(model):
    finder, classes = found(model)
    for each in (classes[0], classes[1], classes[-1]):
        for offer in each.offers:
            kind = offer.judged.plan.settings.cache_type_k
            answer = runs(model, [offer.name] * offer.n_cards, finder.n_ctx(), kind)
            assert answer.verdict == "full", offer.name
            rate = answer.speed.decode_tokens_per_s.value
            assert rate == pytest.approx(offer.speed.decode_tokens_per_s.value, rel=0.02), offer.name


def test_less_than_the_first_line_does_not_hold_it():
    """Of the desktop cards with less memory none runs the model alone, and one card less of two is too few."""
    finder, classes = found("llama3-8b")
    first = classes[0]
    assert (first.market, first.n_cards) == ("desktop", 1)
    smaller = [
        part
        for part in finder._table.parts
        if part.market == "desktop" and part.memory_bytes[0] < first.memory_bytes
    ]  # fmt: skip
    assert len(smaller) > 10
    largest = max(smaller, key=lambda part: part.memory_bytes[0])
    assert runs("llama3-8b", [largest.name], 32768, "q8_0").verdict != "full"
    two = found("llama33-70b-q4_k_m")[1][0]
    assert two.n_cards == 2
    assert runs("llama33-70b-q4_k_m", [two.offers[0].name], 32768, "q8_0").verdict != "full"


def test_a_longer_context_needs_more():
    short = found("llama3-8b", 4096)[1][0]
    long = found("llama3-8b", 131072)[1][0]
    assert short.memory_bytes < long.memory_bytes
    assert found("llama3-8b", 131072)[0].n_ctx() == 131072


def test_others_of_a_class_are_of_the_same_size_and_backend():
    finder, classes = found("gemma3-12b")
    parts = {part.name: part for part in finder._table.parts}
    named = 0
    for each in classes:
        for offer in each.offers:
            for name in offer.others:
                named += 1
                assert each.memory_bytes in parts[name].memory_bytes
                assert parts[name].backend == parts[_part_name(offer.name, parts)].backend
                assert parts[name].vendor == offer.vendor
    assert named > 10


def _part_name(name: str, parts: dict[str, object]) -> str:
    return name if name in parts else name.rpartition(" ")[0]


def test_every_card_of_the_table_has_a_market_or_is_part_of_a_machine():
    table = App().gpu_table()
    for part in table.parts:
        assert (part.market is None) == (part.memory_kind == "unified"), part.name
        assert (part.market == "laptop") == ("Laptop" in part.name), part.name
    markets = {part.name: part.market for part in table.parts}
    assert markets["RTX 3060"] == "desktop"
    assert markets["RTX A6000"] == markets["PRO W7900"] == markets["Arc Pro B60"] == "workstation"
    assert markets["H100 PCIe"] == markets["MI300X"] == markets["T4"] == "data centre"


def test_the_command_prints_it_and_json_says_the_same():
    text = advisor("recommend", ZOO / "llama33-70b-q4_k_m.json.gz", "--what-gpu", "--ram", "64GiB")
    assert (text.status, text.err) == (0, "")
    assert "2x 24 GiB   RTX 4090" in text.out
    assert "Prices are not known here" in text.out
    assert all(len(line) <= 100 for line in text.out.splitlines())
    done = advisor("recommend", ZOO / "llama33-70b-q4_k_m.json.gz", "--what-gpu", "--ram", "64GiB", "--json")
    document = json.loads(done.out)
    assert document["schema"] == "advisor.what-gpu/1"
    assert document["n_ctx"] == 32768
    first = document["classes"][0]
    assert (first["market"], first["n_cards"], first["memory_bytes"]) == ("desktop", 2, 24 * GIB)
    assert len(first["cards"][0]["planned_bytes"]) == 2


def test_where_nothing_holds_it_that_is_the_answer():
    done = advisor("recommend", ZOO / "llama3-8b.json.gz", "--what-gpu", "-c", "100000000", "--ram", "64GiB")
    assert (done.status, done.err) == (4, "")
    assert "No card" in done.out


@pytest.mark.parametrize(
    "words",
    [
        ["--gpu", "RTX 3060"],
        ["-ngl", "10"],
        ["--cpu-moe"],
        ["--plot"],
        ["--output", "x.ini"],
        ["--no-gpu"],
        ["--any-quant"],
    ],
)
def test_what_contradicts_the_question_is_named(words):
    line = assert_one_sentence(advisor("recommend", ZOO / "llama3-8b.json.gz", "--what-gpu", *words), 2)
    assert words[0] in line


def test_slow_ones_are_left_out_when_that_is_asked():
    words = ["--what-gpu", "--ram", "64GiB", "--json"]
    document = json.loads(advisor("recommend", ZOO / "llama3-8b.json.gz", *words, "--min-tps", "60").out)
    rates = [card["speed"]["decode_tokens_per_s"]["value"] for each in document["classes"] for card in each["cards"]]
    assert rates
    assert min(rates) >= 60


@pytest.mark.parametrize("model", ["llama33-70b-q4_k_m", "qwen3next"])
def test_it_takes_less_than_two_seconds(model):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "advisor", "recommend", str(ZOO / f"{model}.json.gz"), "--what-gpu", "--ram", "64GiB"],
        cwd=ROOT, capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2.0


def test_a_market_takes_the_lines_that_others_leave():
    """671 billion parameters: no desktop card at all, so six of 80 GiB and eight of 64 GiB are said too."""
    classes = found("ds3")[1]
    lines = [(one.n_cards, one.memory_bytes // GIB) for one in classes]
    assert {one.market for one in classes} == {"data centre"}
    assert {(6, 80), (8, 64)} <= set(lines)
    assert len(lines) <= 12
    assert lines == sorted(lines)
