"""Runs llama-server out of the xllamacpp package until its standard input closes.

Started by tests/tools/engines.py with one argument, the settings as JSON. A process of its own: the engine's log goes
to file descriptor 2 from C++, a crash of the engine must not take pytest along, and the server ends with its parent.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import xllamacpp as x

_FLASH_ATTN = {
    "auto": x.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_AUTO,
    "on": x.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": x.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}
_PLAIN = (
    "n_batch", "n_ctx", "n_gpu_layers", "n_parallel", "n_ubatch", "kv_unified", "swa_full", "port", "warmup",
    "embedding", "verbosity",
)  # fmt: skip


def apply(params: Any, settings: dict[str, Any]) -> None:
    """Set the engine's parameters; a name that is not known here is an error, not ignored."""
    for name, value in settings.items():
        if name in _PLAIN:
            setattr(params, name, value)
        elif name == "model":
            params.model.path = value
        elif name in ("cache_type_k", "cache_type_v"):
            setattr(params, name, getattr(x.ggml_type, f"GGML_TYPE_{value.upper()}"))
        elif name == "flash_attn":
            params.flash_attn_type = _FLASH_ATTN[value]
        elif name == "load_mode":
            params.load_mode = getattr(x.llama_load_mode, f"LLAMA_LOAD_MODE_{value.upper()}")
        elif name == "kv_offload":
            params.no_kv_offload = not value
        elif name == "repack":
            params.no_extra_bufts = not value
        elif name == "fit":
            params.fit_params = value
        elif name == "n_threads":
            params.cpuparams.n_threads = value
        else:
            raise SystemExit(f"xllamacpp_child: no such setting: {name}")


def main() -> None:
    params = x.CommonParams()
    params.verbosity = 5  # from 4 on the buffer sizes are printed; 5 adds exact compute sizes at the end
    params.fit_params = False
    params.warmup = False
    apply(params, json.loads(sys.argv[1]))
    try:
        server = x.Server(params)
    except RuntimeError:
        time.sleep(0.5)  # its log is written by a thread of its own, which has the reason
        raise
    print(server.listening_address, flush=True)
    sys.stdin.read()
    del server


main()
