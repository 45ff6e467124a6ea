"""A memory plan and a speed as text: one bar per device, one line of figures below it."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.cli.terminal import Screen, clean
from advisor.host import HostSnapshot
from advisor.memory.engine_spec import EngineSpec
from advisor.memory.types import DevicePlan, Extra, MemoryPlan
from advisor.model.spec import ModelSpec
from advisor.recommend.budget import Budget, DeviceBudget, host_over_bytes, shared_bytes
from advisor.recommend.recommendation import Note
from advisor.speed import Range, Speed
from advisor.units import format_bytes


def headline(spec: ModelSpec, host: HostSnapshot, budget: Budget, screen: Screen) -> list[str]:
    """Which model, on which machine."""
    cards = [
        f"{clean(real.name)} ({format_bytes(limit.free_bytes)} of {format_bytes(limit.total_bytes)} free)"
        for real, limit in zip(host.devices, budget.devices, strict=True)
    ]
    ram = f"{format_bytes(budget.ram_available_bytes)} of {format_bytes(budget.ram_total_bytes)} system memory free"
    machine = " + ".join(cards) if cards else "no GPU"
    return [*model_line(spec, screen), *screen.wrap(f"on {machine}, {ram}", "   ", "")]


def model_line(spec: ModelSpec, screen: Screen) -> list[str]:
    """Which model."""
    size = f" · {format_bytes(spec.file_bytes)}" if spec.file_bytes else ""
    trained = f" · trained for {spec.n_ctx_train:,} tokens" if spec.n_ctx_train else ""
    model = f"{screen.paint(clean(spec.name), 'bold')}: {clean(spec.architecture)} {spec.quantization}{size}{trained}"
    dot = screen.symbol("·", "-")
    return screen.wrap(model.replace("·", dot), "  ", "")


def memory_lines(plan: MemoryPlan, budget: Budget, screen: Screen) -> list[str]:
    """The plan of every device and of the host."""
    lines = []
    width = max([len(device.id) for device in plan.devices] + [4])
    for device, limit in zip(plan.devices, budget.devices, strict=True):
        lines += _device_lines(device, limit, width, screen, host_over_bytes(plan, budget))
    return lines + _host_lines(plan, budget, width, screen)


def _device_lines(device: DevicePlan, limit: DeviceBudget, width: int, screen: Screen, host_over: int) -> list[str]:
    parts = [
        ("weights", device.weights_bytes, "blue", "W"),
        ("cache", device.cache_bytes, "magenta", "K"),
        ("compute", device.compute.high, "cyan", "C"),
        ("backend", device.overhead_bytes, "yellow", "B"),
        ("beside", device.extras_bytes, "green", "X"),
    ]
    over = device.planned_bytes - limit.usable_bytes + limit.below_margin_bytes
    sizes = f"{format_bytes(device.planned_bytes)} of {format_bytes(limit.free_bytes)}"
    verdict = screen.paint(f"{format_bytes(over)} too much", "red", "bold") if over > 0 and device.planned_bytes else (
        f"{format_bytes(max(-over, 0))} to spare, {format_bytes(limit.margin_bytes)} kept free"
    )  # fmt: skip
    if limit.unified and host_over > over:  # system memory, where this device lives, is the tighter limit
        spare = "nothing" if host_over >= 0 else format_bytes(-host_over)
        verdict = (
            verdict if over > 0 and device.planned_bytes else f"{spare} to spare in system memory, which it shares"
        )
    lines = _bar_lines(device.id.ljust(width), parts, max(limit.free_bytes, 1), sizes, verdict, screen)
    return lines + _extra_lines(device.extras, width, screen)


def _extra_lines(extras: Sequence[Extra], width: int, screen: Screen) -> list[str]:
    """What is loaded beside the model, a line each."""
    lines: list[str] = []
    for extra in extras:
        low, _, high = extra.n_bytes
        size = format_bytes(high) if low == high else f"{format_bytes(low)} to {format_bytes(high)}"
        indent = " " * (width + 4)
        lines += screen.wrap(f"{clean(extra.name, 200)} {size} ({extra.source})", indent + "  ", indent)
    return lines


def _host_lines(plan: MemoryPlan, budget: Budget, width: int, screen: Screen) -> list[str]:
    host, shared = plan.host, shared_bytes(plan, budget)
    parts = [
        ("weights", host.weights_bytes, "blue", "W"),
        ("cache", host.cache_bytes, "magenta", "K"),
        ("compute", host.compute.high, "cyan", "C"),
        ("output", host.output_bytes, "yellow", "O"),
        ("beside", host.beside_bytes, "green", "X"),
        ("the GPU's", shared, "green", "G"),
    ]
    over = host_over_bytes(plan, budget)
    own = format_bytes(host.planned_bytes) + (f" + {format_bytes(shared)} of the GPU," if shared else "")
    sizes = f"{own} of {format_bytes(budget.ram_available_bytes)}"
    if over > 0:
        verdict = screen.paint(f"{format_bytes(over)} too much", "red", "bold")
    else:
        verdict = f"{format_bytes(-over)} to spare, {format_bytes(budget.ram_margin_bytes)} kept free"
    lines = _bar_lines("host".ljust(width), parts, max(budget.ram_available_bytes, 1), sizes, verdict, screen)
    return lines + _extra_lines(host.beside, width, screen)


def _bar_lines(
    label: str, parts: Sequence[tuple[str, int, str, str]], total: int, sizes: str, verdict: str, screen: Screen
) -> list[str]:
    cells = max(min(screen.width - len(label) - len(sizes) - 8, 40), 10)
    bar = screen.bar([(n_bytes, color, letter) for _, n_bytes, color, letter in parts], total, cells)
    indent = "  " + " " * len(label) + "  "
    lines = [f"  {screen.paint(label, 'bold')}  {bar}  {sizes}"]
    lines += _legend_lines([part for part in parts if part[1]], indent, screen)
    lines.append(indent + verdict)
    return lines


def _legend_lines(parts: Sequence[tuple[str, int, str, str]], indent: str, screen: Screen) -> list[str]:
    """What the parts of a bar are, in lines of the screen's width."""
    lines: list[str] = []
    shown = 0
    for number, (name, n_bytes, color, letter) in enumerate(parts):
        text = (name if screen.color else f"{letter} {name}") + f" {format_bytes(n_bytes)}"
        text += "," if number + 1 < len(parts) else ""
        if not lines or shown + 1 + len(text) > screen.width:
            lines.append(indent[:-1])
            shown = len(indent) - 1
        shown += 1 + len(text)
        lines[-1] += " " + (text.replace(name, screen.paint(name, color), 1) if screen.color else text)
    return lines or [indent]


def speed_line(speed: Speed, screen: Screen, *, answers: bool = True) -> list[str]:
    """Tokens per second, with the range and what bounds it; a model that only embeds does not answer."""
    decode, prefill = speed.decode_tokens_per_s, speed.prefill_tokens_per_s
    reading = _rate(prefill.value)
    full = speed.when_full
    later = ""
    if full is not None and speed.full_depth > speed.at_depth and full.value < 0.97 * decode.value:
        later = f" and {_rate(full.value)} when all {speed.full_depth:,} are used"
    text = (
        f"answers at {_range(decode)} with {speed.at_depth:,} tokens in the context{later}, "
        f"reads the prompt at {reading}; bound by {speed.bound_by}"
    )
    if not answers:
        text = f"reads {_range(prefill)}"
    if speed.confidence == "low":
        text += "; low confidence"
    return screen.wrap(text, "  ", "  ")


def _range(rate: Range) -> str:
    """A rate with its bounds, all in one unit: 53 tokens/s (45 to 61), 16 seconds a token (10 to 33)."""
    bounds = (rate.low, rate.high) if rate.value >= 1 else (1 / max(rate.high, 1e-9), 1 / max(rate.low, 1e-9))
    return f"{_rate(rate.value)} ({_number(bounds[0])} to {_number(bounds[1])})"


def _rate(value: float) -> str:
    return f"{_number(value)} tokens/s" if value >= 1 else f"{_number(1 / max(value, 1e-9))} seconds a token"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def note_lines(notes: Sequence[Note], screen: Screen, mark: str, color: str) -> list[str]:
    """Notes as a list with marks."""
    lines: list[str] = []
    for note in notes:
        wrapped = screen.wrap(clean(note.text, 400), "    ", f"  {mark} ")
        wrapped[0] = wrapped[0].replace(f"  {mark} ", f"  {screen.paint(mark, color, 'bold')} ", 1)
        lines += wrapped
    return lines


def source_line(spec: ModelSpec, engine: EngineSpec, screen: Screen) -> str:
    """Where the figures come from."""
    build = f"b{engine.build}" + ("" if engine.confidence == "measured" else ", extrapolated")
    rule = f"architecture {spec.architecture} {spec.confidence}"
    return screen.paint(f"Figures: formula for {engine.name} {build}; {clean(rule)}.", "dim")
