"""`python -m tests.truth.quantize --build 11434 [MODEL...]`: measure models and say which lines moved.

Without MODELs (`zoo/NAME`, `small/NAME`, `mtp/NAME`, `fresh/NAME`, `invented/NAME`) all of
tests/data/cases/quantized.jsonl.gz; with --write that file is written anew.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
from pathlib import Path

from tests.tools.cells import DATA
from tests.tools.quantized import lines
from tests.truth.quantize import dry_run_program, dumped, measured
from tests.truth.sources import cache_folder, probe


def main() -> int:
    """Exit status 1 when something moved."""
    parser = argparse.ArgumentParser(prog="python -m tests.truth.quantize")
    parser.add_argument("--build", default="11434")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("models", nargs="*")
    asked = parser.parse_args()
    build, _ = probe(asked.build, asked.jobs)  # builds the libraries
    folder = cache_folder() / f"b{build}"
    known = {line["model"]: line for line in lines("quantized")}
    models = asked.models or list(known)
    moved = []
    with tempfile.TemporaryDirectory() as scratch:
        program = dry_run_program(folder / "llama.cpp", folder / "build" / "bin", Path(scratch) / "dry_run")
        for model in models:
            line = measured(program, model)
            if line != known.get(model):
                moved.append(model)
                print(dumped(line))
            known[model] = line
    print(f"b{build}: {len(models)} models, {len(moved)} moved", file=sys.stderr)
    if asked.write:
        text = "".join(dumped(known[model]) + "\n" for model in sorted(known))
        (DATA / "cases" / "quantized.jsonl.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    return 1 if moved else 0


if __name__ == "__main__":
    sys.exit(main())
