"""Plain text for people: colour where a terminal wants it, columns, bars, and nothing from a file that could harm."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from advisor.gguf_header.errors import printable

_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
MAX_TEXT = 200


def clean(text: str, limit: int = MAX_TEXT) -> str:
    """`text` as `printable` spells it, runs of blanks as one, at most `limit` characters."""
    squeezed = " ".join(printable(text[: 4 * limit]).split())
    return squeezed if len(squeezed) <= limit else squeezed[: limit - 1] + "…"


class Screen:
    """Where output goes: its width, and whether it takes colour and block characters."""

    def __init__(self, *, width: int | None = None, color: bool | None = None, unicode: bool | None = None) -> None:
        terminal = sys.stdout.isatty()
        self.is_terminal = terminal
        if color is None:
            color = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self.color = color
        encoding = (sys.stdout.encoding or "").lower().replace("-", "")
        self.unicode = encoding.startswith("utf") if unicode is None else unicode
        if width is None:
            width = _terminal_width() if terminal else 100
        self.width = max(40, min(width, 120))

    def paint(self, text: str, *styles: str) -> str:
        """`text` in the given styles, plain where there is no colour."""
        if not self.color or not text:
            return text
        return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m"

    def symbol(self, fancy: str, plain: str) -> str:
        """A symbol that the output's encoding can carry."""
        return fancy if self.unicode else plain

    def bar(self, parts: Sequence[tuple[int, str, str]], total: int, width: int) -> str:
        """A bar of `width` cells for (bytes, colour, letter) parts of `total` bytes; the rest stays light."""
        cells: list[str] = []
        drawn, so_far = 0, 0
        for n_bytes, color, letter in parts:
            so_far += n_bytes
            end = min(width, round(width * so_far / total)) if total else 0
            count = max(end - drawn, 0)
            block = "█" if self.color and self.unicode else letter
            cells.append(self.paint(block * count, color))
            drawn += count
        cells.append(self.paint(self.symbol("░", ".") * (width - drawn), "dim"))
        return "".join(cells)

    def wrap(self, text: str, indent: str = "", first: str | None = None) -> list[str]:
        """`text` in lines of the screen's width, the first one after `first`."""
        lines: list[str] = []
        line = first if first is not None else indent
        start = len(line)
        for word in text.split(" "):
            if len(line) + 1 + len(word) > self.width and len(line) > start:
                lines.append(line)
                line, start = indent, len(indent)
            line += word if len(line) == start else " " + word
        lines.append(line)
        return lines


def _terminal_width() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def columns(rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), gap: int = 2) -> list[str]:
    """Rows as aligned lines; the columns numbered in `right` are right-aligned. Cells must be plain text."""
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(max(len(row) for row in rows))]
    lines = []
    for row in rows:
        cells = [cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)]
        lines.append((" " * gap).join(cells).rstrip())
    return lines
