"""Prints what the daemon costs while nothing happens, and how soon a model that was copied in stands in its config.

usage: python -m tests.bench.daemon [SECONDS]   (of idleness, default 20; small models, 3 configs, no assertions)
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.tools.kept import configure, write_config
from tests.tools.real_daemon import RealDaemon, cpu_ticks, environ_of, memory_kib, n_descriptors
from tests.tools.tiny_models import tiny_model, write
from tests.tools.user_manager import wait_for

N_COPIES = 5
MORE = """[target.python]
format = "llama-cpp-python"
path = "~/.config/server.json"
enabled = true
[target.swap]
format = "llama-swap"
path = "~/.config/llama-swap/advisor.yaml"
enabled = true
"""


def copy(folder: Path, name: str, preset: Path, daemon: RealDaemon) -> tuple[float, float]:
    """Seconds from a model's last byte until it stands in the preset, and CPU seconds until the daemon rests again."""
    data = tiny_model(name)
    with open(folder / f"{name}.gguf", "wb") as file:
        for at in range(0, len(data), 20_000):
            file.write(data[at : at + 20_000])
            file.flush()
            time.sleep(0.05)
    began, before, last = time.monotonic(), cpu_ticks(daemon.pid), daemon.status()["last_pass"]
    wait_for(lambda: f"[{name}]" in preset.read_text(), name)
    seconds = time.monotonic() - began
    wait_for(lambda: daemon.idle() and daemon.status()["last_pass"] != last, "the end of the pass")
    return seconds, (cpu_ticks(daemon.pid) - before) / 100


def main() -> None:
    """A usual number of models, and very many."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    for n_models in (40, 1000):
        measure(n_models, seconds)


def measure(n_models: int, seconds: float) -> None:
    """One daemon over so many models."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        models, preset = home / "models", home / ".config/llama-server/models.ini"
        for number in range(n_models):
            write(models / f"group{number % 20}" / f"model-{number}.gguf", tiny_model(f"Model {number}"))
        write_config(configure([models], preset, more=MORE), home)
        daemon = RealDaemon(environ_of(home), home / "log")
        began = time.monotonic()
        daemon.start()
        try:
            print(
                f"{n_models} models, 3 configs; first pass after {time.monotonic() - began:.1f} s, "
                f"{cpu_ticks(daemon.pid) / 100:.1f} s CPU"
            )
            time.sleep(2)
            before = cpu_ticks(daemon.pid)
            time.sleep(seconds)
            print(f"  idle for {seconds:.0f} s      {cpu_ticks(daemon.pid) - before} ticks of 10 ms CPU")
            print(f"  resident            {memory_kib(daemon.pid, 'VmRSS') / 1024:.1f} MiB (limit 45)")
            print(f"  most ever           {memory_kib(daemon.pid, 'VmHWM') / 1024:.1f} MiB")
            print(f"  descriptors         {n_descriptors(daemon.pid)}")
            waits, ticks = zip(*(copy(models, f"copied-{n}", preset, daemon) for n in range(N_COPIES)), strict=True)
            print(f"  a copied model      {statistics.median(waits):.2f} s, at most {max(waits):.2f} s (limit 3)")
            print(f"                      {statistics.median(ticks):.2f} s CPU, at most {max(ticks):.2f} s")
            print(f"  resident then       {memory_kib(daemon.pid, 'VmRSS') / 1024:.1f} MiB (limit 45)")
            print(f"  most ever then      {memory_kib(daemon.pid, 'VmHWM') / 1024:.1f} MiB")
            before = cpu_ticks(daemon.pid)
            (models / "nothing.txt").touch()
            time.sleep(4)
            print(f"  a pass for nothing  {(cpu_ticks(daemon.pid) - before) / 100:.2f} s CPU")
            write(models / "last.gguf", tiny_model("Last"))
            wait_for(lambda: daemon.status()["state"] == "working", "a pass to stop in")
            print(f"  stopping in a pass  {daemon.stop():.2f} s (limit 1)")
        finally:
            daemon.kill()
            if daemon.process is None or daemon.process.returncode:
                print(daemon.log.read_text()[-2000:])


if __name__ == "__main__":
    main()
