"""`advisor verify` and `recommend --verify` against programs that play the engine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from advisor.cli.measured import Row, compare, residuals
from advisor.memory.types import Interval
from tests.tools.empty_gguf import write_empty_gguf
from tests.tools.fake_engine import estimator, program, table, talker
from tests.unit.cli.test_bad_input import SHIPPED, advisor, assert_one_sentence

MIB = 1 << 20
GPU = ("CUDA0", "NVIDIA GeForce RTX 3060", 12037, 11802)
ARGUMENTS = ["-c", "8192", "-ngl", "20", "-np", "1"]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("model") / "llama-3-8b.gguf"
    write_empty_gguf(SHIPPED, path)
    return path


def verify(model, engine, *words):
    return advisor("verify", model, *ARGUMENTS, "--engine-binary", engine, *words)


def component(document, device, name):
    (entry,) = [entry for entry in document["devices"] if entry["id"] == device]
    (found,) = [part for part in entry["components"] if part["component"] == name]
    return found


def test_an_engine_that_agrees(model, tmp_path):
    engine = estimator(tmp_path, GPU, more={}, log=tmp_path / "log")
    answer = verify(model, engine, "--json")
    assert answer.status == 0, answer
    assert answer.err == ""
    document = json.loads(answer.out)
    assert document["schema"] == "advisor.verify/1"
    assert document["agrees"] is True
    assert document["engine"]["build"] == document["engine"]["binary_build"] == 11434
    assert document["engine"]["binary"] == str(engine)
    assert [device["id"] for device in document["devices"]] == ["CUDA0", "host"]
    assert [device["backend"] for device in document["devices"]] == ["cuda", "cpu"]
    assert document["settings"]["n_gpu_layers"] == 20
    # by hand: -ngl 20 is the output and 19 of 32 blocks; 8 heads of 128, keys and values, f16, 8192 cells
    cache = component(document, "CUDA0", "cache")
    assert cache["predicted_bytes"] == 19 * 2 * 8 * 128 * 2 * 8192
    assert cache["engine_bytes"] == cache["predicted_bytes"] // MIB * MIB
    assert "-c 8192" in " ".join((tmp_path / "log").read_text().split()).replace("--ctx-size", "-c")
    text = verify(model, engine)
    assert text.status == 0
    assert "The engine agrees" in text.out
    assert "CUDA0  weights" in text.out


@pytest.mark.parametrize(
    ("where", "more"),
    [("CUDA0 weights", 2), ("CUDA0 cache", -2), ("host cache", 2), ("CUDA0 compute", 2000), ("host weights", -5)],
)
def test_an_engine_that_differs_is_status_5_and_remembered(where, more, model, tmp_path):
    engine = estimator(tmp_path, GPU, more={where: more}, log=tmp_path / "log")
    answer = verify(model, engine, "--json")
    assert answer.status == 5
    document = json.loads(answer.out)
    assert document["agrees"] is False
    device, name = where.split()
    wrong = [
        (entry["id"], part["component"])
        for entry in document["devices"]
        for part in entry["components"]
        if not part["agrees"]
    ]
    assert wrong == [(device, name)]
    found = component(document, device, name)
    assert (found["difference_bytes"] > 0) == (more > 0)
    assert abs(found["difference_bytes"]) <= abs(more) * MIB
    records = json.loads(Path(document["remembered_in"]).read_text())["records"]
    (record,) = [
        r for r in records if r["component"] == name and r["backend"] == ("cuda" if device == "CUDA0" else "cpu")
    ]
    assert record["last_bytes"] == found["difference_bytes"]
    assert (record["architecture"], record["build"], record["source"]) == ("llama", 11434, "engine")
    assert Path(document["remembered_in"]).parent == Path(os.environ["XDG_STATE_HOME"]) / "advisor"
    text = verify(model, engine)
    assert text.status == 5
    assert f"The engine disagrees: {device} {name}." in text.out


def test_printed_precision_is_no_disagreement():
    exact = Interval(1000 * MIB + 7, 1000 * MIB + 7, 1000 * MIB + 7)
    whole = Interval(1000 * MIB, 1000 * MIB, 1001 * MIB - 1)
    rows = compare({("CUDA0", "cache"): exact}, {("CUDA0", "cache"): whole}, {"CUDA0": "cuda"})
    assert [(row.difference_bytes, row.agrees, row.backend) for row in rows] == [(0, True, "cuda")]
    above, below = exact._replace(low=0, value=0, high=999 * MIB), exact._replace(low=1002 * MIB, high=1003 * MIB)
    assert Row("CUDA0", "cuda", "cache", above, whole).difference_bytes == MIB
    assert Row("CUDA0", "cuda", "cache", below, whole).difference_bytes == -MIB - 1
    assert residuals(rows, "llama", 1, "engine")[0].n_bytes == 0
    # a device that was not predicted at all disagrees
    (row,) = compare({}, {("CUDA1", "compute"): whole}, {})
    assert (row.backend, row.difference_bytes) == ("unknown", 1000 * MIB)


def test_settings_that_the_engine_runs_otherwise(model, tmp_path):
    engine = estimator(tmp_path, GPU, more={}, log=tmp_path / "log")
    body = engine.read_text().replace('print("build', 'print("llama_context: n_ctx = 4096")\nprint("build', 1)
    engine.write_text(body)
    answer = verify(model, engine, "--json")
    assert answer.status == 5
    assert json.loads(answer.out)["settings_that_differ"] == ["the engine runs n_ctx = 4096, predicted was 8192."]


def test_fit_params_is_compared_with_logits_for_every_token(model, tmp_path):
    """The host keeps 512 rows of logits instead of one: the prediction follows, so only real differences count."""
    estimate = advisor("estimate", model, "-c", "8192", "-np", "1", "--no-gpu", "--tool", "bench", "--json")
    host = json.loads(estimate.out)["host"]
    parts = " ".join(str(host[f"{part}_bytes"] >> 20) for part in ("weights", "cache", "compute"))
    engine = talker(tmp_path, f"Host {parts} \n", name="llama-fit-params", linger_s=0)
    answer = advisor("verify", model, "-c", "8192", "--no-gpu", "--engine", "llama.cpp@b11434",
                     "--engine-binary", engine, "--json")  # fmt: skip
    assert answer.status == 0, answer.out
    assert any("every token" in note for note in json.loads(answer.out)["notes"])
    assert "--device none" in (tmp_path / "arguments").read_text()


# ---------------------------------------------------------------- no engine, bad engines, bad models


def test_no_engine_is_status_1(model, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    line = assert_one_sentence(advisor("verify", model), 1)
    assert "no llama.cpp engine was found on PATH" in line
    line = assert_one_sentence(advisor("recommend", model, "--verify", "--no-gpu"), 1)
    assert "--engine-binary" in line


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("sys.exit('error: unable to load model')", "unable to load model"),
        ("os.write(1, os.urandom(100000)); sys.exit(2)", "ended with status 2"),
        ("print('\\x1b[31m error: \\x07 red'); sys.exit(1)", "red"),
    ],
)
def test_an_engine_without_an_answer_is_one_sentence(body, words, model, tmp_path):
    assert words in assert_one_sentence(verify(model, program(tmp_path, body)), 1)


def test_models_that_an_engine_cannot_load(tmp_path):
    engine = talker(tmp_path, table([], (1, 1, 1)))
    line = assert_one_sentence(advisor("verify", SHIPPED, "--engine-binary", engine), 1)
    assert "needs the .gguf file itself" in line
    assert_one_sentence(advisor("verify", tmp_path / "none.gguf", "--engine-binary", engine), 1)
    assert not (tmp_path / "arguments").exists()


def test_a_device_without_rules(model, tmp_path):
    engine = talker(tmp_path, table([("HTP0", "Hexagon", 4096, 4096, 1, 1, 1)], (1, 1, 1)))
    assert "HTP0, for which advisor has no rules" in assert_one_sentence(verify(model, engine), 1)


def test_hardware_that_is_not_there_is_said(model, tmp_path):
    engine = estimator(tmp_path, GPU, more={}, log=tmp_path / "log")
    answer = verify(model, engine, "--gpu", "RTX 4090", "--json")
    assert answer.status == 0
    assert any("change nothing" in note for note in json.loads(answer.out)["notes"])


# ---------------------------------------------------------------- recommend --verify


def recommend(model, engine, *words):
    return advisor("recommend", model, "--gpu", "cuda:12037MiB@11802MiB", "--ram", "32GiB", "--verify",
                   "--engine-binary", engine, "--json", *words)  # fmt: skip


def test_recommend_says_that_the_engine_agrees(model, tmp_path):
    answer = recommend(model, estimator(tmp_path, GPU, more={}, log=tmp_path / "log"))
    assert answer.status == 0, answer
    document = json.loads(answer.out)
    assert "engine_agrees" in [note["code"] for note in document["warnings"]]
    assert document["devices"][0]["source"] == "engine"
    assert len((tmp_path / "log").read_text().splitlines()) == 1
    plain = advisor("recommend", model, "--gpu", "cuda:12037MiB@11802MiB", "--ram", "32GiB", "--json")
    assert json.loads(plain.out)["settings"] == document["settings"]
    assert json.loads(plain.out)["devices"][0]["source"] == "formula"


def test_recommend_plans_again_when_the_engine_wants_more(model, tmp_path):
    plain = json.loads(advisor("recommend", model, "--gpu", "cuda:12037MiB@11802MiB", "--ram", "32GiB", "--json",
                               "--for", "context").out)  # fmt: skip
    engine = estimator(tmp_path, GPU, more={"CUDA0 compute": 1500}, log=tmp_path / "log")
    answer = recommend(model, engine, "--for", "context")
    document = json.loads(answer.out)
    codes = [note["code"] for note in document["warnings"]]
    assert codes.count("planned_again") == 2
    assert codes.count("engine_differs") == 3
    assert len((tmp_path / "log").read_text().splitlines()) == 3
    device = document["devices"][0]
    assert device["margin_bytes"] > plain["devices"][0]["margin_bytes"] + 1000 * MIB
    # what the engine wants beyond the plan is now free
    assert device["planned_bytes"] + 1000 * MIB <= device["free_bytes"]
    assert plain["devices"][0]["planned_bytes"] > device["planned_bytes"]
    assert device["source"] == "formula"


def test_recommend_for_other_cards_than_the_engines(model, tmp_path):
    engine = estimator(tmp_path, GPU, more={}, log=tmp_path / "log")
    answer = advisor("recommend", model, "--gpu", "rocm:12GiB", "--verify", "--engine-binary", engine)
    assert "the engine has CUDA0, the plan is for ROCm0" in assert_one_sentence(answer, 1)
