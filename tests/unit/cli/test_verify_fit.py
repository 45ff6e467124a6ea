"""`advisor verify --fit`, without an engine and with programs that play one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tools.empty_gguf import write_empty_gguf
from tests.tools.fake_engine import table, talker
from tests.unit.cli.test_bad_input import SHIPPED, advisor, assert_one_sentence

MIB = 1 << 20
KEYS = {"schema", "model", "engine", "settings", "devices", "agrees", "settings_that_differ", "remembered_in", "notes"}
P = "0.00.8 I common_params_fit_impl: "
SAID = (
    "0.00.2 I llama_context: n_ctx                 = 131072\n"
    f"{P}context size reduced from 131072 to 4096 -> need 15000 MiB less memory in total\n"
    f"{P}  - CUDA0 (NVIDIA GeForce RTX 3060): {{layers}} layers,   4300 MiB used,   1034 MiB free\n"
    "0.01 I common_fit_params: fitting params to free memory took 1.37 seconds\n"
)
FAILED = "failed to fit params to free device memory"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("model") / "llama-3-8b.gguf"
    write_empty_gguf(SHIPPED, path)
    return path


def fitting_engine(folder: Path, text: str) -> Path:
    """The table of a dry run, then what fit says."""
    gpu = ("CUDA0", "NVIDIA GeForce RTX 3060", 6000, 5400, 4404, 512, 258)
    return talker(folder, table([gpu], (281, 0, 20)).rpartition("0.00.214")[0] + text)


def test_without_an_engine_by_the_published_rules():
    answer = advisor("verify", SHIPPED, "--fit", "--gpu", "cuda:6GiB", "--ram", "32GiB", "--json")
    assert (answer.status, answer.err) == (0, "")
    document = json.loads(answer.out)
    assert set(document) == KEYS | {"fit"}
    assert document["schema"] == "advisor.verify/1"
    assert (document["agrees"], document["settings"], document["devices"]) == (None, None, [])
    fit = document["fit"]
    assert (fit["source"], fit["rules_agree"], fit["better"]) == ("published rules", None, "ours")
    assert fit["margin_bytes"] == 1024 * MIB
    assert fit["fit"]["settings"]["n_ctx"] == 4096
    assert fit["fit"]["settings"]["cache_type_k"] == "f16"
    device = fit["fit"]["devices"][0]
    assert device["planned_bytes"] <= 5 * 1024 * MIB
    # one layer more is over fit's margin: asked for through the other command
    for more, over in ((0, False), (1, True)):
        words = ["-c", "4096", "-np", "1", "-ngl", str(fit["fit"]["settings"]["n_gpu_layers"] + more)]
        estimate = json.loads(advisor("estimate", SHIPPED, "--gpu", "cuda:6GiB", "--json", *words).out)
        assert (estimate["devices"][0]["planned_bytes"] > 5 * 1024 * MIB) == over
    recommended = json.loads(advisor("recommend", SHIPPED, "--gpu", "cuda:6GiB", "--ram", "32GiB", "--json").out)
    for key in ("settings", "devices", "host", "verdict"):
        assert fit["ours"][key] == recommended[key]


@pytest.mark.parametrize("words", [[], ["--fit"]])
def test_text(words):
    answer = advisor("verify", SHIPPED, *words, "--gpu", "cuda:6GiB", "--ram", "32GiB", "--engine-binary", "/nowhere")
    if not words:
        assert_one_sentence(answer, 1)
        return
    assert answer.status == 0
    assert "What -fit on chooses, by its published rules" in answer.out
    assert max(map(len, answer.out.splitlines())) <= 100
    assert "4,096" in answer.out
    assert "\x1b" not in answer.out


def test_a_real_engine_is_asked(model, tmp_path):
    engine = fitting_engine(tmp_path, SAID.replace("{layers}", "27"))
    words = ["verify", model, "--fit", "--engine-binary", engine, "-np", "1", "--json"]
    document = json.loads(advisor(*words).out)
    fit = document["fit"]
    assert (fit["source"], fit["note"]) == ("engine", None)
    assert fit["fit"]["used_bytes"] == {"CUDA0": 4300 * MIB}
    assert fit["fit"]["settings"]["n_gpu_layers"] == 27
    assert fit["fit"]["arguments"] == ["--ctx-size", "4096", "--parallel", "1", *fit["fit"]["arguments"][4:]]
    # the rules, with what the engine found free, come to another number of layers than this one says
    assert fit["rules_agree"] is False
    right = fit["ours"]["devices"][0]["free_bytes"]
    assert right >= 5400 * MIB
    asked = (tmp_path / "arguments").read_text().splitlines()
    assert len(asked) == 2
    assert "-fit on -v" in asked[1]
    text = advisor(*words[:-1])
    assert f"What -fit on chooses, by {engine}" in " ".join(text.out.split())
    assert "Its published rules over advisor's figures come to something else." in " ".join(text.out.split())


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("", "without a choice of its fit"),
        (f"W common_fit_params: {FAILED}: it is full, abort\n{SAID}", "it is full, abort"),
        (SAID.replace("CUDA0", "CUDA7").replace("{layers}", "28"), "names other devices"),
    ],
)  # fmt: skip
def test_an_engine_that_does_not_say_leaves_the_rules(said, reason, model, tmp_path):
    gpu = ("CUDA0", "NVIDIA GeForce RTX 3060", 6000, 5400, 4404, 512, 258)
    start = table([gpu], (281, 0, 20)).rpartition("0.00.214")[0]
    engine = talker(tmp_path, start + said, linger_s=0.1, status=1)
    document = json.loads(advisor("verify", model, "--fit", "--engine-binary", engine, "-np", "1", "--json").out)
    assert document["fit"]["source"] == "published rules"
    assert reason in document["fit"]["note"]
    assert document["fit"]["fit"]["used_bytes"] is None


@pytest.mark.parametrize(
    "words",
    [
        ["-ngl", "20"],
        ["-ts", "1,1"],
        ["-ot", "exps=CPU"],
        ["--cpu-moe"],
        ["--tool", "cli"],
        ["--lora", "x.gguf", "--json"],
        ["--mmproj", "x.gguf"],
        ["-md", "x.gguf"],
    ],
    ids=" ".join,
)
def test_what_contradicts_it(words):
    answer = advisor("verify", SHIPPED, "--fit", "--gpu", "cuda:6GiB", *words)
    assert "leave" in assert_one_sentence(answer, 2)


def test_settings_that_the_engine_refuses_are_not_compared():
    answer = advisor("verify", SHIPPED, "--fit", "--gpu", "cuda:6GiB", "-fa", "off", "-ctv", "q8_0")
    assert "llama.cpp refuses these settings: a quantized V cache" in assert_one_sentence(answer, 2)


def test_without_a_gpu_there_is_nothing_to_say():
    document = json.loads(advisor("verify", SHIPPED, "--fit", "--no-gpu", "--json").out)
    assert document["fit"] is None
    assert "without a GPU there is nothing for fit to place." in document["notes"]
