"""Settings far from the seeded grid: odd sizes, many slots, small batches, lists of -ot, up to four GPUs.

Drawn apart from tests.truth.settings, so that the recorded grid stays the same cell for cell.
"""

from __future__ import annotations

import random
import zlib
from typing import Any

from advisor.memory.placement import EXPERTS
from advisor.model.spec import ModelSpec

_FREE_MIB = (3000, 6144, 11000, 16384, 22528, 32768, 81920, 143360)
_CONTEXTS = (0, 1, 100, 512, 777, 3000, 4097, 8192, 12345, 20000, 32768, 40960, 77777, 131072, 200000)
_UBATCHES = (1, 7, 16, 31, 32, 33, 64, 100, 128, 384, 512, 512, 768, 1000, 2048, 4096)
_BATCHES = (2048, 2048, 2048, 16, 64, 256, 512, 4096, 8192)
_SLOTS = (1, 1, 2, 3, 5, 6, 8, 12, 16, 24, 32)
_CACHES = ("f32", "f16", "f16", "bf16", "q8_0", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
_KINDS = (
    "GPUs",
    "GPUs",
    "partial",
    "partial",
    "none",
    "-ngl 0",
    "cache on the host",
    "experts",
    "-ot",
    "-ot",
    "CPU only",
)
_PATTERNS = (
    "exps", "ffn_down", "ffn_(up|gate)", "attn_", "attn_(q|k|v|qkv)", "token_embd", "output", "output_norm",
    "blk\\.[0-3]\\.", "blk\\.(1|3|5|7)\\.ffn_.*", "blk\\.[0-9]*[02468]\\.", "\\.ffn_.*_exps\\.weight", "norm",
    "shexp", "ssm_",
)  # fmt: skip


def drawn_wide(model: str, spec: ModelSpec, seed: int, count: int) -> list[dict[str, Any]]:
    """`count` cells (model, settings, free memory) of one model, as many kinds of setting as fit."""
    rng = random.Random(zlib.crc32(f"wide {seed} {model}".encode()))
    kinds = [kind for kind in _KINDS if kind != "experts" or spec.n_expert]
    order: list[str] = []
    while len(order) < count:
        order += rng.sample(kinds, len(kinds))
    return [_cell(rng, model, spec, kind) for kind in order[:count]]


def _cell(rng: random.Random, model: str, spec: ModelSpec, kind: str) -> dict[str, Any]:
    layers, slots, batch = spec.n_layer_all, rng.choice(_SLOTS), rng.choice(_BATCHES)
    if any(layer.recurrent_state for layer in spec.layers):
        slots = min(slots, 4)  # the engine allocates their state even when it only measures
    type_k = rng.choice(_CACHES)
    n_gpus = 0 if kind == "CPU only" else rng.choice((1, 1, 2, 3, 4))
    settings: dict[str, Any] = {
        "ngl": layers + 1,
        "c": rng.choice(_CONTEXTS),
        "b": batch,
        "ub": rng.choice(_UBATCHES),
        "np": slots,
        "kvu": rng.randint(0, 1),
        "fa": rng.choice(("1", "0", "auto", "auto")),
        "no": rng.choice((min(slots, batch),) * 4 + (0,)),  # as the server asks, or as the other tools do
        "ctk": type_k,
        "ctv": type_k if rng.random() < 0.5 else rng.choice(_CACHES),
    }
    if rng.random() < 0.15:
        settings["swafull"] = 1
    if rng.random() < 0.15:
        settings["opo"] = 0
    if kind == "partial":
        settings["ngl"] = rng.randint(1, layers)
    elif kind == "none":
        n_gpus = rng.choice((2, 3, 4))
        settings.update(sm="none", mg=rng.randrange(n_gpus), ngl=rng.choice((layers + 1, layers + 1, layers // 2)))
    elif kind == "-ngl 0":
        settings["ngl"] = 0
    elif kind == "cache on the host":
        settings["kvo"] = 0
    elif kind == "CPU only":
        settings.update(ngl=0, extra=rng.randint(0, 1))
    if kind == "experts" or (kind == "-ot" and spec.n_expert and rng.random() < 0.3):
        blocks = rng.randint(1, layers)
        settings["_ncmoe"] = blocks
        settings["ot"] = f"blk\\.({'|'.join(str(i) for i in range(blocks))}){EXPERTS}"
    if kind == "-ot":
        buffers = ["CPU", "CPU", *(f"FAKE{i}" for i in range(n_gpus))]
        patterns = rng.sample(_PATTERNS, rng.randint(1, 3))
        settings["ots"] = ";".join(f"{pattern}={rng.choice(buffers)}" for pattern in patterns)
        if rng.random() < 0.4:
            settings["ngl"] = rng.randint(0, layers + 1)
    if n_gpus > 1 and rng.random() < 0.4:
        settings["ts"] = ",".join(str(rng.choice((0, 1, 1, 2, 3, 7))) for _ in range(n_gpus))
    return {"model": model, "settings": settings, "free_mib": [rng.choice(_FREE_MIB) for _ in range(n_gpus)]}
