"""Kill -9 while the keeper writes: 200 times, over configs of several formats, with models and wishes changing.

Two wishes make two versions of every file. Whatever the moment, each file is one of them, whole, with all that the
user wrote into it; and the run after puts ledger and files in order.
"""

from __future__ import annotations

import itertools
import json
import os
import random
from pathlib import Path

import pytest

from advisor.keeper import read_settings
from advisor.keeper.changes import formats
from advisor.keeper.keeper import ledger_folder
from advisor.keeper.settings import KeeperSettings
from advisor.keeper.worker import KeeperWorker
from advisor.managed.atomic import digest
from advisor.managed.ledger import open_ledger
from advisor.managed.undo import uninstall
from advisor.watch.worker import FILES
from tests.tools.kept import NO_STORES, write_config
from tests.tools.tiny_models import tiny_model, write
from tests.unit.managed.dying import dies_after, dies_at

N_KILLS = 200
TARGETS = {
    "llama-server-preset": "preset.ini", "llama-swap": "swap/advisor.yaml", "llama-cpp-python": "server.json",
    "env-file": "env/one.env", "koboldcpp": "kobold", "text-generation-webui": "webui/config-user.yaml",
}  # fmt: skip
WEBUI = (
    "# my own\nmine.gguf$:\n  loader: ExLlamav3  # thought over\n  ctx_size: 7777\n\none.gguf$:\n  instruction: mine\n"
)
WISHES = {
    "a": '[[model]]\nmatch = "*"\npins = { ctx-size = 1024 }\n',
    "b": '[[model]]\nmatch = "*"\npins = { ctx-size = 2048, threads = 3 }\n[[model]]\nmatch = "two*"\nexclude = true\n',
}


class Desk:
    """A user with three models and a target of each of several formats."""

    def __init__(self, home: Path) -> None:
        self.home, self.config = home, home / "configs"
        for name in ("one", "two", "three"):
            write(home / f"models/{name}.gguf", tiny_model(name))
        write(self.config / "webui/config-user.yaml", WEBUI.encode())
        # one for each wish, so that plans are remembered and nearly all of a run is writing
        self.workers = {name: self._worker(self._settings(wishes)) for name, wishes in WISHES.items()}

    @staticmethod
    def _worker(settings: KeeperSettings) -> KeeperWorker:
        return KeeperWorker(lambda: settings, "/nowhere", os.environ)

    def _settings(self, wishes: str) -> KeeperSettings:
        targets = "".join(
            f'[target.{number}]\nformat = "{name}"\npath = "{self.config / path}"\nenabled = true\n'
            + ('models = ["one*"]\n' if name == "env-file" else "")
            for number, (name, path) in enumerate(TARGETS.items())
        )
        write_config(f'folders = ["{self.home / "models"}"]\n{NO_STORES}\n{targets}\n{wishes}', self.home)
        return read_settings(os.environ)

    def make(self, wish: str) -> None:
        """One pass of the daemon."""
        summary = self.workers[wish].refresh(FILES, None, lambda: False)
        assert (summary.failures, summary.pinned) == ((), ())

    def files(self) -> dict[str, bytes]:
        """Every config; nothing else may lie there once a run has come to its end."""
        return {
            str(path.relative_to(self.config)): path.read_bytes() for path in self.config.rglob("*") if path.is_file()
        }

    def consistent(self, files: dict[str, bytes]) -> None:
        """The ledger knows each file as it is, and no other."""
        with open_ledger(ledger_folder(os.environ)) as ledger:
            known = {os.path.relpath(path, self.config): record.sha256 for path, record in ledger.files.items()}
            assert ledger.notes == []
        assert known == {path: digest(data) for path, data in files.items()}


@pytest.fixture
def desk(home: Path) -> Desk:
    desk = Desk(home)
    desk.make("a")
    return desk


def test_killed_200_times_while_writing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no power cuts here, and it is most of the time
    # what a user adds to files that advisor made
    with open(desk.config / "preset.ini", "a") as file:
        file.write("; a thought\n[mine]\nmodel = /x.gguf\nc = 5\n")
    with open(desk.config / "swap/advisor.yaml", "a") as file:
        file.write("# another\nstartPort: 9000\n")
    server = desk.config / "server.json"
    server.write_text(server.read_text().replace('"port": 8000', '"port": 8000,\n  "api_key": "secret"'))

    versions = {}
    for wish in ("b", "a", "b", "a"):
        desk.make(wish)
        files = desk.files()
        assert versions.setdefault(wish, files) == files  # there and back, every byte
        desk.consistent(files)
    assert len(versions["a"]) == 8
    assert versions["a"].keys() - versions["b"].keys() == {"kobold/two.kcpps"}
    assert all(versions["a"][path] != data for path, data in versions["b"].items())
    for version in versions.values():
        assert b"; a thought\n[mine]\nmodel = /x.gguf\nc = 5\n" in version["preset.ini"]
        assert b"# another\nstartPort: 9000\n" in version["swap/advisor.yaml"]
        assert b'"api_key": "secret"' in version["server.json"]
        assert version["webui/config-user.yaml"].startswith(WEBUI.encode().split(b"\n\n")[0])

    def work() -> None:
        for wish in itertools.cycle("ba"):
            desk.make(wish)

    chance, n_torn, n_settled = random.Random(9), 0, 0
    for number in range(N_KILLS):
        # by the clock, and by calls of the system, which a slow machine cannot move out of the writing
        assert dies_after(chance.uniform(0, 0.08), work) if number % 2 else dies_at(chance.randint(1, 200), work)
        found = {path: data for path, data in desk.files().items() if not Path(path).name.startswith(".advisor-")}
        assert found.keys() | {"kobold/two.kcpps"} == versions["a"].keys()
        for path, data in found.items():
            assert data in (versions["a"][path], versions["b"].get(path)), f"kill {number}: {path}"
        n_torn += found not in versions.values()
        with open_ledger(ledger_folder(os.environ)) as ledger:
            n_settled += len(ledger.notes)
            assert all("was cut off and was" in note for note in ledger.notes)
        desk.consistent(found)
        if number % 10 == 9:
            wish = chance.choice("ab")
            desk.make(wish)
            assert desk.files() == versions[wish]
            desk.consistent(versions[wish])
    print(f"{N_KILLS} kills: {n_torn} between two files, {n_settled} within a change of one")
    assert n_torn > 10
    assert n_settled > 0

    # and what the user wrote is left when advisor goes
    with open_ledger(ledger_folder(os.environ)) as ledger:
        assert [each.error for each in uninstall(ledger, formats(), now_s=0) if each.error] == []
    assert desk.files().keys() == {"preset.ini", "swap/advisor.yaml", "server.json", "webui/config-user.yaml"}
    assert (desk.config / "webui/config-user.yaml").read_text() == WEBUI
    assert (desk.config / "preset.ini").read_text().endswith("; a thought\n[mine]\nmodel = /x.gguf\nc = 5\n")
    assert (desk.config / "swap/advisor.yaml").read_text().endswith("# another\nstartPort: 9000\n")
    assert json.loads(server.read_text()) == {"host": "127.0.0.1", "port": 8000, "api_key": "secret", "models": []}
