"""What is told of plans beyond memory: silent spilling, limits of shared memory, disks, and streaming by layers."""

from __future__ import annotations

from advisor.recommend.evaluate import Evaluator, Judged
from advisor.recommend.recommendation import Note
from advisor.recommend.whole import whole_request
from advisor.recommend.words import pace_of, seconds_text
from advisor.settings import RequestedSettings
from advisor.speed import Speed
from advisor.speed.beyond import spilled_seconds, streaming_seconds
from advisor.units import KIB, MIB, format_bytes

_GIB = 1 << 30
# how a system lets a GPU take more of its memory than by default
_RAISED_BY = {
    "metal": ("sudo sysctl iogpu.wired_limit_mb={n}", MIB),
    "rocm": ("the kernel parameter ttm.pages_limit={n} (pages of 4 KiB)", 4 * KIB),
    "vulkan": ("the kernel parameter ttm.pages_limit={n} (pages of 4 KiB) on AMD", 4 * KIB),
}


def overflow_notes(
    evaluator: Evaluator, judged: Judged, speed: Speed, pinned: RequestedSettings | None = None
) -> list[Note]:
    """Notes for one plan on the evaluator's machine, the gravest first; `pinned`: what of it was asked for."""
    return [
        *_streaming(evaluator, judged, speed),
        *_spilling(evaluator, judged, speed),
        *_shared(evaluator, judged, pinned or RequestedSettings(n_ubatch=judged.request.n_ubatch)),
    ]


def _streaming(evaluator: Evaluator, judged: Judged, speed: Speed) -> list[Note]:
    """A model whose weights are larger than RAM and VRAM together."""
    if speed.bound_by != "disk":
        return []
    spec, constants = evaluator.spec, evaluator.constants
    rate, disk = speed.decode_tokens_per_s.value, constants.host.disk_bytes_per_s
    on_host = judged.plan.host.weights_bytes
    every = "the part of the weights that is used" if spec.n_expert else f"{format_bytes(on_host)} of weights"
    text = (
        f"Weights do not stay in memory and are read from disk for every token: {every} at "
        f"{disk / 1e9:g} GB/s, {pace_of(rate) if rate >= 1 else f'about {seconds_text(1 / rate)} a token'}."
    )
    notes = [Note("streams_from_disk", text, "speed.toml: disk")]
    seconds = streaming_seconds(spec.parameters, constants)
    if seconds < 1:  # of small models nobody streams layers
        return notes
    text = (
        f"Programs that stream layers through a small GPU (AirLLM and the like) run it with exact results, but read "
        f"all {format_bytes(2 * spec.parameters)} of the 16-bit weights for every token: {seconds_text(seconds)} a "
        f"token or more, which is no use for a chat."
    )
    notes.append(Note("layer_streaming", text, "speed.toml: disk"))
    return notes


def _spilling(evaluator: Evaluator, judged: Judged, speed: Speed) -> list[Note]:
    """Drivers that put what does not fit into system memory instead of failing."""
    host, budget = evaluator.host, evaluator.budget
    windows = host.platform in ("windows", "wsl")
    spilling = [windows or device.backend == "vulkan" for device in host.devices]
    over = tuple(
        max(plan.planned_bytes - limit.free_bytes, 0) if spills and not limit.unified else 0
        for plan, limit, spills in zip(judged.plan.devices, budget.devices, spilling, strict=True)
    )
    if any(over):
        slow = 1 / (1 / speed.decode_tokens_per_s.value + spilled_seconds(judged.plan, over, evaluator.constants))
        who = "Windows moves" if windows else "Vulkan's drivers move"
        pace = f"about {slow:.1f} tokens/s" if slow >= 1 else f"about {seconds_text(1 / slow)} a token"
        text = (
            f"{who} what does not fit the card into system memory without a word instead of failing: it would load "
            f"and answer at {pace}."
        )
        if any(device.backend == "cuda" for device in host.devices) and windows:
            text += " 'Prefer No Sysmem Fallback' in the NVIDIA Control Panel makes it fail instead."
        return [Note("spills_to_system_memory", text, "speed.toml: copies.spill_efficiency")]
    tight = [
        limit.id
        for plan, limit in zip(judged.plan.devices, budget.devices, strict=True)
        if plan.planned_bytes and not limit.unified and limit.free_bytes - plan.planned_bytes < 3 * _GIB // 2
    ]
    if windows and tight and judged.fits:
        text = (
            f"{' and '.join(tight)} will be nearly full: if another program takes memory, Windows moves a part of the "
            f"model to system memory without a word, and answers become several times slower."
        )
        if any(device.backend == "cuda" for device in host.devices):
            text += " 'Prefer No Sysmem Fallback' in the NVIDIA Control Panel makes it fail instead."
        return [Note("windows_may_spill", text, "policy.toml: margins.windows_or_wsl_at_least")]
    return []


def _shared(evaluator: Evaluator, judged: Judged, pinned: RequestedSettings) -> list[Note]:
    """GPUs that work in system memory: how much of it they take, and how to raise their limit."""
    notes = []
    for index, (device, limit) in enumerate(zip(evaluator.host.devices, evaluator.budget.devices, strict=True)):
        plan = judged.plan.devices[index]
        if not limit.unified or not plan.planned_bytes:
            continue
        wanted = plan.planned_bytes - limit.private_bytes
        how, unit = _RAISED_BY.get(device.backend, ("", 1))
        over = plan.planned_bytes > limit.usable_bytes
        if how and evaluator.host.platform in ("linux", "darwin") and (over or judged.plan.read_host_bytes):
            whole = evaluator.judge(whole_request(evaluator, judged.request, pinned)).plan
            everything = whole.devices[index].planned_bytes
            taken = everything - limit.private_bytes + whole.host.planned_bytes
            if everything > limit.usable_bytes and taken <= evaluator.budget.ram_usable_bytes:
                how = how.format(n=-(-(everything + limit.margin_bytes) // unit))
                text = (
                    f"{limit.id} works in system memory but may take only {format_bytes(limit.total_bytes)} of it; "
                    f"{how} lets it hold all {format_bytes(everything)}, and there is enough memory for that."
                )
                notes.append(Note("shared_memory_limit", text))
        if judged.fits and wanted > 0 and device.backend != "metal":
            text = (
                f"{limit.id} works in system memory: {format_bytes(wanted)} of it are taken from everything else, "
                f"and what runs beside it slows it down."
            )
            notes.append(Note("works_in_system_memory", text))
    return notes
