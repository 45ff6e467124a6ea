"""`advisor observe`: logs as files, pipes and journals; with the model at hand and without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.empty_gguf import write_empty_gguf
from tests.tools.fake_engine import program
from tests.unit.cli.test_bad_input import ROOT, SHIPPED, advisor, assert_one_sentence
from tests.unit.engines.test_load_log import CUDA

MIB = 1 << 20


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("model") / "llama-3-8b.gguf"
    write_empty_gguf(SHIPPED, path)
    return path


def log_of(model: Path, *, cache_mib: float = 1024, build: str = "11434") -> str:
    """The log of this model, all on one card, with the engine's true figures: 8 KV heads of 128, 8192 cells, f16."""
    estimate = json.loads(
        advisor("estimate", model, "-c", "8192", "-np", "2", "--no-kv-unified", "--gpu", "cuda:12GiB", "--json").out
    )
    device, host = estimate["devices"][0], estimate["host"]
    assert device["cache_bytes"] == 1024 * MIB
    text = f"build: {build} (7e4c0a9) with GNU\n" + CUDA.replace("/m/Llama 3 8B.gguf", str(model))
    for old, n_bytes in (
        ("4403.49", device["weights_bytes"]), ("258.50", device["compute_bytes"]), ("281.81", host["weights_bytes"]),
        ("   16.01", host["compute_bytes"]), ("0.98", host["output_bytes"]),
    ):  # fmt: skip
        assert old in text
        text = text.replace(old, f"{n_bytes / MIB:.2f}")
    return text.replace("KV buffer size =  1024.00", f"KV buffer size = {cache_mib:.2f}")


def test_a_load_as_predicted(model, tmp_path):
    log = tmp_path / "log"
    log.write_text(log_of(model))
    answer = advisor("observe", log, "--json")
    assert answer.status == 0, answer
    document = json.loads(answer.out)
    assert document["schema"] == "advisor.observe/1"
    assert document["agrees"] is True
    assert document["build"] == 11434
    assert document["load"]["offloaded_layers"] == 33
    assert document["load"]["contexts"][0]["settings"]["n_ctx"] == "8192"
    assert [device["id"] for device in document["devices"]] == ["CUDA0", "host"]
    (cache,) = [part for part in document["devices"][0]["components"] if part["component"] == "cache"]
    assert (cache["predicted_bytes"], cache["observed_bytes"]) == (1024 * MIB, 1024 * MIB)
    records = json.loads(Path(document["remembered_in"]).read_text())["records"]
    assert {record["source"] for record in records} == {"observed"}
    text = advisor("observe", log)
    assert "As predicted" in text.out


def test_a_load_that_differs_is_status_5(model, tmp_path):
    log = tmp_path / "log"
    log.write_text(log_of(model, cache_mib=1034))
    answer = advisor("observe", log, "--json")
    assert answer.status == 5
    document = json.loads(answer.out)
    (cache,) = [part for part in document["devices"][0]["components"] if part["component"] == "cache"]
    assert not cache["agrees"]
    assert 9.9 * MIB < cache["difference_bytes"] <= 10 * MIB
    (record,) = [
        record
        for record in json.loads(Path(document["remembered_in"]).read_text())["records"]
        if (record["backend"], record["component"]) == ("cuda", "cache")
    ]
    assert record["last_bytes"] == cache["difference_bytes"]
    assert "It differs" in advisor("observe", log).out


def test_without_the_model_the_log_alone_is_shown(tmp_path):
    log = tmp_path / "log"
    log.write_text(CUDA)
    answer = advisor("observe", log)
    assert answer.status == 0
    assert "4,403.49 MiB" in answer.out
    assert "give it with --model" in answer.out
    document = json.loads(advisor("observe", log, "--json").out)
    assert document["agrees"] is None
    assert document["devices"] == []
    assert not Path(os.environ["XDG_STATE_HOME"]).exists()


def test_the_users_rules_count_for_the_advice_too(tmp_path):
    log, rules = tmp_path / "log", tmp_path / "rules" / "engines"
    log.write_text("loaded BLAS backend\n" + CUDA.replace("offloaded 33/33", "offloaded 20/33"))
    rules.mkdir(parents=True)
    (rules / "llama_cpp.toml").write_text(
        'schema_version = 1\nsource = "mine"\n[blas]\nprefill_without_tokens_per_s = 4321\nsource = "mine"\n'
    )
    assert "4,321 tokens/s" in advisor("observe", log, "--rules", rules.parent).out
    assert "1,200 tokens/s" in advisor("observe", log).out


def test_a_model_given_by_hand_and_a_wrong_one(model, tmp_path):
    log = tmp_path / "log"
    log.write_text(log_of(model).replace(str(model), "/gone/away.gguf"))
    assert advisor("observe", log, "--json").status == 0
    assert json.loads(advisor("observe", log, "--json").out)["agrees"] is None
    assert json.loads(advisor("observe", log, "--model", model, "--json").out)["agrees"] is True
    assert json.loads(advisor("observe", log, "--model", SHIPPED, "--json").out)["agrees"] is True  # a header is enough
    log.write_text(log.read_text().replace("arch             = llama", "arch             = qwen3"))
    line = assert_one_sentence(advisor("observe", log, "--model", model), 2)
    assert "the log tells of a qwen3 model" in line


def test_a_pipe(model):
    command = [sys.executable, "-m", "advisor", "observe", "-", "--json"]
    done = subprocess.run(command, input=log_of(model).encode(), capture_output=True, cwd=ROOT, timeout=60, check=False)
    assert done.returncode == 0
    assert json.loads(done.stdout)["agrees"] is True


@pytest.mark.parametrize("scope", ["--user", "system"])
def test_a_units_journal(scope, model, tmp_path, monkeypatch):
    (tmp_path / "text").write_text(log_of(model))
    body = f"""
words = sys.argv[1:]
open({str(tmp_path / "arguments")!r}, "a").write(" ".join(words) + "\\n")
if ("--user" in words) == ({scope!r} == "--user"):
    sys.stdout.write(open({str(tmp_path / "text")!r}).read())
"""
    program(tmp_path, body, "journalctl")
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = advisor("observe", "--unit", "llama.service", "--json")
    assert answer.status == 0, answer
    assert json.loads(answer.out)["agrees"] is True
    assert "-u llama.service" in (tmp_path / "arguments").read_text()


def test_journals_without_a_load(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "journalctl is not on this machine" in assert_one_sentence(advisor("observe", "--unit", "x"), 1)
    program(tmp_path, "print('started')", "journalctl")
    line = assert_one_sentence(advisor("observe", "--unit", "x"), 1)
    assert "the journal of x tells of no load" in line
    assert "-lv 4" in line
    assert_one_sentence(advisor("observe", "--unit", "--all"), 2)


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 100_000, b"\xff\xfe" * 5000, b"hello\n", b"CUDA0 model buffer size = -1.00 MiB\n",
     b"load_tensors: CUDA0 model buffer size = " + b"9" * 5_000_000],
    ids=["empty", "nuls", "no text", "no load", "negative", "huge"],
)  # fmt: skip
def test_logs_that_tell_of_no_load(content, tmp_path):
    log = tmp_path / "log"
    log.write_bytes(content)
    assert "tells of no load" in assert_one_sentence(advisor("observe", log), 1)


def test_bad_arguments(tmp_path):
    assert_one_sentence(advisor("observe"), 2)
    assert_one_sentence(advisor("observe", tmp_path / "log", "--unit", "x"), 2)
    assert "cannot be read" in assert_one_sentence(advisor("observe", tmp_path / "none"), 1)
    assert "cannot be read" in assert_one_sentence(advisor("observe", tmp_path), 1)


def test_text_of_a_log_cannot_harm_the_terminal(tmp_path):
    log = tmp_path / "log"
    log.write_text(CUDA.replace("Llama 3 8B\n", "\x1b[2Jevil\u202e\n").replace("CUDA0", "\x07X0"))
    out = advisor("observe", log).out
    assert all(char.isprintable() or char == "\n" for char in out)
    assert "\u202e" not in out


def test_drafts_probes_and_failures_are_told(tmp_path):
    log = tmp_path / "log"
    draft = "srv    load_model: loading draft model 'd'\n" + CUDA.replace("Llama 3 8B.gguf", "draft.gguf")
    probe = CUDA.replace("4403.49", "0.00").replace("281.81", "0.00")
    log.write_text(probe + CUDA + draft + "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 939524096\n")
    document = json.loads(advisor("observe", log, "--json").out)
    assert (document["probes"], document["loads"], len(document["drafts"])) == (1, 1, 1)
    assert document["drafts"][0]["path"] == "/m/draft.gguf"
    assert document["failed_allocations"] == [{"device": "CUDA0", "bytes": 939524096}]
    text = advisor("observe", log).out
    assert "draft model" in text
    assert "An allocation of 896 MiB failed on CUDA0." in text
