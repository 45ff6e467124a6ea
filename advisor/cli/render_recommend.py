"""The recommendation as text."""

from __future__ import annotations

from advisor.cli.render_plan import headline, memory_lines, note_lines, source_line, speed_line
from advisor.cli.terminal import Screen, clean, columns
from advisor.host import HostSnapshot
from advisor.memory.engine_spec import EngineSpec
from advisor.model.spec import ModelSpec
from advisor.recommend.contexts import ContextTable
from advisor.recommend.recommendation import Recommendation
from advisor.recommend.words import saved_on
from advisor.units import format_bytes

_COLORS = {"full": "green", "cpu": "green", "partial": "yellow", "does_not_fit": "red"}


def render_recommendation(
    answer: Recommendation, spec: ModelSpec, host: HostSnapshot, engine: EngineSpec, command: str | None, screen: Screen
) -> list[str]:
    """All lines of `advisor recommend`."""
    lines = headline(spec, host, answer.budget, screen)
    summary = screen.wrap(answer.summary, "")
    lines += ["", *(screen.paint(line, "bold", _COLORS[answer.verdict]) for line in summary), ""]
    lines += memory_lines(answer.chosen.plan, answer.budget, screen)
    lines += ["", screen.paint("Speed", "bold"), *speed_line(answer.speed, screen, answers=spec.answers)]
    if answer.contexts.rows and any(row.points for row in answer.contexts.rows):
        lines += ["", *context_lines(answer.contexts, screen)]
    bullet = screen.symbol("·", "-")
    if answer.reasons:
        lines += ["", screen.paint("Why", "bold"), *note_lines(answer.reasons, screen, bullet, "dim")]
    if answer.rejected:
        lines += ["", screen.paint("What did not fit", "bold")]
        for failed in answer.rejected:
            lines += screen.wrap(failed.text, "    ", f"  {bullet} ")
    if answer.alternatives:
        lines += ["", screen.paint("Instead", "bold")]
        for other in answer.alternatives:
            lines += screen.wrap(f"{other.label}: {other.why}", "    ", f"  {bullet} ")
    if answer.fixes:
        placed = next((fix for fix in answer.fixes if fix.device), None)
        basis = f" (savings {saved_on(placed.device, placed.whole)})" if placed is not None else ""
        lines += ["", screen.paint("What would help", "bold") + basis]
        for fix in answer.fixes[:6]:
            enough = "" if fix.enough else ", not enough alone"
            text = f"{fix.change} saves {format_bytes(fix.saves_bytes)} ({fix.costs}{enough})"
            if fix.costs == "money":
                text = fix.change + ("" if fix.enough else " (not enough alone)")
            lines += screen.wrap(text, "    ", f"  {bullet} ")
    if answer.warnings:
        lines += ["", screen.paint("Mind", "bold"), *note_lines(answer.warnings, screen, "!", "yellow")]
    if command is not None:
        lines += ["", screen.paint("Command", "bold"), f"  {command}"]
    return [*lines, "", source_line(spec, engine, screen)]


def _pace(tokens_per_s: float) -> str:
    if not tokens_per_s:
        return ""
    return f"{tokens_per_s:,.0f}" if tokens_per_s >= 10 else f"{tokens_per_s:.1f}" if tokens_per_s >= 0.1 else "< 0.1"


def context_lines(table: ContextTable, screen: Screen) -> list[str]:
    """Context against cache type: what each length needs and whether it fits."""
    yes, no = screen.symbol("✓", "fits"), screen.symbol("✗", "no")
    lines = screen.wrap(f"Context with {clean(table.basis)}, and tokens/s when it is full", "  ", "")
    lines[0] = lines[0].replace("Context", screen.paint("Context", "bold"), 1)
    rows = [["tokens", *(cell for row in table.rows for cell in (f"{row.cache_type} cache", "tokens/s"))]]
    places = {point.device for row in table.rows for point in row.points}
    lengths = [point.n_ctx for point in table.rows[0].points]
    for index, n_ctx in enumerate(lengths):
        cells = [f"{n_ctx:,}"]
        for row in table.rows:
            point = row.points[index]
            where = f" {point.device}" if len(places) > 1 else ""
            cells.append(f"{format_bytes(point.need_bytes)}{where} {yes if point.fits else no}")
            cells.append(_pace(point.tokens_per_s))
        rows.append(cells)
    trained = table.n_ctx_trained
    longest = ["longest"]
    for row in table.rows:
        text = "none" if row.max_n_ctx is None else f"{row.max_n_ctx:,}"
        longest.append(f"{text} or more" if row.at_least and (row.max_n_ctx or 0) > trained else text)
        longest.append("")
    rows.append(longest)
    right = tuple(range(len(rows[0])))
    for line in columns(rows, right=right, gap=3):
        colored = line.replace(yes, screen.paint(yes, "green")).replace(no, screen.paint(no, "red"))
        lines.append("  " + (colored if screen.color else line))
    if trained and any((row.max_n_ctx or 0) > trained for row in table.rows):
        lines += screen.wrap(f"Beyond {trained:,} tokens the model was not trained: answers degrade there.", "  ", "  ")
    return lines
