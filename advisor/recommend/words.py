"""Short phrases that several sentences share: a cache, layers, a pace, a context."""

from __future__ import annotations

from advisor.memory.engine_spec import EngineSpec
from advisor.memory.placement import HOST, Overrides
from advisor.model.spec import ModelSpec
from advisor.recommend.evaluate import Judged
from advisor.settings import RunSettings
from advisor.speed import Speed


def cache_name(judged: Judged) -> str:
    """The cache's type, f16 for example, or q8_0/q4_0 when keys and values differ."""
    settings = judged.plan.settings
    if settings.cache_type_k == settings.cache_type_v:
        return settings.cache_type_k
    return f"{settings.cache_type_k}/{settings.cache_type_v}"


def layers_text(spec: ModelSpec, judged: Judged) -> str:
    """Where the layers live, in words: all 33 layers on the GPU, 24 of 41 layers on the GPU, the CPU alone.

    A GPU that holds no layer may still compute prompts, see `reads_on_gpu`.
    """
    settings, every = judged.plan.settings, spec.n_layer_all + 1
    if not judged.plan.devices or settings.n_gpu_layers == 0:
        return reads_on_gpu(spec, judged) or "the CPU alone"
    where = gpus_text(judged)
    text = (
        f"all {every} layers on {where}"
        if settings.n_gpu_layers >= every
        else (f"{settings.n_gpu_layers} of {every} layers on {where}")
    )
    return text + experts_text(spec, judged)


def reads_on_gpu(spec: ModelSpec, judged: Judged) -> str:
    """Where no layer lies on a GPU that still computes prompts, with weights copied to it for each batch; else ""."""
    if not any(device.compute.high for device in judged.plan.devices) or not judged.plan.settings.op_offload:
        return ""
    what = "prompts" if spec.answers else "texts"
    return f"the weights in system memory, {what} computed on {gpus_text(judged)}"


def n_gpus_used(judged: Judged) -> int:
    """GPUs that hold a layer; with none that does, those that hold anything."""
    on = [device for device in judged.plan.devices if device.weights_bytes or device.cache_bytes]
    return len(on) or sum(device.planned_bytes > 0 for device in judged.plan.devices)


def gpus_text(judged: Judged) -> str:
    """The GPU, 2 GPUs: those that hold layers."""
    count = n_gpus_used(judged)
    return "the GPU" if count == 1 else f"{count} GPUs"


def moves(chosen: Judged, other: Judged) -> list[tuple[int, str]]:
    """How many layers another plan has more than the chosen one, and on which GPU, for each that has more."""
    pairs = [
        (other.plan.placement.count(index) - chosen.plan.placement.count(index), device.id)
        for index, device in enumerate(chosen.plan.devices)
    ]
    return [(more, device) for more, device in pairs if more > 0]


def moved_text(chosen: Judged, other: Judged) -> str:
    """The same in words: 5 more layers on CUDA1; "" where there are none."""
    return " and ".join(
        f"{more} more layer{'s' if more > 1 else ''} on {device}" for more, device in moves(chosen, other)
    )


def experts_text(spec: ModelSpec, judged: Judged) -> str:
    """What of the experts lies on the CPU, after a comma; nothing where nothing does."""
    n_whole, n_in_part = experts_away(spec, judged)
    if not n_in_part:
        return f", experts of {blocks_text(n_whole)} on the CPU" if n_whole else ""
    if not n_whole:
        return f", some experts of {blocks_text(n_in_part)} on the CPU"
    return f", experts of {blocks_text(n_whole)} and some of {n_in_part} more on the CPU"


def experts_away(spec: ModelSpec, judged: Judged) -> tuple[int, int]:
    """Blocks on a GPU whose experts are all on the CPU, and further ones of which only some tensors are there."""
    plan = judged.plan
    if not plan.settings.tensor_overrides:
        return plan.host_expert_blocks, 0
    overrides = Overrides(plan.settings, [device.id for device in plan.devices])
    some, stay = set[int](), set[int]()
    for tensor in spec.tensors:
        block = tensor.block
        if "exps" not in tensor.name or not (None in overrides.blocks or block in overrides.blocks):
            continue
        if overrides.is_expert(tensor.name) and tensor.place != "skipped" and plan.placement[block] != HOST:
            (some if overrides.target(tensor.name, block) == HOST else stay).add(block)
    n_in_part = len(some & stay)
    return plan.host_expert_blocks - n_in_part, n_in_part


def blocks_text(count: int) -> str:
    """1 block, 2 blocks."""
    return f"{count} block" + ("s" if count != 1 else "")


def on(device: str) -> str:
    """Where that is, of a device's id or "host"."""
    return "in system memory" if device == "host" else f"on {device}"


def saved_on(device: str, whole: bool = True) -> str:
    """Where a fix saves memory, of a device's id or "host"; `whole`: with every layer on the GPUs."""
    return on(device) + (", with every layer on the GPU" if whole and device != "host" else "")


def pace_text(speed: Speed) -> str:
    """How fast it answers: about 43 tokens/s, about 1.2 seconds a token."""
    return pace_of(speed.decode_tokens_per_s.value)


def use_rate(spec: ModelSpec, speed: Speed) -> float:
    """Tokens/s as the model is used: answering, or reading where it only embeds."""
    return (speed.decode_tokens_per_s if spec.answers else speed.prefill_tokens_per_s).value


def pace_of(rate: float) -> str:
    """The same for a rate in tokens/s."""
    if rate < 1:
        return f"about {1 / rate:.1f} seconds a token" if rate > 0.1 else f"about {1 / rate:,.0f} seconds a token"
    return f"about {rate:,.0f} tokens/s" if rate >= 10 else f"about {rate:.1f} tokens/s"


def seconds_text(seconds: float) -> str:
    """A time in words: 4.2 seconds, 47 seconds, 12 minutes."""
    if seconds >= 120:
        return f"{seconds / 60:,.0f} minutes"
    return f"{seconds:.0f} seconds" if seconds >= 10 else f"{seconds:.1f} seconds"


def blas_text(engine: EngineSpec) -> str:
    """What a build with BLAS costs."""
    slow, fast = engine.blas["prefill_tokens_per_s"], engine.blas["prefill_without_tokens_per_s"]
    return (
        f"the engine is built with BLAS: what lies on the CPU then stays there when a prompt is read, instead of being "
        f"computed on the GPU ({slow:,} instead of {fast:,} tokens/s in a public report); use a build without GGML_BLAS"
    )


def tokens_text(settings: RunSettings, n_ctx: int | None = None) -> str:
    """A context in words: 32,768 tokens, or what each slot gets of it: 8,192 tokens a slot."""
    n_ctx = settings.n_ctx if n_ctx is None else n_ctx
    divided = settings.n_parallel > 1 and not settings.kv_unified
    return f"{n_ctx // settings.n_parallel:,} tokens a slot" if divided else f"{n_ctx:,} tokens"
