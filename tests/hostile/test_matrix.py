"""The whole matrix, a process for each group, and that README.md tells of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.__main__ import END_MARK, README, SECURITY, TABLE_MARK, Result, counts, table
from tests.hostile.groups import GROUPS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def found() -> list[Result]:
    import json

    command = [sys.executable, "-m", "tests.hostile", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout, done.stderr
    return [Result(**row) for row in json.loads(done.stdout)]


@pytest.mark.parametrize("index", range(len(GROUPS)), ids=[group.name for group in GROUPS])
def test_every_lie_gets_its_answer(found: list[Result], index: int) -> None:
    assert found[index].group == GROUPS[index].name
    assert found[index].failures == []
    assert found[index].n_cases > 0


def test_the_readme_tells_of_every_lie(found: list[Result]) -> None:
    assert README.read_text().partition(TABLE_MARK)[2].strip() == table(found).strip(), (
        "run python -m tests.hostile --readme"
    )


def test_the_numbers_in_security_md_are_those_of_the_command(found: list[Result]) -> None:
    told = SECURITY.read_text().partition(TABLE_MARK)[2].partition(END_MARK)[0]
    assert told.strip() == counts(found).strip(), "run python -m tests.hostile --readme"


def test_the_commands_in_security_md_exist() -> None:
    text = SECURITY.read_text()
    for name in re.findall(r"python -m (tests[\w.]*)", text):
        path = ROOT / name.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), name
    for path in re.findall(r"`((?:tests|systemd)/[\w./]+)`", text):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [(["tests.hostile", "--help"], 0, "Groups: GGUF headers"), (["tests.hostile", "no such"], 2, "there is no group 'no such'"),
     (["tests.hostile", "--no-such"], 2, "--no-such"), (["tests.hostile", "--readme", "rules"], 2, "name none"),
     (["tests.hostile", "--json", "--readme"], 2, "not allowed with"), (["tests.hostile.kills", "--help"], 0, "N_KILLS"),
     (["tests.hostile.storm", "--help"], 0, "SECONDS"), (["tests.hostile.storm", "soon"], 2, "invalid int value")],
)  # fmt: skip
def test_nothing_long_is_started_by_mistake(words: list[str], status: int, told: str) -> None:
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == status
    assert told in " ".join((done.stdout + done.stderr).split())


def test_a_lie_that_is_believed_is_seen(tmp_path: Path) -> None:
    """The matrix itself: a wrong answer, a foreign exception, a write and a long sentence are failures."""
    program = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from advisor.errors import ModelError
from tests.hostile.__main__ import run_group
from tests.hostile.lies import Case, Group, Lie

def fail(error):
    raise error

def cases(folder):
    yield Case("wrong", lambda: None, "ModelError")
    yield Case("foreign", lambda: fail(KeyError("x")), "ModelError")
    yield Case("written", lambda: (folder / "x").write_text("x") and None, "read")
    yield Case("escaped", lambda: fail(ModelError("a\x1b.")), "ModelError")
    yield Case("opened", lambda: fail(ModelError("x.")) if Path("/EVIL").exists() else open("/EVIL"), "read")
    yield Case("run", lambda: __import__("subprocess").run(["true"]) and None, "read")

print(len(run_group(Group("g", (Lie("l", "e", cases),)), Path({str(tmp_path)!r})).failures))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 9
