"""llama-cpp-python's own settings classes read the JSON that is written for its server; nothing is compiled.

tests/data/llama_cpp_python/settings.py.txt is llama_cpp/server/settings.py of the 0.3.36 release, every byte. The
compiled module it takes constants from is a stand-in. It is kept here and not fetched: the release is an archive of
77 MB, and pip prepares a build with tools of its own before it hands it over.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from advisor.outputs.llama_cpp_python import _NEEDED, OUTPUT
from advisor.slots import GONE, Slot
from tests.tools.kept import advisor, configure, write_config
from tests.tools.tiny_models import tiny_model, write
from tests.unit.outputs.cases import model

pydantic = pytest.importorskip("pydantic")
pytest.importorskip("pydantic_settings")

SOURCE = Path(__file__).parents[1] / "data" / "llama_cpp_python" / "settings.py.txt"
SHA256 = "8cd8036dea4ce73f16d525ecad2d267ab5786f6f2cd7cf40343f238ec2736b36"


def stand_in() -> ModuleType:
    """llama_cpp's constants that are defaults of settings (llama.h)."""
    module: Any = ModuleType("llama_cpp")
    module.LLAMA_SPLIT_MODE_LAYER = 1
    module.LLAMA_DEFAULT_SEED = 0xFFFFFFFF
    module.LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED = -1
    module.llama_supports_mmap = module.llama_supports_mlock = lambda: True
    return module


@pytest.fixture(scope="module")
def classes() -> Iterator[Any]:
    """The module with ConfigFileSettings and ModelSettings."""
    data = SOURCE.read_bytes()
    assert hashlib.sha256(data).hexdigest() == SHA256
    module = ModuleType("llama_cpp_server_settings")
    patch = pytest.MonkeyPatch()
    patch.setitem(sys.modules, "llama_cpp", stand_in())
    patch.setitem(sys.modules, module.__name__, module)
    exec(compile(data, str(SOURCE), "exec"), module.__dict__)
    yield module
    patch.undo()


@pytest.fixture(autouse=True)
def no_variables(classes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its classes fill what is left unset from variables as plain as HOST and MODEL."""
    fields = {*classes.ConfigFileSettings.model_fields, *classes.ModelSettings.model_fields}
    for name in [name for name in os.environ if name.lower() in fields]:
        monkeypatch.delenv(name)


def read(classes: Any, text: str) -> Any:
    """As `python -m llama_cpp.server --config_file` does."""
    return classes.ConfigFileSettings.model_validate_json(text)


# every key that can be written
REQUESTS = [
    "-c 4096 -ngl 5 -np 1",
    "-c 8192 -ngl 99 -np 1 -fa on -ctk q8_0 -ctv q8_0 -b 1024 -ub 256 -t 7",
    "-c 2048 -ngl 0 -np 1 -fa off --no-mmap",
    "-c 2048 -ngl 12 -np 1 -nkvo",
    "-c 2048 -ngl 12 -np 1 -ctk f32 -ctv bf16 -fa off",
    "-c 2048 -ngl 12 -np 1 -fa on -ctk iq4_nl -ctv q5_1",
]
TWO_CARDS = ["-c 2048 -ngl 99 -np 1 -ts 3,1", "-c 2048 -ngl 99 -np 1 -sm none -mg 1", "-c 2048 -ngl 99 -np 1 -sm layer"]


def expected(slots: dict[Slot, Any], alias: str) -> dict[str, Any]:
    return {slot[2]: value for slot, value in slots.items() if slot[1] == alias}


@pytest.mark.parametrize(("request_", "cards"), [*((each, 1) for each in REQUESTS), *((each, 2) for each in TWO_CARDS)])
def test_they_accept_what_is_written(classes, request_, cards):
    path = "/srv/größe 'x' \"y\".gguf"
    ours = model(request_, engine="llama-cpp-python", cards=cards, model_id="q", path=path)
    slots = OUTPUT.slots([ours], None)
    (entry,) = read(classes, OUTPUT.edit(OUTPUT.new_text, slots)).models
    assert (entry.model, entry.model_alias) == (path, "q")
    wanted = expected(slots, "q")
    assert len(wanted) >= 9
    assert {key: getattr(entry, key) for key in wanted} == wanted
    assert entry.model_fields_set == {*wanted, "model_alias"}


def test_every_key_that_is_known_here_is_a_field_there(classes):
    assert _NEEDED.keys() <= classes.ModelSettings.model_fields.keys()


def test_they_accept_the_file_that_apply_writes_and_changes(classes, home, tmp_path):
    models, config = tmp_path / "models", tmp_path / "server.json"
    for name in ("a", "b"):
        write(models / f"{name}.gguf", tiny_model(name))
    pins = '[[model]]\nmatch = "a"\npins = { ctx-size = 1024, cache-type-k = "q8_0", flash-attn = "on" }\n'
    write_config(configure([models], config, "llama-cpp-python", more=pins), home)
    advisor("apply")
    read_ = read(classes, config.read_text())
    assert (read_.host, read_.port) == ("127.0.0.1", 8000)
    entries = {entry.model_alias: entry for entry in read_.models}
    assert {name: entry.model for name, entry in entries.items()} == {
        name: str(models / f"{name}.gguf") for name in ("a", "b")
    }
    assert (entries["a"].n_ctx, entries["a"].type_k, entries["a"].flash_attn) == (1024, 8, True)
    assert entries["a"].use_mlock is False

    (models / "b.gguf").unlink()
    write_config(configure([models], config, "llama-cpp-python", more=pins.replace("1024", "2048")), home)
    advisor("apply")
    (entry,) = read(classes, config.read_text()).models
    assert (entry.model_alias, entry.n_ctx) == ("a", 2048)


# key and value of a model entry, and what the classes name as the reason
BROKEN = [
    ("n_cpu_moe", 3, "extra_forbidden"),
    ("n_ctxx", 4096, "extra_forbidden"),
    ("n_ctx", "many", "int_parsing"),
    ("n_ctx", -1, "greater_than_equal"),
    ("n_ctx", 4096.5, "int_from_float"),
    ("n_threads", 0, "greater_than_equal"),
    ("n_gpu_layers", -2, "greater_than_equal"),
    ("type_k", "q8_0", "int_parsing"),
    ("flash_attn", "auto", "bool_parsing"),
    ("tensor_split", "3,1", "list_type"),
    ("model", GONE, "missing"),
]


@pytest.mark.parametrize(("key", "value", "kind"), BROKEN)
def test_they_refuse_what_is_broken(classes, key, value, kind):
    """So that accepting means something; and most of it our own rules refuse before it is written."""
    slots = OUTPUT.slots([model(engine="llama-cpp-python", model_id="q")], None)
    document = json.loads(OUTPUT.edit(OUTPUT.new_text, slots))
    (entry,) = document["models"]
    if value is GONE:
        del entry[key]
    else:
        entry[key] = value
    with pytest.raises(pydantic.ValidationError) as refused:
        read(classes, json.dumps(document))
    assert [(error["type"], error["loc"]) for error in refused.value.errors()] == [(kind, ("models", 0, key))]
