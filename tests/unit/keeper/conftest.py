"""A user's machine: a home with models, a configuration, a card of 8 GiB that is always the same."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.app import App
from advisor.cli.main import main
from advisor.host import HostSnapshot
from advisor.keeper import make_worker
from advisor.keeper.worker import KeeperWorker
from advisor.outputs import registry
from advisor.slots import Slot, Value
from advisor.watch.worker import FILES, START, Summary
from tests.tools.machines import machine
from tests.tools.stand_in import StandIn, stand_in
from tests.tools.tiny_models import tiny_model, write

ROUTER = 'format = "llama-server-preset"\npath = "~/presets/models.ini"'


class World:
    """What a test does to the machine, and what advisor then says."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home, self.models, self._capsys = home, home / "models", capsys
        self.preset = home / "presets/models.ini"
        self.host: HostSnapshot = machine(8, ram_gib=16)
        self.n_probes = 0
        self.models.mkdir()
        self.preset.parent.mkdir()

    def add(self, name: str, data: bytes | None = None) -> Path:
        """A model below the folder of models."""
        return write(self.models / name, tiny_model(ascii(name)) if data is None else data)

    def configure(self, *targets: str, more: str = "", **named: str) -> None:
        """Targets (TOML; t0, t1, ... or as named), all enabled unless they say otherwise."""
        parts = [f'folders = ["{self.models}"]', more]
        for name, text in {**{f"t{n}": text for n, text in enumerate(targets)}, **named}.items():
            enabled = "" if "enabled =" in text else "enabled = true"
            parts += [f"[target.{name}]", text, enabled]
        write(self.home / ".config/advisor/config.toml", "\n".join(parts).encode())

    def run(self, *words: str | os.PathLike[str]) -> tuple[int, str, str]:
        """An advisor command: exit status, stdout, stderr."""
        self._capsys.readouterr()
        status = main([os.fspath(word) for word in words])
        out, err = self._capsys.readouterr()
        assert "bug in advisor" not in err
        return status, out, err

    def apply(self, *words: str) -> str:
        """`advisor apply` that must go well; what it says."""
        status, out, err = self.run("apply", *words)
        assert status == 0, err
        return out + err

    def json(self, *words: str) -> dict[str, Any]:
        """The document of a command."""
        status, out, err = self.run(*words, "--json")
        assert status in (0, 1), err
        document: dict[str, Any] = json.loads(out)
        return document

    def give_to_nobody(self) -> None:
        """Everything belongs to the user that `as_nobody` becomes."""
        for folder in self.home.parents:
            if len(folder.parts) > 2:
                folder.chmod(folder.stat().st_mode | 0o711)
        for place, _, names in os.walk(self.home):
            for name in (place, *(os.path.join(place, each) for each in names)):
                os.chown(name, 65534, 65534)

    def slots(self, path: Path | None = None, fmt: str = "llama-server-preset") -> dict[Slot, Value]:
        """What stands in a config file."""
        return dict(registry.load(fmt).parse((path or self.preset).read_text()))

    def sections(self) -> dict[str, dict[str, str]]:
        """The models of the preset, each with its keys."""
        found: dict[str, dict[str, str]] = {}
        for (section, key), value in self.slots().items():  # type: ignore[misc]
            if section != "default":
                found.setdefault(section, {})[key] = str(value)
        return found


@pytest.fixture
def world(home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr("advisor.stores.ollama_service._FOLDERS", ())
    monkeypatch.setattr("advisor.stores.ollama._SYSTEM_STORE", "/no/system/store")
    made = World(home, capsys)

    def probed(self: App, **_: object) -> HostSnapshot:
        made.n_probes += 1
        return made.host

    monkeypatch.setattr(App, "host", probed)
    return made


@pytest.fixture
def server() -> Iterator[StandIn]:
    with stand_in() as running:
        yield running


def worker() -> KeeperWorker:
    """The daemon's worker for this user."""
    made = make_worker()
    assert isinstance(made, KeeperWorker)
    return made


def go(daemon: KeeperWorker, reason: str = START) -> Summary:
    """One pass."""
    return daemon.refresh(reason, frozenset() if reason == FILES else None, lambda: False)
