"""Programs that play an engine: they print what a test gives them, or misbehave in one way each."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

# (device, description, total MiB, free MiB, weights, context, compute) per GPU; then (weights, context, compute)
Gpu = tuple[str, str, int, int, int, int, int]


def table(gpus: Sequence[Gpu], host: tuple[int, int, int]) -> str:
    """The engine's own words of a dry run, in the format of b11434."""
    lines = ["0.00.039.032 I cmn  common_param: common_params_print_info: build 11434 (7e4c0a9) with GNU for Linux"]
    for name, what, total, free, *_ in gpus:
        lines.append(f"0.00.039.117 I cmn  common_param:   - {name} : {what} ({total} MiB, {free} MiB free)")
    lines.append("0.00.046.067 I common_params_fit_impl: getting device memory data for initial parameters:")
    lines.append("0.00.2 I common_memory_breakdown_print: | memory breakdown [MiB] | total   free    self   model   |")
    for name, what, total, free, weights, context, compute in gpus:
        used = weights + context + compute
        lines.append(
            f"0.00.2 I common_memory_breakdown_print: |   - {name} ({what}) | {total} = {free} + ({used} = {weights} + "
            f"{context} + {compute}) + {-used} |"
        )
    weights, context, compute = host
    lines.append(
        f"0.00.2 I common_memory_breakdown_print: |   - Host  |  {sum(host)} = {weights} + {context} + {compute}     |"
    )
    lines.append("0.00.214.019 I common_fit_params: fitting params to free memory took 0.17 seconds")
    return "\n".join(lines) + "\n"


def program(folder: Path, body: str, name: str = "llama-server") -> Path:
    """An executable Python program `name` in `folder`."""
    path = folder / name
    path.write_text(f"#!{sys.executable} -S\nimport os, sys, time\n{body}\n")
    path.chmod(0o755)
    return path


def talker(folder: Path, text: str, *, status: int = 0, name: str = "llama-server", linger_s: float = 30) -> Path:
    """A program that writes its arguments to `arguments`, prints `text`, and goes on like a server for `linger_s`."""
    arguments = folder / "arguments"
    body = f"""
with open({str(arguments)!r}, "a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
sys.stderr.write({text!r})
sys.stderr.flush()
time.sleep({linger_s})
sys.exit({status})
"""
    return program(folder, body, name)


def estimator(folder: Path, gpu: tuple[str, str, int, int], *, more: dict[str, int], log: Path) -> Path:
    """An engine that takes what `advisor estimate` says for its own arguments, plus `more` MiB by "DEVICE component".

    `gpu` is (name, description, total MiB, free MiB). Each set of arguments goes to `log`, one a line.
    """
    name, what, total, free = gpu
    root = Path(__file__).resolve().parents[2]
    body = f"""
import json, subprocess
sys.path.insert(0, {str(root)!r})
words = sys.argv[1:]
open({str(log)!r}, "a").write(" ".join(words) + "\\n")
command = [{sys.executable!r}, "-m", "advisor", "estimate", "--json", "--gpu", "cuda:{total}MiB@{free}MiB", "--"]
done = subprocess.run(command + ["llama-server", *words], capture_output=True, cwd={str(root)!r})
document = json.loads(done.stdout)
more = {more!r}
def mib(place, name):
    value = {{"weights": place["weights_bytes"], "cache": place["cache_bytes"], "compute": place["compute_bytes"]}}
    return [(value[part] >> 20) + more.get(name + " " + part, 0) for part in value]
gpu = mib(document["devices"][0], {name!r})
host = mib(document["host"], "host")
print("common_param:   - {name} : {what} ({total} MiB, {free} MiB free)")
print("build: 11434 (7e4c0a9) with GNU")
print("x: | memory breakdown [MiB] | total free self model context compute unaccounted |")
print("x: |   - {name} ({what}) | {total} = {free} + (%d = %d + %d + %d) + 0 |" % (sum(gpu), *gpu))
print("x: |   - Host | %d = %d + %d + %d |" % (sum(host), *host))
print("x: fitting params to free memory took 0.17 seconds", flush=True)
time.sleep(30)
"""
    return program(folder, body)
