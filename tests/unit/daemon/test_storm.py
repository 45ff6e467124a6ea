"""A storm of model files while the real daemon runs, another program's doing: right configs, nothing that piles up."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

from advisor.outputs.llama_server_preset import OUTPUT as PRESET
from advisor.outputs.registry import load
from tests.tools.kept import ROOT, configure, write_config
from tests.tools.real_daemon import RealDaemon, environ_of, memory_kib, n_descriptors, n_threads
from tests.tools.tiny_models import tiny_model, write
from tests.tools.user_manager import wait_for

LONG = os.environ.get("ADVISOR_LONG", "") not in ("", "0")  # read at start: the tests' environment is a clean one
N_STORMS, N_STEPS, SECONDS = (20, 1000, 15) if LONG else (2, 500, 6)
PATIENCE_S = 120  # a loaded machine
MORE = '[target.kobold]\nformat = "koboldcpp"\npath = "~/kobold"\nenabled = true\n'
KOBOLD = load("koboldcpp")


def storm(models: Path, seed: int) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.tools.storm", models, str(N_STEPS), str(seed), str(SECONDS)]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_it_ends_with_the_right_configs_and_as_small_as_before(home: Path, tmp_path: Path) -> None:
    models, preset, kobold = home / "models", home / ".config/llama-server/models.ini", home / "kobold"
    write(models / "calm.gguf", tiny_model("calm"))
    wish = '[[model]]\nmatch = "*"\npins = {{ ctx-size = {} }}\n'
    write_config(configure([models], preset, more=MORE + wish.format(512)), home)

    def holds(expected: dict[str, str]) -> bool:
        """Whether both targets have these models with these contexts, and no others."""
        slots = PRESET.parse(preset.read_text())
        in_preset = {slot[0]: value for slot, value in slots.items() if slot[1] == "ctx-size"}
        try:
            texts = {path.stem: path.read_text() for path in kobold.glob("*.kcpps")}
        except FileNotFoundError:  # removed meanwhile
            return False
        in_kobold = {name: str(KOBOLD.parse(text)["contextsize",]) for name, text in texts.items()}
        return in_preset == in_kobold == expected

    daemon = RealDaemon(environ_of(home), tmp_path / "log").start()
    sizes = []
    try:
        for seed in range(N_STORMS):
            running = storm(models, seed)
            n_ctx = 512 if seed % 2 else 1024
            write_config(configure([models], preset, more=MORE + wish.format(n_ctx)), home)
            written, _ = running.communicate(timeout=120)
            assert running.returncode == 0
            expected = dict.fromkeys(["calm", *json.loads(written)], str(n_ctx))
            wait_for(partial(holds, expected), "the configs", PATIENCE_S)
            wait_for(daemon.idle, "rest", PATIENCE_S)
            if seed < N_STORMS - 1:  # all that it left goes
                for path in [path for path in models.iterdir() if path.name != "calm.gguf"]:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                wait_for(partial(holds, {"calm": str(n_ctx)}), "the calm", PATIENCE_S)
                wait_for(daemon.idle, "rest", PATIENCE_S)
            sizes.append((n_descriptors(daemon.pid), n_threads(daemon.pid), memory_kib(daemon.pid, "VmRSS")))
        status = daemon.status()
        assert (status["failures"], status["pinned"], status["unexpected_errors"]) == ([], [], 0)
        text = preset.read_text()
        assert daemon.stop() < 1
    finally:
        daemon.kill()
    print(f"{len(expected)} models are left; (descriptors, threads, KiB) after each storm: {sizes}")
    assert len(expected) > 30
    assert {size[:2] for size in sizes} == {sizes[0][:2]}
    # the ledger keeps the last changes of each file; once that many were made, nothing grows any more
    early, late = (max(size[2] for size in some) for some in (sizes[: -(-N_STORMS // 2)], sizes[N_STORMS // 2 :]))
    assert late <= early * 1.15

    # one that starts anew has nothing to change
    daemon.start()
    try:
        assert daemon.status()["last_changes"] == []
        assert preset.read_text() == text
    finally:
        daemon.kill()
