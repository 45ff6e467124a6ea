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

from tests.tools.empty_gguf import write_empty_gguf

ROOT = Path(__file__).parent.parent.parent
RUNS = 15
BUDGET_MS = {"piped": 80, "terminal": 120}


def cpu_ms(words: list[str], *, terminal: bool = False) -> float:
    """Median CPU milliseconds, user and system, of one whole process with warm bytecode."""
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environ.update(PYTHONPATH=str(ROOT), TERM="xterm-256color")
    times = []
    for _ in range(RUNS + 1):
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
        times.append(1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    return statistics.median(times[1:])  # the first run may compile


def main() -> None:
    """One line per way of running it, with the ratio to the budget."""
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder) / "llama-3-8b.gguf")
        write_empty_gguf(str(ROOT / "tests" / "data" / "zoo" / "llama3-8b.json.gz"), model)
        start = [sys.executable, "-m", "advisor", "recommend", model]
        bare = cpu_ms([sys.executable, "-c", "pass"])
        print(f"bare interpreter {bare:.1f} ms CPU; figures below are beyond it, medians of {RUNS} runs")
        for name, words, terminal in (
            ("this machine, piped", start, False),
            ("this machine, terminal", start, True),
            ("RTX 3060, piped", [*start, "--gpu", "RTX 3060"], False),
            ("RTX 3060, terminal", [*start, "--gpu", "RTX 3060"], True),
            ("RTX 3060, --json", [*start, "--gpu", "RTX 3060", "--json"], False),
        ):
            spent = cpu_ms(words, terminal=terminal) - bare
            budget = BUDGET_MS["terminal" if terminal else "piped"]
            print(f"{name:24} {spent:6.1f} ms  {spent / budget:5.2f} of the budget of {budget} ms")
        imports = cpu_ms([sys.executable, "-c", "import click, tomli"]) - bare
        print(f"{'import click, tomli':24} {imports:6.1f} ms")


if __name__ == "__main__":
    main()
