"""What is told of projectors and drafts: what they take, and what would take less."""

from __future__ import annotations

from advisor.host import Device
from advisor.memory.engine_spec import EngineSpec
from advisor.memory.extras import encoder_bytes, encoder_flash
from advisor.memory.types import DevicePlan
from advisor.model.beside import Encoder, Projector
from advisor.recommend.evaluate import Evaluator, Judged
from advisor.recommend.recommendation import Note
from advisor.units import format_bytes


def beside_notes(evaluator: Evaluator, judged: Judged) -> list[Note]:
    """Notes for one plan, the gravest first."""
    return [*_encoder(evaluator, judged), *_draft(judged)]


def _encoder(evaluator: Evaluator, judged: Judged) -> list[Note]:
    """An image encoder on a card whose flash attention does not run it keeps the scores of all pairs of patches."""
    beside, asked, engine = evaluator.beside, judged.plan.settings.beside, evaluator.engine
    if beside is None or beside.projector is None or beside.projector.vision is None or not asked.mmproj_offload:
        return []
    if not evaluator.host.devices:
        return []
    vision, device = beside.projector.vision, evaluator.host.devices[0]
    if encoder_flash(vision, device, engine.backends[device.backend], engine):
        return []
    plain, _, _ = encoder_bytes(vision, asked.image_max_tokens, engine, flash=False)
    fused, _, _ = encoder_bytes(vision, asked.image_max_tokens, engine, flash=True)
    n_tokens = int(engine.projector["fewer_tokens"])
    fewer, _, _ = encoder_bytes(vision, n_tokens, engine, flash=False)
    most = f", up to {format_bytes(plain.high)} for its largest picture" if plain.high > 2 * plain.value else ""
    where = f"{device.id}{_because(vision, device)}"
    text = (
        f"The image encoder runs without flash attention on {where}: it takes {format_bytes(plain.value)} of compute "
        f"there{most}, with flash attention {format_bytes(fused.value)}. --no-mmproj-offload keeps it on the CPU"
    )
    if fewer.high < plain.value:
        text += f"; --image-max-tokens {n_tokens} makes it {format_bytes(fewer.high)}"
    return [Note("encoder_without_flash_attention", f"{text}.", "llama_cpp.toml: projector")]


def _draft(judged: Judged) -> list[Note]:
    """Drafting keeps a context of its own, which follows neither the cache type nor the slots one would expect."""
    settings, plan = judged.plan.settings, judged.plan
    if not settings.beside.mtp and settings.beside.draft_model is None:
        return []
    cache, compute = (_extra_bytes(plan.devices, part) for part in ("cache", "compute"))
    cache += sum(extra.n_bytes.high for extra in plan.host.beside if extra.name.endswith("cache"))
    asked = settings.beside
    types = "/".join(dict.fromkeys((asked.draft_cache_type_k, asked.draft_cache_type_v)))
    text = (
        f"Drafting keeps a context of its own, {settings.n_ctx:,} tokens as the model's: {format_bytes(cache)} of "
        f"cache ({types}, -ctk and -ctv do not change it) and {format_bytes(compute)} of compute on the GPUs."
    )
    if settings.n_rollback:
        copies = 1 + settings.n_rollback
        text += f" The model's recurrent state is kept {copies} times, so that {settings.n_rollback} drafted tokens "
        text += "can be taken back."
    return [Note("draft_context", text, "llama_cpp.toml: draft")]


def _extra_bytes(devices: tuple[DevicePlan, ...], part: str) -> int:
    return sum(
        extra.n_bytes.high
        for device in devices
        for extra in device.extras
        if extra.name in (f"draft {part}", f"MTP {part}")
    )


def projector_on_card(projector: Projector, image_max_tokens: int | None, device: Device, engine: EngineSpec) -> str:
    """What a projector takes on `device`, in words."""
    text = f"{format_bytes(sum(tensor.n_bytes for tensor in projector.tensors))} of weights"
    if projector.vision is None:
        return text
    flash = encoder_flash(projector.vision, device, engine.backends[device.backend], engine)
    span, _, _ = encoder_bytes(projector.vision, image_max_tokens, engine, flash)
    without = "" if flash else f" without flash attention{_because(projector.vision, device)}"
    return f"{text} and up to {format_bytes(span.high)} of compute{without}"


def _because(vision: Encoder, device: Device) -> str:
    """Why flash attention does not run the encoder, in brackets."""
    if device.backend == "cuda" and device.compute_capability:
        return f" (compute capability {device.compute_capability})"
    return f" (heads of {vision.n_embd // vision.n_head})" if vision.n_head else ""
