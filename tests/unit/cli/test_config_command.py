"""`advisor init` and `advisor config`."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tomli

from advisor.cli.main import main
from advisor.outputs.registry import OUTPUTS

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `advisor …`; its exit status, stdout and stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        status = main(list(arguments))
        out, err = capsys.readouterr()
        return status, out, err

    return call


@pytest.fixture
def file(home: Path) -> Path:
    return home / ".config" / "advisor" / "config.toml"


def test_init_writes_once_and_never_again(run, file):
    status, out, err = run("init")
    assert (status, err) == (0, "")
    assert str(file) in out
    text = file.read_text()
    assert run("init", "--print") == (0, text, "")
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    file.write_text("# mine\n")
    status, out, err = run("init")
    assert (status, out) == (1, "")
    assert "is there already and is left as it is" in err
    assert file.read_text() == "# mine\n"
    assert os.listdir(file.parent) == ["config.toml"]


@pytest.mark.parametrize("verb", ["diff", "apply"])
@pytest.mark.parametrize("begun", [True, False])
def test_without_a_target_the_lines_of_a_first_one_are_shown(verb, begun, run, file):
    if begun:
        run("init")
    status, out, err = run(verb)
    assert (status, out) == (2, "")
    head, block, tail = err.split("\n\n")
    assert head == f"advisor: the configuration has no targets; add the first one to {file}:"
    assert "'advisor init --print' lists the formats" in tail
    assert len(block.splitlines()) == 4
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text((file.read_text() if begun else "") + block)
    assert run("config", "check")[0] == 0
    values = json.loads(run("config", "show", "--json")[1])["values"]
    assert values["target.router.format"] == "llama-server-preset"
    assert values["target.router.path"] == "~/.config/llama-server/models.ini"
    assert values["target.router.enabled"] is True


def test_set_unset_and_show(run, file):
    status, out, err = run("config", "set", "daemon.quiet_hours", "22:00-07:00", "folders", "/srv/models")
    assert (status, err) == (0, "")
    assert out == f'+ folders = ["/srv/models"]\n+ quiet_hours = "22:00-07:00"\nwrote {file}\n'
    assert run("config", "set", "folders", "/srv/models")[1] == f"{file} says so already.\n"
    status, out, _ = run("config", "show", "--origin")
    assert status == 0
    number = file.read_text().splitlines().index('quiet_hours = "22:00-07:00"') + 1
    rows = {line.partition(" ")[0]: line for line in out.splitlines()}
    assert rows["daemon.quiet_hours"].endswith(f'= "22:00-07:00"   # {file}, line {number}')
    assert rows["stores.ollama"].endswith("# default")
    document = json.loads(run("config", "show", "--json")[1])
    assert document["schema"] == "advisor.config_show/1"
    assert document["files"] == [str(file)]
    assert document["values"]["folders"] == ["/srv/models"]
    assert document["values"]["stores.ollama"] is True
    assert document["origins"]["daemon.quiet_hours"] == {"file": str(file), "line": number}
    assert "stores.ollama" not in document["origins"]
    assert run("config", "unset", "daemon.quiet_hours")[0] == 0
    assert "daemon.quiet_hours" not in run("config", "show")[1]
    status, _, err = run("config", "unset", "daemon.quiet_hours")
    assert status == 2
    assert "is not set in" in err


def test_show_without_a_file(run):
    status, out, err = run("config", "show")
    assert (status, err) == (0, "")
    assert out.startswith("no configuration file; 'advisor init' writes one.")
    assert run("config", "check")[1] == "there is no configuration file, and everything has its default.\n"
    assert json.loads(run("config", "show", "--json")[1])["files"] == []


def test_a_mistake_is_told_and_nothing_is_written(run, file):
    run("init")
    before = file.read_bytes()
    for arguments, status, sentence in (
        (("daemon.rescan_s", "often"), 2, "allowed is a number of seconds"),
        (("daemon.rescan",), 2, "has no value after it"),
        (("target.a.format", "llama-swap"), 1, "[target.a] lacks path"),
        (("defaults.intent", "fastest"), 1, "defaults.intent is \"fastest\", which is unknown; known here: balanced"),
        (("engine.ollama.url", "http://10.0.0.1"), 1, "add allow_remote = true"),
        (("x\x1b[31m", "1"), 2, "is no key"),
    ):  # fmt: skip
        code, out, err = run("config", "set", *arguments)
        assert (code, out) == (status, "")
        assert sentence in err
        assert "\x1b" not in err
    assert file.read_bytes() == before
    assert run("config", "set", "engine.ollama.url", "http://10.0.0.1", "engine.ollama.allow_remote", "true")[0] == 0


def test_formats_and_intents_that_do_not_exist_are_refused_before_they_are_used(run, file):
    status, out, err = run("config", "set", "target.x.format", "nonsense", "target.x.path", "~/a")
    assert (status, out) == (1, "")
    assert 'target.x.format is "nonsense", which is unknown; known here: llama-server-preset, env-file' in err
    assert not file.exists()
    file.parent.mkdir(parents=True)
    for text, sentence in (
        ('[target.x]\nformat = "lama-swap"\npath = "/a"\n', "did you mean llama-swap?"),
        ('[defaults]\nintent = "kontext"\n', "did you mean context?"),
    ):
        file.write_text(text)
        assert run("config", "check")[2].endswith(f"{sentence}\n")
    for name in OUTPUTS:
        file.write_text("")
        assert run("config", "set", "target.x.format", name, "target.x.path", "/a")[0] == 0


def test_a_password_in_an_url_is_refused_and_never_repeated(run, file):
    file.parent.mkdir(parents=True)
    for url in (
        "http://joe:s3cret@127.0.0.1:8080", "http://joe:s3cret@127.0.0.1:99999", "joe:s3cret@h", "http://joe:s3/cret@h",
        "ftp://s3cret@h", "http://joe:s3cr[et@h",
    ):  # fmt: skip
        calls = (("set", "engine.ollama.url", url), 2), (("check",), 1), (("show",), 1), (("set", "folders", "/a"), 1)
        for call, code in calls:
            file.write_text(f'[engine.ollama]\nurl = "{url}"\n' if code == 1 else "")
            status, out, err = run("config", *call)
            assert (status, out) == (code, "")
            assert "it holds a user's name or a password; leave away what stands before the @" in err
            assert "s3" not in err
            assert "joe" not in err


def test_show_prints_what_toml_reads_back(run, file):
    file.parent.mkdir(parents=True)
    folders = ['/a "b" \\ c', "/two  blanks", "/" + 400 * "x", "/é"]
    pins = "[[model]]\nmatch = 'q'\npins = { ctx-size = 512, flash-attn = 'on' }\n"
    file.write_text(f"folders = {json.dumps(folders)}\n{pins}")
    status, out, _ = run("config", "show")
    assert status == 0
    rows = {name: tomli.loads(f"x = {value}")["x"] for name, _, value in (
        line.partition(" = ") for line in re.sub(r" +=", " =", out).splitlines()[1:]
    )}  # fmt: skip
    assert rows["folders"] == folders
    assert rows["model[1].pins"] == {"ctx-size": 512, "flash-attn": "on"}
    assert rows["stores.jan"] is True


def test_check(run, file):
    file.parent.mkdir(parents=True)
    file.write_text("[daemon]\nrescan_s = 1\n")
    sentence = f"{file}, line 2: daemon.rescan_s is 1, allowed is a number of seconds from 10 to 86400."
    assert run("config", "check") == (1, "", f"advisor: {sentence}\n")
    status, out, _ = run("config", "check", "--json")
    assert status == 1
    assert json.loads(out) == {"schema": "advisor.config_check/1", "files": [], "problems": [sentence]}
    file.write_text("[daemon]\nrescan_s = 10\n")
    assert run("config", "check") == (0, "1 file was read, all is well.\n", "")
    assert json.loads(run("config", "check", "--json")[1])["problems"] == []


def test_a_drop_in_that_wins_is_said(run, file):
    (file.parent / "conf.d").mkdir(parents=True)
    drop_in = file.parent / "conf.d" / "site.toml"
    drop_in.write_text("[daemon]\nrescan_s = 20\n")
    status, _, err = run("config", "set", "daemon.rescan_s", "30")
    assert status == 0
    assert err == f"advisor: {drop_in} is read afterwards; what it sets wins.\n"
    assert json.loads(run("config", "show", "--json")[1])["values"]["daemon.rescan_s"] == 20


def test_a_file_that_must_not_be_written(run, file):
    run("init")
    file.chmod(0o444)
    status, _, err = run("config", "set", "folders", "/a")
    assert status == 1
    assert "write-protected" in err


def test_a_link_and_the_mode_stay(run, file, tmp_path):
    file.parent.mkdir(parents=True)
    (tmp_path / "dotfile").write_text("# mine\n")
    (tmp_path / "dotfile").chmod(0o600)
    file.symlink_to(tmp_path / "dotfile")
    assert run("config", "set", "folders", "/a")[0] == 0
    assert file.is_symlink()
    assert (tmp_path / "dotfile").read_text() == '# mine\nfolders = ["/a"]\n'
    assert stat.S_IMODE((tmp_path / "dotfile").stat().st_mode) == 0o600


def test_a_recommendation_pays_nothing_for_it():
    """The verbs are names only until they are used."""
    code = "import sys, advisor.cli.main, advisor.app, advisor.planner; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in modules if name.startswith(("advisor.configuration", "advisor.managed", "tomlkit"))] == []
