"""`advisor calibrate` where something is wrong: one sentence each, and what could be measured is kept all the same."""

from __future__ import annotations

import functools
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from advisor.cli.main import main
from advisor.engines import serve
from advisor.engines.trial_file import write_trial
from advisor.hardware import ram_speed
from advisor.speed.trials import Trial
from tests.tools.empty_gguf import write_empty_gguf
from tests.tools.fake_engine import program
from tests.tools.fake_server import fake_server
from tests.tools.tiny_models import tiny_model
from tests.unit.cli.test_bad_input import ROOT, Answer, advisor, assert_one_sentence
from tests.unit.cli.test_calibrate import MODEL, real_model

ZOO = ROOT / "tests/data/zoo"
SHORT = (
    Trial("type", "q8_0", "q8_0", 1, 2048, 2048, 32, 8, 64, 2048),
    Trial("rows", "q8_0", "q8_0", 3, 640, 2048, 10, 2, 64, 2048),
    Trial("blocks", "q8_0", "q8_0", 16, 256, 256, 4, 4, 64, 512),
)


@pytest.fixture
def kept() -> Path:
    return Path(os.environ["XDG_STATE_HOME"]) / "advisor" / "calibration.json"


@pytest.fixture
def here(capsys, monkeypatch):
    """The command in this process, with three small trials alone: they are all that its figures rest on."""
    monkeypatch.setattr("advisor.speed.trials.trials", lambda *_: SHORT)
    monkeypatch.setattr(ram_speed, "measure_ram", functools.partial(ram_speed.measure_ram, seconds=0.02))
    monkeypatch.setenv("COLUMNS", "2000")

    def run(*words: object) -> Answer:
        started = time.monotonic()
        status = main(["calibrate", *map(str, words)])
        out, err = capsys.readouterr()
        return Answer(status, out, err, time.monotonic() - started)

    return run


def notes(answer: Answer) -> str:
    """The notes of a document, without the one that tells of a busy machine."""
    assert "bug in advisor" not in answer.err
    found = [note for note in json.loads(answer.out)["notes"] if "machine is busy" not in note]
    assert all(note.endswith((".", ".)")) for note in found), found
    return "\n".join(found)


# ---------------------------------------------------------------- wrong usage


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("--folder", "/proc"), 2, "shows what the kernel tells (proc)"),
        (("--folder", "/proc/self"), 2, "(proc)"),
        (("--folder", "/sys"), 2, "give one of models"),
        (["/no/such/model.gguf"], 1, "does not exist"),
        (["README.md"], 1, "README.md"),
        (["--engine-binary", "/no/such/llama-server"], 1, "does not exist"),
        (["--engine-binary", "README.md"], 1, "README.md"),
        (["--forget", "model.gguf"], 2, "--forget stands alone"),
        (["--forget", "--url", "http://127.0.0.1:1"], 2, "--forget stands alone"),
        (["--forget", "--url", ""], 2, "--forget stands alone"),
        (["--forget", "--no-engine"], 2, "--forget stands alone"),
        (["--forget", "--folder", "."], 2, "--forget stands alone"),
        (["--url", "http://127.0.0.1:1", "--no-engine"], 2, "--url times a server that runs"),
        (["--url", "http://127.0.0.1:1", "--folder", "/tmp"], 2, "--url times a server that runs"),
        (["--no-engine", "model.gguf"], 2, "--no-engine leaves the engine alone"),
        (["--no-engine", "--engine-binary", "xllamacpp"], 2, "--no-engine leaves the engine alone"),
        (["--seconds", "4"], 2, "--seconds"),
        (["--seconds", "soon"], 2, "--seconds"),
        (["--rules", "/no/such/folder", "--no-engine"], 2, "/no/such/folder"),
        (["one.gguf", "two.gguf"], 2, "two.gguf"),
    ],
)
def test_wrong_input_is_one_sentence_and_measures_nothing(words, status, told, kept):
    assert told in assert_one_sentence(advisor("calibrate", *words), status)
    assert not kept.exists()


# ---------------------------------------------------------------- without an engine


def test_memory_alone(here, kept):
    answer = here("--no-engine", "--json")
    assert answer.status == 0
    document = json.loads(answer.out)
    assert (document["cpu"], document["trials"], document["check"], document["disks"]) == (None, None, None, [])
    assert document["ram_bytes_per_s"] > 10**9
    assert json.loads(kept.read_text())["ram_bytes_per_s"] == document["ram_bytes_per_s"]
    assert notes(answer) == ""
    text = here("--no-engine").out
    assert "memory   " in text
    assert "engine" not in text


def test_what_is_kept_reaches_the_estimate(here, kept):
    """Memory's pace times rules/speed.toml's share of it is what weights are read with."""
    assert here("--no-engine").status == 0
    document = json.loads(kept.read_text())
    document["ram_bytes_per_s"] = 5 * 10**9
    kept.write_text(json.dumps(document))
    words = ["estimate", ZOO / "llama3-1b.json.gz", "-c", "512", "-np", "1", "--no-gpu", "--json"]
    slow = json.loads(advisor(*words).out)["speed"]["decode_tokens_per_s"]["value"]
    document["ram_bytes_per_s"] *= 4
    kept.write_text(json.dumps(document))
    fast = json.loads(advisor(*words).out)["speed"]["decode_tokens_per_s"]["value"]
    assert 3 < fast / slow <= 4.01
    assert slow < 5e9 / 822_000_000  # its weights are 823 MB


def test_no_engine_at_hand_is_said(here, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    answer = here("--json")
    assert answer.status == 0
    assert notes(answer).startswith("No llama-server was found on PATH")


def test_nothing_measured_is_status_1(here, monkeypatch):
    monkeypatch.setattr("advisor.hardware.ram_speed.measure_ram", lambda *_: None)
    answer = here("--no-engine", "--json")
    assert answer.status == 1
    assert notes(answer) == "The memory's speed cannot be measured here."


@pytest.mark.parametrize("link", [False, True], ids=["folder", "link"])
def test_folders(here, tmp_path, link):
    model = real_model(tmp_path / "models" / "m.gguf")
    folder = model.parent
    if link:
        folder = tmp_path / "link"
        folder.symlink_to(model.parent)
    (tmp_path / "empty").mkdir()
    answer = here("--no-engine", "--folder", folder, "--folder", tmp_path / "empty", "--json")
    assert answer.status == 0
    disks = {disk["folder"]: disk for disk in json.loads(answer.out)["disks"]}
    assert set(disks) == {str(folder), str(tmp_path / "empty")}
    assert disks[str(tmp_path / "empty")]["reason"] == "holds no file to measure with"
    found = disks[str(folder)]
    assert found["bytes_per_s"] or "memory" in found["reason"]  # where the tests' folder is no disk
    assert "/empty holds no file" in " ".join(here("--no-engine", "--folder", tmp_path / "empty").out.split())
    assert here("--no-engine", "--folder", "/no/such").status == 2


def test_a_second_time_keeps_what_it_does_not_measure(here, tmp_path, kept):
    engine = fake_server(tmp_path, tmp_path / "starts")
    model = real_model(tmp_path / "models" / "m.gguf")
    assert here(model, "--engine-binary", engine).status == 0
    before = json.loads(kept.read_text())
    assert before["cpu"] is not None
    assert [run["device"] for run in before["runs"]] == ["cpu"]
    answer = here("--no-engine", "--json")
    after = json.loads(kept.read_text())
    assert (after["cpu"], after["runs"]) == (before["cpu"], before["runs"])
    assert "forgotten" not in notes(answer)


# ---------------------------------------------------------------- engines that misbehave


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        ("sys.exit('error: no such option')", "no such option"),
        ("os.kill(os.getpid(), 4)", "instructions that this processor does not have"),
        ("time.sleep(60)", "was not ready within 1 s"),
    ],
)
def test_an_engine_that_does_not_come_up(here, tmp_path, kept, monkeypatch, trouble, told):
    monkeypatch.setattr(serve, "START_LIMIT_S", 1.0)
    engine = fake_server(tmp_path, tmp_path / "starts", trouble=trouble)
    model = real_model(tmp_path / "models" / "m.gguf")
    answer = here(model, "--engine-binary", engine, "--json")
    assert answer.status == 0  # memory was measured
    assert told in notes(answer)
    assert notes(answer).count(told) == 1
    document = json.loads(kept.read_text())
    assert document["cpu"] is None
    assert document["ram_bytes_per_s"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"timings"', '"other"', "no timing"),
        ('"prompt_n": ', '"prompt_n": "x", "other": ', "no timing"),
        ("self.answer(200, {\"content\"", "self.answer(200, 'no JSON') or ({\"content\"", "no timing"),
        ('"predicted_n": n', '"predicted_n": 1', "nothing was timed"),
    ],
)  # fmt: skip
def test_an_engine_that_answers_nonsense(here, tmp_path, old, new, told):
    engine = fake_server(tmp_path, tmp_path / "starts")
    assert old in engine.read_text()
    engine.write_text(engine.read_text().replace(old, new))
    answer = here("--engine-binary", engine, "--json")
    assert answer.status == 0
    assert told in notes(answer)
    assert json.loads(answer.out)["cpu"] is None


def test_a_program_that_is_no_server(here, tmp_path):
    engine = program(tmp_path, "pass", "llama-fit-params")
    answer = here("--engine-binary", engine)
    assert answer.status == 1
    assert "llama-fit-params" in answer.err


def test_what_the_rest_depends_on_is_timed_whatever_it_takes(here, tmp_path, monkeypatch):
    f16 = SHORT[0]._replace(kind="f16", output="f16")
    monkeypatch.setattr("advisor.speed.trials.trials", lambda *_: (*SHORT, f16, *SHORT))
    ticks = iter(range(0, 10**6, 50))
    engine = fake_server(tmp_path, tmp_path / "starts")
    monkeypatch.setattr("advisor.cli.calibrating.time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    answer = here("--engine-binary", engine, "--seconds", "5", "--json")
    document = json.loads(answer.out)
    assert [entry["what"] for entry in document["trials"]["timed"]] == ["type", "rows", "blocks"]
    assert document["trials"]["left_out"] == ["type f16"]
    assert [entry["name"] for entry in document["cpu"]["types"]] == ["q8_0"]


# ---------------------------------------------------------------- models to check with


def test_no_model_at_hand(here, tmp_path):
    answer = here("--engine-binary", fake_server(tmp_path, tmp_path / "starts"), "--json")
    assert json.loads(answer.out)["check"] is None
    assert notes(answer) == "No model of 48 MiB to 3 GiB is at hand to check with; give one as MODEL."
    assert json.loads(answer.out)["cpu"]["types"][0]["name"] == "q8_0"


def test_models_that_cannot_be_run_are_passed_over(here, tmp_path):
    """One is too small, one is of an architecture that nobody knows, one only embeds."""
    folder = tmp_path / "models"
    model = real_model(folder / "m.gguf")
    write_empty_gguf(ZOO / "gemma-embedding.json.gz", folder / "embedding.gguf")
    (folder / "odd.gguf").write_bytes(tiny_model("Odd", architecture="nobody") + b"\x11" * (60 << 20))
    (folder / "tiny.gguf").write_bytes(tiny_model("Tiny"))
    assert (folder / "odd.gguf").stat().st_size < model.stat().st_size
    words = ["--engine-binary", fake_server(tmp_path, tmp_path / "starts"), "--folder", folder, "--json"]
    assert json.loads(here(*words).out)["check"]["model"]["path"] == str(model)
    model.unlink()
    answer = here(*words)
    assert json.loads(answer.out)["check"] is None
    assert "No model of 48 MiB to 3 GiB is at hand" in notes(answer)


def test_a_model_that_only_embeds(here, tmp_path):
    path = tmp_path / "embedding.gguf"
    write_empty_gguf(ZOO / "bert-large.json.gz", path)
    engine = fake_server(tmp_path, tmp_path / "starts")
    refused = f"""if path == {str(path)!r}: return self.answer(501, {{"error": {{"message": "no completions"}}}})"""
    engine.write_text(engine.read_text().replace("        depth = 1", f"        {refused}\n        depth = 1"))
    answer = here(path, "--engine-binary", engine, "--json")
    assert answer.status == 0
    assert "no completions" in notes(answer)
    document = json.loads(answer.out)
    assert document["check"] is None
    assert document["cpu"]["types"][0]["name"] == "q8_0"


def test_a_model_of_a_short_context(here, tmp_path):
    """A prompt of a token or two says nothing of how fast prompts are read."""
    path = tmp_path / "short.gguf"
    write_trial(MODEL, str(path), 256)
    words = [path, "--engine-binary", fake_server(tmp_path, tmp_path / "starts"), "--json"]
    assert [figure["what"] for figure in json.loads(here(*words).out)["check"]["figures"]] == ["decode"]
    write_trial(MODEL, str(path), 512)
    decode, deep, prompt = json.loads(here(*words).out)["check"]["figures"]
    assert [decode["tokens"], deep["tokens"], prompt["tokens"]] == [12, 268, pytest.approx(255, abs=2)]


# ---------------------------------------------------------------- the file


def test_a_state_folder_that_takes_nothing(here, kept):
    kept.parent.parent.mkdir(parents=True, exist_ok=True)
    kept.parent.write_text("a file in its place")
    answer = here("--no-engine", "--json")
    assert answer.status == 1
    assert "cannot be written" in notes(answer)
    assert json.loads(answer.out)["kept_in"] is None
    text = here("--no-engine")
    assert text.status == 1
    assert "Kept in" not in text.out


def test_forgetting(here, kept):
    assert here("--no-engine").status == 0
    assert here("--forget").out == "What was measured and learned is forgotten.\n"
    assert not kept.exists()
    assert here("--forget").out == "Nothing was measured or learned yet.\n"
    assert json.loads(here("--forget", "--json").out) == {
        "schema": "advisor.calibrate/1", "forgotten": False, "kept_in": str(kept),
    }  # fmt: skip
    kept.mkdir()
    answer = here("--forget")
    assert answer.status == 1
    assert "cannot be removed" in answer.err
