"""`advisor doctor`: a report that comes out whatever is broken, and holds nothing personal."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
import tomli

from advisor import __version__
from advisor.cli import doctor as doctor_module
from advisor.cli.doctor import shorten, version_line
from advisor.cli.main import main
from tests.tools.gguf_files import F16, honest, kv

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = ROOT / "advisor/data/llama-3-8b-q4_k_m.json.gz"
SECTIONS = ["advisor", "dependencies", "hardware", "engines", "rules", "replay"]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `advisor doctor …`; its exit status, stdout and stderr."""

    def call(*arguments: str | os.PathLike[str]) -> tuple[int, str, str]:
        status = main(["doctor", *(os.fspath(argument) for argument in arguments)])
        out, err = capsys.readouterr()
        return status, out, err

    return call


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Put a shell script on PATH, which has nothing else of llama.cpp."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def add(name: str, script: str) -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
        path.chmod(0o755)
        return path

    return add


def sections(out: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in out.splitlines():
        if re.fullmatch(r"\[[a-z]+\]", line):
            found[line[1:-1]] = current = []
        elif line:
            current.append(line)
    return found


def test_the_report(run):
    status, out, err = run()
    assert (status, err) == (0, "")
    found = sections(out)
    assert list(found) == SECTIONS
    assert f"advisor    {__version__}" in found["advisor"]
    assert any(platform.python_version() in line for line in found["advisor"])
    assert any(line.split() == ["click", metadata.version("click")] for line in found["dependencies"])
    assert any(line.startswith("RAM ") for line in found["hardware"])
    for probe in ("system", "nvidia_nvml", "engine_list"):
        assert any(line.startswith(f"probe    {probe}: ") for line in found["hardware"])
    assert "  advisor hardware --save hardware.json" in found["replay"]
    assert "  advisor inspect MODEL --export header.json.gz" in found["replay"]
    assert not any(line.startswith("failed:") for line in out.splitlines())


def declared() -> set[str]:
    """Names of the dependencies in pyproject.toml, and the extra that is worth knowing."""
    project = tomli.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return {re.split(r"[^A-Za-z0-9._-]", entry, maxsplit=1)[0] for entry in project["dependencies"]} | {
        "llama-cpp-python"
    }


@pytest.mark.parametrize("installed", [True, False])
def test_every_dependency_of_the_package_is_listed(run, monkeypatch, installed):
    """From the installed package's metadata, or without it from a list that must not fall behind."""

    def requires(name: str) -> list[str]:
        if not installed:
            raise metadata.PackageNotFoundError(name)
        return tomli.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]

    monkeypatch.setattr(metadata, "requires", requires)
    facts = json.loads(run("--json")[1])["sections"]["dependencies"]["facts"]
    assert set(facts) == declared()
    assert {name: facts[name] for name in ("click", "tomli")} == {
        name: metadata.version(name) for name in ("click", "tomli")
    }


def test_a_model(run):
    status, out, _ = run(SHIPPED)
    found = sections(out)
    assert status == 0
    assert list(found) == [*SECTIONS[:-1], "model", "recommend", "replay"]
    assert "architecture llama, Q4_K_M" in found["model"][1]
    assert "8.03 B parameters" in found["model"][1]
    assert found["recommend"][0].startswith("Runs ")
    assert found["recommend"][1].startswith("rules sha256:")
    assert f"  advisor inspect {SHIPPED} --export header.json.gz" in found["replay"]


def test_the_summary_is_that_of_recommend(run, tmp_path, capsys):
    hardware = tmp_path / "hardware.json"
    assert main(["hardware", "--gpu", "RTX 3060", "--ram", "32GiB", "--save", str(hardware)]) == 0
    capsys.readouterr()
    main(["recommend", str(SHIPPED), "--hardware", str(hardware), "--json"])
    expected = json.loads(capsys.readouterr().out)
    facts = json.loads(run(SHIPPED, "--hardware", hardware, "--json")[1])["sections"]
    assert facts["recommend"]["facts"]["summary"] == expected["summary"]
    assert facts["recommend"]["facts"]["verdict"] == expected["verdict"]
    [device] = facts["hardware"]["facts"]["snapshot"]["devices"]
    assert "3060" in device["name"]
    assert device["total_bytes"] == 12 << 30


def test_the_replay_of_the_report_gives_the_same_answer(run, tmp_path, capsys, monkeypatch):
    """The three commands of [replay], run as they are printed."""
    monkeypatch.chdir(tmp_path)
    facts = json.loads(run(SHIPPED, "--json")[1])["sections"]
    for line in facts["replay"]["facts"]:
        assert line.startswith("advisor ")
        capsys.readouterr()
        assert main(line.split()[1:]) in (0, 3, 4)
    answer = capsys.readouterr().out
    summary = facts["recommend"]["facts"]["summary"]
    # free memory moves by the second, so only the shape of the sentence is compared
    assert summary.partition(",")[0] in " ".join(answer.split())


# ---------------------------------------------------------------- nothing personal


def test_the_home_folder_is_shortened(run, home):
    model = home / "models" / "my model.gguf"
    model.parent.mkdir()
    model.write_bytes(honest([kv("general.architecture", "string", "llama")], [("t", (32, 4), F16)]))
    for arguments in ((model,), (model, "--json"), (home / "missing.gguf",), ("--hardware", home / "no.json")):
        status, out, _ = run(*arguments)
        assert status == 0
        assert str(home) not in out
        assert "~/" in out
    assert "~/models/my model.gguf" in run(model)[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/ann/x", "~/x"),
        ("a '/home/ann' b", "a '~' b"),
        ("/home/ann", "~"),
        ("/home/anna/x", "/home/anna/x"),
        ("/home/ann-backup", "/home/ann-backup"),
        ("x=/home/ann/a:/home/ann/b", "x=~/a:~/b"),
    ],
)
def test_only_the_home_folder_itself(text, expected):
    assert shorten(text, "/home/ann") == expected


@pytest.mark.parametrize("home", ["/", ""])
def test_no_home(home):
    assert shorten("/a/b", home) == "/a/b"


def test_no_secret_of_the_environment(run, monkeypatch):
    for name in ("HF_TOKEN", "OPENAI_API_KEY", "LLAMA_ARG_API_KEY", "LLAMA_API_KEY", "PASSWORD"):
        monkeypatch.setenv(name, "hunter2secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    for arguments in ((), ("--json",), (SHIPPED,)):
        out = run(*arguments)[1]
        assert "hunter2secret" not in out
    assert "variable CUDA_VISIBLE_DEVICES=1,0" in out


def test_control_characters_are_removed(run, programs, tmp_path, monkeypatch):
    evil = "\x1b]0;owned\x07\u202e"
    path = tmp_path / "m.gguf"
    entries = [kv("general.architecture", "string", "llama" + evil), kv("general.name", "string", evil)]
    path.write_bytes(honest(entries, [("t", (32, 4), F16)]))
    programs("llama-server", "printf 'version: 1 \\033[31mred\\n'")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", evil)
    status, out, _ = run(path)
    assert status == 0
    assert "red" in out
    assert {char for char in out if char != "\n" and (not char.isprintable() or char == "\u202e")} == set()


# ---------------------------------------------------------------- engines


def test_engines_on_the_path(run, programs):
    server = programs("llama-server", "echo noise\necho 'version: 11434 (abcdef)' >&2\necho 'built with cc' >&2")
    programs("ollama", "echo 'ollama version is 0.33.0'")
    facts = json.loads(run("--json")[1])["sections"]["engines"]["facts"]
    assert facts == [
        {"program": "llama-server", "path": str(server), "version": "version: 11434 (abcdef)"},
        {"program": "ollama", "path": str(server.parent / "ollama"), "version": "ollama version is 0.33.0"},
    ]
    [line, _] = sections(run()[1])["engines"]
    assert line.endswith(f"{server}: version: 11434 (abcdef)")


def test_no_engine(run, programs):
    assert sections(run()[1])["engines"] == ["no engine on PATH"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("exit 3", "said nothing and ended with status 3"),
        ("echo; echo '  hello  '", "hello"),
        ("yes version", "gave no answer in 0.5 s"),
        ("printf '\\377\\376 version'", "\ufffd\ufffd version"),
        ("cat; echo 'version: 7'", "version: 7"),  # stdin is empty, not the terminal
    ],
)
def test_what_engines_may_answer(programs, script, expected):
    assert version_line(str(programs("x", script)), 0.5) == expected


def test_an_engine_that_hangs_with_children_is_ended(programs, tmp_path):
    """A grandchild that holds the output open must neither block the report nor outlive it."""
    note = tmp_path / "pid"
    path = programs("x", f"sleep 60 & echo $! > {note}; wait")
    started = time.monotonic()
    assert version_line(str(path), 0.5) == "gave no answer in 0.5 s"
    assert time.monotonic() - started < 5
    pid = int(note.read_text())
    deadline = time.monotonic() + 5
    while running(pid):
        assert time.monotonic() < deadline, "the grandchild still runs"
        time.sleep(0.02)


def running(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_engine_that_cannot_be_started(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"\x7fELF nonsense")
    path.chmod(0o755)
    assert version_line(str(path)).startswith("cannot be started (")
    assert version_line(str(tmp_path / "gone")) == "cannot be started (No such file or directory)"


# ---------------------------------------------------------------- what is broken says so in its place


def test_a_model_that_is_missing(run, tmp_path):
    status, out, err = run(tmp_path / "no.gguf")
    assert (status, err) == (0, "")
    found = sections(out)
    assert found["model"] == [f"failed: {tmp_path}/no.gguf does not exist; check the path."]
    assert found["recommend"] == found["model"]
    assert len(found["hardware"]) > 3


def test_a_hardware_file_that_is_broken(run, tmp_path):
    (tmp_path / "h.json").write_text("[]")
    status, out, _ = run(SHIPPED, "--hardware", tmp_path / "h.json")
    found = sections(out)
    assert status == 0
    assert found["hardware"][0].startswith("failed: ")
    assert str(tmp_path / "h.json") in found["hardware"][0]
    assert "8.03 B parameters" in found["model"][1]
    assert found["recommend"][0].startswith("failed: ")


def test_broken_rules(run, home):
    config = home / ".config/advisor/rules"
    config.mkdir(parents=True)
    (config / "policy.toml").write_text("x = \n")
    status, out, _ = run(SHIPPED)
    found = sections(out)
    assert status == 0
    assert any(line.startswith("~/.config/advisor/rules/policy.toml, line 1") for line in found["rules"])
    assert found["recommend"][0].startswith("failed: ~/.config/advisor/rules/policy.toml, line 1")
    assert "8.03 B parameters" in found["model"][1]


def test_a_rule_folder_that_is_missing(run, tmp_path):
    status, out, _ = run("--rules", tmp_path / "no")
    assert status == 0
    assert sections(out)["rules"] == [
        f"failed: {tmp_path}/no: not a folder; --rules takes a folder laid out as advisor's rules/."
    ]


@pytest.mark.parametrize(
    "name", ["_versions", "_dependencies", "_hardware", "_engines", "_rules", "_model", "_recommend", "_replay"]
)
def test_any_section_may_break(run, monkeypatch, name):
    def broken(_: object) -> None:
        raise RuntimeError("kaputt\x1b[31m")

    monkeypatch.setattr(doctor_module, name, broken)
    status, out, err = run(SHIPPED)
    assert (status, err) == (0, "")
    found = sections(out)
    assert len(found) == len(SECTIONS) + 2
    assert [lines for lines in found.values() if lines == ["failed: RuntimeError: kaputt?[31m"]] != []
    assert sum(any(line.startswith("failed: RuntimeError") for line in lines) for lines in found.values()) == 1
    facts = json.loads(run(SHIPPED, "--json")[1])["sections"]
    assert [entry["error"] for entry in facts.values() if entry["error"]] == ["RuntimeError: kaputt?[31m"]


def test_a_file_that_is_no_language_model(run, tmp_path):
    path = tmp_path / "mmproj.gguf"
    path.write_bytes(honest([kv("general.architecture", "string", "clip")], [("t", (32, 4), F16)]))
    found = sections(run(path)[1])
    assert "a multimodal projector" in found["model"][1]
    assert found["recommend"][0].startswith("failed: ")


def test_wrong_usage(run):
    status, out, err = run("--nosuch")
    assert (status, out, err.count("\n")) == (2, "", 1)


def test_the_real_command():
    answer = subprocess.run(
        [sys.executable, "-m", "advisor", "doctor", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert json.loads(answer.stdout)["schema"] == "advisor.doctor/1"
