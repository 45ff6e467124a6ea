"""Prints the CPU time of `advisor recommend` on a Llama-3-size file beyond the bare interpreter."""

from __future__ import annotations

import os
import pty
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.tools.empty_gguf import write_empty_gguf

ROOT = Path(__file__).parent.parent.parent
RUNS = 15
BUDGET_MS = {"piped": 80, "terminal": 120}


class Way(NamedTuple):
    """One way of running it."""

    name: str
    words: list[str]
    terminal: bool = False


def cpu_ms(words: list[str], terminal: bool) -> float:
    """CPU milliseconds, user and system, of one whole process with warm bytecode."""
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environ.update(PYTHONPATH=str(ROOT), TERM="xterm-256color")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    if terminal:
        main, side = pty.openpty()
        process = subprocess.Popen(words, stdout=side, stderr=side, env=environ)
        os.close(side)
        while True:
            try:
                if not os.read(main, 65536):
                    break
            except OSError:
                break
        process.wait()
        os.close(main)
    else:
        subprocess.run(words, capture_output=True, env=environ, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> None:
    """One line per way of running it, with the ratio to the budget.

    The ways take turns, so that a machine whose pace swings treats them alike.
    """
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder) / "llama-3-8b.gguf")
        write_empty_gguf(str(ROOT / "tests" / "data" / "zoo" / "llama3-8b.json.gz"), model)
        start = [sys.executable, "-m", "advisor", "recommend", model]
        bare = Way("bare interpreter", [sys.executable, "-c", "pass"])
        imports = Way("import click, tomli", [sys.executable, "-c", "import click, tomli"])
        ways = (
            Way("this machine, piped", start),
            Way("this machine, terminal", start, terminal=True),
            Way("RTX 3060, piped", [*start, "--gpu", "RTX 3060"]),
            Way("RTX 3060, terminal", [*start, "--gpu", "RTX 3060"], terminal=True),
            Way("RTX 3060, --json", [*start, "--gpu", "RTX 3060", "--json"]),
        )
        spent: dict[str, list[float]] = {way.name: [] for way in (bare, imports, *ways)}
        for turn in range(RUNS + 1):
            for way in (bare, imports, *ways):
                figure = cpu_ms(way.words, way.terminal)
                if turn:  # the first run may compile
                    spent[way.name].append(figure)
        floor = statistics.median(spent[bare.name])
        print(f"bare interpreter {floor:.1f} ms CPU; figures below are beyond it, medians of {RUNS} runs")
        for way in ways:
            beyond = statistics.median(spent[way.name]) - floor
            budget = BUDGET_MS["terminal" if way.terminal else "piped"]
            print(f"{way.name:24} {beyond:6.1f} ms  {beyond / budget:5.2f} of the budget of {budget} ms")
        print(f"{imports.name:24} {statistics.median(spent[imports.name]) - floor:6.1f} ms")


if __name__ == "__main__":
    main()
