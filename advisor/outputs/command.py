"""Settings as a paste-ready llama-server command line."""

from __future__ import annotations

from advisor.memory.engine_spec import EngineSpec
from advisor.memory.types import MemoryPlan
from advisor.settings import ALL_LAYERS, AUTO_LAYERS, BesideSettings


def server_options(
    plan: MemoryPlan,
    engine: EngineSpec,
    *,
    mode: str,
    n_layer_all: int,
    margin_bytes: int,
    embeds: bool = False,
    only_devices: bool = False,
    cache_ram_mib: int | None = None,
    n_ctx_checkpoints: int | None = None,
) -> list[tuple[str, str]]:
    """(long option without dashes, value) pairs; flags without value have an empty value.

    "exact" writes every setting that the prediction rests on and switches the engine's own fit off; "safe" leaves the
    layers to the engine's fit and tells it the margin. `only_devices` says that the machine has more GPUs than the
    plan; `cache_ram_mib` and `n_ctx_checkpoints` limit what the server keeps of old prompts and states.
    """
    settings = plan.settings
    options = [("ctx-size", str(settings.n_ctx))]
    exact = mode == "exact"
    if embeds:
        options.append(("embeddings", ""))
    if not plan.devices or only_devices:
        options.append(("device", ",".join(device.id for device in plan.devices) or "none"))
    if plan.devices and exact:
        options.append(("n-gpu-layers", str(settings.n_gpu_layers)))
        if settings.n_cpu_moe >= n_layer_all:
            options.append(("cpu-moe", ""))
        elif settings.n_cpu_moe:
            options.append(("n-cpu-moe", str(settings.n_cpu_moe)))
        if settings.tensor_overrides:  # one option: in a preset a repeated key replaces the earlier one
            pairs = (f"{override.pattern}={override.buffer}" for override in settings.tensor_overrides)
            options.append(("override-tensor", ",".join(pairs)))
        if settings.split_mode != "layer":
            options.append(("split-mode", settings.split_mode))
        counts = [plan.placement.count(index) for index in range(len(plan.devices))]
        if settings.split_mode == "layer" and len(counts) > 1 and any(counts):  # free memory then decides nothing
            options.append(("tensor-split", ",".join(str(count) for count in counts)))
        if settings.main_gpu:
            options.append(("main-gpu", str(settings.main_gpu)))
    if settings.cache_type_k != "f16" or settings.cache_type_v != "f16":
        options += [("cache-type-k", settings.cache_type_k), ("cache-type-v", settings.cache_type_v)]
    flash = "on" if plan.flash_attn else ("off" if settings.flash_attn == "off" else "auto")
    options.append(("flash-attn", flash))
    options.append(("parallel", str(settings.n_parallel)))
    if settings.kv_unified:
        options.append(("kv-unified", ""))
    usual = engine.defaults["n_batch"]
    if settings.n_batch != (usual if embeds else min(usual, settings.n_ctx)):
        options.append(("batch-size", str(settings.n_batch)))
    usual = engine.defaults["n_ubatch"]
    if settings.n_ubatch != (usual if embeds else min(usual, settings.n_batch)):
        options.append(("ubatch-size", str(settings.n_ubatch)))
    if settings.swa_full and not engine.defaults["swa_full"]:
        options.append(("swa-full", ""))
    if not settings.kv_offload:
        options.append(("no-kv-offload", ""))
    if not settings.op_offload:
        options.append(("no-op-offload", ""))
    if not settings.repack:
        options.append(("no-repack", ""))
    if cache_ram_mib is not None:
        options.append(("cache-ram", str(cache_ram_mib)))
    if n_ctx_checkpoints is not None:
        options.append(("ctx-checkpoints", str(n_ctx_checkpoints)))
    if settings.n_threads:
        options.append(("threads", str(settings.n_threads)))
    if not settings.mmap:
        options.append(("load-mode", "none") if engine.has_load_mode else ("no-mmap", ""))
    options += beside_options(settings.beside, engine)
    if exact:
        options.append(("fit", "off"))
    else:
        options += [("fit", "on"), ("fit-target", str(max(margin_bytes >> 20, 1)))]
    return options


def beside_options(beside: BesideSettings, engine: EngineSpec) -> list[tuple[str, str]]:
    """What is loaded beside the model, and the server's caches, as far as they were asked for."""
    options = [("lora", ",".join(beside.lora))] if beside.lora else []
    if beside.mmproj is not None:
        options.append(("mmproj", beside.mmproj))
    if not beside.mmproj_offload:
        options.append(("no-mmproj-offload", ""))
    if beside.spec_type:
        options.append(("spec-type", ",".join(beside.spec_type)))
    given = {
        "image-max-tokens": beside.image_max_tokens, "spec-draft-model": beside.draft_model,
        "spec-draft-n-max": beside.draft_n_max, "cache-ram": beside.cache_ram_mib,
        "ctx-checkpoints": beside.n_ctx_checkpoints,
    }  # fmt: skip
    options += [(name, str(value)) for name, value in given.items() if value is not None]
    layers = beside.draft_n_gpu_layers
    if layers is not None:
        options.append(("spec-draft-ngl", {ALL_LAYERS: "all", AUTO_LAYERS: "auto"}.get(layers, str(layers))))
    default = engine.draft["cache_type"]
    types = {"k": beside.draft_cache_type_k, "v": beside.draft_cache_type_v}
    return options + [(f"spec-draft-type-{side}", kind) for side, kind in types.items() if kind != default]


def quote(text: str) -> str:
    """`text` as one word of a POSIX shell; control characters make it a $'...' word."""
    if text and all(char.isalnum() or char in "@%+=:,./-_" for char in text) and text.isascii():
        return text
    if text.isprintable():
        return "'" + text.replace("'", "'\"'\"'") + "'"
    return "$'" + "".join(char if _plain(char) else _escape(char) for char in text) + "'"


def quote_file(path: str) -> str:
    """The same of a file's name, which no program then takes for an option."""
    return quote(f"./{path}" if path.startswith("-") else path)


def _plain(char: str) -> bool:
    return char.isprintable() and char not in "\\'"


def _escape(char: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


_SHORT = {
    "ctx-size": "-c", "n-gpu-layers": "-ngl", "cache-type-k": "-ctk", "cache-type-v": "-ctv", "flash-attn": "-fa",
    "parallel": "-np", "batch-size": "-b", "ubatch-size": "-ub", "tensor-split": "-ts", "split-mode": "-sm",
    "main-gpu": "-mg", "override-tensor": "-ot", "threads": "-t",
}  # fmt: skip


_FILES = ("lora", "mmproj", "spec-draft-model")


def command_line(program: str, model_path: str, options: list[tuple[str, str]]) -> str:
    """One line that a POSIX shell runs: short options where llama.cpp has them."""
    words = [program, "-m", quote_file(model_path)]
    for name, value in options:
        words.append(_SHORT.get(name, f"--{name}"))
        if value:
            words.append(quote_file(value) if name in _FILES else quote(value))
    return " ".join(words)
