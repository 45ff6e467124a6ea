"""`python -m tests.tools.daemon_child MODELS PRESET`: the real daemon with a worker that needs nothing.

It keeps PRESET, a file with the names of the GGUF files in MODELS and the text of MODELS/config.toml, and does as it is
told by files in MODELS: `hang` hangs once for ever, `slow` makes passes of a minute, `hog` imports what a real worker
imports.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from advisor.daemon.start import run
from advisor.errors import RuleError
from advisor.watch.worker import Change, Summary, Watched

IMPORTS = (
    "advisor.planner", "advisor.app", "advisor.recommend.recommend", "advisor.hardware.probe", "advisor.stores.files",
    "advisor.outputs.preset_ini", "psutil", "platformdirs", "ruamel.yaml", "tomlkit", "sqlite3", "subprocess",
    "urllib.request",
)  # fmt: skip


class NamesWorker:
    """Writes names."""

    def __init__(self, models: Path, preset: Path) -> None:
        self.models, self.preset, self.text, self.reloads = models, preset, "", 0
        self.left: str | None = None

    def refresh(self, reason: str, changed: frozenset[str] | None, should_stop: Callable[[], bool]) -> Summary:
        """Write the preset."""
        if (self.models / "hog").exists():
            for name in IMPORTS:
                importlib.import_module(name)
        if (self.models / "hang").exists():
            (self.models / "hang").unlink()
            time.sleep(3600)
        if (self.models / "slow").exists():
            for _ in range(1200):
                if should_stop():
                    break
                time.sleep(0.05)
        names = sorted(path.name for path in self.models.glob("*.gguf"))
        before = self.preset.read_text() if self.preset.exists() else None
        after = "".join(f"{name}\n" for name in [self.text, *names] if name)
        self.left = sha256(after.encode()).hexdigest()
        if after == before:
            return Summary(f"{len(names)} models")
        part = self.preset.with_name(f".advisor-{self.preset.name}")
        part.write_text(after)
        os.replace(part, self.preset)
        return Summary(f"{len(names)} models", (Change(f"{self.preset}: {(before or '').split()} -> {after.split()}"),))

    def reload(self) -> None:
        """Read the configuration; how often, stands in MODELS/.reloads."""
        self.reloads += 1
        (self.models / ".reloads").write_text(str(self.reloads))
        config = self.models / "config.toml"
        text = config.read_text().strip() if config.exists() else ""
        if "broken" in text:
            raise RuleError(f"{config}: broken; repair it.")
        self.text = text

    def watched(self) -> Watched:
        """The folder and the configuration."""
        return Watched((str(self.models),), (str(self.models / "config.toml"),), own={str(self.preset): self.left})


if __name__ == "__main__":
    sys.exit(run(lambda: NamesWorker(Path(sys.argv[1]), Path(sys.argv[2])), once="--once" in sys.argv))
