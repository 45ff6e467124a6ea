"""A page as one HTML file: charts, their figures as tables, light or dark as the reader's screen, nothing fetched."""

from __future__ import annotations

from collections.abc import Mapping

from advisor.plots.page import Page, Section, Table
from advisor.plots.palette import DARK, LIGHT
from advisor.plots.svg import FONTS, svg, xml_text

_STYLE = """
body { font: 15px/1.5 FONTS; color: var(--ink); background: var(--paper); margin: 0 auto; max-width: 1340px;
  padding: 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin: 2rem 0 0; } p { margin: .3rem 0 1rem; }
.charts { display: flex; flex-wrap: wrap; gap: 1rem; }
.charts svg { flex: 1 1 420px; max-width: 640px; min-width: 0; height: auto; }
details { margin: .5rem 0; } summary { cursor: pointer; } footer, caption { color: var(--quiet); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .5rem 0 1rem; } caption { text-align: left; }
th, td { text-align: right; padding: .15rem .8rem; border-bottom: 1px solid var(--grid); }
@media print { details { display: none; } section { break-inside: avoid; } }
"""


def html(page: Page) -> str:
    """The text of the page."""
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<meta name="generator" content="advisor">',
        f"<title>{xml_text(page.title)}</title>",
        f"<style>{style_sheet()}</style>",
        "</head>",
        "<body>",
        f"<h1>{xml_text(page.title)}</h1>",
    ]
    for number, section in enumerate(page.sections):
        parts += _section(section, number)
    parts += [f"<footer>{xml_text(page.source)}</footer>", "</body>", "</html>", ""]
    return "\n".join(parts)


def style_sheet() -> str:
    """The rules of the page, with a colour for each role on light and on dark paper."""
    roles = "\n".join(f".f-{role} {{ fill: var(--{role}); }} .s-{role} {{ stroke: var(--{role}); }}" for role in LIGHT)
    dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}"
    return f":root {{ {_variables(LIGHT)} }}\n{dark}{_STYLE.replace('FONTS', FONTS)}{roles}\n"


def _variables(colors: Mapping[str, str]) -> str:
    return " ".join(f"--{role}: {color};" for role, color in colors.items())


def _section(section: Section, number: int) -> list[str]:
    parts = ["<section>", f"<h2>{xml_text(section.name)}</h2>", f"<p>{xml_text(section.summary)}</p>"]
    parts.append('<div class="charts">')
    parts += [svg(chart, name=f"p{number}-{index}", alone=False) for index, chart in enumerate(section.charts)]
    parts += ["</div>", "<details><summary>The figures</summary>"]
    for table in section.tables:
        parts += _table(table)
    return [*parts, "</details>", "</section>"]


def _table(table: Table) -> list[str]:
    head = "".join(f'<th scope="col">{xml_text(cell)}</th>' for cell in table.head)
    parts = ['<div class="wide"><table>', f"<caption>{xml_text(table.title)}</caption>", f"<tr>{head}</tr>"]
    for row in table.rows:
        cells = "".join(f"<td>{xml_text(cell)}</td>" for cell in row[1:])
        parts.append(f'<tr><th scope="row">{xml_text(row[0])}</th>{cells}</tr>')
    return [*parts, "</table></div>"]
