"""A pasted --device restricts the machine, and what recommend prints means the same to estimate."""

from __future__ import annotations

import json
import shlex

import pytest

from advisor.llama_flags import parse_command
from tests.unit.cli.test_bad_input import advisor as run
from tests.unit.outputs.test_command import ZOO

MODEL = str(ZOO / "llama3-8b.json.gz")
TWO = ["--gpu", "RTX 3060@1GiB", "--gpu", "RTX 4090", "--ram", "32GiB"]


def figures(*words):
    done = run("estimate", *TWO, "--json", "--", "llama-server", "-m", MODEL, "-c", "8192", *words)
    return json.loads(done.out)


@pytest.mark.parametrize("flag", ["-dev", "--device"])
@pytest.mark.parametrize(("names", "ids"), [("none", []), ("CUDA1", ["CUDA1"]), ("cuda1,CUDA0", ["CUDA1", "CUDA0"])])
def test_a_pasted_device_list_is_the_machine(flag, names, ids):
    document = figures(flag, names)
    assert [device["id"] for device in document["devices"]] == ids
    assert document["ignored"] == []
    assert (document["verdict"] == "cpu") == (not ids)


def test_a_device_that_is_not_there_is_named_with_those_that_are():
    done = run("estimate", *TWO, "--", "llama-server", "-m", MODEL, "-dev", "CUDA7")
    assert done.status == 2
    assert "CUDA7" in done.err
    assert "CUDA0, CUDA1" in done.err


@pytest.mark.parametrize(
    "hardware", [TWO, ["--gpu", "RTX 3060@100MiB", "--ram", "32GiB"], ["--no-gpu", "--ram", "64GiB"]]
)
def test_the_printed_command_comes_to_the_same(hardware):
    answer = json.loads(run("recommend", MODEL, *hardware, "--json").out)
    words = shlex.split(answer["command"])
    words[words.index("-m") + 1] = MODEL  # a snapshot stands for a file
    again = json.loads(run("estimate", *hardware, "--json", "--", *words).out)
    for part in ("devices", "host", "settings", "verdict", "speed"):
        assert again[part] == answer[part], part


def test_options_that_change_memory_uncounted_are_told_from_the_rest():
    done = run("estimate", *TWO, "--", "llama-server", "-m", MODEL, "-c", "8192", "--jinja", "--rpc", "host:1")
    assert "May change memory, not counted: --rpc host:1" in done.out
    assert "Not used for these figures: --jinja" in done.out


@pytest.mark.parametrize(
    ("words", "said"), [([], True), (["--fit", "off"], False), (["-c", "131072", "-ngl", "99"], False)]
)
def test_the_engines_own_fit_is_told(words, said):
    small = ["--gpu", "RTX 3060", "--ram", "32GiB"]
    done = run("estimate", *small, "--json", "--", "llama-server", "-m", MODEL, *words)
    document = json.loads(done.out)
    assert document["verdict"] == "does_not_fit"
    assert any(note["code"] == "engine_fits_itself" for note in document["warnings"]) == said


def pasted(*words):
    return parse_command([*words, "llama-server", "-m", "m.gguf"])


def test_negated_variables_are_read_as_the_engine_reads_them():
    assert pasted("LLAMA_ARG_NO_KV_OFFLOAD=1").settings.kv_offload is False
    assert pasted("LLAMA_ARG_NO_MMAP=0").settings.load_mode == "none"
    assert pasted("LLAMA_ARG_NO_SUCH_THING=1").ignored == ("LLAMA_ARG_NO_SUCH_THING=1",)


@pytest.mark.parametrize("words", [["-ts", "1,3"], ["-ot", "blk.1.=CPU"], ["-sm", "tensor"]])
def test_no_hope_is_put_in_a_fit_that_gives_up(words):
    done = run("estimate", *TWO, "--json", "--", "llama-server", "-m", MODEL, "-c", "131072", *words)
    assert not any(note["code"] == "engine_fits_itself" for note in json.loads(done.out)["warnings"])


@pytest.mark.parametrize(
    "words",
    [["-ngl", "20"], ["-ts", "3,1"], ["-ot", "blk.1.=CPU"], ["-sm", "none"], ["--n-cpu-moe", "5"], ["--cpu-moe"]],
)
def test_safe_mode_refuses_what_the_engines_fit_would_refuse(words):
    done = run("recommend", MODEL, *TWO, "--mode", "safe", *words)
    assert done.status == 2
    assert words[0] in done.err
    assert "--mode safe" in done.err
