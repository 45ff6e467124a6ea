"""Holding one configuration file against the schema: the first wrong key or value, with its line and the cure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NoReturn

from advisor.configuration.lines import Path, line_of, locate
from advisor.configuration.schema import BY_NAME, TOP, Key, Table
from advisor.configuration.values import PinError, SecretError
from advisor.errors import ConfigError
from advisor.gguf_header.errors import excerpt, printable
from advisor.records import NamedTuple


class Known(NamedTuple):
    """Names that are possible elsewhere than here; empty: whatever is written is believed."""

    formats: Collection[str] = ()
    intents: Collection[str] = ()


def check_file(document: Mapping[str, Any], text: str, file: str, known: Known) -> None:
    """Raise ConfigError for the first thing that is wrong; what is missing may stand in another file."""
    _Check(text, file, known).document(document)


def complain(file: str, line: int | None, sentence: str) -> NoReturn:
    """Raise ConfigError with file and line."""
    place = f"{printable(file)}, line {line}" if line is not None else printable(file)
    raise ConfigError(f"{place}: {sentence}")


def dotted(path: Path) -> str:
    """A path as messages name it: model[1].pins."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part + 1}]"
        else:
            bare = part and all(c.isalnum() or c in "-_" for c in part) and part.isascii()
            text += ("." if text else "") + (excerpt(part) if bare else f'"{excerpt(part)}"')
    return text


class _Check:
    def __init__(self, text: str, file: str, known: Known) -> None:
        self.text, self.file, self.known = text, file, known

    def document(self, document: Mapping[str, Any]) -> None:
        for name, value in document.items():
            table = BY_NAME.get(name)
            if table is None:
                self._key(TOP, (name,), value, [*BY_NAME])
            elif table.kind == "one":
                self._keys(table, (name,), self._table((name,), value, f"[{name}]"))
            elif table.kind == "named":
                for key, item in self._table((name,), value, f"[{name}.NAME]").items():
                    self._named(table, key, item)
            elif isinstance(value, list):
                for index, item in enumerate(value):
                    self._keys(table, (name, index), self._table((name, index), item, f"[[{name}]]"))
            else:
                self._wrong((name,), f"{name} is a list of tables; write [[{name}]] with two brackets.")

    def _named(self, table: Table, key: str, value: Any) -> None:
        path = (table.name, key)
        if table.key(key) is not None and not isinstance(value, Mapping):
            choice = f"one of the names {', '.join(table.names)}" if table.names else "a name of your choice"
            self._wrong(
                path,
                f"{dotted(path)} stands in [{table.name}] itself, which needs {choice}; write [{table.name}.NAME], "
                f"such as [{table.name}.{table.example}].",
            )
        if table.names and key not in table.names:
            dotted_name = isinstance(value, Mapping) and next(
                (f"{key}.{k}" for k in value if f"{key}.{k}" in table.names), None
            )
            if dotted_name:
                self._wrong(path, f'a name with a dot needs quotes; write [{table.name}."{dotted_name}"].')
            self._wrong(path, f"unknown {table.name} {excerpt(key)!r}; {nearest(key, table.names)}")
        self._keys(table, path, self._table(path, value, f"[{dotted(path)}]"))

    def _table(self, path: Path, value: Any, written: str) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            self._wrong(path, f"{dotted(path)} is a table; write {written} and its keys below.")
        return value

    def _keys(self, table: Table, path: Path, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self._key(table, (*path, name), value, ())

    def _key(self, table: Table, path: Path, value: Any, also: Iterable[str]) -> None:
        key = table.key(str(path[-1]))
        if key is None:
            names = [*(each.name for each in table.keys), *also]
            self._wrong(path, f"unknown key {dotted(path)}; {nearest(str(path[-1]), names)}")
        try:
            read = key.read(value)
        except (PinError, SecretError) as error:
            self._wrong(path, f"{dotted(path)} is wrong: {printable(str(error)[:400])}.")
        except ValueError:
            self._wrong(path, f"{dotted(path)} is {_show(value)}, allowed is {key.allowed}.")
        possible = self._possible(table, key)
        word = str(read).partition(":")[0] if key.name == "intent" else str(read)
        if possible and word not in possible:
            self._wrong(path, f"{dotted(path)} is {_show(value)}, which is unknown; {nearest(word, possible)}")

    def _possible(self, table: Table, key: Key) -> Collection[str]:
        if key.name == "intent":
            return self.known.intents
        return self.known.formats if (table.name, key.name) == ("target", "format") else ()

    def _wrong(self, path: Path, sentence: str) -> NoReturn:
        complain(self.file, line_of(locate(self.text), path), sentence)


def nearest(name: str, known: Iterable[str]) -> str:
    """The cure for a name that is not known."""
    from difflib import get_close_matches

    names = list(known)
    close = get_close_matches(name[:200], names, 1, 0.6)
    return f"did you mean {close[0]}?" if close else f"known here: {', '.join(names)}."


def _show(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        items = ["[...]" if isinstance(item, list) else _show(item) for item in value[:3]]
        return f"[{', '.join(items)}{', ...' if len(value) > 3 else ''}]"
    return f'"{excerpt(value)}"' if isinstance(value, str) else excerpt(value)


def required(table: Table) -> tuple[str, ...]:
    """Names of the keys that a table must have."""
    return tuple(key.name for key in table.keys if key.required)
