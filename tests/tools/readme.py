"""The README's console blocks: run them, compare them, write them anew (python -m tests.tools.readme)."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.tools.empty_gguf import write_empty_gguf

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
ZOO = ROOT / "tests" / "data" / "zoo"
# Files that the README talks about, made as empty files with these headers.
MODELS = {
    "Llama-3.1-8B-Instruct-Q4_K_M.gguf": ROOT / "advisor" / "data" / "llama-3-8b-q4_k_m.json.gz",
    "Llama-3.3-70B-Instruct-Q4_K_M.gguf": ZOO / "llama33-70b-q4_k_m.json.gz",
    "llama-2-7b.gguf": ZOO / "llama2-7b.json.gz",
    "gemma-3-12b.gguf": ZOO / "gemma3-12b.json.gz",
}
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


def make_models(folder: Path) -> None:
    """Write the README's models into `folder`; they take no disk space."""
    for name, snapshot in MODELS.items():
        write_empty_gguf(str(snapshot), str(folder / name))


def run_block(block: str, folder: Path) -> str:
    """The block with every command's output as it is now."""
    lines = []
    for line in block.splitlines():
        if not line.startswith("$ advisor "):
            continue
        words = [sys.executable, "-m", *shlex.split(line[2:])]
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"}
        done = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, timeout=60, check=False)
        if done.stderr:
            raise AssertionError(f"{line}: {done.stderr}")
        lines += [line, *done.stdout.rstrip("\n").split("\n")]
    return "\n".join(lines) + "\n"


def blocks() -> list[str]:
    """The console blocks of the README as they stand."""
    return BLOCK.findall(README.read_text())


def main() -> None:
    """Write the outputs anew."""
    with tempfile.TemporaryDirectory() as name:
        make_models(Path(name))
        text = BLOCK.sub(lambda m: f"```console\n{run_block(m.group(1), Path(name))}```", README.read_text())
    README.write_text(text)


if __name__ == "__main__":
    main()
