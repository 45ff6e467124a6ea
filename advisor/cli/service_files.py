"""Files of the service: a systemd user unit and its drop-in, or a LaunchAgent; only ours are replaced and removed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence

from advisor.errors import AdvisorError, OutputError
from advisor.gguf_header.errors import printable
from advisor.records import NamedTuple
from advisor.regular import read_regular
from advisor.rule_folders import systemd_folder

UNIT = "advisor.service"
LABEL = "local.gguf-advisor"  # of the LaunchAgent
ABSENT, OURS, EDITED, FOREIGN = "absent", "ours", "edited", "foreign"

_MARK = "Written by `advisor service install`, which replaces and removes it while it is unchanged:"
_MARK_LINE = re.compile(rb"^(?:# |<!-- )" + re.escape(_MARK.encode()) + rb" ([0-9a-f]{64})(?: -->)?\n?", re.MULTILINE)
_MAX_BYTES = 1 << 20
_SAFE = re.compile(r"[A-Za-z0-9_./:=+@,-]+")


class Program(NamedTuple):
    """How this installation is started."""

    command: tuple[str, ...]
    folder: str | None  # to start it in, None: anywhere


class ServiceFile(NamedTuple):
    """A file of the service as it is to be."""

    path: str
    content: bytes


def this_program(argv0: str, executable: str, package: str) -> Program:
    """The daemon's command line: the script `advisor` that runs now, else `python -m advisor`."""
    script = os.path.abspath(argv0)
    if os.path.basename(script) == "advisor" and os.access(script, os.X_OK) and os.path.isfile(script):
        return Program((script, "daemon"), None)
    root = os.path.dirname(package)
    # -m looks into the folder that it is started in first: a checkout's own, else one that nobody but root can fill
    folder = root if os.path.isfile(os.path.join(root, "pyproject.toml")) else os.sep
    return Program((executable, "-m", "advisor", "daemon"), folder)


def systemd_files(environ: Mapping[str, str], program: Program, *, strict: bool) -> list[ServiceFile]:
    """The unit, and with `strict` its drop-in, where systemd looks for units of the user (systemd.unit(5))."""
    folder = units_folder(environ)
    files = [ServiceFile(os.path.join(folder, UNIT), seal(unit_text(program), "# ", ""))]
    if strict:
        text = _shipped("advisor-strict.conf")
        files.append(ServiceFile(strict_path(environ), seal(text, "# ", "")))
    return files


def units_folder(environ: Mapping[str, str]) -> str:
    """$XDG_CONFIG_HOME/systemd/user."""
    base = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config")
    return os.path.join(base, "systemd", "user")


def strict_path(environ: Mapping[str, str]) -> str:
    """Where the drop-in goes."""
    return os.path.join(units_folder(environ), f"{UNIT}.d", "strict.conf")


def unit_text(program: Program) -> str:
    """The shipped unit with the command of this installation."""
    line = f"ExecStart={exec_line(program.command)}"
    if program.folder is not None:
        line += "\nWorkingDirectory=" + program.folder.replace("%", "%%")
    text, count = re.subn(r"^ExecStart=.*$", lambda _: line, _shipped(UNIT), flags=re.MULTILINE)
    if count != 1:
        raise AdvisorError(f"{systemd_folder()}/{UNIT} has no ExecStart line; install gguf-advisor again.")
    return text


def exec_line(command: Sequence[str]) -> str:
    """A command as ExecStart takes it: "Command lines" in systemd.service(5), specifiers in systemd.unit(5)."""
    if not command[0].isprintable() or set(command[0]) & set("\\\"'"):  # systemd takes such a path for a mistake
        command = ("/usr/bin/env", *command)
    return " ".join(_exec_word(word, first=index == 0) for index, word in enumerate(command))


def _exec_word(word: str, *, first: bool) -> str:
    if _SAFE.fullmatch(word):
        return word
    escaped = []
    for char in word:
        if char in '\\"':
            escaped.append("\\" + char)
        elif char == "%":  # a specifier
            escaped.append("%%")
        elif char == "$" and not first:  # a variable; none is looked for in the program's path
            escaped.append("$$")
        elif char.isprintable():
            escaped.append(char)
        else:
            escaped += [f"\\x{byte:02x}" for byte in os.fsencode(char)]
    return '"' + "".join(escaped) + '"'


def launchd_files(home: str, program: Program) -> list[ServiceFile]:
    """The LaunchAgent (launchd.plist(5)). Tested by its content only: no macOS was at hand."""
    import plistlib

    agent: dict[str, object] = {
        "Label": LABEL,
        "ProgramArguments": list(program.command),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},  # again after a crash, not after a stop
        "ProcessType": "Background",
        "LowPriorityIO": True,
        "Umask": 0o077,
        "StandardErrorPath": os.path.join(home, "Library", "Logs", "advisor.log"),
    }
    if program.folder is not None:
        agent["WorkingDirectory"] = program.folder
    text = plistlib.dumps(agent).decode("utf-8")
    path = os.path.join(home, "Library", "LaunchAgents", f"{LABEL}.plist")
    return [ServiceFile(path, seal(text, "<!-- ", " -->"))]


def seal(text: str, start: str, end: str) -> bytes:
    """`text` with a last line that says whose it is and what it was: a change by hand is seen."""
    data = text.encode("utf-8", "surrogateescape")
    return data + f"{start}{_MARK} {hashlib.sha256(data).hexdigest()}{end}\n".encode()


def state_of(path: str) -> str:
    """ABSENT, OURS, EDITED (ours, changed by hand) or FOREIGN (also a link, as systemctl mask makes one)."""
    if os.path.islink(path):
        return FOREIGN
    try:
        data, _ = read_regular(path, _MAX_BYTES)
    except FileNotFoundError:
        return ABSENT
    except OSError as error:
        raise OutputError(f"{printable(path)} cannot be read ({error.strerror}); check its permissions.") from None
    found = _MARK_LINE.search(data)
    if found is None:
        return FOREIGN
    rest = data[: found.start()] + data[found.end() :]
    return OURS if hashlib.sha256(rest).hexdigest().encode() == found[1] else EDITED


def check_writable(files: Sequence[ServiceFile]) -> None:
    """Raise OutputError for the first file that is not ours to replace."""
    for file in files:
        state, shown = state_of(file.path), printable(file.path)
        if state == FOREIGN:
            raise OutputError(f"{shown} was not written by advisor, so it is left alone; move it away first.")
        if state == EDITED:
            raise OutputError(
                f"{shown} was changed by hand, so it is left alone; move your changes to a drop-in "
                "(systemctl --user edit advisor), remove the file, and try again."
            )


def write(file: ServiceFile) -> bool:
    """Replace the file as a whole; whether that changed anything. Raises OutputError."""
    folder, temporary = os.path.dirname(file.path), None
    try:
        with contextlib.suppress(FileNotFoundError), open(file.path, "rb") as present:
            if present.read(_MAX_BYTES) == file.content:
                return False
        os.makedirs(folder, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".advisor-")
        with open(descriptor, "wb") as out:
            out.write(file.content)
            os.fchmod(descriptor, 0o644)
            out.flush()
            os.fsync(descriptor)
        os.replace(temporary, file.path)
        temporary = None
    except OSError as error:
        reason = error.strerror
        raise OutputError(f"{printable(file.path)} cannot be written ({reason}); check its folder.") from None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
    return True


def remove(path: str) -> str:
    """Remove a file that is ours and unchanged, and the drop-in folder when it is empty then; the state before."""
    state = state_of(path)
    if state == OURS:
        try:
            os.unlink(path)
        except OSError as error:
            raise OutputError(f"{printable(path)} cannot be removed ({error.strerror}); check its folder.") from None
        if os.path.dirname(path).endswith(".d"):
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(path))
    return state


def is_mac() -> bool:
    """Whether launchd is the manager here."""
    return sys.platform == "darwin"


def _shipped(name: str) -> str:
    path = os.path.join(systemd_folder(), name)
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise AdvisorError(f"{path} cannot be read ({error.strerror}); install gguf-advisor again.") from None
