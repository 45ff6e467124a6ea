"""`advisor recommend MODEL MODEL... --together`: exit statuses, the document, and what is wrong usage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.cli.main import main
from advisor.outputs.registry import load
from tests.tools.tiny_models import tiny_model

ZOO = Path(__file__).parents[2] / "data/zoo"
MAIN, SECOND, EMBEDDING = (str(ZOO / f"{name}.json.gz") for name in ("llama3-8b", "qwen3-8b", "gemma-embedding"))
LARGE = str(ZOO / "llama33-70b-q4_k_m.json.gz")
CARD = ("--gpu", "RTX 3060", "--ram", "32GiB")


def run(capsys, *words: str) -> tuple[int, str, str]:
    status = main(["recommend", *words])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize(
    ("models", "machine", "status", "verdict"),
    [
        ((MAIN, EMBEDDING), CARD, 0, "full"),
        ((MAIN, SECOND, EMBEDDING), CARD, 3, "partial"),
        ((LARGE, SECOND), ("--gpu", "cuda:4GiB", "--ram", "32GiB"), 4, "does_not_fit"),
        ((MAIN, EMBEDDING), ("--no-gpu", "--ram", "32GiB"), 0, "full"),
    ],
)
def test_exit_status_and_verdict(capsys, models, machine, status, verdict):
    assert run(capsys, *models, "--together", *machine)[0] == status
    told, out, _ = run(capsys, *models, "--together", *machine, "--json")
    document = json.loads(out)
    assert (told, document["schema"], document["verdict"]) == (status, "advisor.together/1", verdict)
    assert [each["resident"] for each in document["models"]].count(False) == (1 if status == 4 else 0)
    for each in document["models"]:
        assert (each["command"] is None) == (not each["resident"])


def test_the_document_says_what_all_take_of_each_place(capsys):
    document = json.loads(run(capsys, MAIN, SECOND, "--together", *CARD, *CARD[:2], "--json")[1])
    for device in document["devices"]:
        parts = [
            planned["planned_bytes"]
            for each in document["models"]
            for planned in each["devices"]
            if planned["id"] == device["id"]
        ]
        assert device["planned_bytes"] == sum(parts)
        assert device["planned_bytes"] + device["margin_bytes"] + device["spare_bytes"] == device["free_bytes"]
    assert document["host"]["planned_bytes"] == sum(each["host"]["planned_bytes"] for each in document["models"])


def test_each_model_gets_a_command_with_its_cards(capsys):
    _, out, _ = run(capsys, MAIN, SECOND, "--together", *CARD, *CARD[:2])
    commands = [line.strip() for line in out.splitlines() if line.strip().startswith("llama-server ")]
    assert [word for line in commands for word in line.split() if word.startswith("CUDA")] == ["CUDA0", "CUDA1"]
    assert all(line.endswith("--fit off") for line in commands)


def test_wishes_and_settings_are_for_the_first(capsys):
    words = (MAIN, SECOND, "--together", "--gpu", "RTX 4090", "--ram", "32GiB", "-c", "12288", "--json")
    first, second = json.loads(run(capsys, *words)[1])["models"]
    assert first["settings"]["n_ctx"] == 12288
    assert second["settings"]["n_ctx"] >= 32768


def test_saved_prompts_of_all_servers_stay_within_what_is_left(capsys):
    document = json.loads(run(capsys, MAIN, SECOND, "--together", "--gpu", "RTX 3060", "--ram", "12GiB", "--json")[1])
    limits = [int(each["command"].split("--cache-ram ")[1].split()[0]) << 20 for each in document["models"]]
    assert limits == [each["settings"]["cache_ram_mib"] << 20 for each in document["models"]]
    assert 0 < sum(limits) <= document["host"]["spare_bytes"]
    assert "prompt_caches_fill_ram" in [note["code"] for note in document["warnings"]]


def test_what_does_not_fit_is_told_what_fits_with_what(capsys):
    _, out, _ = run(capsys, LARGE, SECOND, MAIN, "--together", "--gpu", "cuda:4GiB", "--ram", "32GiB")
    assert "The 3 models do not fit together: they need " in out
    assert "· qwen3-8b and llama3-8b" in out
    assert "llama33-70b-q4_k_m lacks " in out
    assert "more system memory" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((MAIN, "--together"), "give two or more"),
        ((MAIN, SECOND), "add --together"),
        ((MAIN, SECOND, "--together", "--plot"), "--plot is about one model"),
        ((MAIN, SECOND, "--together", "--what-gpu"), "--what-gpu is about one model"),
        ((MAIN, SECOND, "--together", "--mode", "safe"), "knows of no other model"),
        ((MAIN, SECOND, "--together", "--any-quant"), "--any-quant is about one model"),
        (
            (MAIN, SECOND, "--together", "-fa", "off", "-ctv", "q8_0"),
            "refuses these settings of llama3-8b: a quantized V",
        ),
        (
            (MAIN, LARGE, "--together", "-fa", "off", "-ctv", "q8_0"),
            "refuses these settings of llama3-8b: a quantized V",
        ),
        ((MAIN,) * 7 + ("--together",), "more than the 6"),
        ((MAIN, "/no/such.gguf", "--together"), "/no/such.gguf"),
    ],
)
def test_wrong_usage_is_one_sentence(capsys, words, said):
    status, out, err = run(capsys, *words, *CARD)
    assert status in (1, 2)
    assert out == ""
    assert said in err
    assert "bug in advisor" not in err


def test_two_of_the_same_name_are_told_apart(capsys):
    document = json.loads(run(capsys, EMBEDDING, EMBEDDING, "--together", *CARD, "--json")[1])
    assert [each["name"] for each in document["models"]] == ["gemma-embedding (1)", "gemma-embedding (2)"]


def test_a_preset_gets_a_section_for_each(capsys, tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.gguf").write_bytes(tiny_model(name))
    preset = tmp_path / "models.ini"
    words = (str(tmp_path / "a.gguf"), str(tmp_path / "b.gguf"), "--together", "--output", str(preset), *CARD)
    status, _, err = run(capsys, *words)
    assert status == 0
    assert "--models-max 2" in err
    parsed = load("llama-server-preset").parse(preset.read_text())
    assert {slot[0] for slot in parsed} == {"default", "a", "b"}
    assert parsed["a", "model"] == str(tmp_path / "a.gguf")


def test_no_preset_of_what_does_not_fit(capsys, tmp_path):
    words = (LARGE, SECOND, "--together", "--output", str(tmp_path / "x.ini"), "--gpu", "cuda:4GiB", "--ram", "32GiB")
    status, _, err = run(capsys, *words)
    assert status == 4
    assert "the models do not fit together, so " in err
    assert not (tmp_path / "x.ini").exists()


def test_names_out_of_files_are_harmless(capsys, tmp_path):
    bad = tmp_path / "ev\x1b[31mil.json.gz"
    bad.write_bytes(Path(EMBEDDING).read_bytes())
    _, out, err = run(capsys, MAIN, str(bad), "--together", *CARD)
    text = "".join(line for line in out.splitlines() if not line.strip().startswith("llama-server"))
    assert "\x1b" not in text + err
