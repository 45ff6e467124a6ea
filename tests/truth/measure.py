"""Runs the probe of one build over cells."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.tools.cells import snapshot
from tests.tools.empty_gguf import write_empty_gguf

_SECONDS = 300  # for all cells of a model


def measured(program: Path, cells: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The cells with what the engine says: n_ctx, n_ctx_seq and bufs, or error. Grouped by model.

    Models that the build does not load at all are left out.
    """
    with tempfile.TemporaryDirectory() as scratch:
        for model in dict.fromkeys(cell["model"] for cell in cells):
            file = Path(scratch) / "model.gguf"
            write_empty_gguf(snapshot(model), file)
            mine = [cell for cell in cells if cell["model"] == model]
            answers = _answers(program, file, mine)
            if all(answer.get("error") == "model" for answer in answers):
                print(f"{model}: this build does not load it", file=sys.stderr)
            else:
                yield from ({**cell, **answer} for cell, answer in zip(mine, answers, strict=True))
            file.unlink()


def _answers(program: Path, file: Path, cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = []
    while len(answers) < len(cells):
        lines = "".join(_line(file, cell) + "\n" for cell in cells[len(answers) :])
        done = subprocess.run([program], input=lines, capture_output=True, text=True, timeout=_SECONDS, check=False)
        answers += [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode != 0:  # the engine gave up on the cell without an answer
            print(f"{cells[len(answers)]['model']}: {done.stderr.strip()[-200:]}", file=sys.stderr)
            answers.append({"error": "abort"})
    return answers


def _line(file: Path, cell: dict[str, Any]) -> str:
    words = {"model": str(file), "free": ",".join(str(mib) for mib in cell["free_mib"])}
    words.update((key, str(value)) for key, value in cell["settings"].items() if not key.startswith("_"))
    return " ".join(f"{key}={value}" for key, value in words.items())
