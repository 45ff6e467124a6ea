"""A comparison as text: a row for each figure, a column for each model, quantization or machine."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.cli.compare_columns import Column
from advisor.cli.terminal import Screen, clean
from advisor.memory.engine_spec import EngineSpec
from advisor.recommend.contexts import WHOLE
from advisor.recommend.words import cache_name
from advisor.units import format_bytes

_GAP, _NARROWEST = 2, 9
_VERDICTS = {"full": "fits", "partial": "in part", "cpu": "on the CPU", "does_not_fit": "does not fit"}
_COLORS = {"fits": "green", "on the CPU": "green", "in part": "yellow", "does not fit": "red"}


def render_compare(columns: Sequence[Column], engine: EngineSpec, screen: Screen) -> list[str]:
    """All lines; columns that do not fit beside each other stand below each other."""
    rows = _rows(columns)
    first = max(len(row[0]) for row in rows)
    most = max((screen.width - first) // (_NARROWEST + _GAP), 1)
    blocks = -(-len(columns) // most)
    size = -(-len(columns) // blocks)
    lines = _common(columns, screen)
    for start in range(0, len(columns), size):
        block = [[row[0], *row[1 + start : 1 + start + size]] for row in rows]
        lines += ["", *_table(block, first, size, screen)]
    notes = []
    if len({column.n_ctx for column in columns}) == 1:
        notes.append(f"f16 cache: of {columns[0].n_ctx:,} tokens.")
    if any(_in_part(column) for column in columns):
        notes.append("*: with the chosen layers on the GPU, otherwise with all of them.")
    if any(column.answer.speed.confidence == "low" for column in columns):
        notes.append("(?): low confidence.")
    lines += ["", *screen.wrap(" ".join(notes))] if notes else []
    lines += _beyond_training(columns, screen)
    build = f"b{engine.build}" + ("" if engine.confidence == "measured" else ", extrapolated")
    return [*lines, "", screen.paint(f"Figures: formula for {engine.name} {build}.", "dim")]


def _beyond_training(columns: Sequence[Column], screen: Screen) -> list[str]:
    """Who is asked for a longer context than it was trained for."""
    said: dict[str, None] = {}
    for column in columns:
        for note in column.answer.warnings:
            if note.code == "beyond_trained_context":
                said[f"{clean(column.spec.name)}: {note.text}"] = None
    lines = [line for text in said for line in screen.wrap(text, "    ", f"  {screen.paint('!', 'yellow')} ")]
    return ["", *lines] if lines else []


def _common(columns: Sequence[Column], screen: Screen) -> list[str]:
    """What all columns share stands once, above them."""
    names = {(column.spec.name, column.spec.path) for column in columns}
    machines = {_machine(column) for column in columns}
    first = columns[0]
    lines = []
    if len(names) == 1:
        lines += screen.wrap(f"{clean(first.spec.name)}: {clean(first.spec.architecture)}", "  ", "")
    if len(machines) == 1:
        lines += screen.wrap(f"on {_machine(first)}", "   ", "")
    return lines


def _machine(column: Column) -> str:
    budget = column.answer.budget
    return f"{clean(column.machine_name)}, {format_bytes(budget.ram_available_bytes)} of system memory free"


def _rows(columns: Sequence[Column]) -> list[list[str]]:
    """Label and cells of each row."""
    rows: list[list[str]] = []

    def row(label: str, cells: Sequence[str]) -> None:
        rows.append([label, *cells])

    if len({(column.spec.name, column.spec.path) for column in columns}) > 1:
        row("model", [clean(column.spec.name) for column in columns])
    row("quantization", [column.spec.quantization for column in columns])
    if len({_machine(column) for column in columns}) > 1:
        row("machine", [clean(column.machine_name) for column in columns])
    row("", [""] * len(columns))
    row("weights", [format_bytes(column.weights_bytes) for column in columns])
    lengths = sorted({column.n_ctx for column in columns})
    at = ["" if len(lengths) == 1 else f" at {column.n_ctx:,}" for column in columns]
    row("f16 cache", [format_bytes(c.cache_bytes) + more for c, more in zip(columns, at, strict=True)])
    plans = [column.answer.chosen.plan for column in columns]
    every = [column.spec.n_layer_all + 1 for column in columns]
    for kind in dict.fromkeys(each.cache_type for column in columns for each in column.answer.contexts.rows):
        row(f"longest, {kind}", [_longest(column, kind) for column in columns])
    row("", [""] * len(columns))
    row("layers on GPU", [_layers(column, count) for column, count in zip(columns, every, strict=True)])
    row("context", [f"{plan.settings.n_ctx:,}" for plan in plans])
    if any(plan.settings.n_parallel > 1 for plan in plans):
        row("slots", [str(plan.settings.n_parallel) for plan in plans])
    row("cache type", [cache_name(column.answer.chosen) for column in columns])
    row("GPU memory", [_gpu(column) for column in columns])
    row("system memory", [format_bytes(plan.host.planned_bytes) for plan in plans])
    row("tokens/s", [_speed(column) for column in columns])
    row("range", [_range(column) for column in columns])
    row("prompt, /s", [f"{column.answer.speed.prefill_tokens_per_s.value:,.0f}" for column in columns])
    row("verdict", [_VERDICTS[column.answer.verdict] for column in columns])
    return rows


def _layers(column: Column, every: int) -> str:
    settings = column.answer.chosen.plan.settings
    blocks = column.answer.chosen.plan.host_expert_blocks
    count = settings.n_gpu_layers if column.host.devices else 0
    text = f"all {every}" if count >= every else f"{count} of {every}"
    return f"{text}, experts of {blocks} not" if blocks and count else text


def _longest(column: Column, kind: str) -> str:
    table = column.answer.contexts
    found = next((row for row in table.rows if row.cache_type == kind), None)
    if found is None:
        return "-"
    if found.max_n_ctx is None:
        return "none"
    more = "+" if found.at_least and found.max_n_ctx > table.n_ctx_trained else ""
    return f"{found.max_n_ctx:,}{more}{'*' if _in_part(column) else ''}"


def _in_part(column: Column) -> bool:
    """Whether the longest contexts are with a part of the layers on the GPU."""
    return bool(column.host.devices) and not column.answer.contexts.basis.startswith(WHOLE)


def _gpu(column: Column) -> str:
    planned = [device.planned_bytes for device in column.answer.chosen.plan.devices]
    return " + ".join(format_bytes(each) for each in planned) or "-"


def _speed(column: Column) -> str:
    if not column.spec.answers:
        return "-"
    unsure = " (?)" if column.answer.speed.confidence == "low" else ""
    return _number(column.answer.speed.decode_tokens_per_s.value) + unsure


def _range(column: Column) -> str:
    rate = column.answer.speed.decode_tokens_per_s
    return f"{_number(rate.low)} to {_number(rate.high)}" if column.spec.answers else "-"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def _table(rows: Sequence[Sequence[str]], first: int, n_columns: int, screen: Screen) -> list[str]:
    """Rows whose cells wrap to the room that each column has."""
    room = (screen.width - first) // n_columns - _GAP
    widths = [
        min(room, max(max(len(row[index]) for row in rows), _NARROWEST)) for index in range(1, len(rows[0]))
    ]  # fmt: skip
    lines = []
    for label, *cells in rows:
        wrapped = [_wrap(cell, width) for cell, width in zip(cells, widths, strict=True)]
        for number in range(max(len(each) for each in wrapped)):
            parts = [
                (each[number] if number < len(each) else "").rjust(w) for each, w in zip(wrapped, widths, strict=True)
            ]
            if label == "verdict":
                parts = [
                    screen.paint(part, _COLORS[cell]) if part.strip() else part
                    for part, cell in zip(parts, cells, strict=True)
                ]
            head = label if number == 0 else ""
            lines.append((head.ljust(first) + "".join(" " * _GAP + part for part in parts)).rstrip())
    return lines


def _wrap(text: str, width: int) -> list[str]:
    """`text` in lines of `width`, broken at spaces, else behind - _ . / and + , else anywhere."""
    lines: list[str] = []
    while len(text) > width:
        cut = text.rfind(" ", 0, width + 1)
        if cut <= 0:
            cut = max(text.rfind(mark, 0, width) for mark in "-_./+") + 1
            cut = cut if cut > width // 3 else width
        lines.append(text[:cut].rstrip())
        text = text[cut:].lstrip()
    return [*lines, text]
