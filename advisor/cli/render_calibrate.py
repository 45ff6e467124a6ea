"""A calibration as text: what was measured, and what it changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.cli.checking import Check, Figure, error_of
from advisor.cli.terminal import Screen, clean, columns

if TYPE_CHECKING:
    from advisor.calibration import Calibration, CpuTimes
    from advisor.cli.calibrate import Outcome
    from advisor.cli.calibrating import DiskFound
    from advisor.speed.trials import Trial

_SHOWN_TYPES = 8
_MARGIN = " " * 9


def render_calibrate(outcome: Outcome, screen: Screen) -> list[str]:
    """All lines."""
    calibration = outcome.calibration
    machine = calibration.machine
    title = f"{clean(machine.cpu)}, {machine.physical_cores} cores, measured in {outcome.seconds:.0f} s"
    lines = [*screen.wrap(screen.paint(title, "bold"), "  ", ""), ""]
    if calibration.ram_bytes_per_s is not None:
        lines.append(f"  memory   {calibration.ram_bytes_per_s / 1e9:.1f} GB/s, read by all cores")
    for disk in outcome.disks:
        lines += _disk_lines(disk, screen)
    if outcome.tried is not None and calibration.cpu is not None:
        lines += cpu_lines(calibration.cpu, screen)
        left = outcome.tried.left_out
        if left:
            names = dict.fromkeys(f"heads of {trial.head_size}" if trial.deep else _tried(trial) for trial in left)
            lines += screen.wrap(
                f"no time left for {', '.join(names)}; --seconds gives more", "           ", "           "
            )
    if outcome.check is not None:
        lines += ["", *check_lines(outcome.check, screen)]
    lines += [""]
    for note in outcome.notes:
        lines += screen.wrap(clean(note, 400), "    ", "  ! ")
    if outcome.path is not None:
        lines += screen.wrap(f"Kept in {clean(outcome.path, 300)}; 'advisor calibrate --forget' removes it.", "  ", "")
    return lines


def _tried(trial: Trial) -> str:
    return trial.kind if trial.what == "type" else "the vocabulary"


def _disk_lines(disk: DiskFound, screen: Screen) -> list[str]:
    folder = clean(disk.folder, 200)
    if disk.bytes_per_s is not None:
        rate = disk.bytes_per_s
        shown = f"{rate / 1e9:.2f} GB/s" if rate >= 1e9 else f"{rate / 1e6:.0f} MB/s"
        return screen.wrap(f"{shown} from {folder}", "           ", "  disk     ")
    return screen.wrap(f"not measured: {folder} {clean(disk.reason, 300)}", "           ", "  disk     ")


def cpu_lines(cpu: CpuTimes, screen: Screen, indent: str = "  ") -> list[str]:
    """What an engine's trials told, shortly."""
    build = f" b{cpu.build}" if cpu.build is not None else ""
    types = sorted(cpu.types, key=lambda entry: -entry.bytes_per_s)
    rates = ", ".join(f"{clean(entry.name, 20)} {entry.bytes_per_s / 1e9:.1f}" for entry in types[:_SHOWN_TYPES])
    more = f" and {len(types) - _SHOWN_TYPES} more" if len(types) > _SHOWN_TYPES else ""
    text = f"weights at GB/s on the CPU with {clean(cpu.engine, 60)}{build}: {rates}{more}"
    return screen.wrap(text, indent + _MARGIN, f"{indent}engine   ")


def check_lines(check: Check, screen: Screen) -> list[str]:
    """Before and after, against what the engine did."""
    name = f"{clean(check.spec.name)} {clean(check.spec.quantization)}, tokens/s"
    rows = [["", "measured", "before", "", "after", ""]]
    for figure in check.figures:
        rows.append(
            [_what(figure), _rate(figure.measured), *_pair(figure.before, figure), *_pair(figure.after, figure)]
        )
    table = columns(rows, right=(1, 2, 3, 4, 5))
    return [*screen.wrap(screen.paint(name, "bold"), "  ", ""), screen.paint("  " + table[0], "dim"),
            *("  " + line for line in table[1:])]  # fmt: skip


def _what(figure: Figure) -> str:
    if figure.what == "prefill":
        return f"reading a prompt of {figure.depth:,}"
    return f"answering after {figure.depth:,} tokens"


def _pair(predicted: float, figure: Figure) -> tuple[str, str]:
    return _rate(predicted), f"{100 * error_of(predicted, figure.measured):+.0f} %"


def _rate(tokens_per_s: float) -> str:
    return f"{tokens_per_s:,.0f}" if tokens_per_s >= 100 else f"{tokens_per_s:.3g}"


def calibration_lines(calibration: Calibration) -> list[str]:
    """What `advisor hardware` says of it."""
    from advisor.calibration import median

    screen = Screen()
    lines = [f"measured {clean(calibration.measured_on)} by 'advisor calibrate'"]
    if calibration.cpu is not None:
        lines += cpu_lines(calibration.cpu, screen, "")
    for run in calibration.runs:
        build = f" b{run.build}" if run.build is not None else ""
        pace = 100 * (1 / median(run.decode_factors) - 1) if run.decode_factors else 0.0
        text = (
            f"{clean(run.model, 60)} {clean(run.quantization, 20)} on {clean(run.device, 60)}{build}: "
            f"{pace:+.0f} % of the tokens/s predicted without it, {run.n_seen} timed"
        )
        lines += screen.wrap(text, _MARGIN, "run      ")
    return lines
