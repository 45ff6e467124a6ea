"""A llama-server model preset (router mode) in a file of our own.

Format facts: llama.cpp b11434 tools/server (common/preset.cpp): `;` and `#` start a comment anywhere in a value and
cannot be quoted, leading blanks are errors, a repeated section replaces the earlier one.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import tempfile

from advisor.errors import OutputError
from advisor.outputs.ini_text import carries, section_fits
from advisor.regular import NotRegularError, read_regular

_HEADER = "; written by advisor, edits are noticed and kept. content-sha256="
_FILES = frozenset(("lora", "mmproj", "spec-draft-model"))  # the server runs in a folder of its own


def section_name(model_path: str) -> str:
    """The section of a model: its file's stem. Raises OutputError when the format cannot carry it."""
    name = os.path.basename(model_path)
    for ending in (".gz", ".json", ".gguf"):
        name = name.removesuffix(ending)
    if not section_fits(name):
        raise OutputError(
            f"{_shown(model_path)}: a preset section cannot be named '{_shown(name)}'; "
            f"rename the file or link it under a plain name."
        )
    return name


def render_section(model_path: str, options: list[tuple[str, str]]) -> str:
    """One section. Raises OutputError for a value that the format cannot carry."""
    path = os.path.abspath(model_path)
    if not carries(path):
        raise OutputError(
            f"{_shown(path)}: presets cannot hold '#', ';' or control characters in a path, because everything after "
            f"them is read as a comment; rename the file or link it under a plain name."
        )
    options = [(name, _absolute(name, value) if name in _FILES else value) for name, value in options]
    for name, value in options:
        if not carries(value):
            raise OutputError(
                f"{name} '{_shown(value)}': presets cannot hold '#', ';' or control characters in a value, because "
                f"everything after them is read as a comment; write it another way or leave --output away."
            )
    lines = [f"[{section_name(model_path)}]", f"model = {path}"]
    lines += [f"{name} = {value or 'true'}" for name, value in options]
    return "\n".join(lines) + "\n"


def _absolute(name: str, value: str) -> str:
    """A file with its folder; --lora takes several, separated by commas."""
    return ",".join(os.path.abspath(file) for file in (value.split(",") if name == "lora" else [value]))


def write_preset(path: str, model_path: str, options: list[tuple[str, str]]) -> str:
    """Put the model's section into the preset at `path`, made if it is not there; returns what was done.

    Only a file that advisor wrote and nobody edited since is changed, atomically, the old one kept as PATH.backup.
    Raises OutputError otherwise.
    """
    section = render_section(model_path, options)
    target = os.path.realpath(path)
    before = _read_own(target, path)
    _check_same_model(before or "", section, path)
    after = _with_section(before or "version = 1\n", section_name(model_path), section)
    if before == after:
        return f"{path} is up to date."
    mode = 0o644
    if before is not None:
        mode = os.stat(target).st_mode & 0o777
        _replace(target + ".backup", _sealed(before), mode, path)
    _replace(target, _sealed(after), mode, path)
    diff = difflib.unified_diff((before or "").splitlines(), after.splitlines(), path, path, lineterm="", n=1)
    return "\n".join([*diff, f"wrote {path}" + (f"; the old one is {path}.backup" if before is not None else "")])


def _check_same_model(body: str, section: str, shown: str) -> None:
    """Two models of one file name would share a section; the second must not replace the first."""
    header, model = section.split("\n", 2)[:2]
    lines = body.splitlines()
    if header in lines:
        other = lines[lines.index(header) + 1]
        if other != model:
            raise OutputError(
                f"{shown} already has {header} for {_shown(other.removeprefix('model = '))}; "
                f"rename one of the two files, or choose another --output."
            )


def _sealed(body: str) -> bytes:
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f"{_HEADER}{digest}\n{body}".encode()


def _read_own(target: str, shown: str) -> str | None:
    """The body of a file that we wrote, None when there is no file. Raises OutputError for anyone else's."""
    try:
        text = read_regular(target, 4 << 20)[0].decode()
    except FileNotFoundError:
        return None
    except NotRegularError:
        raise OutputError(f"{shown} is not a regular file; choose another --output.") from None
    except OSError as error:
        raise OutputError(f"{shown} cannot be read: {error.strerror}; choose another --output.") from None
    except UnicodeDecodeError:
        text = ""
    first, _, body = text.partition("\n")
    if not first.startswith(_HEADER):
        raise OutputError(f"{shown} was not written by advisor and is left alone; choose another --output.")
    if hashlib.sha256(body.encode()).hexdigest() != first.removeprefix(_HEADER):
        raise OutputError(f"{shown} was edited since advisor wrote it and is left alone; choose another --output.")
    return body


def _with_section(body: str, name: str, section: str) -> str:
    """`body` with the section replaced in place, or added at the end."""
    kept: list[str] = []
    placed = skipping = False
    for line in body.splitlines(keepends=True):
        if line.startswith("["):
            skipping = line.rstrip("\n") == f"[{name}]"
            if skipping and not placed:
                kept.append(section)
                placed = True
        if not skipping:
            kept.append(line)
    text = "".join(kept)
    return text if placed else f"{text}{section}"


def _replace(target: str, data: bytes, mode: int, shown: str) -> None:
    """Write beside the target and rename over it; a crash leaves the old or the new file, never half of one."""
    folder = os.path.dirname(target) or "."
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".advisor-")
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(temporary, target)
        temporary = None
    except OSError as error:
        raise OutputError(f"{shown} cannot be written: {error.strerror}; choose another --output.") from None
    finally:
        if temporary is not None:
            os.unlink(temporary)


def _shown(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)[:200]
