"""A user's home with the real daemon in it, for months in minutes: what the storm and the kills have in common."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from advisor.keeper.changes import formats
from advisor.keeper.keeper import ledger_folder
from advisor.managed.atomic import digest
from advisor.managed.ledger import open_ledger
from advisor.outputs.llama_server_preset import OUTPUT as PRESET
from advisor.outputs.registry import load
from tests.tools.kept import configure, write_config
from tests.tools.real_daemon import RealDaemon, environ_of
from tests.tools.tiny_models import tiny_model, write

KOBOLD = load("koboldcpp")
TARGETS = '[target.kobold]\nformat = "koboldcpp"\npath = "~/kobold"\nenabled = true\n'
THOUGHT = "; a thought\n[mine]\nmodel = /x.gguf\nc = 5\n"
CONTEXTS = (512, 1024)


class Home:
    """Models, two targets, a configuration and a rule file that change, and the daemon."""

    def __init__(self, folder: Path) -> None:
        self.home, self.models = folder, folder / "models"
        self.preset, self.kobold = folder / ".config/llama-server/models.ini", folder / "kobold"
        self.environ = environ_of(folder)
        self.daemon = RealDaemon(self.environ, folder / "log")
        self.models.mkdir()
        self.preset.parent.mkdir(parents=True)

    def configure(self, n_ctx: int) -> None:
        """Wish for a context, and leave a rule that changes nothing but is new."""
        wish = f'[[model]]\nmatch = "*"\npins = {{ ctx-size = {n_ctx} }}\n'
        write_config(configure([self.models], self.preset, more=TARGETS + wish), self.home)
        rule = self.home / ".config/advisor/rules/policy.toml"
        rule.parent.mkdir(parents=True, exist_ok=True)
        part = rule.with_suffix(".part")
        part.write_text(f'schema_version = 1\nnote = "wished for {n_ctx}"\n')
        part.replace(rule)

    def model(self, name: str, whole: bool = True) -> Path:
        """Put a model there."""
        data = tiny_model(name)
        return write(self.models / f"{name}.gguf", data if whole else data[: len(data) // 2])

    def contexts(self) -> dict[str, str]:
        """What the preset says, ours only; it must be whole."""
        if not self.preset.exists():
            return {}
        slots = PRESET.parse(self.preset.read_text())
        return {slot[0]: value for slot, value in slots.items() if slot[1] == "ctx-size" and slot[0] != "mine"}

    def kobolds(self) -> dict[str, str]:
        """What KoboldCpp's files say, each of which must be whole."""
        found = {}
        for path in self.kobold.glob("*.kcpps"):
            try:
                found[path.stem] = str(KOBOLD.parse(path.read_text())["contextsize",])
            except FileNotFoundError:  # taken away since it was listed
                continue
        return found

    def holds(self, names: list[str], n_ctx: int) -> bool:
        """Whether both targets have these models with this context, and nothing else."""
        expected = dict.fromkeys(names, str(n_ctx))
        return self.contexts() == self.kobolds() == expected

    def leftovers(self) -> list[str]:
        """Temporary files beside the configs."""
        return [str(path) for place in (self.preset.parent, self.kobold) for path in place.glob(".advisor-*")]

    def ledger_troubles(self) -> list[str]:
        """What the ledger has to say about itself and the files; the daemon must rest or be gone."""
        with open_ledger(ledger_folder(self.environ)) as ledger:
            assert ledger.files
            troubles = list(ledger.notes)
            for path, record in ledger.files.items():
                data = Path(path).read_bytes() if os.path.exists(path) else None
                if digest(data) != record.sha256:
                    troubles.append(f"{path} is not as the ledger knows it")
            assert {record.format for record in ledger.files.values()} <= set(formats())
        return troubles


@contextmanager
def a_home() -> Iterator[Home]:
    """A new one; the daemon is gone afterwards, and so is the folder."""
    folder = Path(tempfile.mkdtemp(prefix="advisor-home-"))
    home = Home(folder)
    try:
        yield home
    finally:
        home.daemon.kill()
        shutil.rmtree(folder, ignore_errors=True)
