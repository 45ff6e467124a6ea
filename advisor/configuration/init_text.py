"""The configuration that `advisor init` begins with: every key, as a comment, with its meaning."""

from __future__ import annotations

import textwrap

from advisor.configuration.schema import TABLES, TOP, Key, Table

_WIDTH = 116
_HEAD = """advisor's configuration. Every key is listed, with its default or an example; take the # away to set it.

'advisor config check' finds mistakes, 'advisor config show --origin' says what is in force and why, and
'advisor config set KEY VALUE' changes a key and leaves the rest of the file as it is. Files in conf.d beside
this one are read after it."""


def init_text() -> str:
    """The text; nothing in it is set."""
    parts = [_comment(_HEAD)]
    parts += [_key(key) for key in TOP.keys]
    parts += [_table(table) for table in TABLES]
    return "\n\n".join(parts) + "\n"


def _table(table: Table) -> str:
    header = {"one": f"[{table.name}]", "named": f"# [{table.name}.{table.example}]", "list": f"# [[{table.name}]]"}
    return "\n".join((_comment(table.doc), header[table.kind], *(_key(key) for key in table.keys)))


def _key(key: Key) -> str:
    needed = " Needed." if key.required else ""
    return f"{_comment(key.doc + needed)}\n# {key.name} = {key.example}"


def _comment(text: str) -> str:
    lines = [part for line in text.split("\n") for part in textwrap.wrap(line, _WIDTH) or [""]]
    return "\n".join(f"## {line}".rstrip() for line in lines)
