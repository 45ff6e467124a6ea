"""The models of all stores as a table, and below it what was not planned and why."""

from __future__ import annotations

import os
from collections.abc import Sequence

from advisor.cli.scan_plan import Answer, Question
from advisor.cli.terminal import Screen, clean, columns
from advisor.model.kinds import KIND_TEXT
from advisor.stores.types import StoredModel, StoreReport
from advisor.units import format_bytes

_STORES = {
    "folder": "Folder",
    "ollama": "Ollama",
    "huggingface": "Hugging Face cache",
    "lmstudio": "LM Studio",
    "jan": "Jan",
    "gpt4all": "GPT4All",
    "llama-cache": "llama.cpp cache",
    "textgen": "text-generation-webui",
}
VERDICTS = {"full": "fits", "partial": "in part", "cpu": "on CPU", "does_not_fit": "no"}
COLORS = {"full": "green", "partial": "yellow", "cpu": "cyan", "does_not_fit": "red"}
_SHORTEST_NAME = 20
_LONGEST_ALIGNED = 60  # characters of a name in a pipe
_WIDE = 105  # columns of a terminal from which on the table says more


def render_scan(
    reports: Sequence[StoreReport],
    planned: Sequence[Sequence[Answer | None]],
    question: Question,
    screen: Screen,
    *,
    given: bool,
) -> list[str]:
    """All lines of `advisor scan`; `given`: the folders were named by the user."""
    pairs = [list(zip(report.models, answers, strict=True)) for report, answers in zip(reports, planned, strict=True)]
    tables = [
        [(model, answer) for model, answer in rows if answer is not None and answer.problem is None] for rows in pairs
    ]
    lines = [*screen.wrap(_machine(question), "   ", ""), ""]
    lines += _tables(reports, tables, screen)
    lines += _not_planned(reports, pairs, screen)
    lines += _troubles(reports, screen, given)
    if not any(pairs):
        places = ", ".join(_place(report.folder) for report in reports)
        lines += screen.wrap(f"No models in {places}.", "   ", "")
    else:
        lines += screen.wrap(_totals([answer for rows in tables for _, answer in rows]), "   ", "")
    return lines


def _machine(question: Question) -> str:
    host = question.host
    cards = [
        f"{clean(d.name)} ({format_bytes(d.free_bytes)} of {format_bytes(d.total_bytes)} free)" for d in host.devices
    ]
    ram = f"{format_bytes(host.ram.available_bytes)} of {format_bytes(host.ram.total_bytes)} system memory free"
    return (
        f"On {' + '.join(cards) or 'no GPU'}, {ram}; {clean(question.engine.name)} b{question.engine.build}, "
        f"{clean(question.intent)}."
    )


def _tables(
    reports: Sequence[StoreReport], tables: Sequence[Sequence[tuple[StoredModel, Answer]]], screen: Screen
) -> list[str]:
    """A heading per folder, and the rows of all folders in common columns."""
    wide = screen.width >= _WIDE or not screen.is_terminal
    head = ["model", "size", "fits", "longest", "tokens/s"]
    if wide:
        head = ["model", "quant", "size", "fits", "context", "longest", "tokens/s", "with"]
    right = tuple(index for index, name in enumerate(head) if name in ("size", "context", "longest", "tokens/s"))
    cells = [head]
    for table in tables:
        for model, answer in table:
            values = _cells(model, answer)
            cells.append([values[name] for name in head])
    if len(cells) == 1:
        return []
    if all(not row[-1] for row in cells[1:]):
        cells = [row[:-1] for row in cells]
    room = _LONGEST_ALIGNED
    if screen.is_terminal:
        rest = max(len(line) for line in columns([["", *row[1:]] for row in cells], right=right)) + 2
        room = max(screen.width - rest, _SHORTEST_NAME)
    names = [row[0] for row in cells]
    cells = [[_shorten(row[0], room, screen), *row[1:]] for row in cells]
    aligned = columns(cells, right=right)
    if not screen.is_terminal:  # who reads a pipe gets whole names; the few long ones move only their own row
        aligned = [name + line[len(row[0]) :] for name, row, line in zip(names, cells, aligned, strict=True)]
    lines = [f"  {screen.paint(aligned[0], 'dim')}"]
    at = 1
    for report, table in zip(reports, tables, strict=True):
        if table:
            lines.append(screen.paint(f"{_STORES[report.store]}", "bold") + f"  {_place(report.folder)}")
        for _, answer in table:
            shift = len(names[at]) - len(cells[at][0]) if not screen.is_terminal else 0
            lines.append("  " + _painted(aligned[at], aligned[0].index("fits") + shift, answer.verdict, screen))
            at += 1
        if table:
            lines.append("")
    return lines


def _cells(model: StoredModel, answer: Answer) -> dict[str, str]:
    context = longest = speed = ""
    if answer.settings is not None and answer.speed is not None:
        context = f"{answer.settings['n_ctx_seq']:,}"
        longest = f"{answer.max_n_ctx:,}"
        if answer.answers:
            speed = rate_cell(answer.speed["decode_tokens_per_s"]["value"])
    kinds = dict.fromkeys(companion.kind for companion in model.companions)
    return {
        "model": clean(model.name, 300),
        "quant": clean(model.facts.quantization, 12) if model.facts else "",
        "size": format_bytes(model.file_bytes),
        "fits": VERDICTS[answer.verdict],
        "context": context,
        "longest": longest,
        "tokens/s": speed,
        "with": " ".join(kinds),
    }


def rate_cell(tokens_per_s: float) -> str:
    """A speed in a table's cell."""
    if tokens_per_s < 10:
        return f"{tokens_per_s:.1f}" if tokens_per_s >= 0.05 else f"{tokens_per_s:.2f}"
    return f"{tokens_per_s:,.0f}"


def _shorten(name: str, room: int, screen: Screen) -> str:
    """`name` in `room` cells without its middle: names differ at their ends."""
    if len(name) <= room:
        return name
    dots = screen.symbol("…", "..")
    tail = (room - len(dots)) // 2
    return name[: room - len(dots) - tail] + dots + name[len(name) - tail :]


def _painted(line: str, at: int, verdict: str, screen: Screen) -> str:
    word = VERDICTS[verdict]
    return line[:at] + screen.paint(word, COLORS[verdict]) + line[at + len(word) :]


def _not_planned(
    reports: Sequence[StoreReport], pairs: Sequence[Sequence[tuple[StoredModel, Answer | None]]], screen: Screen
) -> list[str]:
    """What has a problem, and what is no language model."""
    problems, others = [], []
    for report, rows in zip(reports, pairs, strict=True):
        for model, answer in rows:
            where = f"{_STORES[report.store]}: " if report.store != "folder" else ""
            name = f"  {where}{clean(model.name, 300)}"
            problem = model.problem if answer is None else answer.problem
            if problem is not None:
                problems += [name, *screen.wrap(clean(problem, 600), "      ")]
            elif answer is None:
                text = KIND_TEXT.get(model.kind, "not a model")
                others += screen.wrap(f"{text}, {format_bytes(model.file_bytes)}", "      ", f"{name}: ")
    lines = []
    for title, found in (("Not usable", problems), ("Not language models", others)):
        if found:
            lines += [screen.paint(title, "bold"), *found, ""]
    return lines


def _troubles(reports: Sequence[StoreReport], screen: Screen, given: bool) -> list[str]:
    """Folders that could not be read, or not wholly; a store that is not on this machine is no trouble."""
    lines = []
    for report in reports:
        if report.detail and (report.status != "absent" or given):
            text = report.detail if report.status != "ok" else f"{_place(report.folder)}: {report.detail}."
            lines += screen.wrap(clean(text, 600), "      ", f"  {_STORES[report.store]}: ")
    return [screen.paint("Not looked into", "bold"), *lines, ""] if lines else []


def _totals(answers: Sequence[Answer]) -> str:
    counts = {verdict: sum(1 for answer in answers if answer.verdict == verdict) for verdict in VERDICTS}
    names = {"full": "on the GPU", "partial": "in part", "cpu": "on the CPU", "does_not_fit": "not at all"}
    parts = [f"{count:,} {names[verdict]}" for verdict, count in counts.items() if count]
    return f"{len(answers):,} model{'s' if len(answers) != 1 else ''}" + (f": {', '.join(parts)}." if parts else ".")


def _place(path: str) -> str:
    """A folder as people write it, printable."""
    home = os.path.expanduser("~")
    return clean(f"~{path[len(home) :]}" if path == home or path.startswith(home + os.sep) else path, 300)
