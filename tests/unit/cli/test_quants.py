"""`advisor quants`: the rows, the files on disk, the JSON that others rely on, and what can be wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.cli.main import main
from advisor.stores import ollama_service
from tests.tools.cells import DATA
from tests.tools.gguf_files import F16, Q4_0, Q8_0
from tests.tools.quant_files import write_quantizations
from tests.tools.quantized import lines, model_file, rules
from tests.tools.stores import download
from tests.tools.tiny_models import write

CARD = ("--gpu", "cuda:12GiB", "--ram", "32GiB")
ZOO = DATA / "zoo"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `advisor quants`; its exit status, stdout and stderr."""
    monkeypatch.setattr(ollama_service, "_FOLDERS", ())
    monkeypatch.setattr("advisor.stores.ollama._SYSTEM_STORE", "/no/system/store")

    def call(*arguments: str | os.PathLike[str]) -> tuple[int, str, str]:
        status = main(["quants", *map(os.fspath, arguments)])
        out, err = capsys.readouterr()
        return status, out, err

    return call


def document(run: Run, *arguments: str | os.PathLike[str], status: int = 0) -> dict[str, Any]:
    found, out, err = run(*arguments, "--json")
    assert (found, err) == (status, "")
    parsed: dict[str, Any] = json.loads(out)
    assert parsed["schema"] == "advisor.quants/1"
    return parsed


def by_name(parsed: dict[str, Any]) -> dict[str, dict[str, Any]]:
    rows = {row["quantization"]: row for row in parsed["rows"]}
    assert len(rows) == len(parsed["rows"])
    return rows


# ---------------------------------------------------------------- rows


def test_every_quantization_has_a_row_with_what_scripts_rely_on(run: Run) -> None:
    parsed = document(run, ZOO / "llama3-8b.json.gz", *CARD)
    rows = by_name(parsed)
    assert set(rules().quantizations) < set(rows)
    measured = next(line for line in lines("quantized") if line["model"] == "zoo/llama3-8b")
    for name, n_bytes in measured["bytes"].items():
        assert rows[name]["weights_bytes"] == n_bytes
        assert rows[name]["needs_imatrix"] == (name in measured["needs_imatrix"])
        assert rows[name]["with_imatrix_bytes"] == measured["with_imatrix"].get(name)
    row = rows["Q4_K_M"]
    assert row["bits_per_weight"] == pytest.approx(4.894, abs=0.001)
    assert (row["on_disk"], row["verdict"], row["n_gpu_layers"]) == (False, "full", 33)
    assert row["cache"]["f16"] == 1 << 30  # 32 blocks x 8 heads x 128 x 2 x 2 bytes x 8,192 tokens
    assert row["cache"]["q8_0"] == (1 << 30) * 17 // 32
    assert row["max_n_ctx"] > 8192
    speed = row["decode_tokens_per_s"]
    assert speed["low"] < speed["value"] < speed["high"]
    assert row["quality"]["value"] == 0.031273  # llama.cpp's tools/perplexity/README.md
    assert row["quality"]["with_imatrix_value"] == 0.028152
    assert row["quality"]["measure"] == "mean KL divergence from F16"
    assert (row["quality"]["model"], row["quality"]["imatrix"]) == ("Llama 3 8B", False)
    assert "scoreboard" in row["quality"]["source"].lower()
    assert rows["IQ2_XS"]["quality"]["imatrix"] is True
    assert rows["Q1_0"]["quality"] is None
    sizes = [each["weights_bytes"] for each in parsed["rows"]]
    assert sizes == sorted(sizes, reverse=True)


def test_the_verdict_is_what_estimate_says_of_the_same_settings(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    file = ZOO / "llama33-70b-q4_k_m.json.gz"
    row = by_name(document(run, file, "--gpu", "cuda:48GiB", "--ram", "64GiB"))["Q4_K_M"]
    assert row["verdict"] == "full"
    for n_ctx, status in ((row["max_n_ctx"], 0), (row["max_n_ctx"] + 1024, 4)):
        flags = ["-c", str(n_ctx), "-np", "1", "-ngl", "all", "--gpu", "cuda:48GiB", "--ram", "64GiB"]
        assert main(["estimate", str(file), *flags]) == status
    capsys.readouterr()


def test_cache_types_and_context_as_asked(run: Run) -> None:
    file = ZOO / "llama3-8b.json.gz"
    f16 = document(run, file, *CARD, "-c", "32768")
    q8 = document(run, file, *CARD, "-c", "32768", "-ctk", "q8_0", "-ctv", "q8_0")
    assert (f16["n_ctx"], f16["cache_type_k"], q8["cache_type_k"], q8["cache_type_v"]) == (32768, "f16", "q8_0", "q8_0")
    assert by_name(q8)["Q5_K_M"]["max_n_ctx"] > 1.5 * by_name(f16)["Q5_K_M"]["max_n_ctx"]
    assert document(run, file, *CARD, "-c", "0", status=3)["n_ctx"] == 131072
    types = {each["type"]: each for each in f16["cache_types"]}
    assert types["q8_0"]["bytes"] == by_name(f16)["Q8_0"]["cache"]["q8_0"]
    assert {figure["model"] for figure in types["q8_0"]["quality"]} >= {"Llama 3 8B, F16 weights"}
    assert all(figure["source"] for each in f16["cache_types"] for figure in each["quality"])


def test_what_cannot_be_made_and_what_falls_back(run: Run) -> None:
    rows = by_name(document(run, ZOO / "gpt-oss-20b.json.gz", *CARD))
    assert rows["Q1_0"]["weights_bytes"] is rows["Q1_0"]["verdict"] is rows["Q1_0"]["cache"] is None
    assert "do not divide into blocks of 128" in rows["Q1_0"]["problem"]
    assert rows["Q4_K_M"]["fallback_share"] > 0.9
    assert rows["Q4_K_M"]["quality"] is None  # most of it is Q5_0 and Q8_0
    assert rows["Q8_0"]["quality"] is not None


def test_types_without_kernels_on_the_card_run_on_the_cpu(run: Run) -> None:
    file = ZOO / "llama3-8b.json.gz"
    assert by_name(document(run, file, *CARD))["TQ1_0"]["verdict"] == "cpu"
    assert by_name(document(run, file, "--gpu", "vulkan:12GiB", "--ram", "32GiB"))["TQ1_0"]["verdict"] == "full"


@pytest.mark.parametrize(
    ("model", "hardware", "status"),
    [
        ("llama3-8b", ("--gpu", "cuda:12GiB", "--ram", "32GiB"), 0),
        ("llama3-8b", ("--no-gpu", "--ram", "32GiB"), 0),
        ("llama33-70b-q4_k_m", ("--gpu", "cuda:4GiB", "--ram", "64GiB"), 3),
        ("llama33-70b-q4_k_m", ("--gpu", "cuda:4GiB", "--ram", "8GiB"), 4),
        ("bert-large", ("--no-gpu", "--ram", "8GiB"), 0),
    ],
)
def test_exit_status(run: Run, model: str, hardware: tuple[str, ...], status: int) -> None:
    found, out, err = run(ZOO / f"{model}.json.gz", *hardware)
    assert (found, err) == (status, "")
    assert "quantization" in out


# ---------------------------------------------------------------- on disk


def test_files_of_the_same_model_are_marked_and_others_are_not(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "small-F16.gguf", model_file(F16, 1))
    write(tmp_path / "small-Q8_0.gguf", model_file(Q8_0, 7))
    write(tmp_path / "other-Q4_0.gguf", model_file(Q4_0, 2, name="Other"))
    write(tmp_path / "deeper-Q4_0.gguf", model_file(Q4_0, 2, n_layer=3))
    write(tmp_path / "below" / "small-Q4_0.gguf", model_file(Q4_0, 2))
    rows = by_name(document(run, tmp_path / "small-F16.gguf", *CARD))
    assert {name: row["files"][0]["name"] for name, row in rows.items() if row["on_disk"]} == {
        "F16": "small-F16", "Q8_0": "small-Q8_0",
    }  # fmt: skip
    assert rows["Q8_0"]["files"][0]["path"] == str(tmp_path / "small-Q8_0.gguf")


def test_files_without_a_name_are_compared_by_what_they_are_called(run: Run, tmp_path: Path) -> None:
    write_quantizations(tmp_path, "llama3-1b", ["Q8_0", "Q4_K_M"], stem="L")
    write_quantizations(tmp_path, "llama3-1b", ["F16"], stem="Other")
    rows = by_name(document(run, tmp_path / "L-Q8_0.gguf", *CARD))
    assert {name for name, row in rows.items() if row["on_disk"]} <= {"Q8_0", "Q4_K_M"}


def test_a_mix_of_its_own_has_its_own_row(run: Run, tmp_path: Path) -> None:
    mixed = model_file(Q8_0, 7, mixed={"blk.0.ffn_down.weight": F16})
    write(tmp_path / "small-UD-Q8_K_XL.gguf", mixed)
    write(tmp_path / "small-Q8_0.gguf", model_file(Q8_0, 7))
    rows = by_name(document(run, tmp_path / "small-UD-Q8_K_XL.gguf", *CARD))
    own = rows["Q8_0 (own mix)"]
    assert (own["on_disk"], own["own_mix"], own["quality"]) == (True, True, None)
    assert [file["name"] for file in own["files"]] == ["small-UD-Q8_K_XL"]
    assert rows["Q8_0"]["on_disk"]
    n_elements = 512 * 256
    assert own["weights_bytes"] - rows["Q8_0"]["weights_bytes"] == 2 * n_elements - n_elements // 32 * 34


def test_a_file_that_does_not_say_what_it_is_is_recognized(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", model_file(Q8_0, None))
    rows = by_name(document(run, tmp_path / "m.gguf", *CARD))
    assert [name for name, row in rows.items() if row["on_disk"]] == ["Q8_0"]


def test_two_files_of_one_quantization(run: Run, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.gguf", model_file(Q8_0, 7))
    files = by_name(document(run, tmp_path / "b.gguf", *CARD))["Q8_0"]["files"]
    assert sorted(file["name"] for file in files) == ["a", "b"]


def test_in_a_store_the_whole_store_is_looked_through(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub = tmp_path / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))
    download(hub, "one/small-GGUF", {"small-F16.gguf": model_file(F16, 1)})
    download(hub, "two/small-GGUF", {"small-Q8_0.gguf": model_file(Q8_0, 7)})
    rows = by_name(document(run, "one/small-GGUF:F16", *CARD))
    assert rows["F16"]["files"][0]["name"] == "one/small-GGUF:F16"
    assert rows["Q8_0"]["files"][0]["name"] == "two/small-GGUF:Q8_0"


def test_an_unfinished_download_is_not_on_disk(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "small-F16.gguf", model_file(F16, 1))
    write(tmp_path / "small-Q8_0.gguf", model_file(Q8_0, 7)[:-4096])
    rows = by_name(document(run, tmp_path / "small-F16.gguf", *CARD))
    assert not rows["Q8_0"]["on_disk"]


def test_a_snapshot_is_no_file_on_disk(run: Run) -> None:
    parsed = document(run, ZOO / "llama33-70b-q4_k_m.json.gz", *CARD, status=3)
    assert not any(row["on_disk"] or row["own_mix"] for row in parsed["rows"])
    own = by_name(document(run, ZOO / "llama3-8b.json.gz", *CARD))["Q4_K (own mix)"]
    assert (own["on_disk"], own["files"]) == (False, [])


# ---------------------------------------------------------------- text


def test_the_table(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "small-Q8_0.gguf", model_file(Q8_0, 7))
    status, out, err = run(tmp_path / "small-Q8_0.gguf", *CARD)
    assert (status, err) == (0, "")
    assert "\x1b" not in out
    row = next(line for line in out.splitlines() if line.split()[1:2] == ["Q8_0"])
    assert row.split()[0] in ("●", "*")
    assert row.split()[-1] == "0.001"
    assert any(line.split()[:2] == ["i", "IQ2_XS"] for line in out.splitlines())
    assert "  Q8_0: small-Q8_0" in out
    assert "importance matrix" in out
    assert max(map(len, out.splitlines())) <= 100


def test_text_of_a_file_is_cleaned(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", model_file(Q8_0, 7, name="evil\x1b[31m\u202ename"))
    _, out, _ = run(tmp_path / "m.gguf", *CARD)
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_nothing_fits_is_said(run: Run) -> None:
    status, out, _ = run(ZOO / "llama33-70b-q4_k_m.json.gz", "--gpu", "cuda:4GiB", "--ram", "8GiB")
    assert status == 4
    assert "No quantization fits at 8,192 tokens." in out


def test_in_part_both_ends_are_named(run: Run) -> None:
    _, out, _ = run(ZOO / "llama33-70b-q4_k_m.json.gz", "--gpu", "cuda:4GiB", "--ram", "64GiB")
    assert "None fits the GPU whole. With a part on the CPU Q6_K" in out
    assert "IQ1_S" in out.split("Quantizations")[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-ctk", "q9_9"), "q9_9"),
        (("-c", "many"), "many"),
        (("--gpu", "no such card"), "no such card"),
        (("--engine", "nothing"), "nothing"),
    ],
)
def test_wrong_usage(run: Run, arguments: tuple[str, ...], message: str) -> None:
    status, out, err = run(ZOO / "llama3-1b.json.gz", *arguments)
    assert (status, out) == (2, "")
    assert message in err


def test_a_cache_that_the_engine_refuses_is_wrong_usage(run: Run) -> None:
    status, out, err = run(ZOO / "grok1.json.gz", *CARD, "-ctv", "q8_0")
    assert (status, out) == (2, "")
    assert "refuses these settings" in err


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model at all"])
def test_what_is_no_model(run: Run, tmp_path: Path, content: bytes) -> None:
    write(tmp_path / "m.gguf", content)
    status, out, err = run(tmp_path / "m.gguf", *CARD)
    assert (status, out) == (1, "")
    assert err.startswith("advisor: ")
    assert "bug in advisor" not in err


def test_a_projector_is_no_language_model(run: Run, tmp_path: Path) -> None:
    from tests.tools.tiny_models import projector

    write(tmp_path / "m.gguf", projector())
    status, _, err = run(tmp_path / "m.gguf", *CARD)
    assert status == 1
    assert "multimodal projector" in err


def test_a_user_s_rule_wins(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "quants.toml", b'schema_version = 1\n[quantizations.Q4_K_M]\nattn_v = "q8_0"\n')
    file = ZOO / "llama3-8b.json.gz"
    before = by_name(document(run, file, *CARD))["Q4_K_M"]["weights_bytes"]
    after = by_name(document(run, file, *CARD, "--rules", tmp_path))["Q4_K_M"]["weights_bytes"]
    assert after > before
    write(tmp_path / "quants.toml", b'schema_version = 1\n[quantizations.Q4_K_M]\nattn_w = "q8_0"\n')
    status, _, err = run(file, *CARD, "--rules", tmp_path)
    assert status == 1
    assert "quantizations.Q4_K_M.attn_w" in err
