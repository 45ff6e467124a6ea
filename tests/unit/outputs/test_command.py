"""The paste-ready command: a shell reads back what was meant, and llama.cpp's flags mean the settings."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from advisor.app import App
from advisor.llama_flags import parse_command
from advisor.memory.plan import plan_memory
from advisor.memory.resolve import resolve_settings
from advisor.outputs.command import command_line, quote, server_options
from advisor.settings import RequestedSettings

ZOO = Path(__file__).parents[2] / "data" / "zoo"
GIB = 1 << 30

NASTY = [
    "/models/plain-1.0_Q4.gguf", "with space", " leading and trailing ", "it's", '"double"', "it's \"both\"", "$HOME",
    "$(touch pwned)", "`touch pwned`", "a\\b", "a\\", "a\nb", "a\tb", "\x01\x7f", "!event", "*?[a-z]{1,2}", "~/x",
    "#hash", "a;b", "a&b|c>d<e", "-dash", "größe", "模型", "\udcff", "caf\udce9 it's", "'\udcff0", "\x1b[31m41",
    "\u202eabc", "\u2028", "\xa0", "a\\'b\n", "", "=", "%s",
]  # fmt: skip


@pytest.mark.parametrize("text", NASTY, ids=ascii)
@pytest.mark.parametrize("shell_locale", ["C", "C.UTF-8"])
def test_a_shell_reads_back_every_byte(text, shell_locale, tmp_path):
    script = f"printf '%s\\0' {quote(text)} end"
    environ = {"PATH": "/usr/bin:/bin", "LC_ALL": shell_locale, "HOME": "/nowhere"}
    done = subprocess.run(["bash", "-c", script], capture_output=True, cwd=tmp_path, env=environ, timeout=20)
    assert done.stdout == text.encode("utf-8", "surrogateescape") + b"\0end\0"
    assert done.stderr == b""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_a_word_is_safe_to_print(text):
    assert quote(text).isprintable()


def test_plain_words_stay_plain():
    assert quote("/models/plain-1.0_Q4.gguf") == "/models/plain-1.0_Q4.gguf"
    assert quote("with space") == "'with space'"


class Card(NamedTuple):
    id: str
    backend: str = "cuda"
    free_bytes: int = 8 * GIB


REQUESTS = [
    "",
    "-c 4096",
    "-c 4096 -np 3",
    "-c 4096 -np 3 --kv-unified",
    "-c 4096 -b 4096",
    "-c 1000 -b 512 -ub 64",
    "-c 1024",
    "-c 8192 -b 4096 -ub 4096",
    "-ngl 0",
    "-ngl 5",
    "-ngl 99 --n-cpu-moe 3",
    "-ngl 99 --cpu-moe",
    "-ngl 99 -ctk q8_0 -ctv q4_0 -fa on",
    "-fa off",
    "-fa auto --swa-full",
    "-nkvo --no-op-offload",
    "--no-mmap -t 6 --no-repack",
    "-sm none -mg 1",
    "-ts 3,1",
    "-ts 0.25,0.75",
    r"-ot 'blk\.1\.ffn=CPU' -ot 'blk\.(2|3)\.=CUDA1'",
    "--lora a.gguf,b.gguf --mmproj 'p q.gguf' --no-mmproj-offload --image-max-tokens 512 --cache-ram 0",
    "-md d.gguf --spec-type draft-simple --spec-draft-n-max 8 -ngld 3 -ctkd q8_0 -ctvd q8_0 --ctx-checkpoints 4",
]


@pytest.mark.parametrize("build", [None, 10434])
@pytest.mark.parametrize("cards", [0, 1, 2])
@pytest.mark.parametrize("request_text", REQUESTS)
def test_the_command_means_the_settings(request_text, cards, build):
    if cards < 2 and ("CUDA1" in request_text or "-mg 1" in request_text):
        request_text = request_text.replace("CUDA1", "CPU").replace("-mg 1", "-mg 0")
    app = App(None)
    spec = app.model(app.header(str(ZOO / "small-qwen3moe.json.gz")))
    engine = app.engine(f"llama.cpp@b{build}" if build else None)
    devices = [Card(f"CUDA{number}") for number in range(cards)]

    def plan(request: RequestedSettings):
        settings = resolve_settings(request, spec, engine, tool="server", n_devices=cards)
        return plan_memory(spec, settings, engine, devices)

    meant = plan(parse_command(shlex.split(request_text)).settings)
    options = server_options(meant, engine, mode="exact", n_layer_all=spec.n_layer_all, margin_bytes=0)
    assert len({name for name, _ in options}) == len(options)  # a preset cannot hold a key twice
    line = command_line("llama-server", "/models/it's a model.gguf", options)
    pasted = parse_command(shlex.split(line))
    assert (pasted.program, pasted.model) == ("llama-server", "/models/it's a model.gguf")
    assert pasted.ignored == ("--fit off",)
    assert pasted.devices == (None if cards else ())
    again = plan(pasted.settings)
    for name in ("weights_bytes", "cache_bytes", "compute", "output_bytes", "mapped_bytes", "repack_bytes"):
        assert getattr(again.host, name) == getattr(meant.host, name)
    assert again.devices == meant.devices
    # `auto` is written as what it turned into, a split as the layers of each card; without a GPU nothing is said of one
    changed = {"flash_attn", "tensor_split"}
    if not cards:
        changed |= {"n_cpu_moe", "tensor_overrides", "tensor_split", "main_gpu", "split_mode"}
    for name, value in meant.settings._asdict().items():
        if name not in changed:
            assert getattr(again.settings, name) == value, name
    assert again.flash_attn == meant.flash_attn


def test_safe_mode_leaves_the_layers_to_the_engine():
    app = App(None)
    spec = app.model(app.header(str(ZOO / "small-llama.json.gz")))
    engine = app.engine(None)
    settings = resolve_settings(RequestedSettings(n_gpu_layers=5), spec, engine, tool="server", n_devices=1)
    plan = plan_memory(spec, settings, engine, [Card("CUDA0")])
    options = dict(server_options(plan, engine, mode="safe", n_layer_all=16, margin_bytes=700 << 20))
    assert "n-gpu-layers" not in options
    assert (options["fit"], options["fit-target"]) == ("on", "700")
