"""What is trusted: no code from folders, no swaps between looking and writing, modes as they were, no secrets told."""

from __future__ import annotations

import ast
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import advisor
from advisor.cli.main import main
from advisor.cli.secrets import without_secrets
from advisor.daemon.journal import Journal
from advisor.managed.atomic import ChangedMeanwhileError, look, replace_file
from tests.tools.kept import ROOT, configure, write_config
from tests.tools.tiny_models import tiny_model, write

PACKAGE = Path(advisor.__file__).parent

# module -> what it needs it for; everything that can run, load or reach something stands here
RUNS = {
    "engines/process.py": "engines that are asked", "hardware/engine_list.py": "an engine's list of devices",
    "cli/doctor.py": "--version of engines", "hardware/apple.py": "Apple's own tools", "cli/service.py": "systemctl",
    "hardware/ram_speed.py": "the C library",
    "hardware/intel.py": "the C library", "engines/serve.py": "an engine that is measured", "outputs/registry.py": "own modules by a fixed list",
    "cli/main.py": "own modules by a fixed list", "cli/daemon.py": "an own module", "rule_folders.py": "Python's sha256",
    "hardware/nvidia.py": "NVIDIA's library, from the system's folders", "watch/inotify.py": "the C library",
    "daemon/memory.py": "the C library", "keeper/models.py": "its own memory, packed",
}  # fmt: skip
REACHES = {
    "engines/http.py": "engines, where the configuration says", "engines/http_answer.py": "what comes from there",
    "configuration/values.py": "takes addresses apart",
    "daemon/notify.py": "systemd's socket", "daemon/start.py": "a pair of its own, for signals",
}  # fmt: skip
RUNNING = {
    "subprocess",
    "pickle",
    "marshal",
    "ctypes",
    "runpy",
    "code",
    "importlib",
    "multiprocessing",
    "pty",
    "shelve",
}
REACHING = {"socket", "ssl", "http", "urllib", "ftplib", "smtplib", "telnetlib", "requests", "asyncio", "xmlrpc"}


def _uses(path: Path, names: set[str]) -> set[str]:
    """Modules out of `names` that the file imports, and calls of eval and its like."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        imported += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found |= {name.split(".")[0] for name in imported} & names
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("eval", "exec", "compile")
        ):
            found.add(node.func.id)
        if (
            isinstance(node, ast.Attribute)
            and node.attr in ("system", "popen", "execv", "execvp", "spawnv")
            and (isinstance(node.value, ast.Name) and node.value.id == "os")
        ):
            found.add(f"os.{node.attr}")
        if isinstance(node, ast.keyword) and node.arg == "shell":
            found.add("shell=")
    return found


def test_only_these_modules_run_load_or_reach_anything():
    paths = {str(path.relative_to(PACKAGE)): path for path in PACKAGE.rglob("*.py")}
    running = {name: _uses(path, RUNNING) for name, path in paths.items()}
    harmless = {"importlib"}  # importlib.metadata and find_spec name what is installed
    extra = {name: uses for name, uses in running.items() if uses - harmless and name not in RUNS}
    assert extra == {}
    reaching = {name for name, path in paths.items() if _uses(path, REACHING)}
    assert reaching <= set(REACHES) | set(RUNS)
    assert not any({"eval", "exec", "compile", "shell=", "marshal", "runpy"} & uses for uses in running.values())


def test_there_are_no_plugins():
    texts = [path.read_text("utf-8") for path in PACKAGE.rglob("*.py")]
    assert not any("entry_points" in text for text in texts)
    project = (ROOT / "pyproject.toml").read_text()
    assert "entry-points" not in project


@pytest.mark.parametrize(
    "words", [("scan", "."), ("recommend", "m.gguf", "--no-gpu"), ("inspect", "m.gguf"), ("doctor", "m.gguf")]
)
def test_code_beside_models_is_not_run(words, tmp_path, home):
    """Started inside the folder, as people do; by the script that pip installs, which does not look there."""
    write(tmp_path / "m.gguf", tiny_model("m"))
    trap = f"import pathlib; pathlib.Path({str(tmp_path / 'EVIL')!r}).touch()\n"
    for name in (
        "sitecustomize",
        "usercustomize",
        "json",
        "click",
        "advisor",
        "pynvml",
        "tokenizer",
        "configuration_m",
    ):
        (tmp_path / f"{name}.py").write_text(trap)
    (tmp_path / "conftest.py").write_text(trap)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'evil'\n")
    (tmp_path / "config.json").write_text(json.dumps({"auto_map": {"AutoConfig": "configuration_m.Evil"}}))
    script = tmp_path.parent / f"{tmp_path.name}-advisor"
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom advisor.__main__ import main\nsys.exit(main())\n"
    )
    done = subprocess.run([sys.executable, script, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3, 4), done.stderr
    assert not (tmp_path / "EVIL").exists()


# ---------------------------------------------------------------- between looking and writing


def test_a_config_that_becomes_a_link_meanwhile_is_left_alone(tmp_path):
    victim, config = tmp_path / "victim", tmp_path / "config"
    victim.write_text("secret")
    config.write_text("old")
    standing = look(str(config))
    config.unlink()
    config.symlink_to(victim)
    with pytest.raises(ChangedMeanwhileError):
        replace_file(str(config), b"new", standing)
    assert victim.read_text() == "secret"
    assert config.is_symlink()


def test_a_link_that_leads_elsewhere_meanwhile_is_left_alone(tmp_path):
    first, second, link = tmp_path / "first", tmp_path / "second", tmp_path / "link"
    first.write_text("old")
    second.write_text("old")
    link.symlink_to(first)
    standing = look(str(link))
    link.unlink()
    link.symlink_to(second)
    with pytest.raises(ChangedMeanwhileError):
        replace_file(str(link), b"new", standing)
    assert (first.read_text(), second.read_text()) == ("old", "old")


def test_a_new_config_does_not_follow_a_link_that_appears(tmp_path):
    victim, config = tmp_path / "victim", tmp_path / "config"
    victim.write_text("secret")
    standing = look(str(config))
    config.symlink_to(victim)
    with pytest.raises(ChangedMeanwhileError):
        replace_file(str(config), b"new", standing)
    assert victim.read_text() == "secret"


def test_a_link_at_the_last_moment_is_replaced_and_not_followed(tmp_path, monkeypatch):
    """After the last look: what a rename meets is the link itself."""
    victim, config = tmp_path / "victim", tmp_path / "config"
    victim.write_text("secret")
    config.write_text("old")
    standing = look(str(config))
    real = os.replace

    def swapped(source: str, target: str) -> None:
        os.unlink(target)
        os.symlink(victim, target)
        real(source, target)

    monkeypatch.setattr(os, "replace", swapped)
    replace_file(str(config), b"new", standing)
    assert victim.read_text() == "secret"
    assert config.read_bytes() == b"new"


def test_temporary_files_are_ours_from_the_start(tmp_path, monkeypatch):
    """In a folder that everybody may write: made exclusively, under a name that nobody can guess, closed to others."""
    tmp_path.chmod(0o1777)
    config = tmp_path / "config"
    config.write_text("old")
    config.chmod(0o600)
    opened: list[tuple[int, str]] = []
    real = os.open

    def watched(path, flags, mode=0o777, **more):
        if str(path).endswith(".part"):
            opened.append((flags, str(path)))
            assert mode == 0o600
        return real(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", watched)
    for _ in range(2):
        replace_file(str(config), b"new", look(str(config)))
    assert len({name for _, name in opened}) == 2
    assert all(flags & os.O_EXCL and flags & os.O_CREAT for flags, _ in opened)
    assert stat.S_IMODE(config.stat().st_mode) == 0o600


# ---------------------------------------------------------------- modes


def test_what_advisor_keeps_is_closed_to_others_and_configs_stay_as_they_were(home, tmp_path, capsys):
    os.umask(0o022)
    write(home / "models/m.gguf", tiny_model("m"))
    preset = home / "preset.ini"
    write_config(configure([home / "models"], preset), home)
    assert main(["apply"]) == 0
    assert stat.S_IMODE(preset.stat().st_mode) == 0o644
    preset.chmod(0o600)
    with preset.open("a") as file:
        file.write("[mine]\nmodel = /x\napi-key = secret\n")
    write(home / "models/n.gguf", tiny_model("n"))
    assert main(["apply"]) == 0
    assert "api-key = secret" in preset.read_text()
    assert stat.S_IMODE(preset.stat().st_mode) == 0o600
    capsys.readouterr()
    folder = home / ".local/state/advisor"
    kept = [path for path in (folder, *folder.rglob("*")) if not path.is_symlink()]
    assert len(kept) > 3
    for path in kept:
        open_to = stat.S_IMODE(path.stat().st_mode) & 0o077
        assert not open_to or not stat.S_IMODE(folder.stat().st_mode) & 0o077, path
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    backups = [path for path in folder.rglob("*") if path.is_file() and b"secret" in path.read_bytes()]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in backups)


# ---------------------------------------------------------------- secrets

SECRETS = {
    "Hugging Face": "hf_abcdefghijklmnopqrstuvwxyz012345", "OpenAI": "sk-proj-abcdefghijklmnop1234",
    "GitHub": "ghp_abcdefghijklmnopqrstuvwxyz0123456789", "password": "password=hunter2", "address": "http://me:hunter2@host/",
    "header": "Authorization: Bearer abcdef123456", "option": "--api-key s3cr3t-value", "JSON": '"token": "abc-def"',
    "word": "llama-server --api-key correcthorse", "short": "--api-key hunter2", "shortest": "--api-key 1eyJ", "HF": "--hf-token 'abcdef ghi'",
    "JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
}  # fmt: skip


@pytest.mark.parametrize("what", SECRETS)
def test_a_secret_is_taken_out(what):
    text = f"before {SECRETS[what]} after"
    cleaned = without_secrets(text)
    assert "[removed]" in cleaned
    for word in ("hunter2", "abcdef", "s3cr3t", "abc-def", "eyJ", "correcthorse"):
        assert word not in cleaned
    assert cleaned.startswith("before ")


@pytest.mark.parametrize(
    "text",
    [
        "55,040 tokens leaves 23 MiB to spare", "tokens/s: 41.2", "key_length is 128", "tokenizer.ggml.tokens", "n_tokens = 4096",
        "/home/x/models/gh/m.gguf: added m", "tokens: 4096", "secret agent model", "Keys are K, values V", "the key is unknown",
        "--api-key-file /etc/key -c 4096", "--image-max-tokens 256", "--api-key -m x.gguf",
    ],
)  # fmt: skip
def test_plain_sentences_stay(text):
    assert without_secrets(text) == text


def test_a_report_and_a_log_hold_no_secrets(home, tmp_path, monkeypatch, capsys):
    secret = SECRETS["Hugging Face"]
    monkeypatch.setenv("HF_TOKEN", secret)
    monkeypatch.setenv("OPENAI_API_KEY", SECRETS["OpenAI"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"0 token={secret}")
    model = home / "models" / f"{secret}.gguf"
    write(model, tiny_model(f"name {secret}"))
    for options in ((), ("--json",)):
        assert main(["doctor", str(model), *options]) == 0
        report = capsys.readouterr().out
        assert secret not in report
        assert SECRETS["OpenAI"] not in report
        assert str(home) not in report
        assert "~/models/" in report
    log = tmp_path / "log"
    with log.open("wb") as file:
        Journal({}, file.fileno()).log(3, f"http://me:{secret}@127.0.0.1 cannot be asked")
    assert secret not in log.read_text()
