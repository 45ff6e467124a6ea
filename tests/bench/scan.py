"""Prints the time of `advisor scan` over 1,000 remembered models in several stores, as a ratio to its limit."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.tools.stores import LIBRARY, download, pull
from tests.tools.tiny_models import tiny_model, write

ROOT = Path(__file__).parent.parent.parent
N_MODELS = 1000
RUNS = 9
LIMIT_S = 0.5


def lay_out(home: Path) -> None:
    """A thousand models: half in a folder, the rest in Ollama's store, the Hugging Face cache and LM Studio."""
    for number in range(N_MODELS):
        data = tiny_model(f"Model {number}")
        kind = number % 8
        if kind < 4:
            write(home / "models" / f"group{number % 20}" / f"model-{number}-Q8_0.gguf", data)
        elif kind == 4:
            write(home / ".lmstudio/models/publisher" / f"repo{number}" / f"model-{number}.gguf", data)
        elif kind == 5:
            download(home / ".cache/huggingface/hub", f"org/Repo-{number}", {f"model-{number}-Q8_0.gguf": data})
        else:
            pull(home / ".ollama/models", f"{LIBRARY}/model{number}/latest", data, [("params", b'{"num_ctx": 4096}')])


def main() -> None:
    """One line: cold, then warm with the ratio to the limit."""
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        lay_out(home)
        environ = {"HOME": place, "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"}
        words = [sys.executable, "-m", "advisor", "scan", "--gpu", "RTX 3060", "--ram", "32GiB"]
        # the folder beside the stores: LM Studio's own folder leads to it
        (home / ".lmstudio/models/mine").symlink_to(home / "models")

        def run(*more: str) -> float:
            start = time.perf_counter()
            done = subprocess.run([*words, *more], env=environ, capture_output=True, text=True, check=True)
            spent = time.perf_counter() - start
            if more:
                n_models = len(json.loads(done.stdout)["models"])
                assert n_models == N_MODELS, n_models
            return spent

        cold = run("--json")
        for name, more in (("table", ()), ("--json", ("--json",))):
            warm = statistics.median(run(*more) for _ in range(RUNS))
            print(
                f"{N_MODELS:,} models, {name:7} cold {cold:6.1f} s, remembered {1000 * warm:6.0f} ms  "
                f"{warm / LIMIT_S:5.2f} of the limit of {1000 * LIMIT_S:.0f} ms"
            )


if __name__ == "__main__":
    main()
