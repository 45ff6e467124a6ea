"""`advisor service` with a stand-in for systemctl; the real one is in tests/service. macOS: the content only."""

from __future__ import annotations

import json
import os
import plistlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.cli import service_files
from advisor.cli.service_files import Program, exec_line, launchd_files, seal, state_of, this_program
from advisor.errors import OutputError

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = ROOT / "systemd"


class Machine:
    """A home, and a systemctl that answers as it is told and writes down what it is asked."""

    def __init__(self, home, tmp_path):
        self.units = home / ".config/systemd/user"
        self.unit, self.strict = self.units / "advisor.service", self.units / "advisor.service.d/strict.conf"
        self.calls, self.bin = tmp_path / "calls", tmp_path / "bin"
        self.bin.mkdir()
        self.answer()

    def answer(self, status=0, text="", fails=""):
        script = self.bin / "systemctl"
        script.write_text(
            f'#!/bin/sh\necho "$*" >> {self.calls}\ncase "$*" in *"{fails or "nothing fails"}"*) echo "Job failed."; '
            f"exit 1;; esac\ncat <<'EOF'\n{text}\nEOF\nexit {status}\n"
        )
        script.chmod(0o755)

    def advisor(self, *arguments, status=0):
        ran = subprocess.run(
            [sys.executable, "-m", "advisor", "service", *arguments], cwd=ROOT, capture_output=True, text=True,
            env={**os.environ, "PATH": f"{self.bin}:/usr/bin:/bin"}, timeout=60,
        )  # fmt: skip
        assert ran.returncode == status, ran.stdout + ran.stderr
        assert "Traceback" not in ran.stderr
        return ran.stdout + ran.stderr

    def asked(self):
        calls = self.calls.read_text().splitlines() if self.calls.exists() else []
        self.calls.unlink(missing_ok=True)
        return [call.removeprefix("--user ") for call in calls if "show" not in call]


@pytest.fixture
def machine(home, tmp_path):
    return Machine(home, tmp_path)


def test_install_twice_strict_and_back_and_uninstall(machine):
    said = machine.advisor("install")
    assert f"wrote {machine.unit}" in said
    assert "loginctl enable-linger" in said
    assert machine.asked() == ["daemon-reload", "enable advisor.service", "restart advisor.service"]
    text = machine.unit.read_text()
    assert f"ExecStart={sys.executable} -m advisor daemon\nWorkingDirectory={ROOT}\n" in text
    shipped = (SHIPPED / "advisor.service").read_text()
    assert len(text.splitlines()) == len(shipped.splitlines()) + 2  # the working folder and whose it is
    assert machine.unit.stat().st_mode & 0o777 == 0o644

    assert f"unchanged: {machine.unit}" in machine.advisor("install")
    machine.advisor("install", "--strict")
    assert machine.strict.read_text().startswith((SHIPPED / "advisor-strict.conf").read_text())
    assert f"removed {machine.strict}" in machine.advisor("install")
    assert not machine.strict.parent.exists()
    machine.advisor("install", "--strict")
    machine.asked()
    said = machine.advisor("uninstall")
    assert machine.asked() == ["disable --now advisor.service", "daemon-reload"]
    assert said.count("removed ") == 2
    assert list(machine.units.iterdir()) == []
    assert "Nothing to remove" in machine.advisor("uninstall")
    assert machine.asked() == []


def test_print_writes_nothing(machine):
    said = machine.advisor("install", "--print", "--strict")
    assert "Type=notify" in said
    assert "PrivateUsers=yes" in said
    assert not machine.units.exists()
    assert machine.asked() == []


@pytest.mark.parametrize("kind", ["foreign", "masked", "folder"])
def test_what_advisor_did_not_write_is_left_alone(machine, kind):
    machine.units.mkdir(parents=True)
    if kind == "foreign":
        machine.unit.write_text("[Service]\nExecStart=/bin/true\n")
    elif kind == "masked":
        machine.unit.symlink_to("/dev/null")
    else:
        machine.unit.mkdir()
    said = machine.advisor("install", status=1)
    assert str(machine.unit) in said
    assert machine.asked() == []
    if kind == "foreign":
        assert machine.unit.read_text() == "[Service]\nExecStart=/bin/true\n"
        assert "Nothing to remove" in machine.advisor("uninstall")
        assert machine.unit.exists()


@pytest.mark.parametrize("edit", [lambda text: text + "# mine\n", lambda text: text.replace("Nice=10", "Nice=5")])
def test_what_somebody_changed_is_kept(machine, edit):
    machine.advisor("install")
    machine.unit.write_text(edit(machine.unit.read_text()))
    changed = machine.unit.read_text()
    assert "changed by hand" in machine.advisor("install", status=1)
    machine.asked()
    assert f"kept {machine.unit}" in machine.advisor("uninstall")
    assert machine.asked() == ["disable --now advisor.service", "daemon-reload"]
    assert machine.unit.read_text() == changed


def test_somebodys_own_unit_beside_our_drop_in_is_not_stopped(machine):
    machine.advisor("install", "--strict")
    machine.unit.write_text("[Service]\nExecStart=/bin/true\n")
    machine.asked()
    machine.advisor("uninstall")
    assert machine.asked() == ["daemon-reload"]
    assert machine.unit.exists()
    assert not machine.strict.exists()


def test_without_a_manager_the_commands_are_printed(machine):
    machine.answer(status=1, text="Failed to connect to bus: No medium found")
    said = machine.advisor("install")
    for line in ("daemon-reload", "enable advisor.service", "restart advisor.service"):
        assert f"\n  systemctl --user {line}\n" in said
    assert machine.unit.exists()
    wants = machine.units / "default.target.wants/advisor.service"
    wants.parent.mkdir()
    wants.symlink_to(machine.unit)
    said = machine.advisor("uninstall")
    assert "systemctl --user disable --now advisor.service" in said
    assert not machine.unit.exists()
    assert not wants.is_symlink()
    assert machine.asked() == []
    said = machine.advisor("status", status=3)
    assert "No systemd user manager answers" in said


def test_a_service_that_does_not_start_is_one_sentence(machine):
    machine.answer(fails="restart")
    said = machine.advisor("install", status=1)
    assert "systemctl --user restart advisor.service failed (Job failed.)" in said


def test_status(machine):
    machine.answer(
        text="ActiveState=active\nSubState=running\nUnitFileState=enabled\nStatusText=watching 3 folders, 41 models\n"
        f"MainPID=4711\nFragmentPath={machine.unit}"
    )
    machine.advisor("install")
    assert json.loads(machine.advisor("status", "--json")) == {
        "schema": "advisor.service/1", "manager": "systemd", "active": True, "enabled": True, "pid": 4711,
        "state": "active (running)", "status_text": "watching 3 folders, 41 models", "unit": str(machine.unit),
        "files": [{"path": str(machine.unit), "state": "ours"}, {"path": str(machine.strict), "state": "absent"}],
    }  # fmt: skip
    said = machine.advisor("status")
    assert "active (running), enabled, process 4711\nwatching 3 folders, 41 models" in said
    machine.answer(text="ActiveState=inactive\nSubState=dead\nUnitFileState=disabled\nMainPID=0\nFragmentPath=/usr/x")
    said = machine.advisor("status", status=3)
    assert "inactive (dead), not enabled\nanother unit is in force: /usr/x" in said


def test_a_read_only_folder_is_one_sentence(machine):
    machine.units.parent.mkdir(parents=True)
    machine.units.write_text("a file where the folder should be")
    assert "cannot be" in machine.advisor("install", status=1)


# ---------------------------------------------------------------- the program


def test_the_script_that_runs_is_the_one_that_is_started(tmp_path):
    script = tmp_path / "bin/advisor"
    script.parent.mkdir()
    script.touch()
    module = Program(("/py/bin/python", "-m", "advisor", "daemon"), "/")
    assert this_program(str(script), "/py/bin/python", "/site/advisor") == module  # not executable
    script.chmod(0o755)
    assert this_program(str(script), "/py/bin/python", "/site/advisor") == Program((str(script), "daemon"), None)
    assert this_program("/site/advisor/__main__.py", "/py/bin/python", "/site/advisor") == module
    checkout = this_program("x/__main__.py", "/usr/bin/python3", str(ROOT / "advisor"))
    assert checkout == Program(("/usr/bin/python3", "-m", "advisor", "daemon"), str(ROOT))


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (("/usr/bin/advisor", "daemon"), "/usr/bin/advisor daemon"),
        (("/my apps/advisor", "daemon"), '"/my apps/advisor" daemon'),
        (("/100%/$x", "100%", "$x"), '"/100%%/$x" "100%%" "$$x"'),
        (("/a", 'b"c\\d', "'"), '/a "b\\"c\\\\d" "\'"'),
        (("/a'b$", "daemon"), '/usr/bin/env "/a\'b$$" daemon'),
        (("/é", "a\nb\udcff"), '"/é" "a\\x0ab\\xff"'),
    ],
)
def test_words_are_quoted_as_systemd_reads_them(command, line):
    assert exec_line(command) == line


def test_the_launch_agent():
    (file,) = launchd_files("/Users/me", Program(("/opt/homebrew/bin/advisor", "daemon"), None))
    assert file.path == f"/Users/me/Library/LaunchAgents/{service_files.LABEL}.plist"
    assert plistlib.loads(file.content) == {
        "Label": service_files.LABEL,
        "ProgramArguments": ["/opt/homebrew/bin/advisor", "daemon"],
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ProcessType": "Background",
        "LowPriorityIO": True,
        "Umask": 63,
        "StandardErrorPath": "/Users/me/Library/Logs/advisor.log",
    }


@pytest.mark.parametrize("marks", [("# ", ""), ("<!-- ", " -->")])
def test_whose_a_file_is(tmp_path, marks):
    path = tmp_path / "file"
    assert state_of(str(path)) == "absent"
    path.write_bytes(seal("a\nb\n", *marks))
    assert state_of(str(path)) == "ours"
    for other in (b"c" + path.read_bytes(), path.read_bytes() + b"c", path.read_bytes().replace(b"a\nb", b"a\nx")):
        path.write_bytes(other)
        assert state_of(str(path)) == "edited"
        path.write_bytes(seal("a\nb\n", *marks))
    path.write_text("a\nb\n")
    assert state_of(str(path)) == "foreign"
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match="cannot be read"):
        state_of(str(tmp_path / "folder"))


# ---------------------------------------------------------------- the shipped files


@pytest.mark.parametrize("name", ["advisor.service", "advisor-strict.conf"])
def test_every_line_has_its_reason(name):
    reason = False
    for line in (SHIPPED / name).read_text().splitlines():
        if line.startswith("#"):
            reason = True
        elif not line or line.startswith("["):
            reason = reason and line.startswith("[")
        else:
            assert reason, f"{line} has no comment above it"
    never = r"^(Private(Devices|Network)|Protect(KernelTunables|ControlGroups))="
    assert re.search(never, (SHIPPED / name).read_text(), re.MULTILINE) is None


def test_the_default_unit_keeps_its_eyes():
    text = (SHIPPED / "advisor.service").read_text()
    settings = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    assert settings["Type"] == "notify"  # notify-reload is unknown to systemd 252
    assert not {name for name in settings if name.startswith(("Private", "Protect", "ReadWrite", "StateDirectory"))}
    assert "MemoryDenyWriteExecute" not in settings
    assert settings["NotifyAccess"] == "main"
    assert settings["ExecReload"] == "/bin/kill -HUP $MAINPID"
