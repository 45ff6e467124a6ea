"""Host memory that the server fills over time, beside what it takes when it starts."""

from __future__ import annotations

from advisor.ggml_types import BY_NAME
from advisor.memory.engine_spec import EngineSpec
from advisor.model.alike import Alike
from advisor.settings import RunSettings


def checkpoints_of_slot(settings: RunSettings, engine: EngineSpec) -> int:
    """How many checkpoints of its state the server may come to keep for a slot."""
    asked = settings.beside.n_ctx_checkpoints
    return max(int(engine.server["context_checkpoints"] if asked is None else asked), 0)


def server_extras(blocks: Alike, settings: RunSettings, engine: EngineSpec) -> dict[str, int]:
    """Host memory that the server fills over time: saved prompts, and checkpoints of what cannot be rewound."""
    per_sequence = 0
    for number, blocks_alike in blocks.totals():
        layer = blocks.kinds[number]
        per_sequence += blocks_alike * 4 * (layer.recurrent_conv + layer.recurrent_state)
        if layer.has_cache and layer.n_window and not settings.swa_full:
            cells = min(settings.n_ctx_seq, layer.n_window + settings.n_ubatch)
            for name, width in ((settings.cache_type_k, layer.k_width), (settings.cache_type_v, layer.v_width)):
                kind = BY_NAME[name.lower()]
                per_sequence += blocks_alike * (cells * width // kind.block_elements * kind.block_bytes)
    count = checkpoints_of_slot(settings, engine)
    ram = settings.beside.cache_ram_mib
    return {
        "prompt_cache_bytes": engine.server["prompt_cache_bytes"] if ram is None else ram << 20 if ram >= 0 else -1,
        "context_checkpoints_bytes": per_sequence * count * settings.n_parallel,
    }
