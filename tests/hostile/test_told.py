"""SECURITY.md held against the code: what starts programs, what is spoken to and how long, which names are followed."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import advisor
from advisor.cli.main import main
from tests.tools.kept import NO_STORES, ROOT, quoted, write_config
from tests.tools.tiny_models import tiny_model, write

PACKAGE = Path(advisor.__file__).parent
SECURITY = (ROOT / "SECURITY.md").read_text("utf-8")
STARTING = {"Popen", "run_until", "stream_until"}  # and subprocess.run

# every module that starts a program -> the words of SECURITY.md for it; engines/process.py does it for others
STARTS = {
    "engines/help_text.py": ("`--help`",), "cli/doctor.py": ("`--version`",),
    "hardware/engine_list.py": ("All but `--list-devices`",), "engines/dry_run.py": ("a dry run",),
    "engines/fit_run.py": ("a dry run",), "engines/bindings.py": ("llama-cpp-python", "`python -I -c`"),
    "engines/serve.py": ("`advisor calibrate`", "llama-server", "xllamacpp"),
    "engines/log_source.py": ("`advisor observe --unit`", "`journalctl`"),
    "cli/service.py": ("`systemctl`", "`launchctl`"), "hardware/apple.py": ("`sysctl`",),
}  # fmt: skip

# every module that takes an address -> the words for it
SPOKEN_TO = {
    "keeper/reload.py": ("engines in the configuration", "`allow_remote`"), "cli/serving.py": ("`calibrate --url`",),
}  # fmt: skip

# settings of other programs in which a name leads to models
FOLLOWED = {
    "stores/lm_studio.py": (".lmstudio-home-pointer", "downloadsFolder"), "stores/gpt4all.py": ("modelPath",),
    "stores/textgen.py": ("--model-dir",), "stores/ollama_service.py": ("OLLAMA_MODELS", "EnvironmentFile"),
    "stores/jan.py": ("model.yml",),
}  # fmt: skip


def paragraph(title: str) -> str:
    """The part of SECURITY.md that begins with **title.**, as one line."""
    part = SECURITY.partition(f"**{title}.**")[2].partition("\n**")[0]
    assert part
    return " ".join(part.split())


def calls(path: Path) -> list[tuple[str, ast.Call]]:
    """(name that is called, the call) of a module."""
    found = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
    return [(ast.unparse(node.func), node) for node in found]


def modules() -> dict[str, Path]:
    return {str(path.relative_to(PACKAGE)): path for path in PACKAGE.rglob("*.py")}


def test_everything_that_starts_a_program_is_told():
    starting = {
        name
        for name, path in modules().items()
        for called, _ in calls(path)
        if called.rpartition(".")[2] in STARTING or called == "subprocess.run"
    }
    assert starting - {"engines/process.py"} == set(STARTS)
    told = paragraph("Nothing is run")
    assert [word for words in STARTS.values() for word in words if word not in told] == []


def test_every_address_that_is_spoken_to_is_told():
    taking = {name for name, path in modules().items() for called, _ in calls(path) if called == "parse_address"}
    assert taking == set(SPOKEN_TO)
    told = paragraph("Talking")
    assert [word for words in SPOKEN_TO.values() for word in words if word not in told] == []


def test_every_deadline_of_an_answer_is_told():
    """That of a server which is coming up is shorter than what is promised."""
    seconds = {"engines/http.py": importlib.import_module("advisor.engines.http").TIME_LIMIT_S}
    for name, path in modules().items():
        given = [word.value for called, node in calls(path) if called == "ask" for word in node.keywords
                 if word.arg == "seconds"]  # fmt: skip
        for value in given:
            module = importlib.import_module("advisor." + name.removesuffix(".py").replace("/", "."))
            limit = value.value if isinstance(value, ast.Constant) else vars(module)[ast.unparse(value)]
            assert isinstance(limit, int | float)
            seconds[name] = max(seconds.get(name, 0.0), limit)
    longest = {f"{limit:g}" for limit in seconds.values() if limit >= seconds["engines/http.py"]}
    assert set(re.findall(r"(\d+) s\b", paragraph("Talking"))) == longest
    serve = importlib.import_module("advisor.engines.serve")
    assert f"It has {serve.START_LIMIT_S:g} s to come up" in paragraph("Nothing is run")


def test_every_setting_of_another_program_that_leads_to_models_is_told():
    told = paragraph("Names are no paths")
    for name, words in FOLLOWED.items():
        text = (PACKAGE / name).read_text("utf-8")
        for word in words:
            assert word in text, name
            assert word in told, name
    assert "`advisor observe` without `--model`" in told
    assert "`advisor calibrate --url` without MODEL" in told


def test_a_folder_that_a_program_names_is_followed(home, capsys):
    """As SECURITY.md tells, and only to read there."""
    elsewhere = home / "elsewhere"
    write(elsewhere / "models/publisher/repo/m.gguf", tiny_model("m"))
    (home / ".lmstudio-home-pointer").write_text(str(elsewhere))
    before = sorted(elsewhere.rglob("*"))
    assert main(["scan"]) == 0
    assert "publisher/repo" in capsys.readouterr().out
    assert sorted(elsewhere.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "written"),
    [((), {"on"}), (("off",), {"off"}), (("--all",), {"on", "off"})],
    ids=["those that are enabled", "the one that is named", "all"],
)
def test_which_targets_are_written(words, written, home, capsys):
    """None but those, and SECURITY.md and README.md tell of each way."""
    write(home / "models/m.gguf", tiny_model("m"))
    targets = "".join(
        f'[target.{name}]\nformat = "llama-server-preset"\npath = {quoted(home / f"{name}.ini")}\n'
        f"enabled = {str(name == 'on').lower()}\n"
        for name in ("on", "off")
    )
    write_config(f"folders = [{quoted(home / 'models')}]\n{NO_STORES}\n{targets}", home)
    assert main(["apply", *words]) == 0
    capsys.readouterr()
    assert {path.stem for path in home.glob("*.ini")} == written
    readme = (ROOT / "README.md").read_text("utf-8")
    for told in (paragraph("Writing"), readme):
        assert "`apply TARGET`" in told
        assert "`apply --all`" in told
