"""Every kept input through its target, without atheris: no findings, in bounded time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.corpus import FOLDER, MAX_TOTAL_BYTES, inputs
from tests.fuzz.laws import MAX_INPUT_BYTES
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
MEMORY_BYTES = 1 << 30  # of address space: the interpreter, its libraries, all of advisor, and an input
CPU_S = 60
REPLAY = f"""
import resource, sys, time
from tests.fuzz.corpus import inputs
from tests.fuzz.targets import TARGETS
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_BYTES}, {MEMORY_BYTES}))
resource.setrlimit(resource.RLIMIT_CPU, ({CPU_S}, {CPU_S}))
for name, data in inputs(sys.argv[1]).items():
    print(name, file=sys.stderr, flush=True)
    TARGETS[sys.argv[1]](data)
"""


@pytest.mark.parametrize("target", TARGETS)
def test_no_kept_input_breaks_a_law(target: str) -> None:
    assert len(inputs(target)) >= 1
    done = subprocess.run([sys.executable, "-c", REPLAY, target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stderr.split()) == len(inputs(target))


def test_the_corpus_is_small_and_belongs_to_targets() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(TARGETS)
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < MAX_TOTAL_BYTES
    assert all(len(data) <= MAX_INPUT_BYTES for target in TARGETS for data in inputs(target).values())


def test_a_log_of_runs_is_added_up(tmp_path: Path) -> None:
    rows = [("gguf", 10.0, 1000, 50, []), ("gguf", 5.0, 500, 60, ["x"]), ("log", 1.0, 7, 5, [])]
    names = ("target", "seconds", "executions", "coverage", "findings")
    log = tmp_path / "fuzz.log"
    log.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    command = [sys.executable, "-m", "tests.fuzz", "--sum", str(log)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    assert [line.split() for line in said[1:4]] == [
        ["gguf", "15", "1,500", "60", "1"], ["log", "1", "7", "5", "0"], ["all", "16", "1,507", "1"],
    ]  # fmt: skip
