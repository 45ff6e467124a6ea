"""Asking llama-cpp-python, in a process of its own, for the memory of given settings without loading a weight.

`no_alloc` of llama_model_params makes llama.cpp measure its compute buffers and print them; weights and caches get
buffers of no size then, so of these only the caches' sum is told. Settings that are left open are those of the class
`Llama`. Source: llama-cpp-python 0.3.36, llama_cpp/llama.py, and the llama.cpp in it.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.engines.dry_run import DryRun
from advisor.engines.find import EngineBinary
from advisor.engines.load_log import MARKS, parse_load_log, totals
from advisor.engines.log_filter import text_lines
from advisor.engines.log_lines import MIB
from advisor.engines.process import run_until
from advisor.errors import EngineError
from advisor.ggml_types import BY_NAME
from advisor.memory.types import Interval
from advisor.settings import RequestedSettings

ALL_DEVICES = "all"  # where only the sum over the devices is known
_DONE = "advisor-asked: "
_SPLIT = {"none": 0, "layer": 1, "row": 2, "tensor": 3}
_FLASH = {"auto": -1, "off": 0, "on": 1}
_NOT_ASKED = ("n_cpu_moe", "cpu_moe", "tensor_overrides")
# runs isolated (-I): nothing is imported from the folder that advisor is started in
_CHILD = """
import ctypes, json, sys
import llama_cpp
path, model_values, shares, context_values = json.loads(sys.argv[1])
model = llama_cpp.llama_model_default_params()
if not hasattr(model, "no_alloc"):
    sys.exit("advisor-asked: too old")
for name, value in {"no_alloc": True, **model_values}.items():
    if hasattr(model, name):
        setattr(model, name, value)
if shares:
    model.tensor_split = (ctypes.c_float * llama_cpp.llama_max_devices())(*shares)
llama_cpp.llama_backend_init()
loaded = llama_cpp.llama_model_load_from_file(path.encode(errors="surrogateescape"), model)
if not loaded:
    sys.exit("advisor-asked: not loaded")
context = llama_cpp.llama_context_default_params()
if context_values.get("n_ctx") == 0:
    context_values["n_ctx"] = llama_cpp.llama_model_n_ctx_train(loaded)
for name, value in context_values.items():
    setattr(context, name, value)
made = llama_cpp.llama_init_from_model(loaded, context)
sys.stderr.flush()
print("advisor-asked:", "version " + llama_cpp.__version__ if made else "no context", file=sys.stderr, flush=True)
"""


def bindings_question(
    asked: RequestedSettings, only_devices: Sequence[str] | None
) -> tuple[dict[str, Any], list[float], dict[str, Any]]:
    """(model parameters, shares of the devices, context parameters). Raises EngineError for what cannot be asked."""
    for field in _NOT_ASKED:
        if getattr(asked, field):
            raise EngineError(
                f"llama-cpp-python cannot be asked about {field.replace('_', '-')}; give a llama-server with "
                "--engine-binary."
            )
    if only_devices:
        raise EngineError(
            "llama-cpp-python cannot be asked about some of the GPUs; give a llama-server with --engine-binary."
        )
    layers = 0 if only_devices is not None else asked.n_gpu_layers
    model: dict[str, Any] = {"n_gpu_layers": -1 if layers is None or layers < 0 else layers, "load_mode": 0}
    if asked.split_mode is not None:
        model["split_mode"] = _SPLIT[asked.split_mode]
    if asked.main_gpu is not None:
        model["main_gpu"] = asked.main_gpu
    if asked.repack is False:
        model["use_extra_bufts"] = False
    n_batch = asked.n_batch or 512
    context: dict[str, Any] = {
        "n_ctx": asked.n_ctx or 0,
        "n_batch": n_batch,
        "n_ubatch": min(n_batch, asked.n_ubatch or 512),
        "n_seq_max": max(asked.n_parallel or 1, 1),
        "kv_unified": bool(asked.kv_unified),
        "flash_attn_type": _FLASH[asked.flash_attn or "off"],
    }
    given = {
        "type_k": BY_NAME[asked.cache_type_k].id if asked.cache_type_k else None,
        "type_v": BY_NAME[asked.cache_type_v].id if asked.cache_type_v else None,
        "swa_full": asked.swa_full,
        "offload_kqv": asked.kv_offload,
        "op_offload": asked.op_offload,
    }
    context.update({name: value for name, value in given.items() if value is not None})
    return model, list(asked.tensor_split or ()), context


def ask_bindings(
    binary: EngineBinary,
    model_path: str,
    asked: RequestedSettings,
    only_devices: Sequence[str] | None,
    environ: Mapping[str, str],
    seconds: float,
) -> DryRun:
    """The answer as a DryRun: compute per device, the caches as a sum. Raises EngineError."""
    started = time.monotonic()
    question = json.dumps([os.path.abspath(model_path), *bindings_question(asked, only_devices)])
    ran = run_until([binary.path, "-I", "-c", _CHILD, question], environ, seconds, _is_whole)
    said = ran.text.rpartition(_DONE)[2].strip().split("\n")[0] if _DONE in ran.text else ""
    if not said.startswith("version "):
        reason = {"too old": "is too old to be asked", "not loaded": "cannot load this model",
                  "no context": "makes no context of these settings"}.get(said)  # fmt: skip
        if reason is None:
            reason = f"gave no answer within {seconds:.0f} s" if ran.ended == "time" else "ended without an answer"
        raise EngineError(f"llama-cpp-python {reason}; give a llama-server with --engine-binary.")
    log = parse_load_log(text_lines(ran.text, MARKS))
    contexts = [context for load in log.loads for context in load.contexts]
    if not contexts:
        raise EngineError("llama-cpp-python printed no buffer sizes; give a llama-server with --engine-binary.")
    figures = {}
    for (device, kind), (n_bytes, slack) in totals(contexts[-1].buffers).items():
        if kind in ("compute", "output"):
            figures[device, kind] = Interval(n_bytes - slack, n_bytes, n_bytes + slack)
    cache = sum(entry.n_bytes for entry in contexts[-1].caches)
    slack = len(contexts[-1].caches) * MIB // 100
    figures[ALL_DEVICES, "cache"] = Interval(max(cache - slack, 0), cache, cache + slack)
    used = tuple(device for device in log.devices if any(device.id == where for where, _ in figures))
    return DryRun(binary, None, said, used, figures, contexts[-1].settings, False, time.monotonic() - started)


def _is_whole(text: str) -> bool:
    """Whether the last line has come to its end."""
    return _DONE in text and "\n" in text.rpartition(_DONE)[2]
