"""A user edits a config while the daemon runs: it is seen within seconds, said once, and leads to nothing more."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.daemon.journal import Journal
from advisor.daemon.loop import Daemon
from advisor.daemon.notify import Notifier
from advisor.watch.events import Watcher
from tests.tools.tiny_models import tiny_model
from tests.unit.keeper.conftest import ROUTER, World, worker

KOBOLD = 'format = "koboldcpp"\npath = "~/kobold"'


class Running:
    """A daemon with its real worker and watcher; the clock is set by hand."""

    def __init__(self, folder: Path) -> None:
        self.lines: list[str] = []
        self.passes: list[str] = []
        self.now = 1000.0
        self.worker, self.watcher = worker(), Watcher()
        real = self.worker.refresh

        def counted(reason: str, *rest: object) -> object:
            self.passes.append(reason)
            return real(reason, *rest)  # type: ignore[arg-type]

        self.worker.refresh = counted  # type: ignore[assignment,method-assign]
        journal = Journal({})
        journal.log = lambda _, text: self.lines.append(text)  # type: ignore[method-assign]
        self.daemon = Daemon(
            self.worker, self.watcher, Notifier({}), journal, str(folder), clock=lambda: self.now, rescan_s=10_000
        )
        self.daemon.begin()

    def run(self, seconds: float = 4.0) -> list[str]:
        """The reasons of the passes that are made in the next seconds."""
        end = self.now + seconds
        while self.now < end:
            self.daemon.turn()
            self.now += 0.1
        made, self.passes[:] = list(self.passes), []
        return made


@pytest.fixture
def running(world: World, tmp_path: Path):  # type: ignore[no-untyped-def]
    world.add("m.gguf")
    world.configure(ROUTER, KOBOLD)
    started = Running(tmp_path / "run")
    assert started.run() == ["start"], "what is written leads to no further pass"
    yield started
    started.watcher.close()


def test_an_edited_value_is_reported_as_pinned_by_one_pass(world: World, running: Running) -> None:
    text = world.preset.read_text().replace("ctx-size = 4096", "ctx-size = 512")
    del running.lines[:]
    world.preset.write_text(text)
    assert running.run(2.0) == ["files"]
    assert running.run(60) == []
    assert world.preset.read_text() == text
    assert running.lines == [f"{world.preset}: m.ctx-size stays 512, advisor would write 4096."]
    world.preset.write_text(text + "; a thought\n")
    assert running.run() == ["files"]
    assert len(running.lines) == 1


def test_a_file_that_was_removed_comes_back_and_one_of_many_is_enough(world: World, running: Running) -> None:
    kept = world.home / "kobold/m.kcpps"
    before = kept.read_text()
    kept.unlink()
    assert running.run(2.0) == ["files"]
    assert kept.read_text() == before
    assert running.run(60) == []
    kept.write_text(before.replace('"batchsize"', '"mine": 1, "batchsize"'))
    assert running.run(2.0) == ["files"]
    assert running.run(60) == []


def test_new_models_and_undo_lead_to_one_pass_each(world: World, running: Running) -> None:
    world.add("n.gguf", tiny_model("n"))
    assert running.run() == ["files"]
    assert running.run(60) == []
    (world.models / "n.gguf").unlink()
    assert running.run() == ["files"]
    assert running.run(60) == []
    world.run("undo")
    assert running.run() == ["files"]
    assert running.run(60) == []
