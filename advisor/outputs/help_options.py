"""Which options a llama-server has, read out of its own `--help`; build numbers of self-made builds say nothing."""

from __future__ import annotations

import re

_MAX_TEXT = 1 << 20
_OPTION = re.compile(r"-{1,2}([A-Za-z0-9][A-Za-z0-9._-]*)")
_REMOVED = "the argument has been removed"


def options_of_help(text: str) -> frozenset[str]:
    """Option names without dashes, long and short, of a llama-server's help text; none for any other text.

    A line that begins with a dash lists the spellings of one option, separated by commas; its value and description
    follow. Options that the help itself calls removed are left out.
    """
    names: set[str] = set()
    lines = text[:_MAX_TEXT].splitlines()
    for index, line in enumerate(lines):
        if not line.startswith("-"):
            continue
        following = lines[index + 1] if index + 1 < len(lines) else ""
        if _REMOVED in line or (following.startswith(" ") and _REMOVED in following):
            continue
        for word in line.split():
            match = _OPTION.fullmatch(word.rstrip(","))
            if match is None:
                break
            names.add(match[1])
    return frozenset(names)
