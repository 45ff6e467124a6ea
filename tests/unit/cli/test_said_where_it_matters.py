"""What one command said and another kept to itself: a context beyond training, a calibration that is not used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.cli.main import main
from advisor.state import state_folder

ZOO = Path(__file__).parents[2] / "data" / "zoo"
LLAMA2, LLAMA3 = str(ZOO / "llama2-7b.json.gz"), str(ZOO / "llama3-8b.json.gz")
CARD = ("--gpu", "cuda:24GiB")


@pytest.mark.parametrize(("n_ctx", "said"), [("8192", True), ("4096", False)])
def test_compare_says_who_was_not_trained_for_the_context(capsys, n_ctx, said):
    """Llama 2 was trained for 4,096 tokens, Llama 3 for more."""
    words = ["compare", LLAMA2, LLAMA3, *CARD, "--ram", "32GiB", "-c", n_ctx]
    assert main(words) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ! ")]
    assert [line.startswith("  ! llama2-7b: 8,192 tokens is beyond the 4,096") for line in lines] == [True] * said
    main([*words, "--json"])
    columns = json.loads(capsys.readouterr().out)["columns"]
    codes = [[note["code"] for note in column["warnings"]] for column in columns]
    assert ["beyond_trained_context" in each for each in codes] == [said, False]


@pytest.mark.parametrize("verb", ["estimate", "recommend"])
@pytest.mark.parametrize("text", ['{"x":', "[]", ""])
def test_a_broken_calibration_is_said_where_speeds_are(capsys, verb, text):
    import os

    folder = Path(state_folder(os.environ))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "calibration.json").write_text(text)
    assert main([verb, LLAMA3, *CARD, "-c", "4096", "--json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    (said,) = [note["text"] for note in warnings if note["code"] == "calibration_unused"]
    assert "is broken and not used; 'advisor calibrate' makes it anew" in said
    assert main([verb, LLAMA3, *CARD, "-c", "4096", "--ram", "32GiB", "--json"]) == 0  # not of this machine
    assert "calibration_unused" not in capsys.readouterr().out


@pytest.mark.parametrize("machine", [("--gpu", "cuda:13.5GiB", "--ram", "4GiB"), ("--no-gpu", "--ram", "14GiB")])
def test_quants_names_nothing_that_only_models_trained_for_it_come_in(capsys, machine):
    """Of a 70B only 1-bit weights would fit, 9.9 GiB, which nobody makes of it: it would be ruined."""
    main(["quants", str(ZOO / "llama33-70b-q4_k_m.json.gz"), *machine, "--json"])
    rows = {row["quantization"]: row["verdict"] for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["Q1_0"] in ("full", "cpu")
    assert rows["IQ1_S"] == "does_not_fit"
    main(["quants", str(ZOO / "llama33-70b-q4_k_m.json.gz"), *machine])
    assert "No quantization fits at 8,192 tokens." in capsys.readouterr().out
