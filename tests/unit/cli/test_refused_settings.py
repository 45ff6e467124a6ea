"""Settings that the engine refuses are one sentence with the cure; shared memory counts once, in every line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.cli.main import main
from tests.unit.cli.test_bad_input import advisor, assert_one_sentence

ZOO = Path(__file__).parents[2] / "data" / "zoo"
LLAMA, LARGE = str(ZOO / "llama3-8b.json.gz"), str(ZOO / "llama33-70b-q4_k_m.json.gz")
CARD = ("--gpu", "RTX 3060", "--ram", "32GiB")


@pytest.mark.parametrize("verb", ["recommend", "estimate"])
@pytest.mark.parametrize("as_json", [(), ("--json",)])
@pytest.mark.parametrize(
    ("model", "settings", "words"),
    [
        ("llama3-8b", ("-ctv", "q8_0", "-fa", "off"), "needs flash attention, which is off; give -fa on, or -ctv f16."),
        ("grok1", ("-ctv", "q8_0"), "which grok never runs; give -ctv f16."),
        ("phi2", ("-ctk", "q8_0"), "head size 80 is no multiple of q8_0's block of 32; give -ctk f16."),
        ("ds2-lite", ("-ctk", "q8_0", "-ctv", "f16"), "-ctk and -ctv must be equal; give both the same type."),
        ("llama3-8b", ("-np", "257"), "-np 257 is more than the 256 slots that llama.cpp takes; give at most 256."),
    ],
)
def test_one_sentence_with_the_cure(verb, as_json, model, settings, words, capsys):
    assert main([verb, str(ZOO / f"{model}.json.gz"), *CARD, *settings, *as_json]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("advisor: ")
    assert err.count("\n") == 1
    assert err.endswith(words + "\n")


@pytest.mark.parametrize("verb", ["recommend", "estimate"])
def test_what_changes_nothing_is_said(verb, capsys):
    main([verb, LLAMA, *CARD, "-c", "4096", "-ts", "1,2,3", "--n-cpu-moe", "5", "-ot", "exps=CPU", "--json"])
    document = json.loads(capsys.readouterr()[0])
    codes = [warning["code"] for warning in document["warnings"]]
    assert codes[-3:] == ["tensor_split_ignored", "no_experts", "override_matches_nothing"]
    assert document["settings"]["tensor_split"] is None


def test_the_host_counts_what_the_gpu_takes_of_it(capsys):
    command = ["estimate", LARGE, "--gpu", "M3 Max 64GB", "-ngl", "40", "-c", "131072", "-np", "1"]
    assert main([*command, "--json"]) == 4
    document = json.loads(capsys.readouterr()[0])
    host, [gpu] = document["host"], document["devices"]
    assert host["shared_with_gpus_bytes"] == gpu["planned_bytes"]
    assert gpu["fits"]
    assert not host["fits"]
    assert main(command) == 4
    out = capsys.readouterr()[0]
    assert "18.97 GiB too much for system memory" in out
    assert "40.81 GiB + 40.17 GiB of the GPU, of 64.00 GiB" in out
    assert out.count("18.97 GiB too much") == 2
    assert "nothing to spare in system memory" in out


def test_room_left_in_shared_memory_is_what_both_leave(capsys):
    command = ["estimate", LARGE, "--gpu", "M3 Max 64GB", "-c", "8192", "-np", "1"]
    assert main([*command, "--json"]) == 0
    host = json.loads(capsys.readouterr()[0])["host"]
    assert host["fits"]
    main(command)
    out = capsys.readouterr()[0]
    left = host["available_bytes"] - host["margin_bytes"] - host["planned_bytes"] - host["shared_with_gpus_bytes"]
    assert f"{left / (1 << 30):.2f} GiB to spare, 2.00 GiB kept free" in out


def test_memory_of_its_own_is_not_the_hosts(capsys):
    main(["estimate", LLAMA, *CARD, "-c", "4096", "-np", "1", "--json"])
    host = json.loads(capsys.readouterr()[0])["host"]
    assert host["shared_with_gpus_bytes"] == 0
    assert host["fits"]


def test_an_encoder_is_called_one(capsys):
    assert main(["inspect", str(ZOO / "bert-large.json.gz"), "--json"]) == 0
    assert json.loads(capsys.readouterr()[0])["kind_text"] == "an encoder (embeddings)"
    assert main(["inspect", LLAMA, "--json"]) == 0
    assert json.loads(capsys.readouterr()[0])["kind_text"] == "a language model"


@pytest.mark.parametrize(
    ("model", "build", "more", "words"),
    [
        ("deepseek2", "b11549", (), "cannot split deepseek2 with -sm tensor"),
        ("lfm2", "b10434", (), "cannot split lfm2 with -sm tensor"),  # newer builds can
        ("llama", "b11549", ("-fa", "off"), "-sm tensor needs flash attention"),
        ("llama", "b11549", ("--no-gpu",), "-sm tensor needs a GPU"),
    ],
)
def test_a_split_that_the_engine_does_not_have_is_refused(model, build, more, words):
    """llm_arch_supports_sm_tensor of each build, and what llama_init_from_model asks of it."""
    zoo = {"deepseek2": "ds2-lite", "lfm2": "lfm2-1.2b", "llama": "llama3-8b"}[model]
    cards = () if "--no-gpu" in more else ("--gpu", "cuda:24GiB", "--gpu", "cuda:24GiB")
    words_given = (ZOO / f"{zoo}.json.gz", "-sm", "tensor", *cards, *more, "--ram", "64GiB")
    for verb in ("recommend", "estimate"):
        answer = advisor(verb, *words_given, "--engine", f"llama.cpp@{build}")
        assert words in assert_one_sentence(answer, 2)


def test_a_split_by_tensors_is_told_as_what_it_is_counted():
    answer = advisor("estimate", ZOO / "lfm2-1.2b.json.gz", "-sm", "tensor", *["--gpu", "cuda:24GiB"] * 2)
    assert answer.status == 0, answer
    assert "-sm tensor is counted as -sm layer" in answer.out
