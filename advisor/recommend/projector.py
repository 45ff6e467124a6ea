"""Where a multimodal projector lies: on the first GPU as the engine puts it, or in system memory if that pays."""

from __future__ import annotations

from collections.abc import Callable

from advisor.host import Device, HostSnapshot
from advisor.memory.engine_spec import EngineSpec
from advisor.memory.extras import encoder_bytes, encoder_flash
from advisor.model.beside import Encoder, Projector
from advisor.recommend.recommendation import Note, Recommendation
from advisor.recommend.search import Wishes
from advisor.recommend.words import pace_text, tokens_text
from advisor.units import format_bytes

Answer = tuple[Recommendation, HostSnapshot]
_VERDICTS = ("does_not_fit", "cpu", "partial", "full")
_FASTER = 1.15  # what a turn must gain: pictures are read more slowly on the CPU


def place_projector(
    found: Answer, again: Callable[[Wishes], Answer], wishes: Wishes, projector: Projector, engine: EngineSpec,
    device: Device,
) -> Answer:  # fmt: skip
    """`found`, or the answer with the projector in system memory where that lets noticeably more onto the GPUs.

    `again` answers other wishes; `device` is the GPU that the engine would take.
    """
    answer, _ = found
    if answer.verdict == "full" or wishes.pinned.mmproj_offload is not None:
        return found
    other, left = again(wishes._replace(pinned=wishes.pinned._replace(mmproj_offload=False)))
    ranks = (_VERDICTS.index(other.verdict), _VERDICTS.index(answer.verdict))
    turns = (other.speed.turn_seconds.value, answer.speed.turn_seconds.value)
    if ranks[0] < ranks[1] or (ranks[0] == ranks[1] and turns[0] * _FASTER > turns[1]):
        return found
    weights = sum(tensor.n_bytes for tensor in projector.tensors)
    takes = f"{format_bytes(weights)} of weights"
    if projector.vision is not None:
        flash = encoder_flash(projector.vision, device, engine.backends[device.backend], engine)
        span, _, _ = encoder_bytes(projector.vision, wishes.pinned.image_max_tokens, engine, flash)
        without = "" if flash else f" without flash attention{because(projector.vision, device)}"
        takes += f" and up to {format_bytes(span.high)} of compute{without}"
    instead = "nothing would fit"
    if answer.verdict != "does_not_fit":
        settings = answer.chosen.plan.settings
        on_gpu = settings.n_gpu_layers if answer.chosen.plan.devices else 0
        layers = f"{on_gpu} layers would be on the GPU" if on_gpu else "no layer would be on the GPU"
        instead = f"{layers}, {tokens_text(settings)}, {pace_text(answer.speed)}"
    text = (
        f"The projector stays in system memory (--no-mmproj-offload): on {device.id} it takes {takes}, and {instead}. "
        f"Pictures are then read by the CPU, more slowly."
    )
    note = Note("projector_in_system_memory", text, "llama_cpp.toml: projector")
    return other._replace(reasons=(*other.reasons, note)), left


def because(vision: Encoder, device: Device) -> str:
    """Why flash attention does not run the encoder, in brackets."""
    if device.backend == "cuda" and device.compute_capability:
        return f" (compute capability {device.compute_capability})"
    return f" (heads of {vision.n_embd // vision.n_head})" if vision.n_head else ""
