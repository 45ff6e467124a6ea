"""`advisor recommend` where several quantizations are on disk: said, chosen, and never an error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.cli.main import main
from advisor.stores import ollama_service
from tests.tools.gguf_files import Q4_0, Q8_0
from tests.tools.quant_files import quantized_header, write_quantizations
from tests.tools.quantized import model_file
from tests.tools.stores import LIBRARY, download, pull
from tests.tools.tiny_models import write

BIG = ("--gpu", "RTX 4090", "--ram", "64GiB")
HUGE = ("--gpu", "H100 PCIe", "--ram", "128GiB")


@pytest.fixture(autouse=True)
def no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ollama_service, "_FOLDERS", ())
    monkeypatch.setattr("advisor.stores.ollama._SYSTEM_STORE", "/no/system/store")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A 32B in two quantizations, and a projector, a fine-tune and something broken beside them."""
    folder = tmp_path_factory.mktemp("models")
    paths = write_quantizations(folder, "exaone4-32b", ["Q4_K_M", "Q8_0"], title="EXAONE 4.0 32B", stem="E")
    write_quantizations(folder, "exaone4-32b", ["Q4_K_M"], title="EXAONE Tuned", stem="E-tuned")
    write_quantizations(folder, "exaone4-32b", ["Q6_K"], title="Quite another", stem="E")
    write(folder / "mmproj-E-F16.gguf", b"GGUF")
    write(folder / "E-Q5_K_M.gguf", b"GGUF broken")
    return paths


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    def call(*words: object, status: int = 0) -> str:
        found = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert (found, err) == (status, "")
        return out

    return call


def document(run: Any, *words: object, status: int = 0) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(run("recommend", *words, "--json", status=status))
    return parsed


def test_a_better_one_beside_it_is_said_first_and_the_settings_stay_those_of_the_file(run, files):
    alone = document(run, files["Q8_0"], *BIG, "--max-ctx", 32768, status=3)
    assert alone["model"]["path"] == str(files["Q8_0"])
    first = alone["warnings"][0]
    assert first["code"] == "better_quantization"
    assert first["text"].startswith(
        "E-Q4_K_M.gguf beside it is the better choice for balanced: all 65 layers on the GPU"
    )
    (other,) = alone["siblings"]
    own = document(run, files["Q4_K_M"], *BIG, "--max-ctx", 32768)
    assert other["file"] == str(files["Q4_K_M"])
    assert other["better"] is True
    for key in ("verdict", "settings", "speed", "command", "summary"):
        assert other[key] == own[key]
    assert 0 < other["cost_ratio"] < 1
    assert other["quality"]["kld"] == 0.031273
    assert alone["settings"]["n_gpu_layers"] < 65
    assert [entry["file"] for entry in alone["siblings_skipped"]] == [str(files["Q8_0"].parent / "E-Q5_K_M.gguf")]
    assert own["siblings"][0]["better"] is False
    assert own["siblings"][0]["cost_ratio"] == pytest.approx(1 / other["cost_ratio"], rel=1e-3)
    assert not any(note["code"] == "better_quantization" for note in own["warnings"])


def test_the_ladder_has_a_rung_for_each(run, files):
    plain = document(run, files["Q8_0"], *BIG, status=3)
    told = document(run, files["Q8_0"], *BIG, "--explain", status=3)
    rungs = told["explain"]["rungs"]
    (rung,) = [rung for rung in rungs if rung["code"] == "quantization"]
    (other,) = plain["siblings"]
    assert rungs.index(rung) == len(rungs) - 2
    assert (rung["taken"], rung["fits"], rung["settings"]) == (False, True, other["settings"])
    assert rung["figures"]["n_ctx"] == other["settings"]["n_ctx"]
    assert (rung["figures"]["kld"], rung["figures"]["chosen_kld"]) == (0.0313, 0.0014)
    assert rung["figures"]["percent"] == round(100 * (1 - other["cost_ratio"]))
    assert "Or as E-Q4_K_M.gguf: all 65 layers on the GPU" in rung["text"]
    assert rungs[-1]["settings"] == told["settings"] == plain["settings"]


def test_as_text_with_the_command_to_run_and_nothing_of_what_cannot_be_read(run, files):
    out = run("recommend", files["Q8_0"], *BIG, status=3)
    mind = out[out.index("\nMind\n") :].splitlines()
    assert mind[2].startswith("  ! E-Q4_K_M.gguf beside it is the better choice")
    assert f"Command for E-Q4_K_M.gguf\n  llama-server -m {files['Q4_K_M']} -c" in out
    assert "Q5_K_M.gguf" not in out
    assert "As Q4_K_M" not in out
    assert out.splitlines()[-1].startswith("Figures: ")
    assert "beside it" not in run("recommend", files["Q4_K_M"], *BIG)


@pytest.mark.parametrize(
    ("hardware", "intent", "chosen"),
    [(BIG, "balanced", "Q4_K_M"), (BIG, "speed", "Q4_K_M"), (HUGE, "quality", "Q8_0"), (HUGE, "speed", "Q4_K_M")],
)
def test_several_files_or_one_with_any_quant(run, files, hardware, intent, chosen):
    named = document(run, *files.values(), *hardware, "--for", intent)
    assert named["model"]["path"] == str(files[chosen])
    assert named["reasons"][0]["code"] == "quantization_chosen"
    assert named["reasons"][0]["text"].startswith(f"E-{chosen}.gguf is the best of 2 quantizations for {intent}; ")
    lost = named["reasons"][1]
    assert lost["code"] == "quantization_lost"
    assert lost["text"].startswith("E-Q8_0.gguf: " if chosen == "Q4_K_M" else "E-Q4_K_M.gguf: ")
    assert named["command"].startswith(f"llama-server -m {files[chosen]} ")
    for path in files.values():
        any_of_them = document(run, path, "--any-quant", *hardware, "--for", intent)
        assert any_of_them["settings"] == named["settings"]
        assert any_of_them["model"] == named["model"]
        assert any_of_them["warnings"][0]["code"] == "quantization_skipped"


def test_a_folder_with_one_model_in_several_quantizations(run, tmp_path):
    paths = write_quantizations(tmp_path / "one", "exaone4-32b", ["Q4_K_M", "Q8_0"], title="E", stem="E")
    found = document(run, tmp_path / "one", *BIG)
    assert found["model"]["path"] == str(paths["Q4_K_M"])
    assert [other["file"] for other in found["siblings"]] == [str(paths["Q8_0"])]
    assert found["siblings"][0]["cost_ratio"] > 1


def test_a_folder_with_several_models_is_refused_as_ever(capsys, files):
    assert main(["recommend", str(files["Q8_0"].parent), *BIG]) == 1
    assert "models in it" in capsys.readouterr().err


def test_a_folder_with_one_model_is_that_model(run, tmp_path):
    write_quantizations(tmp_path, "llama3-8b", ["Q4_K_M"])
    found = document(run, tmp_path, *BIG)
    assert found["siblings"] == []
    assert found["reasons"][0]["code"] != "quantization_chosen"


def test_models_that_are_not_one_are_refused(capsys, files):
    tuned = files["Q8_0"].parent / "E-tuned-Q4_K_M.gguf"
    assert main(["recommend", str(files["Q8_0"]), str(tuned), *BIG]) == 2
    err = capsys.readouterr().err
    assert "is no other quantization of" in err
    assert "add --together" in err
    assert main(["recommend", *map(str, files.values()), "--what-gpu"]) == 2
    assert "one model" in capsys.readouterr().err


def test_other_releases_and_sizes_are_no_quantizations_of_it(run, tmp_path):
    write_quantizations(tmp_path, "llama3-8b", ["Q8_0"], title="L 3", stem="L", general__finetune="Instruct")
    write_quantizations(tmp_path, "llama3-8b", ["Q4_K_M"], title="L 3", stem="L", general__finetune="Base")
    write_quantizations(tmp_path, "llama3-1b", ["Q6_K"], title="L 3", stem="L")
    write_quantizations(tmp_path, "llama3-8b", ["Q5_K_M"], title="L 3", stem="L")
    found = document(run, tmp_path / "L-Q8_0.gguf", *BIG)
    assert [other["quantization"] for other in found["siblings"]] == ["Q5_K_M"]


def test_files_without_a_name_of_their_own_are_compared_by_what_they_are_called(run, tmp_path):
    paths = write_quantizations(tmp_path, "llama3-8b", ["Q8_0", "Q4_K_M"])
    found = document(run, paths["Q8_0"], *BIG)
    assert [other["file"] for other in found["siblings"]] == [str(paths["Q4_K_M"])]


def test_more_than_is_looked_at_is_said(run, tmp_path):
    names = ["Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0", "Q4_K_M", "Q4_K_S", "Q4_1", "Q4_0", "Q3_K_L", "Q3_K_M",
             "Q3_K_S", "Q2_K", "F16"]  # fmt: skip
    paths = write_quantizations(tmp_path, "llama3-1b", names, title="L 1B")
    found = document(run, paths["Q8_0"], *BIG)
    assert len(found["siblings"]) == 12
    assert "13 of 15 files that may be quantizations of it were looked at." in str(found["warnings"])


def test_in_ollamas_store_by_its_names(run, tmp_path, monkeypatch):
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "models"))
    pull(tmp_path / "models", f"{LIBRARY}/llama/8b-q8_0", model_file(Q8_0, 7))
    pull(tmp_path / "models", f"{LIBRARY}/llama/8b", model_file(Q4_0, 2))
    found = document(run, "llama:8b-q8_0", *BIG, "--for", "speed")
    assert [other["name"] for other in found["siblings"]] == ["llama:8b"]


def test_in_a_snapshot_of_the_hugging_face_cache(run, tmp_path, monkeypatch):
    hub = tmp_path / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))
    files = {"L-Q8_0.gguf": model_file(Q8_0, 7), "Q4_0/L-Q4_0.gguf": model_file(Q4_0, 2)}
    download(hub, "one/L-GGUF", files)
    found = document(run, "one/L-GGUF:Q8_0", *BIG, "--for", "speed")
    assert [other["name"] for other in found["siblings"]] == ["L-Q4_0.gguf"]


def test_nothing_more_is_loaded_where_there_is_nothing_beside_it(tmp_path):
    loaded = {}
    for names in (["Q8_0"], ["Q8_0", "Q4_K_M"]):
        path = write_quantizations(tmp_path / str(len(names)), "llama3-1b", names)["Q8_0"]
        write(path.parent / "another-model-Q4_0.gguf", b"GGUF")
        command = [sys.executable, "-X", "importtime", "-m", "advisor", "recommend", path, *BIG]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        loaded[len(names)] = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    more = {"advisor.cli.siblings", "advisor.recommend.siblings", "advisor.quants.rules"}
    assert not more & loaded[1]
    assert more <= loaded[2]


def test_names_with_control_characters_are_printed_clean(run, tmp_path):
    write_quantizations(tmp_path, "exaone4-32b", ["Q8_0"], title="E", stem="E")
    write_quantizations(tmp_path, "exaone4-32b", ["Q4_K_M"], title="E", stem="E\x0c\n")
    out = run("recommend", tmp_path / "E-Q8_0.gguf", *BIG, status=3)
    assert "! E -Q4_K_M.gguf beside it is the better choice" in out
    assert "\x0c" not in out
    assert f"llama-server -m $'{tmp_path}/E\\x0c\\x0a-Q4_K_M.gguf' -c" in out


def test_a_snapshot_of_a_header_has_nothing_beside_it(run, tmp_path):
    for name in ("Q8_0", "Q4_K_M"):
        write(tmp_path / f"L-{name}.json", json.dumps(quantized_header("llama3-8b", name, "L")).encode())
    assert document(run, tmp_path / "L-Q8_0.json", *BIG)["siblings"] == []
