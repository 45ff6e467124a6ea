"""A seeded grid of settings: the same seed gives the same cells for every build."""

from __future__ import annotations

import random
import zlib
from typing import Any

from tests.tools.cells import DATA, spec

_FREE = (8192, 12288, 16384, 24576, 49152)  # MiB
_CONTEXTS = (2048, 4096, 5000, 8192, 16384, 32768, 65536, 100000, 131072)
_CACHES = (("f16", "f16"), ("f16", "f16"), ("q8_0", "q8_0"), ("q8_0", "f16"), ("q8_0", "q4_0"), ("q4_0", "q4_0"))
_KINDS = ("one GPU", "one GPU", "one GPU", "partial", "partial", "two GPUs", "two GPUs", "three GPUs",
          "-ngl 0", "cache on the host", "experts", "CPU only")  # fmt: skip
_EXPERTS = "\\.ffn_(up|down|gate|gate_up)_(ch|)exps"


def zoo() -> list[str]:
    """Names of all model shapes."""
    return sorted(path.name.removesuffix(".json.gz") for path in (DATA / "zoo").glob("*.json.gz"))


def drawn(model: str, seed: int, count: int) -> list[dict[str, Any]]:
    """`count` cells (model, settings, free memory) of one model, as many kinds of setting as fit."""
    rng = random.Random(zlib.crc32(f"{seed} {model}".encode()))
    kinds = [kind for kind in _KINDS if kind != "experts" or spec(model).n_expert]
    order: list[str] = []
    while len(order) < count:
        order += rng.sample(kinds, len(kinds))
    return [_cell(rng, model, kind) for kind in order[:count]]


def _cell(rng: random.Random, model: str, kind: str) -> dict[str, Any]:
    layers = spec(model).n_layer_all
    slots = rng.choice((1, 1, 2, 3, 4, 4))
    type_k, type_v = rng.choice(_CACHES)
    settings: dict[str, Any] = {
        "ngl": layers + 1,
        "c": rng.choice(_CONTEXTS),
        "ub": rng.choice((512, 512, 512, 256, 1024, 2048)),
        "np": slots,
        "kvu": rng.randint(0, 1),
        "fa": rng.choice(("1", "1", "1", "0", "auto", "auto")),
        "no": slots,
        "ctk": type_k,
        "ctv": type_v,
    }
    if rng.random() < 0.1:
        settings["swafull"] = 1
    n_gpus = {"two GPUs": 2, "three GPUs": 3, "CPU only": 0}.get(kind, 1)
    if kind == "partial":
        settings["ngl"] = rng.randint(1, layers)
        n_gpus = rng.choice((1, 1, 2))
    elif kind == "-ngl 0":
        settings["ngl"] = 0
    elif kind == "cache on the host":
        settings["kvo"] = 0
    elif kind == "experts":
        blocks = rng.choice((1, layers // 4, layers // 2, layers))
        settings["_ncmoe"] = blocks
        here = "|".join(str(i) for i in range(blocks))
        settings["ot"] = _EXPERTS if blocks >= layers else f"blk\\.({here}){_EXPERTS}"
    elif kind == "CPU only":
        settings.update(ngl=0, extra=rng.randint(0, 1), no=rng.choice((0, slots, slots)))
    if n_gpus > 1 and rng.random() < 0.3:
        settings["ts"] = ",".join(str(rng.randint(1, 5)) for _ in range(n_gpus))
    return {"model": model, "settings": settings, "free_mib": [rng.choice(_FREE) for _ in range(n_gpus)]}
