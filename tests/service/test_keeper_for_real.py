"""The shipped unit with the real worker, unchanged, under a real `systemd --user` manager."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from advisor.outputs.llama_server_preset import OUTPUT
from tests.tools.kept import ROOT, configure, write_config
from tests.tools.real_daemon import cpu_ticks, memory_kib
from tests.tools.tiny_models import tiny_model, write
from tests.tools.user_manager import UserManager, start_user_manager, wait_for

UNIT = "advisor.service"
IDLE_S = 20
LIMIT_S = 3.0  # from a model's last byte to its place in the config


class Desk:
    """A user who has installed the service."""

    def __init__(self, manager: UserManager) -> None:
        self.manager = manager
        self.models, self.preset = manager.home / "models", manager.home / ".config/llama-server/models.ini"

    def configure(self, pins: str, more: str = "") -> None:
        wishes = f'[[model]]\nmatch = "*"\npins = {{ {pins} }}\n'
        write_config(configure([self.models], self.preset, more=wishes + more), self.manager.home)

    def advisor(self, *words: str, status: int = 0) -> str:
        ran = self.manager.run(sys.executable, "-m", "advisor", *words, cwd=ROOT)
        assert ran.returncode == status, ran.stdout + ran.stderr
        return ran.stdout

    def status(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.advisor("status", "--json"))
        return document

    def contexts(self) -> dict[str, str]:
        """n_ctx by model, as the preset has it."""
        if not self.preset.exists():
            return {}
        return {
            slot[0]: value for slot, value in OUTPUT.parse(self.preset.read_text()).items() if slot[1] == "ctx-size"
        }

    def copy(self, name: str) -> float:
        """Seconds from the last byte of a model that is copied in until it stands in the preset; never before."""
        data = tiny_model(name, n_layer=8)
        with open(self.models / f"{name}.gguf", "wb") as file:
            for part in range(20):
                file.write(data[part * len(data) // 20 : (part + 1) * len(data) // 20])
                file.flush()
                time.sleep(0.1)
                assert name not in self.contexts()
        began = time.monotonic()
        wait_for(lambda: name in self.contexts(), f"{name} in the preset")
        return time.monotonic() - began


@pytest.fixture
def desk():
    with start_user_manager() as manager:
        desk = Desk(manager)
        write(desk.models / "first.gguf", tiny_model("first"))
        desk.configure("ctx-size = 1024")
        yield desk
        manager.run("systemctl", "--user", "disable", "--now", UNIT)


def test_a_day(desk: Desk) -> None:
    manager = desk.manager
    desk.advisor("service", "install")
    assert manager.show(UNIT, "ActiveState", "Type", "UnitFileState") == ["active", "notify", "enabled"]
    wait_for(lambda: desk.contexts() == {"first": "1024"}, "the first pass")
    (pid,) = map(int, manager.show(UNIT, "MainPID"))

    assert desk.copy("second") < LIMIT_S
    assert desk.contexts() == {"first": "1024", "second": "1024"}
    wait_for(lambda: desk.status()["state"] == "idle", "the end of the pass")
    status = desk.status()
    assert (status["running"], status["pid"], status["unexpected_errors"]) == (True, pid, 0)
    assert (status["pending"], status["pinned"], status["failures"]) == ([], [], [])
    assert {"path": str(desk.models), "how": "events"} in status["watching"]
    assert "2 models, 1 of 1 targets enabled" in status["status_text"]
    assert manager.show(UNIT, "StatusText") == [status["status_text"]]
    texts = [said["text"] for said in status["last_changes"]]
    assert any(text.startswith(f"{desk.preset}: added second: ") for text in texts), texts

    before = cpu_ticks(pid)
    time.sleep(IDLE_S)
    ticks = cpu_ticks(pid) - before
    print(f"idle for {IDLE_S} s: {ticks} ticks; VmHWM {memory_kib(pid, 'VmHWM')} KiB")
    assert ticks <= 2  # of 10 ms; the loop's own timers are minutes apart
    assert memory_kib(pid, "VmHWM") <= 45 * 1024

    began = time.monotonic()
    (desk.models / "second.gguf").unlink()
    wait_for(lambda: desk.contexts() == {"first": "1024"}, "the model to go")
    assert time.monotonic() - began < LIMIT_S

    # the user's own value stays and is told
    desk.preset.write_text(desk.preset.read_text().replace("ctx-size = 1024", "ctx-size = 1280 ; mine"))
    # from now on a change of a file, the configuration too, is noticed after ten minutes only: SIGHUP is what does it
    desk.configure("ctx-size = 2048", "[daemon]\ndebounce_s = 600\n")
    manager.systemctl("reload", UNIT)
    wait_for(lambda: manager.show(UNIT, "ActiveState") == ["active"], "READY after the reload")
    wait_for(lambda: desk.status()["pinned"], "the pin")
    assert desk.status()["pinned"] == [f"{desk.preset}: first.ctx-size stays 1280, advisor would write 2048."]
    assert desk.contexts() == {"first": "1280"}
    desk.preset.write_text(desk.preset.read_text().replace("ctx-size = 1280 ; mine", "ctx-size = 2048"))
    desk.configure("ctx-size = 3072", "[daemon]\ndebounce_s = 600\n")
    manager.systemctl("reload", UNIT)
    wait_for(lambda: desk.contexts() == {"first": "3072"}, "the second reload")
    wait_for(lambda: desk.status()["pinned"] == [], "the pin to go")

    # a broken one is said, and what was in force stays
    write_config("folders = 5\n", manager.home)
    manager.systemctl("reload", UNIT)
    wait_for(lambda: any("config.toml" in text for text in desk.status()["failures"]), "the complaint")
    assert desk.contexts() == {"first": "3072"}
    assert manager.show(UNIT, "MainPID", "NRestarts") == [str(pid), "0"]

    began = time.monotonic()
    manager.systemctl("stop", UNIT)
    assert time.monotonic() - began < 1
    assert manager.show(UNIT, "ActiveState", "Result", "ExecMainStatus") == ["inactive", "success", "0"]
    desk.advisor("status", status=3)

    desk.advisor("undo", "--all")
    assert not desk.preset.exists()
    desk.advisor("service", "uninstall")
    assert not (manager.units / UNIT).exists()


def test_killed_it_starts_again_where_it_was(desk: Desk) -> None:
    manager = desk.manager
    drop_in = manager.units / f"{UNIT}.d/test.conf"
    drop_in.parent.mkdir(parents=True)
    drop_in.write_text("[Service]\nRestartSec=100ms\n")
    desk.advisor("service", "install")
    wait_for(lambda: desk.contexts() == {"first": "1024"}, "the first pass")
    text = desk.preset.read_text()
    manager.systemctl("kill", "--signal=SIGKILL", UNIT)
    wait_for(lambda: manager.show(UNIT, "NRestarts", "ActiveState") == ["1", "active"], "the restart")
    assert desk.copy("second") < LIMIT_S
    (desk.models / "second.gguf").unlink()
    wait_for(lambda: desk.preset.read_text() == text, "the file as it was")


def test_nothing_is_written_for_a_target_that_is_not_enabled(desk: Desk) -> None:
    path = desk.manager.home / ".config/advisor/config.toml"
    path.write_text(path.read_text().replace("enabled = true", "enabled = false"))
    desk.advisor("service", "install")
    wait_for(lambda: desk.status()["pending"], "the first pass")
    (pending,) = desk.status()["pending"]
    assert pending.startswith(f"{desk.preset}: added first (")
    assert pending.endswith("(target kept is not enabled)")
    assert not desk.preset.exists()
    assert list(Path(desk.manager.home / ".local/state").rglob("backups")) == []
