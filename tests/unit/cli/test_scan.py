"""`advisor scan`: the table, the JSON, what is remembered, and everything that can be wrong with a model."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.cli import scan_plan
from advisor.cli.main import main
from advisor.cli.progress import Progress
from advisor.cli.scan_plan import Answer, RememberingPlanner
from advisor.cli.terminal import Screen
from advisor.steady import steady
from advisor.stores import ollama_service
from advisor.stores.cache import Cache
from advisor.stores.types import FileIdentity, StoredModel
from tests.tools.gguf_files import F32, kv
from tests.tools.machines import machine
from tests.tools.stores import LIBRARY, pull
from tests.tools.tiny_models import adapter, filled, projector, tiny_model, write

MIB, GIB = 1 << 20, 1 << 30
Run = Callable[..., tuple[int, str, str]]
CARD = ("--gpu", "cuda:8GiB", "--ram", "16GiB")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `advisor scan`; its exit status, stdout and stderr."""
    monkeypatch.setattr(ollama_service, "_FOLDERS", ())
    monkeypatch.setattr("advisor.stores.ollama._SYSTEM_STORE", "/no/system/store")

    def call(*arguments: str | os.PathLike[str]) -> tuple[int, str, str]:
        status = main(["scan", *map(os.fspath, arguments)])
        out, err = capsys.readouterr()
        return status, out, err

    return call


def document(run: Run, *arguments: str | os.PathLike[str]) -> dict[str, Any]:
    status, out, err = run(*arguments, "--json")
    assert (status, err) == (0, "")
    parsed: dict[str, Any] = json.loads(out)
    assert parsed["schema"] == "advisor.scan/1"
    return parsed


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the models that are planned anew, in order."""
    names: list[str] = []
    real = RememberingPlanner._plan

    def counted(self: RememberingPlanner, model: StoredModel) -> Answer:
        names.append(model.name)
        return real(self, model)

    monkeypatch.setattr(RememberingPlanner, "_plan", counted)
    return names


# ---------------------------------------------------------------- what it says


def test_the_answer_is_that_of_recommend(
    run: Run, tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "m.gguf", tiny_model(n_ctx_train=16384))
    (row,) = document(run, tmp_path, *CARD)["models"]
    assert main(["recommend", str(path), *CARD, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (row["verdict"], row["summary"]) == (answer["verdict"], answer["summary"])
    assert (row["settings"], row["speed"]) == (answer["settings"], answer["speed"])
    assert row["max_n_ctx"] == 16384  # all that it was trained for fits
    assert (row["path"], row["n_ctx_train"], row["quantization"]) == (str(path), 16384, "Q8_0")


@pytest.mark.parametrize(
    ("hardware", "verdict"),
    [
        (CARD, "full"),
        (("--no-gpu", "--ram", "16GiB"), "cpu"),
        (("--no-gpu", "--ram", "900MiB"), "does_not_fit"),
    ],
)
def test_verdicts(hardware: tuple[str, ...], verdict: str, run: Run, tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", tiny_model())
    (row,) = document(run, tmp_path, *hardware)["models"]
    assert row["verdict"] == verdict
    assert (row["max_n_ctx"] is None) == (row["speed"] is None) == (verdict == "does_not_fit")
    assert run(tmp_path, *hardware)[0] == 0


def test_all_stores_without_a_folder(run: Run, home: Path) -> None:
    pull(home / ".ollama/models", f"{LIBRARY}/m/8b", None, [("params", b'{"num_ctx": 7}'), ("projector", projector())])
    write(home / ".lmstudio/models/p/r/x.gguf", tiny_model("x"))
    answer = document(run, *CARD)
    assert [(row["store"], row["name"]) for row in answer["models"]] == [("ollama", "m:8b"), ("lmstudio", "p/r/x")]
    assert answer["models"][0]["params"] == {"num_ctx": 7}
    assert [companion["kind"] for companion in answer["models"][0]["companions"]] == ["mmproj"]
    statuses = {(report["store"], report["status"]) for report in answer["stores"]}
    assert {("ollama", "ok"), ("lmstudio", "ok"), ("huggingface", "absent"), ("jan", "absent")} <= statuses
    assert answer["host"]["devices"][0]["total_bytes"] == 8 * GIB


def test_the_table(run: Run, tmp_path: Path) -> None:
    for name in ("one-8b", "two-70b"):
        write(tmp_path / f"{name}.gguf", tiny_model(name))
    write(tmp_path / "cut.gguf", tiny_model()[:-100])
    write(tmp_path / "other" / "lora.gguf", adapter())
    status, out, err = run(tmp_path, *CARD)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert "8.00 GiB of 8.00 GiB free" in lines[0]
    head = next(line for line in lines if line.lstrip().startswith("model"))
    assert head.split() == ["model", "quant", "size", "fits", "context", "longest", "tokens/s"]
    row = next(line for line in lines if line.lstrip().startswith("one-8b"))
    assert row.split()[:6] == ["one-8b", "Q8_0", "101", "KiB", "fits", "4,096"]
    assert row.index("fits") == head.index("fits")
    assert out.index("Not usable\n  cut\n") < out.index("Not language models") < out.index("other/lora: an")
    assert lines[-1] == "2 models: 2 on the GPU."
    assert "\x1b" not in out
    assert not any(line.endswith(" ") for line in lines)


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_the_terminal(width: int, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / f"{'long-' * 30}Q4_K_M.gguf", tiny_model())
    write(tmp_path / "short.gguf", tiny_model())

    def terminal(self: Screen) -> None:
        self.width, self.is_terminal, self.color, self.unicode = width, True, False, True

    monkeypatch.setattr(Screen, "__init__", terminal)
    _, out, _ = run(tmp_path, *CARD)
    assert max(len(line) for line in out.splitlines() if str(tmp_path) not in line) <= width  # a path is one word
    row = next(line for line in out.splitlines() if "…" in line)
    assert row.lstrip().startswith("long-")
    assert "Q4_K_M " in row  # the end, which tells files apart, is kept


def test_a_long_name_in_a_pipe_moves_only_its_own_row(run: Run, tmp_path: Path) -> None:
    long = "x" * 240
    for name in ("a", "b", long):
        write(tmp_path / f"{name}.gguf", tiny_model(name[:9]))
    lines = run("scan", str(tmp_path), "--gpu", "cuda:8GiB", "--ram", "16GiB")[1].splitlines()
    rows = [line for line in lines if " fits " in f"{line} "]
    assert len(rows) == 4  # with the headings
    assert sorted(len(line) < 160 for line in rows) == [False, True, True, True]
    assert any(line.strip().startswith(long) for line in rows)
    assert len({line.index("fits") for line in rows if long not in line}) == 1


def test_names_that_could_harm_a_terminal(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "\x1b[31mred\u202e.gguf", tiny_model("\x1b]0;x\x07"))
    write(tmp_path / os.fsdecode(b"bad\xff.gguf"), tiny_model()[:-99])
    status, out, _ = run(tmp_path, *CARD)
    assert status == 0
    assert all(line.isprintable() for line in out.splitlines())
    assert len(document(run, tmp_path, *CARD)["models"]) == 1


def test_nothing_found(run: Run, tmp_path: Path) -> None:
    status, out, _ = run(tmp_path)
    assert (status, out.splitlines()[-1]) == (0, f"No models in {tmp_path}.")
    status, out, _ = run()
    assert status == 0
    assert "No models in ~/.ollama/models, " in out


def test_folders_that_cannot_be_read(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", tiny_model())
    status, out, _ = run(tmp_path, tmp_path / "absent", *CARD)
    assert status == 1
    assert f"{tmp_path / 'absent'} does not exist; check the path." in " ".join(out.split())
    assert "1 model: 1 on the GPU." in out


def test_a_store_that_is_not_there_is_not_worth_a_word(run: Run, home: Path) -> None:
    write(home / ".lmstudio/models/m.gguf", tiny_model())
    status, out, _ = run(*CARD)
    assert (status, "Not looked into" in out, "Jan" in out) == (0, False, False)


@pytest.mark.parametrize("wrong", [["--for", "fun"], ["--gpu", "no such card"], ["--engine", "x"], ["--ram", "much"]])
def test_wrong_usage(wrong: list[str], run: Run, tmp_path: Path) -> None:
    status, out, err = run(tmp_path, *wrong)
    assert (status, out) == (2, "")
    assert err.startswith("advisor: ")


# ---------------------------------------------------------------- models that cannot be planned


def test_a_model_that_contradicts_itself_is_a_problem_of_its_own(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "good.gguf", tiny_model())
    lying = [
        kv("general.architecture", "string", "llama"),
        kv("llama.block_count", "uint32", 0),
        kv("llama.embedding_length", "uint32", 64),
    ]
    write(tmp_path / "lying.gguf", filled(lying, [("token_embd.weight", (64, 32), F32)]))
    write(tmp_path / "nameless.gguf", filled([], [("x", (64,), F32)]))
    for _ in range(2):  # planned, then remembered
        answer = document(run, tmp_path, *CARD)
        assert [row["name"] for row in answer["models"]] == ["good"]
        problems = {row["name"]: row["problem"] for row in answer["not_planned"]}
        assert "'llama.block_count' is 0" in problems["lying"]
        assert "names no architecture" in problems["nameless"]


def test_a_bug_with_one_model_leaves_the_others(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planned: list[str]
) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.gguf", tiny_model())
    counted = RememberingPlanner._plan

    def buggy(self: RememberingPlanner, model: StoredModel) -> Answer:
        if model.name == "a":
            raise ZeroDivisionError("division by zero")
        return counted(self, model)

    with monkeypatch.context() as patch:
        patch.setattr(RememberingPlanner, "_plan", buggy)
        answer = document(run, tmp_path, *CARD)
    assert [row["name"] for row in answer["models"]] == ["b"]
    assert "bug in advisor (ZeroDivisionError: division by zero)" in answer["not_planned"][0]["problem"]
    assert len(document(run, tmp_path, *CARD)["models"]) == 2  # a bug is not remembered


def test_only_models_are_planned(run: Run, tmp_path: Path, planned: list[str]) -> None:
    write(tmp_path / "m.gguf", tiny_model())
    write(tmp_path / "lora" / "l.gguf", adapter())
    write(tmp_path / "cut.gguf", tiny_model()[:-100])
    write(tmp_path / "m2-00001-of-00002.gguf", tiny_model(part=(0, 2)))
    write(tmp_path / "incomplete-x.gguf", tiny_model())
    document(run, tmp_path, *CARD)
    assert planned == ["m"]


# ---------------------------------------------------------------- what is remembered


def test_the_second_time_nothing_is_read_or_planned(
    run: Run, tmp_path: Path, planned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        write(tmp_path / f"{number}.gguf", tiny_model())
    first = document(run, tmp_path, *CARD)
    assert planned == ["0", "1", "2"]
    monkeypatch.setattr("advisor.stores.scan.read_facts", None)
    monkeypatch.setattr("advisor.app.App.header", None)
    assert document(run, tmp_path, *CARD) == first
    assert planned == ["0", "1", "2"]


def test_a_changed_model_is_planned_anew_and_no_other(run: Run, tmp_path: Path, planned: list[str]) -> None:
    for number in range(3):
        write(tmp_path / f"{number}.gguf", tiny_model())
    document(run, tmp_path, *CARD)
    write(tmp_path / "1.gguf", tiny_model(n_ctx_train=8192))
    answer = document(run, tmp_path, *CARD)
    assert planned == ["0", "1", "2", "1"]
    assert [row["max_n_ctx"] for row in answer["models"]] == [4096, 8192, 4096]


@pytest.mark.parametrize(
    "other",
    [
        ("--gpu", "cuda:6GiB", "--ram", "16GiB"),
        ("--gpu", "cuda:8GiB@7GiB", "--ram", "16GiB"),
        ("--gpu", "vulkan:8GiB", "--ram", "16GiB"),
        ("--gpu", "cuda:8GiB", "--ram", "15GiB"),
        (*CARD, "--for", "context"),
        (*CARD, "--engine", "llama.cpp@b10434"),
        (*CARD, "--engine", "ollama"),
        (*CARD, "--tool", "cli"),
        (*CARD, "--keep-free", "1GiB"),
        (*CARD, "--now"),
        (*CARD, "--no-cache"),
    ],
)
def test_everything_that_matters_is_part_of_the_question(
    other: tuple[str, ...], run: Run, tmp_path: Path, planned: list[str]
) -> None:
    write(tmp_path / "m.gguf", tiny_model())
    document(run, tmp_path, *CARD)
    document(run, tmp_path, *CARD)
    assert len(planned) == 1
    document(run, tmp_path, *other)
    assert len(planned) == 2


def test_a_changed_rule_is_part_of_the_question(run: Run, tmp_path: Path, home: Path, planned: list[str]) -> None:
    write(tmp_path / "models/m.gguf", tiny_model())
    document(run, tmp_path / "models", *CARD)
    rule = home / ".config/advisor/rules/policy.toml"
    for margin in (600, 700):
        write(rule, f'schema_version = 1\nsource = "test"\n[margins]\ncuda = {margin * MIB}\n'.encode())
        for _ in range(2):
            document(run, tmp_path / "models", *CARD)
    assert len(planned) == 3


def test_what_was_observed_on_a_card_is_part_of_the_question(
    run: Run, tmp_path: Path, planned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "m.gguf", tiny_model())
    document(run, tmp_path, *CARD)
    monkeypatch.setattr("advisor.app.App.overheads", lambda self, host: {("cuda", host.devices[0].name): 900 * MIB})
    document(run, tmp_path, *CARD)
    assert len(planned) == 2


def test_no_cache_writes_nothing(run: Run, tmp_path: Path, home: Path) -> None:
    write(tmp_path / "m.gguf", tiny_model())
    document(run, tmp_path, *CARD, "--no-cache")
    assert not (home / ".cache/advisor").exists()


@pytest.mark.parametrize("broken", [{}, {"verdict": "full"}, {**Answer()._asdict(), "verdict": "full", "max_n_ctx": 3}])
def test_a_remembered_answer_of_another_shape_is_planned_anew(
    broken: dict[str, Any], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "m.gguf", tiny_model())
    with monkeypatch.context() as patch:
        patch.setattr(Answer, "_asdict", lambda self: broken)
        document(run, tmp_path, *CARD)
    assert document(run, tmp_path, *CARD)["models"][0]["max_n_ctx"] == 4096


def test_what_was_done_before_an_interruption_is_kept(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planned: list[str]
) -> None:
    for number in range(3):
        write(tmp_path / f"{number}.gguf", tiny_model())
    counted = RememberingPlanner._plan

    def interrupted(self: RememberingPlanner, model: StoredModel) -> Answer:
        if model.name == "1":
            raise KeyboardInterrupt
        return counted(self, model)

    with monkeypatch.context() as patch:
        patch.setattr(RememberingPlanner, "_plan", interrupted)
        status, out, err = run(tmp_path, *CARD)
    assert (status, out, err.strip()) == (130, "", "advisor: stopped.")
    document(run, tmp_path, *CARD)
    assert planned == ["0", "1", "2"]


def test_a_broken_cache_is_survived(run: Run, tmp_path: Path, home: Path) -> None:
    write(tmp_path / "m.gguf", tiny_model())
    first = document(run, tmp_path, *CARD)
    (home / ".cache/advisor/models.sqlite").write_bytes(b"x" * 9999)
    assert document(run, tmp_path, *CARD) == first
    (home / ".cache/advisor/models.sqlite").unlink()
    (home / ".cache/advisor/models.sqlite").mkdir()
    assert document(run, tmp_path, *CARD) == first


# ---------------------------------------------------------------- memory that moves


def moved(cache: Cache, *, vram: int = 0, ram: int = 0, devices: bool = True, system: bool = True) -> tuple[int, int]:
    """Free memory that is planned with, relative to a machine at rest, when it is off by this many bytes now."""
    host = machine(12, ram_gib=32)
    now = host._replace(
        devices=(host.devices[0]._replace(free_bytes=11 * GIB + vram),),
        ram=host.ram._replace(available_bytes=24 * GIB + ram),
    )
    planned = steady(now, cache, devices=devices, ram=system)
    cache.flush()
    return planned.devices[0].free_bytes - 11 * GIB, planned.ram.available_bytes - 24 * GIB


def test_small_changes_of_free_memory_are_none(tmp_path: Path) -> None:
    with Cache(str(tmp_path)) as cache:
        assert moved(cache) == (0, 0)
        for off in (-200 * MIB, 200 * MIB):
            assert moved(cache, vram=off, ram=off) == (0, 0)
        assert moved(cache, ram=2 * GIB - MIB) == (0, 0)  # a sixteenth of 32 GiB more
        assert moved(cache, vram=-300 * MIB) == (-300 * MIB, 0)
        assert moved(cache, vram=0) == (0, 0)  # 300 MiB more are taken, too
        assert moved(cache, ram=-513 * MIB) == (0, -513 * MIB)
        assert moved(cache) == (0, -513 * MIB)
        assert moved(cache, ram=2 * GIB) == (0, 2 * GIB)


def test_memory_that_was_given_is_taken_as_given(tmp_path: Path) -> None:
    with Cache(str(tmp_path)) as cache:
        moved(cache)
        assert moved(cache, vram=MIB, ram=MIB, devices=False) == (MIB, 0)
        assert moved(cache, vram=MIB, ram=MIB, devices=False, system=False) == (MIB, MIB)


def test_memory_at_rest_counts_what_engines_hold() -> None:
    host = machine(12)
    held = host._replace(devices=(host.devices[0]._replace(free_bytes=2 * GIB, used_by_engines_bytes=9 * GIB),))
    planned = steady(held, Cache(None), devices=True, ram=True)
    assert (planned.devices[0].free_bytes, planned.devices[0].used_by_engines_bytes) == (11 * GIB, 0)


def test_a_remembered_memory_of_another_shape_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for note in ([], [1], "x", [None, None], {"a": 1}):
        monkeypatch.setattr(Cache, "note", lambda self, name, note=note: note)
        with Cache(None) as cache:
            assert moved(cache) == (0, 0)


# ---------------------------------------------------------------- progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_drawn_on_a_terminal_and_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    err = Terminal()
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("advisor.cli.progress._AFTER_S", 0)
    with Progress() as progress:
        progress.show("planning", 12, 48)
        progress.show("planning", 13, 48)  # too soon
        assert err.getvalue() == "\rplanning [######                  ] 12 of 48\x1b[K"
    assert err.getvalue().endswith("\r\x1b[K")


def test_progress_is_silent_elsewhere_and_for_what_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (io.StringIO(), Terminal()):
        monkeypatch.setattr(sys, "stderr", stream)
        with Progress() as progress:
            progress.show("planning", 1, 2)
        assert stream.getvalue() == ""


def test_plans_survive_a_model_that_is_gone(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", tiny_model())
    from advisor.app import App

    app = App()
    question = scan_plan.Question(machine(8), app.engine(None), "server", "balanced", False, None)
    planner = RememberingPlanner(app, question, Cache(None))
    path.unlink()
    gone = StoredModel("folder", "m", str(path), (str(path),), 1, (FileIdentity(1, 2, 3, 4),))
    assert "does not exist" in str(planner.plan(gone).problem)


def test_a_file_where_a_folder_is_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("x")
    assert main(["scan", str(path)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "is a file, not a folder" in said
    assert "does not exist" not in said


def test_a_wrong_time_is_shown_as_it_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["undo", "--to", "yesterday"]) == 2
    assert "--to 'yesterday' is no time" in capsys.readouterr().err
