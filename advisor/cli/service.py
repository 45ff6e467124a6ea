"""`advisor service install|uninstall|status`: the daemon as a systemd user service, a LaunchAgent on macOS."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from advisor.errors import AdvisorError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.cli.service_files import ServiceFile

NOT_ACTIVE = 3  # as systemctl has it
_PATIENCE_S = 60.0
_PROPERTIES = "ActiveState,SubState,UnitFileState,StatusText,MainPID,FragmentPath"


@click.group("service")
def command() -> None:
    """Run the daemon as a service of yours: at every login, restarted when it fails."""


@command.command("install")
@click.option("--strict", is_flag=True, help="shut it in more tightly; see what that costs with --print")
@click.option("--print", "only_print", is_flag=True, help="print the files instead of writing them")
def install(strict: bool, only_print: bool) -> int:
    """Write the service's files, enable it and start it. Files that advisor did not write are left alone."""
    from advisor.cli import service_files as files

    if strict and files.is_mac():
        raise UsageError("--strict is for systemd; launchd has nothing of the kind.")
    wanted = _files(strict)
    if only_print:
        for file in wanted:
            print(f"# {file.path}\n{file.content.decode('utf-8', 'replace')}")
        return 0
    files.check_writable(wanted)
    unwanted = [] if strict or files.is_mac() else [files.strict_path(os.environ)]
    for path in unwanted:
        if files.remove(path) == files.OURS:
            print(f"removed {path}")
    for file in wanted:
        print(f"{'wrote' if files.write(file) else 'unchanged:'} {file.path}")
    if strict:
        _make_own_folders()
    if files.is_mac():
        _run_all([["launchctl", "bootout", _domain()], _bootstrap(wanted)], may_fail=1)
        return 0
    _run_all([_systemctl("daemon-reload"), _systemctl("enable", files.UNIT), _systemctl("restart", files.UNIT)])
    print("It runs while you are logged in; to run it always: loginctl enable-linger")
    print("Its log: journalctl --user -u advisor")
    return 0


@command.command("uninstall")
def uninstall() -> int:
    """Stop and disable the service and remove the files that `install` wrote. Configs stay as they are."""
    from advisor.cli import service_files as files

    paths = [file.path for file in _files(strict=True)]
    states = [files.state_of(path) for path in paths]
    if files.OURS not in states and files.EDITED not in states:
        print("Nothing to remove: advisor has installed no service here.")
        return 0
    mac = files.is_mac()
    if mac or states[0] != files.FOREIGN:  # else only our drop-in lies beside somebody's own unit
        stop = [["launchctl", "bootout", _domain()]] if mac else [_systemctl("disable", "--now", files.UNIT)]
        if not _run_all(stop, may_fail=1) and not mac:
            _unlink_from_target(paths[0])
    for path in paths:
        state = files.remove(path)
        if state == files.OURS:
            print(f"removed {path}")
        elif state == files.EDITED:
            print(f"kept {path}: it was changed by hand; remove it yourself")
    if not mac:
        _run_all([_systemctl("daemon-reload")])
    return 0


@command.command("ollama")
@click.option("--cache-type", default="q8_0", metavar="TYPE", help="of the cache of every model (default: q8_0)")
@click.option(
    "--parallel", default=1, type=click.IntRange(1, 256), metavar="N", help="slots of every model (default: 1)"
)
@click.option(
    "--cache-ram", type=click.IntRange(0, 1 << 24), metavar="MIB", help="limit of llama-server's prompt cache"
)
def ollama(cache_type: str, parallel: int, cache_ram: int | None) -> int:
    """Print a drop-in for Ollama's system service, and the commands that install it.

    The cache type, slots and prompt cache hold for all models and can only be set there; the unit belongs to root.
    """
    from advisor.outputs.ollama import Service
    from advisor.outputs.ollama_service import drop_in_text, install_commands

    file = "advisor-ollama.conf"
    print(drop_in_text(Service(cache_type, parallel, cache_ram)), end="")
    click.echo(f"\nsave it, here as {file}, and install it:\n  " + "\n  ".join(install_commands(file)), err=True)
    return 0


@command.command("status")
@click.option("--json", "as_json", is_flag=True, help="machine-readable output")
def status(as_json: bool) -> int:
    """Say whether the service is installed, enabled and running. Exit status: 0 it runs, 3 it does not."""
    import json

    from advisor.cli import service_files as files

    states = [{"path": file.path, "state": files.state_of(file.path)} for file in _files(strict=True)]
    document: dict[str, Any] = {
        "schema": "advisor.service/1", "manager": None, "files": states, "active": None, "enabled": None, "pid": None,
        "status_text": None,
    }  # fmt: skip
    if files.is_mac():
        ran = _run(["launchctl", "print", _domain()])
        document |= {"manager": "launchd", "active": ran is not None and ran[0] == 0}
    elif _manager_answers():
        shown = _shown()
        document |= {
            "manager": "systemd", "active": shown.get("ActiveState") in ("active", "reloading"),
            "state": f"{shown.get('ActiveState')} ({shown.get('SubState')})",
            "enabled": shown.get("UnitFileState", "").startswith("enabled"),
            "pid": int(shown.get("MainPID", "0") or 0) or None, "status_text": shown.get("StatusText") or None,
            "unit": shown.get("FragmentPath") or None,
        }  # fmt: skip
    print(json.dumps(document, indent=2) if as_json else "\n".join(_status_lines(document)))
    return 0 if document["active"] else NOT_ACTIVE


def _status_lines(document: dict[str, Any]) -> list[str]:
    from advisor.cli.terminal import clean

    words = {"absent": "not installed", "ours": "installed", "edited": "installed, changed by hand since",
             "foreign": "not written by advisor"}  # fmt: skip
    lines = [f"{clean(file['path'], 500)}: {words[file['state']]}" for file in document["files"]]
    if document["manager"] is None:
        return [*lines, "No systemd user manager answers here: log in on the machine itself, or set XDG_RUNTIME_DIR."]
    if document["manager"] == "systemd":
        process = f", process {document['pid']}" if document["pid"] else ""
        enabled = "enabled" if document["enabled"] else "not enabled"
        lines.append(f"{document['state']}, {enabled}{process}")
        lines += [clean(document["status_text"], 500)] if document["status_text"] else []
        unit, own = document["unit"], document["files"][0]["path"]
        return [*lines, f"another unit is in force: {clean(unit, 500)}"] if unit and unit != own else lines
    return [*lines, "running" if document["active"] else "not running"]


def _files(strict: bool) -> list[ServiceFile]:
    import advisor
    from advisor.cli import service_files as files

    program = files.this_program(sys.argv[0], sys.executable, os.path.dirname(os.path.abspath(advisor.__file__)))
    if files.is_mac():
        return files.launchd_files(os.path.expanduser("~"), program)
    return files.systemd_files(os.environ, program, strict=strict)


def _make_own_folders() -> None:
    """The drop-in opens only folders that exist."""
    for name in (".config/advisor", ".local/state/advisor", ".cache/advisor"):
        with contextlib.suppress(OSError):
            os.makedirs(os.path.join(os.path.expanduser("~"), name), mode=0o700, exist_ok=True)


def _unlink_from_target(unit: str) -> None:
    """What `systemctl disable` does, where no manager answers."""
    link = os.path.join(os.path.dirname(unit), "default.target.wants", os.path.basename(unit))
    with contextlib.suppress(OSError):
        if os.readlink(link) == unit:
            os.unlink(link)


def _systemctl(*arguments: str) -> list[str]:
    return ["systemctl", "--user", *arguments]


def _domain() -> str:
    from advisor.cli.service_files import LABEL

    return f"gui/{os.getuid()}/{LABEL}"


def _bootstrap(files: Sequence[ServiceFile]) -> list[str]:
    return ["launchctl", "bootstrap", f"gui/{os.getuid()}", files[0].path]


def _manager_answers() -> bool:
    ran = _run(_systemctl("show-environment"))
    return ran is not None and ran[0] == 0


def _shown() -> dict[str, str]:
    from advisor.cli.service_files import UNIT

    ran = _run(_systemctl("show", UNIT, f"--property={_PROPERTIES}"))
    lines = ran[1].splitlines() if ran is not None else []
    return {name: value for name, separator, value in (line.partition("=") for line in lines) if separator}


def _run_all(commands: Sequence[Sequence[str]], may_fail: int = 0) -> bool:
    """Run them where the manager answers, else print them; the first `may_fail` may fail. Whether they were run."""
    import shlex

    if commands[0][0] == "systemctl" and not _manager_answers():
        print("No systemd user manager answers here. In a session of yours run:")
        print("\n".join(f"  {shlex.join(words)}" for words in commands))
        return False
    for index, words in enumerate(commands):
        ran = _run(words)
        if index >= may_fail and (ran is None or ran[0] != 0):
            said = ran[1].strip().splitlines()[-1] if ran is not None and ran[1].strip() else "no answer"
            raise AdvisorError(
                f"{shlex.join(words)} failed ({said}); see: journalctl --user -u advisor, advisor service status."
            )
    return True


def _run(words: Sequence[str]) -> tuple[int | None, str] | None:
    """(status, what it said), None where there is no such program."""
    from advisor.engines.process import run_until
    from advisor.errors import EngineError

    try:
        ran = run_until(words, os.environ, _PATIENCE_S, lambda text: False)  # noqa: ARG005
    except EngineError:
        return None
    return ran.status, ran.text
