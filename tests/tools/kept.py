"""A user's configuration with one target, and `advisor` run on it in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NO_STORES = "[stores]\n" + "".join(
    f"{name} = false\n" for name in ("ollama", "huggingface", "lmstudio", "jan", "gpt4all", "llama-cache")
)


def quoted(value: object) -> str:
    """A TOML string."""
    return json.dumps(str(value), ensure_ascii=False)


def configure(
    folders: list[Path], path: Path, form: str = "llama-server-preset", *, engine: str = "", more: str = ""
) -> str:
    """The text of a config.toml: one enabled target "kept" of the format `form` at `path`, no stores.

    `engine`: lines for the table of llama.cpp. `more`: whatever else, whole tables.
    """
    listed = ", ".join(map(quoted, folders))
    table = f'[engine."llama.cpp"]\n{engine}\n' if engine else ""
    target = f'[target.kept]\nformat = "{form}"\npath = {quoted(path)}\nenabled = true\n'
    return f"folders = [{listed}]\n\n{NO_STORES}\n{table}\n{target}\n{more}"


def write_config(text: str, home: Path) -> Path:
    """Put a configuration where advisor looks for it below `home`."""
    path = home / ".config/advisor/config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def advisor(*words: object, status: int = 0, environ: dict[str, str] | None = None) -> str:
    """What `python -m advisor WORDS` prints; its exit status must be `status`."""
    done = subprocess.run(
        [sys.executable, "-m", "advisor", *map(str, words)],
        cwd=ROOT, env={**os.environ, **(environ or {})}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def advisor_json(*words: object, status: int = 0) -> dict[str, Any]:
    """The same with --json, read."""
    document: dict[str, Any] = json.loads(advisor(*words, "--json", status=status))
    return document
