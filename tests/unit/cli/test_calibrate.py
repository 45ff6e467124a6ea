"""`advisor calibrate` with a program that plays the engine: what it says, what it keeps, and who uses it afterwards.

The program's tokens take as long as its file is large, at PACE bytes a second: far slower than any machine is assumed
to be, so that an answer that rests on it cannot come from anywhere else.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from advisor.engines.trial_file import write_trial
from advisor.speed.trials import Trial
from tests.tools.fake_server import BYTES_PER_S, fake_server
from tests.unit.cli.test_bad_input import Answer, advisor

SLOWER = 20.0
PACE = BYTES_PER_S / SLOWER
MODEL = Trial("type", "q8_0", "q8_0", 1, 2048, 8192, 32, 8, 64, 2048)
SECONDS = "6"  # not enough for every storage type
TEXT_KEYS = {"what", "tokens", "measured_tokens_per_s", "before_tokens_per_s", "before_error", "after_tokens_per_s",
             "after_error"}  # fmt: skip


class Machine(NamedTuple):
    """A machine that was calibrated twice, and what the command said."""

    state: Path
    models: Path
    model: Path
    engine: Path
    first: dict[str, Any]
    second: Answer


def real_model(path: Path) -> Path:
    """A model of 74 MB that is whole, for a disk and an engine to read."""
    path.parent.mkdir(exist_ok=True)
    write_trial(MODEL, str(path), 4096)
    return path


def own_environment(patch: pytest.MonkeyPatch, folder: Path) -> Path:
    """What tests/conftest.py does for one test, for a fixture that serves several; the state folder."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        patch.setenv(name, str(folder / name))
    patch.setenv("LC_ALL", "C.UTF-8")
    patch.setenv("COLUMNS", "100")
    return folder / "XDG_STATE_HOME"


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory) -> Machine:
    folder = tmp_path_factory.mktemp("calibrated")
    model = real_model(folder / "models" / "m.gguf")
    engine = fake_server(folder, folder / "starts", slower=SLOWER)
    words = ["--engine-binary", engine, "--folder", model.parent, "--seconds", SECONDS]
    with pytest.MonkeyPatch.context() as patch:
        state = own_environment(patch, folder)
        first = advisor("calibrate", *words, "--json")
        assert first.status == 0, first
        assert first.err == ""
        second = advisor("calibrate", *words)
    return Machine(state, model.parent, model, engine, json.loads(first.out), second)


@pytest.fixture
def state(calibrated, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(calibrated.state))
    return calibrated.state


# ---------------------------------------------------------------- what it says


def test_the_document(calibrated):
    document = calibrated.first
    assert list(document) == [
        "schema", "machine", "measured_on", "ram_bytes_per_s", "disks", "cpu", "runs", "trials", "check", "kept_in",
        "seconds", "notes",
    ]  # fmt: skip
    assert document["schema"] == "advisor.calibrate/1"
    assert document["ram_bytes_per_s"] > 10**9
    assert document["kept_in"] == str(calibrated.state / "advisor" / "calibration.json")
    assert document["trials"]["binary"] == str(calibrated.engine)
    assert document["trials"]["binary_kind"] == "server"
    (disk,) = document["disks"]
    assert disk["folder"] == str(calibrated.models)
    assert (disk["bytes_per_s"] is None) == (disk["reason"] is not None)  # the test's folder may be in memory


def test_the_engines_pace_is_found(calibrated):
    """By hand: a trial's file is its weights and an input matrix that no token reads, a thirtieth or less of it."""
    cpu = calibrated.first["cpu"]
    assert (cpu["engine"], cpu["build"]) == ("llama-server", 11434)
    rates = {entry["name"]: entry["bytes_per_s"] for entry in cpu["types"]}
    assert {"q8_0", "f16"} <= set(rates)
    assert list(rates.values()) == pytest.approx([PACE] * len(rates), rel=0.08)


def test_what_time_was_not_enough_for(calibrated):
    left = calibrated.first["trials"]["left_out"]
    done = {entry["type"] for entry in calibrated.first["trials"]["timed"] if entry["what"] == "type"}
    assert "type f32" in left
    assert {f"type {name}" for name in done}.isdisjoint(left)
    text = " ".join(calibrated.second.out.split())
    assert "no time left for " in text
    assert "f32; --seconds gives more" in text


def test_before_and_after_are_held_against_the_engine(calibrated):
    check = calibrated.first["check"]
    assert check["model"] == {"path": str(calibrated.model), "name": "m", "quantization": "Q8_0"}
    assert (check["binary"], check["build"], check["device"]) == (str(calibrated.engine), 11434, "cpu")
    empty, deep, prompt = check["figures"]
    assert all(set(figure) == TEXT_KEYS for figure in check["figures"])
    assert [figure["what"] for figure in check["figures"]] == ["decode", "decode", "prefill"]
    assert empty["measured_tokens_per_s"] == pytest.approx(PACE / calibrated.model.stat().st_size, rel=0.01)
    assert empty["before_error"] > 2  # no machine is assumed to be that slow
    assert abs(empty["after_error"]) < 0.1
    assert empty["after_error"] == pytest.approx(
        empty["after_tokens_per_s"] / empty["measured_tokens_per_s"] - 1, abs=1e-3
    )
    assert deep["tokens"] > 200
    assert abs(deep["after_error"]) < deep["before_error"]
    assert prompt["tokens"] == pytest.approx(deep["tokens"], abs=20)


def test_the_text(calibrated):
    answer = calibrated.second
    assert (answer.status, answer.err) == (0, "")
    lines = answer.out.split("\n")
    assert all(len(line) <= 100 and line.isprintable() for line in lines)
    assert ", measured in " in lines[0]
    for word in (
        "  memory   ", " GB/s, read by all cores", "  disk     ", "llama-server b11434: ", "m Q8_0, tokens/s",
        "answering after 12 tokens", "measured", "before", "after", f"Kept in {calibrated.state}",
    ):  # fmt: skip
        assert word in answer.out
    # a second calibration has the first as its "before", and begins anew with what it knows of the CPU
    (row,) = [line for line in lines if "answering after 12 tokens" in line]
    before = row.split("tokens")[1].split()[2]
    assert abs(int(before.removeprefix("+"))) <= 10
    assert "What earlier runs on the CPU told is forgotten" in " ".join(answer.out.split())


def test_nothing_is_left_but_the_file(calibrated):
    assert [path.name for path in (calibrated.state / "advisor").iterdir()] == ["calibration.json"]
    starts = [json.loads(line) for line in (calibrated.engine.parent / "starts").read_text().splitlines()]
    assert len(starts) > 10
    for pid, words, _ in starts:
        assert not Path(f"/proc/{pid}/cwd").exists()
        model = words[words.index("-m") + 1]
        assert model == str(calibrated.model) or not Path(model).parent.exists()


# ---------------------------------------------------------------- who uses it


def test_estimate_rests_on_it(calibrated, state, tmp_path, monkeypatch):
    words = ["estimate", calibrated.model, "-c", "512", "-np", "1", "--json"]
    speed = json.loads(advisor(*words).out)["speed"]
    assert speed["confidence"] == "calibrated"
    depth = speed["decode_tokens_per_s"]["at_depth"]
    expected = PACE / calibrated.model.stat().st_size / (1 + depth / 1000)
    assert speed["decode_tokens_per_s"]["value"] == pytest.approx(expected, rel=0.15)
    assert speed["decode_tokens_per_s"]["low"] < speed["decode_tokens_per_s"]["value"]
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    without = json.loads(advisor(*words).out)["speed"]
    assert without["confidence"] == "low"
    assert without["decode_tokens_per_s"]["value"] > 4 * expected


def test_recommend_rests_on_it(calibrated, state):
    document = json.loads(advisor("recommend", calibrated.model, "--no-gpu", "--json").out)
    speed = document["speed"]
    assert speed["confidence"] == "calibrated"
    depth = speed["decode_tokens_per_s"]["at_depth"]
    assert speed["decode_tokens_per_s"]["value"] < PACE / calibrated.model.stat().st_size
    assert depth > 0


def test_another_model_of_the_same_type_rests_on_it_too(calibrated, state, tmp_path):
    other = tmp_path / "other.gguf"
    write_trial(MODEL._replace(n_layer=2), str(other), 4096)
    speed = json.loads(advisor("estimate", other, "-c", "512", "-np", "1", "--json").out)["speed"]
    assert speed["confidence"] == "calibrated"
    expected = PACE / other.stat().st_size / (1 + speed["decode_tokens_per_s"]["at_depth"] / 1000)
    assert speed["decode_tokens_per_s"]["value"] == pytest.approx(expected, rel=0.15)


def test_hardware_shows_it(calibrated, state):
    text = advisor("hardware").out
    assert "by 'advisor calibrate'" in text
    assert "llama-server b11434: " in text
    (run,) = [line for line in text.split("\n") if line.startswith("run ")]
    assert "m Q8_0 on cpu b11434" in run
    assert "(measured on " in text
    document = json.loads(advisor("hardware", "--json").out)
    machine = calibrated.first["machine"]
    assert {name: document["cpu"][name] for name in ("physical_cores", "logical_cores")} == {
        name: machine[name] for name in ("physical_cores", "logical_cores")
    }
    assert machine["ram_bytes"] == document["ram"]["total_bytes"]
    kept = json.loads((state / "advisor" / "calibration.json").read_text())
    assert document["calibration"] == kept
    assert document["ram"]["bandwidth_bytes_per_s"] == kept["ram_bytes_per_s"]


def test_a_snapshot_carries_it_to_another_home(calibrated, state, tmp_path, monkeypatch):
    snapshot = tmp_path / "snapshot.json"
    assert advisor("hardware", "--save", snapshot).status == 0
    words = ["estimate", calibrated.model, "-c", "512", "-np", "1", "--json"]
    here = json.loads(advisor(*words).out)["speed"]
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    there = json.loads(advisor(*words, "--hardware", snapshot).out)["speed"]
    assert there == here


def test_a_card_that_is_imagined_keeps_the_measured_cpu(calibrated, state):
    words = ["estimate", calibrated.model, "-c", "512", "-np", "1", "--gpu", "RTX 3060", "--json"]
    cpu = json.loads(advisor(*words, "-ngl", "0").out)["speed"]
    assert cpu["decode_tokens_per_s"]["value"] < 1.5 * PACE / calibrated.model.stat().st_size
    card = json.loads(advisor(*words, "-ngl", "99").out)["speed"]
    assert card["confidence"] != "calibrated"
    assert card["decode_tokens_per_s"]["value"] > 10 * cpu["decode_tokens_per_s"]["value"]
