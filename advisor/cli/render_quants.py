"""The quantizations of a model as a table, and below it what the marks and figures mean."""

from __future__ import annotations

from advisor.cli.quants_rows import Row, Table
from advisor.cli.render_plan import headline, note_lines, source_line
from advisor.cli.render_scan import COLORS, VERDICTS, rate_cell
from advisor.cli.terminal import Screen, clean, columns
from advisor.ggml_types import CACHE_TYPES
from advisor.host import HostSnapshot
from advisor.memory.engine_spec import EngineSpec
from advisor.model.spec import ModelSpec
from advisor.quants.quality import CacheFigure, cache_quality
from advisor.quants.rules import QuantRules
from advisor.recommend.by_quantization import cache_sizes
from advisor.recommend.recommendation import Note
from advisor.recommend.warn import warnings
from advisor.recommend.words import gpus_text, pace_of, use_rate
from advisor.units import format_bytes

_NEEDS_IMATRIX = "i"


def render_quants(
    table: Table, rules: QuantRules, spec: ModelSpec, host: HostSnapshot, engine: EngineSpec, screen: Screen
) -> list[str]:
    """All lines of `advisor quants`."""
    pair = table.search.cache_pairs()[0]
    sizes = cache_sizes(table.search, table.n_ctx, CACHE_TYPES)
    lines = headline(spec, host, table.search.evaluator.budget, screen)
    best = _best(table)
    lines += ["", *(screen.paint(line, "bold") for line in screen.wrap(_summary(table, best, spec)))]
    kind = pair[0] if pair[0] == pair[1] else f"{pair[0]}/{pair[1]}"
    size = f" ({format_bytes(sizes[kind])})" if kind in sizes else ""
    lines += ["", f"{screen.paint('Quantizations', 'bold')} at {table.n_ctx:,} tokens, cache {kind}{size}"]
    lines += [*_rows(table, spec, screen), *_legend(table, screen), ""]
    lines += [*_files(table, screen), *_cache(rules, sizes, table.n_ctx, screen)]
    notes = _notes(table, best, rules, spec, engine)
    if notes:
        lines += ["", screen.paint("Mind", "bold"), *note_lines(notes, screen, "!", "yellow")]
    return [*lines, "", source_line(spec, engine, screen)]


def _best(table: Table) -> Row | None:
    """The row that loses least of those that fit best: wholly on the GPU, else in part, else on the CPU alone."""
    for verdict in ("full", "partial", "cpu"):
        rows = _fitting(table, verdict)
        if rows:
            return min(rows, key=lambda row: row.quality.value if row.quality is not None else float("inf"))
    return None


def _fitting(table: Table, verdict: str) -> list[Row]:
    """The rows of a verdict that can be had, only those with a published figure if there are any."""
    had = [row for row in table.rows if row.files or not row.trained_for]
    rows = [row for row in had if row.fit is not None and row.fit.verdict == verdict]
    return [row for row in rows if row.quality is not None] or rows


def _summary(table: Table, best: Row | None, spec: ModelSpec) -> str:
    if best is None or best.fit is None:
        return f"No quantization fits at {table.n_ctx:,} tokens."
    fit = best.fit
    if fit.verdict == "full":
        where = gpus_text(fit.judged)
        reach = f"up to {fit.max_n_ctx:,} tokens, " if fit.max_n_ctx else ""
        why = "loses least" if best.quality is not None else "is the largest"
        return f"{_sized(best)} {why} of those that fit {where} whole: {reach}{_pace(best, spec)}."
    smallest = min(_fitting(table, fit.verdict), key=lambda row: row.weights_bytes or 0)
    span = f"{_sized(best)} gives {_pace(best, spec)}"
    if smallest is not best:
        span += f", {_sized(smallest)} {_pace(smallest, spec)}"
    if fit.verdict == "partial":
        return f"None fits the GPU whole. With a part on the CPU {span}."
    return f"On the CPU {span}."


def _sized(row: Row) -> str:
    return f"{clean(row.name, 40)} ({format_bytes(row.weights_bytes or 0)})"


def _pace(row: Row, spec: ModelSpec) -> str:
    if row.fit is None:
        return ""
    return pace_of(use_rate(spec, row.fit.speed))


def _rows(table: Table, spec: ModelSpec, screen: Screen) -> list[str]:
    disk = screen.symbol("●", "*")
    head = ["", "quantization", "weights", "bits", "fits", "longest", "tokens/s", "KLD"]
    cells = [head]
    for row in table.rows:
        mark = disk if row.files else _NEEDS_IMATRIX if row.needs_imatrix else ""
        kld = f"{row.quality.value:.3f}" if row.quality is not None else ""
        if row.fit is None:
            cells.append([mark, row.name, "", "", "-", "", "", kld])
            continue
        fit, rate = row.fit, use_rate(spec, row.fit.speed)
        cells.append(
            [
                mark, clean(row.name, 30), format_bytes(row.weights_bytes or 0), f"{row.bits_per_weight or 0:.2f}",
                VERDICTS[fit.verdict], f"{fit.max_n_ctx:,}" if fit.max_n_ctx else "none", rate_cell(rate), kld,
            ]
        )  # fmt: skip
    aligned = columns(cells, right=(2, 3, 5, 6, 7))
    at = aligned[0].index("fits")
    lines = [f"  {screen.paint(aligned[0], 'dim')}"]
    for row, line in zip(table.rows, aligned[1:], strict=True):
        text = line
        if row.fit is not None:
            word = VERDICTS[row.fit.verdict]
            text = line[:at] + screen.paint(word, COLORS[row.fit.verdict]) + line[at + len(word) :]
        lines.append(f"  {text}")
    return lines


def _legend(table: Table, screen: Screen) -> list[str]:
    """What the marks and the last column mean."""
    parts = ["weights as llama-quantize makes them from the F16 or BF16 original"]
    if any(row.files for row in table.rows):
        parts.append(f"{screen.symbol('●', '*')} on disk")
    if any(row.needs_imatrix and not row.files for row in table.rows):
        parts.append(f"{_NEEDS_IMATRIX} made with an importance matrix only")
    figure = next((row.quality for row in table.rows if row.quality is not None), None)
    if figure is not None:
        parts.append(
            f"KLD: published {figure.measure.removesuffix(' from BF16')}, 0 is no loss, of {figure.model} "
            f"(llama.cpp, tools/perplexity); this model may lose more or less"
        )
    return [screen.paint(line, "dim") for line in screen.wrap("; ".join(parts) + ".", "  ", "  ")]


def _files(table: Table, screen: Screen) -> list[str]:
    """The files on disk, by quantization."""
    lines = []
    for row in table.rows:
        for file in row.files:
            lines += screen.wrap(clean(file.name, 200), "      ", f"  {row.name}: ")
    return [screen.paint("On disk", "bold"), *lines, ""] if lines else []


def _cache(rules: QuantRules, sizes: dict[str, int], n_ctx: int, screen: Screen) -> list[str]:
    """The cache by type, with what was published about its loss."""
    if not any(sizes.values()):
        return ["No cache grows with the context."]
    rows = [["type", "bytes", ""]]
    for name, n_bytes in sorted(sizes.items(), key=lambda item: -item[1]):
        figures = cache_quality(rules, name)
        rows.append([name, format_bytes(n_bytes), "; ".join(_figure(figure) for figure in figures)])
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    lines = [f"{screen.paint('Cache', 'bold')} at {n_ctx:,} tokens, with published losses"]
    for name, size, text in rows[1:]:
        first = f"  {name.ljust(widths[0])}  {size.rjust(widths[1])}  "
        lines += screen.wrap(text, " " * len(first), first) if text else [first.rstrip()]
    return lines


def _figure(figure: CacheFigure) -> str:
    sign = "+" if figure.measure.startswith("perplexity") else ""
    kind = "perplexity" if sign else "KLD"
    return f"{kind} {sign}{figure.value:.4g} ({figure.model})"


def _notes(table: Table, best: Row | None, rules: QuantRules, spec: ModelSpec, engine: EngineSpec) -> list[Note]:
    """What a person should know: of the shown context and architecture, and what single rows have to say."""
    notes = []
    if best is not None and best.fit is not None:
        search, fit = table.search, best.fit
        found = warnings(
            spec, engine, fit.judged.request, fit.judged.plan, search.evaluator.budget, fit.speed, search.policy
        )
        wanted = ("beyond_trained_context", "assumed_architecture", "extrapolated_build", "flash_attention_off")
        notes += [note for note in found if note.code in wanted]
    said: dict[str, list[str]] = {}
    for row in table.rows:
        if row.problem:
            said.setdefault(row.problem, []).append(row.name)
        if row.cpu_only:
            said.setdefault("the GPU's backend cannot compute with it, so the CPU does.", []).append(row.name)
        if row.note and not row.problem and not row.own_mix:
            said.setdefault(f"{row.note}.", []).append(row.name)
        if row.with_imatrix_bytes is not None and row.needs_imatrix:
            said[f"{format_bytes(row.with_imatrix_bytes)} as made with an importance matrix."] = [row.name]
    most = rules.document["quality"]["weights"]["most_fallback_share"]
    elsewhere = [row.name for row in table.rows if row.fallback_share > most and row.fit is not None]
    if elsewhere:
        text = "rows of this model do not divide into their blocks, so other types stand in for much of it"
        said[f"{text}; no published figure applies."] = elsewhere
    return notes + [Note("rows", f"{', '.join(names)}: {text}") for text, names in said.items()]
