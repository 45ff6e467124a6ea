"""`advisor recommend --explain`: as text at two widths, as JSON beside everything else, and never loaded unasked."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from advisor.cli.explaining import explained_lines
from advisor.cli.terminal import Screen
from advisor.units import format_bytes
from tests.tools.empty_gguf import write_empty_gguf
from tests.tools.explained_cases import tell
from tests.tools.fake_engine import estimator
from tests.tools.machines import machine
from tests.unit.cli.test_bad_input import ROOT, SHIPPED, advisor

ASKED = ["recommend", SHIPPED, "--gpu", "RTX 3060", "--ram", "32GiB"]


def test_json_has_one_key_more():
    plain = json.loads(advisor(*ASKED, "--json").out)
    answer = advisor(*ASKED, "--json", "--explain")
    assert (answer.status, answer.err) == (0, "")
    document = json.loads(answer.out)
    why = document.pop("explain")
    for one in (document, plain):  # what is published of a cache's loss is one rule more
        assert one.pop("rulebook").startswith("sha256:")
    assert document == plain
    assert set(why) == {"rungs", "next_steps", "fixes", "friend"}
    last = why["rungs"][-1]
    assert last["settings"] == document["settings"]
    assert last["taken"]
    assert last["fits"]
    assert {place["device"]: place["need_bytes"] for place in last["places"]} == {
        "CUDA0": document["devices"][0]["planned_bytes"], "host": document["host"]["planned_bytes"],
    }  # fmt: skip
    assert last["speed"]["decode_tokens_per_s"] == document["speed"]["decode_tokens_per_s"]
    first = why["rungs"][0]
    assert not first["fits"]
    assert first["speed"] is None
    assert first["settings"]["n_ctx"] == 131072
    for step in why["next_steps"]:
        assert step["over_bytes"] == step["need_bytes"] - step["usable_bytes"] > 0
    for said in (*why["rungs"], *why["next_steps"], *why["fixes"], why["friend"]):
        assert said["figures"]


def test_what_must_stay_free_lacks_on_every_rung_too():
    """Of a card with less than that free the summary, the fixes, the last rung and the line for a friend agree."""
    words = ["recommend", SHIPPED, "--gpu", "RTX 3060@300MiB", "--ram", "32GiB", "-ngl", "99"]
    document = json.loads(advisor(*words, "--json", "--explain").out)
    why, device = document["explain"], document["devices"][0]
    lacks = device["planned_bytes"] + (512 << 20) - (300 << 20)
    (place,) = [place for place in why["rungs"][-1]["places"] if place["device"] == "CUDA0"]
    assert (place["over_bytes"], place["below_margin_bytes"]) == (lacks, 212 << 20)
    assert why["rungs"][-1]["figures"]["over_bytes"] == why["friend"]["figures"]["over_bytes"] == lacks
    text = " ".join(advisor(*words, "--explain").out.split())
    shown = format_bytes(lacks)
    assert f"Does not fit: {shown} too much for CUDA0" in text
    assert f"it lacks {shown} on CUDA0." in text
    assert "0 B may be used and 212 MiB is lacking of what must stay free; " in text


def test_a_rung_is_what_estimate_says():
    """The first rung, asked for by its settings through the other command."""
    why = json.loads(advisor(*ASKED, "--json", "--explain").out)["explain"]
    for rung in why["rungs"]:
        s = rung["settings"]
        words = ["-c", s["n_ctx"], "-ngl", s["n_gpu_layers"], "-ctk", s["cache_type_k"], "-ctv", s["cache_type_v"],
                 "-ub", s["n_ubatch"], "-np", "1", "-fa", "on"]  # fmt: skip
        document = json.loads(advisor("estimate", *ASKED[1:], *map(str, words), "--json").out)
        needs = {place["device"]: place["need_bytes"] for place in rung["places"]}
        assert needs["CUDA0"] == document["devices"][0]["planned_bytes"]
        assert needs["host"] == document["host"]["planned_bytes"]
        over = document["devices"][0]["planned_bytes"] - document["devices"][0]["free_bytes"] + (512 << 20)
        assert (over > 0) == (not rung["fits"])


def test_text_is_plain_when_piped():
    answer = advisor(*ASKED, "--explain")
    assert answer.status == 0
    assert "\x1b" not in answer.out
    for words in ("How it was chosen", "The next step up does not fit", "What would help", "In one line"):
        assert words in answer.out
    assert "How it was chosen" not in advisor(*ASKED).out
    assert answer.out.splitlines()[-1].startswith("Figures: ")


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("model", ["llama3-8b", "qwen3moe-30b", "llama33-70b-q4_k_m"])
def test_lines_keep_to_the_width(width, model):
    why = tell(model, machine(12, ram_gib=64)).why
    lines = explained_lines(why, Screen(width=width, color=False, unicode=True))
    assert max(map(len, lines)) <= width
    assert sum(line.startswith("   1 ✗ ") for line in lines) == 1
    colored = explained_lines(why, Screen(width=width, color=True, unicode=True))
    assert any("\x1b[31;1m✗" in line for line in colored)
    plain = explained_lines(why, Screen(width=width, color=False, unicode=False))
    assert "".join(plain).isascii()


def test_hostile_names_are_printed_clean(tmp_path):
    snapshot = json.loads(subprocess.check_output(["gzip", "-dc", SHIPPED]))
    snapshot["metadata"]["general.name"]["value"] = "evil {n_ctx} \x1b[31m{0}"
    path = tmp_path / "evil.json"
    path.write_text(json.dumps(snapshot))
    answer = advisor("recommend", path, *ASKED[2:], "--explain")
    assert (answer.status, answer.err) == (0, "")
    assert "\x1b" not in answer.out
    assert "evil {n_ctx} ?[31m{0} runs whole" in answer.out


def test_it_is_not_loaded_unasked():
    command = [sys.executable, "-X", "importtime", "-m", "advisor", *map(os.fspath, ASKED)]
    loaded = {}
    for words in ([], ["--explain"]):
        done = subprocess.run([*command, *words], capture_output=True, text=True, cwd=ROOT, timeout=60, check=True)
        loaded[bool(words)] = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    new = {f"advisor.recommend.{name}" for name in ("said", "rungs", "ladder", "steps", "cures", "explained")}
    assert not new & loaded[False]
    assert new <= loaded[True]


def test_an_answer_that_an_engine_made_more_careful_is_explained_as_it_is(tmp_path):
    """The engine takes 700 MiB more than is predicted; the ladder ends at the answer that leaves room for that."""
    model = tmp_path / "llama-3-8b.gguf"
    write_empty_gguf(SHIPPED, model)
    gpu = ("CUDA0", "NVIDIA GeForce RTX 3060", 12288, 12288)
    engine = estimator(tmp_path, gpu, more={"CUDA0 weights": 700}, log=tmp_path / "log")
    words = ["recommend", model, "--gpu", "cuda:12GiB", "--ram", "32GiB", "--explain", "--json"]
    plain = json.loads(advisor(*words).out)
    careful = json.loads(advisor(*words, "--verify", "--engine-binary", engine).out)
    assert careful["settings"]["n_ctx"] < plain["settings"]["n_ctx"]
    last, (step, *_) = careful["explain"]["rungs"][-1], careful["explain"]["next_steps"]
    assert last["settings"] == careful["settings"]
    assert step["settings"]["n_ctx"] == careful["settings"]["n_ctx"] + 256
    place = next(place for place in last["places"] if place["device"] == "CUDA0")
    assert 11.5 * 2**30 - place["usable_bytes"] >= 699 * 2**20
