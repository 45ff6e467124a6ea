"""Asking llama-cpp-python: its own words as 0.3.36 prints them, from a stand-in for the module.

The real module's figures are held against the prediction in tests/unit/memory/test_bindings.py.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from advisor.engines.bindings import ALL_DEVICES, ask_bindings, bindings_question
from advisor.engines.find import BINDINGS, EngineBinary, find_engines
from advisor.errors import EngineError
from advisor.settings import RequestedSettings, TensorOverride

MIB = 1 << 20
# gemma3-4b on the CPU with -c 8192 and the class Llama's defaults
TEXT = """\
llama_model_loader: loaded meta data with 21 key-value pairs and 444 tensors from m.gguf (version GGUF V3 (latest))
load_tensors:          CPU model buffer size =     0.00 MiB
llama_context: constructing llama_context
llama_context: n_seq_max             = 1
llama_context: n_ctx                 = 8192
llama_context: n_batch               = 512
llama_context: n_ubatch              = 512
llama_context: flash_attn            = disabled
llama_context: kv_unified            = false
llama_context:        CPU  output buffer size =     1.00 MiB
llama_kv_cache:        CPU KV buffer size =     0.00 MiB
llama_kv_cache: size =  160.00 MiB (  8192 cells,   5 layers,  1/1 seqs), K (f16):   80.00 MiB, V (f16):   80.00 MiB
llama_kv_cache:        CPU KV buffer size =     0.00 MiB
llama_kv_cache: size =  928.00 MiB (  8192 cells,  29 layers,  1/1 seqs), K (f16):  464.00 MiB, V (f16):  464.00 MiB
sched_reserve:        CPU compute buffer size =   527.13 MiB
"""
MODULE = """
import json, sys, time
__version__ = "0.3.36"
class Values: pass
def llama_model_default_params():
    values = Values()
    for name in {model_fields!r}: setattr(values, name, 0)
    return values
def llama_context_default_params(): return Values()
def llama_backend_init(): pass
def llama_max_devices(): return 4
def llama_model_n_ctx_train(model): return 131072
def llama_model_load_from_file(path, values):
    asked = {{k: v for k, v in vars(values).items() if k != "tensor_split"}}
    asked["shares"] = list(getattr(values, "tensor_split", ()))
    json.dump([path.decode(), asked], open({log!r}, "w"))
    return {loads}
def llama_init_from_model(model, values):
    json.dump(vars(values), open({log!r} + ".context", "w"))
    sys.stderr.write({text!r}); time.sleep({wait}); return {makes}
"""


def stand_in(
    folder: Path, *, text: str = TEXT, loads: int = 1, makes: int = 1, wait: float = 0, old: bool = False
) -> EngineBinary:
    """A Python whose llama_cpp is the stand-in."""
    fields = ["n_gpu_layers", "split_mode", "main_gpu", "use_extra_bufts", "load_mode", *([] if old else ["no_alloc"])]
    source = MODULE.format(model_fields=fields, log=str(folder / "log"), text=text, loads=loads, makes=makes, wait=wait)
    (folder / "llama_cpp.py").write_text(source)
    path = folder / "python"
    path.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(folder)!r})\n"
        "assert sys.argv[1:3] == ['-I', '-c']\ncode = sys.argv[3]\nsys.argv = ['-c', *sys.argv[4:]]\nexec(code)\n"
    )
    path.chmod(0o755)
    return EngineBinary(str(path), BINDINGS, "Python")


def ask(binary: EngineBinary, seconds: float = 10, **asked: object):
    return ask_bindings(binary, "m.gguf", RequestedSettings(**asked), None, os.environ, seconds)  # type: ignore[arg-type]


def test_compute_by_device_and_caches_as_a_sum(tmp_path: Path) -> None:
    answer = ask(stand_in(tmp_path), n_ctx=8192)
    assert answer.commit == "version 0.3.36"
    assert answer.figures[ALL_DEVICES, "cache"].value == (160 + 928) * MIB
    assert answer.figures["host", "compute"].value == pytest.approx(527.13 * MIB, abs=0.01 * MIB)
    assert answer.figures["host", "output"].value == MIB
    assert set(answer.figures) == {(ALL_DEVICES, "cache"), ("host", "compute"), ("host", "output")}
    assert answer.settings["n_ctx"] == "8192"


def test_settings_reach_the_module(tmp_path: Path) -> None:
    ask(
        stand_in(tmp_path), n_gpu_layers=20, split_mode="row", main_gpu=1, tensor_split=(3.0, 1.0), repack=False,
        cache_type_k="q8_0", cache_type_v="q4_0", flash_attn="on", kv_offload=False, swa_full=False, n_parallel=2,
        n_batch=256,
    )  # fmt: skip
    path, model = json.loads((tmp_path / "log").read_text())
    assert path == os.path.abspath("m.gguf")
    assert model == {
        "n_gpu_layers": 20, "split_mode": 2, "main_gpu": 1, "use_extra_bufts": False, "load_mode": 0, "no_alloc": True,
        "shares": [3.0, 1.0, 0.0, 0.0],
    }  # fmt: skip
    context = json.loads((tmp_path / "log.context").read_text())
    assert context == {
        "n_ctx": 131072, "n_batch": 256, "n_ubatch": 256, "n_seq_max": 2, "kv_unified": False, "flash_attn_type": 1,
        "type_k": 8, "type_v": 2, "swa_full": False, "offload_kqv": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"old": True}, "too old"),
        ({"loads": 0}, "cannot load this model"),
        ({"makes": 0}, "makes no context"),
        ({"text": "nothing\n"}, "printed no buffer sizes"),
        ({"wait": 30}, "no answer within 1 s"),
    ],
)
def test_answers_that_are_none(tmp_path: Path, how: dict[str, object], words: str) -> None:
    started = time.monotonic()
    with pytest.raises(EngineError, match=words):
        ask(stand_in(tmp_path, **how), seconds=1)  # type: ignore[arg-type]
    assert time.monotonic() - started < 5


def test_a_python_without_the_module(tmp_path: Path) -> None:
    path = tmp_path / "python"
    path.write_text(f"#!{sys.executable}\nimport sys\nsys.exit(1)\n")
    path.chmod(0o755)
    with pytest.raises(EngineError, match="ended without an answer"):
        ask(EngineBinary(str(path), BINDINGS, "Python"))


@pytest.mark.parametrize(
    "asked", [{"n_cpu_moe": 3}, {"cpu_moe": True}, {"tensor_overrides": (TensorOverride("ffn", "CPU"),)}]
)
def test_what_cannot_be_asked(asked: dict[str, object]) -> None:
    with pytest.raises(EngineError, match="cannot be asked about"):
        bindings_question(RequestedSettings(**asked), None)  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="some of the GPUs"):
        bindings_question(RequestedSettings(), ("CUDA0",))


def test_no_gpu_keeps_every_layer_on_the_cpu() -> None:
    assert bindings_question(RequestedSettings(), ())[0]["n_gpu_layers"] == 0
    assert bindings_question(RequestedSettings(), None)[0]["n_gpu_layers"] == -1


def test_they_are_found_only_where_they_are_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="not installed beside advisor"):
        find_engines(BINDINGS, {})
    (tmp_path / "llama_cpp.py").write_text("raise RuntimeError('looking for it must not import it')")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = find_engines(None, {"PATH": ""})
    assert found[-1] == EngineBinary(sys.executable, BINDINGS, "Python")
    assert find_engines(BINDINGS, {}) == found[-1:]


def test_an_answer_that_comes_in_pieces(tmp_path: Path) -> None:
    binary = stand_in(tmp_path)
    code = (tmp_path / "llama_cpp.py").read_text()
    slow = (
        "class Slow:\n    def write(self, text):\n        for c in text: out.write(c); out.flush(); time.sleep(0.002)\n"
    )
    slow += "    def flush(self): pass\nout = sys.stderr\nsys.stderr = Slow()\n"
    (tmp_path / "llama_cpp.py").write_text(code.replace("class Values", slow + "class Values", 1))
    assert ask(binary).commit == "version 0.3.36"
