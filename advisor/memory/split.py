"""Ways to split a model over GPUs that an engine does not have.

Source: llama.cpp b11549 src/llama-model.cpp (make_gpu_buft_list, llama_model_create), src/llama.cpp
(llama_prepare_model_devices), src/llama-context.cpp (llama_init_from_model); the lists are in the engine's rules.
"""

from collections.abc import Iterable

from advisor.gguf_header.errors import excerpt
from advisor.memory.engine_spec import BackendRules, EngineSpec
from advisor.model.spec import ModelSpec
from advisor.settings import RunSettings


def split_refusal(
    spec: ModelSpec, settings: RunSettings, engine: EngineSpec, backends: Iterable[BackendRules]
) -> str | None:
    """Why the engine would not load the model with its -sm on these GPUs, or None."""
    names = {backend.name for backend in backends}
    if settings.split_mode == "row":
        lacking = sorted(names - engine.row_split)
        if lacking:
            return f"b{engine.build} cannot split by rows on {' and '.join(lacking)}; leave -sm row away"
    if settings.split_mode == "tensor":
        if not names:
            return "-sm tensor needs a GPU; leave it away"
        if spec.architecture in engine.no_tensor_split:
            return f"b{engine.build} cannot split {excerpt(spec.architecture)} with -sm tensor; leave it away"
        if settings.flash_attn == "off":
            return "-sm tensor needs flash attention, which is off; give -fa on"
    return None
