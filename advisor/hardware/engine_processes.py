"""Which running programs are inference engines, whose memory comes back when they are restarted."""

from __future__ import annotations

import os
from collections.abc import Iterator

from advisor.hardware._read import read_text, under

# /proc/PID/comm holds 15 characters, so prefixes are compared.
_ENGINE_PREFIXES = (
    "llama-", "llama.cpp", "llamafile", "ollama", "koboldcpp", "kobold-cpp",
    "lms", "lm studio", "lmstudio", "lm-studio", "local-ai", "localai",
)  # fmt: skip
# An interpreter is an engine only when its command line says so.
_INTERPRETERS = ("python", "uvicorn", "gunicorn")
_ENGINE_WORDS = ("llama_cpp", "koboldcpp", "xllamacpp", "llama-cpp-python")


def is_engine_name(name: str, command_line: str = "") -> bool:
    """Whether a program of this name (and NUL- or space-separated command line) is an inference engine."""
    lower = name.strip().lower()
    if lower.startswith(_ENGINE_PREFIXES):
        return True
    return lower.startswith(_INTERPRETERS) and any(word in command_line for word in _ENGINE_WORDS)


def describe_process(root: str, pid: int) -> tuple[str, bool]:
    """Name of a process and whether it is an engine; ("unknown", False) where /proc does not show it."""
    folder = under(root, f"/proc/{pid}")
    name = (read_text(folder + "/comm", 64) or "").strip()
    if not name:
        return "unknown", False
    command_line = ""
    if name.lower().startswith(_INTERPRETERS):
        command_line = read_text(folder + "/cmdline", 8192) or ""
    return name, is_engine_name(name, command_line)


def process_ids(root: str) -> list[int]:
    """Process ids shown in /proc, ascending."""
    try:
        names = os.listdir(under(root, "/proc"))
    except OSError:
        return []
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal())


def engine_process_ids(root: str) -> Iterator[tuple[int, str]]:
    """(pid, name) of every engine that runs now. Reads only /proc/PID/comm of all others."""
    prefix = under(root, "/proc/")
    interesting = _ENGINE_PREFIXES + _INTERPRETERS
    for pid in process_ids(root):
        try:
            descriptor = os.open(f"{prefix}{pid}/comm", os.O_RDONLY)
        except OSError:  # gone in the meantime
            continue
        try:
            raw = os.read(descriptor, 64)
        except OSError:
            continue
        finally:
            os.close(descriptor)
        if raw.decode("utf-8", "replace").lower().startswith(interesting):
            name, is_engine = describe_process(root, pid)
            if is_engine:
                yield pid, name


def returnable_ram_bytes(root: str, pid: int) -> int:
    """RAM in bytes that comes back when the process stops.

    Anonymous and shared pages only: mapped weights are page cache, which MemAvailable counts as free already.
    """
    total = 0
    for line in (read_text(under(root, f"/proc/{pid}/status"), 8192) or "").splitlines():
        if line.startswith(("RssAnon:", "RssShmem:")):
            words = line.split()
            if len(words) >= 2 and words[1].isdecimal():
                total += int(words[1]) * 1024
    return total


def command_line_at(port: int, *, root: str = "/") -> list[str] | None:
    """The words of the llama-server that was started for `port`; None where /proc shows none, or several."""
    found = []
    for pid, name in engine_process_ids(root):
        words = (read_text(under(root, f"/proc/{pid}/cmdline"), 1 << 17) or "").rstrip("\0").split("\0")
        if name.lower().startswith("llama-server") and _port_of(words) == port:
            found.append(words)
    return found[0] if len(found) == 1 else None


def _port_of(words: list[str]) -> int:
    """The port that a llama-server listens on by its command line."""
    port = "8080"
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "--port":
            port = following
        elif word.startswith("--port="):
            port = word.removeprefix("--port=")
    return int(port) if port.isdecimal() and len(port) < 6 else 0
