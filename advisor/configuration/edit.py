"""Setting and unsetting one key in a configuration text; every comment, blank and other key stays as it is.

KEY     daemon.quiet_hours, folders, engine.llama.cpp.url, target.router.enabled, model.qwen3*.intent,
        model.qwen3*.pins, set.daily.models; the part in the middle is a name of yours (of a model: what `match`
        says)
VALUE   as in TOML; quotes and the brackets of a list with one entry may be left away
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

import tomli

from advisor.configuration.check import dotted
from advisor.configuration.lines import Path, Span, locate
from advisor.configuration.read import parse
from advisor.configuration.schema import BY_NAME, TOP, Key, Table
from advisor.configuration.values import SecretError
from advisor.errors import ConfigError, UsageError
from advisor.gguf_header.errors import excerpt, printable


def find_key(name: str) -> tuple[Table, str | None, Key]:
    """(table, its name or a model's pattern, key) of a KEY. Raises UsageError with the nearest one."""
    first, _, rest = name.partition(".")
    table = BY_NAME.get(first, TOP if not rest else None)
    if table is None:
        raise UsageError(f"'{excerpt(name)}' is no key; it begins with one of {', '.join((*BY_NAME, *_names(TOP)))}.")
    if table is TOP:
        place, last = None, first
    elif table.kind == "one":
        place, last = None, rest
    else:
        place, _, last = rest.rpartition(".")
        place = place.strip("\"'")
        if not place:
            what = "PATTERN" if table.by == "match" else "NAME"
            raise UsageError(f"'{excerpt(name)}' lacks a part; write {first}.{what}.KEY.")
    key = table.key(last)
    if key is None:
        from difflib import get_close_matches

        known = _names(table) if table is not TOP else (*_names(TOP), *BY_NAME)
        close = get_close_matches(last, known, 1, 0.6)
        cure = f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}."
        raise UsageError(f"'{excerpt(name)}' is no key; {cure}")
    return table, place, key


def read_value(key: Key, text: str) -> Any:
    """The TOML value that VALUE stands for. Raises UsageError with what is allowed."""
    tries: list[Any] = []
    try:
        document = tomli.loads(f"x = {text}")
        tries += [document["x"]] if len(document) == 1 else []
    except (tomli.TOMLDecodeError, RecursionError, ValueError):
        pass
    tries += [text, [text]]
    reason = f"allowed is {key.allowed}"
    for value in tries:
        try:
            key.read(value)
        except SecretError as error:
            raise UsageError(f"{key.name} cannot be set so: {error}.") from None
        except ValueError as error:
            reason = str(error) if str(error) and isinstance(value, Mapping) else reason
        else:
            return value
    raise UsageError(f"{key.name} cannot be '{excerpt(text)}': {printable(reason)}.")


def set_key(text: str, file: str, name: str, value_text: str) -> str:
    """The text with the key set. Raises UsageError for the key or value, ConfigError where it cannot be done safely."""
    table, place, key = find_key(name)
    value = read_value(key, value_text)
    document = parse(text, file)
    path = _path(document, table, place)
    wanted = copy.deepcopy(document)
    at: Any = wanted
    for part in path:
        if isinstance(part, int):
            if part == len(at):
                at.append({table.by: place})
            at = at[part]
        else:
            at = at.setdefault(part, [] if table.kind == "list" else {})
    if key.name in at and at[key.name] == value and type(at[key.name]) is type(value):
        return text
    at[key.name] = value
    return _checked(_put(text, document, (*path, key.name), place, value), wanted, file)


def unset_key(text: str, file: str, name: str) -> str | None:
    """The text with the key made a comment; None when it is not set there. Raises as `set_key`."""
    table, place, key = find_key(name)
    document = parse(text, file)
    path: Path = (*_path(document, table, place), key.name)
    wanted = copy.deepcopy(document)
    at: Any = wanted
    try:
        for part in path[:-1]:
            at = at[part]
        del at[path[-1]]
    except (KeyError, IndexError):
        return None
    spans = [span for each, span in locate(text).items() if each[: len(path)] == path]
    lines = text.split("\n")
    for number in {number for span in spans for number in range(span.first - 1, span.last)}:
        lines[number] = f"# {lines[number]}"
    return _checked("\n".join(lines), wanted, file)


def _path(document: Mapping[str, Any], table: Table, place: str | None) -> Path:
    """Where the table of the key is, or is to be."""
    if table is TOP:
        return ()
    if table.kind == "one":
        return (table.name,)
    assert place is not None
    if table.kind == "named":
        return table.name, place
    rules = document.get(table.name, [])
    # of several for the same models the last one counts
    index = max((i for i, rule in enumerate(rules) if rule.get(table.by) == place), default=len(rules))
    return table.name, index


def _put(text: str, document: Mapping[str, Any], path: Path, place: str | None, value: Any) -> str:
    import tomlkit

    spans = locate(text)
    table, key = path[:-1], str(path[-1])
    line = f"{key} = {_inline(value)}"
    if path not in spans and (not table or (table in spans and spans[table].header)):
        return _insert(text, spans, table, key, line)
    if table in spans or _is_there(document, table):
        parsed = tomlkit.parse(text)
        at: Any = parsed
        for part in table:
            at = at[part]
        if isinstance(value, Mapping) and isinstance(at.get(key), tomlkit.items.Table):
            _fill(at[key], value)
        else:
            at[key] = _item(value)
        changed = tomlkit.dumps(parsed)
        # tomlkit ends the lines that it makes with LF
        return re.sub(r"(?<!\r)\n", "\r\n", changed) if not re.search(r"(?<!\r)\n", text) else changed
    newline = _newline(text)
    header = (
        f"[[{table[0]}]]{newline}{BY_NAME[str(table[0])].by} = {_inline(place)}"
        if isinstance(table[-1], int)
        else f"[{dotted(table)}]"
    )
    start = "" if not text or text.endswith("\n") else newline
    blank = newline if text and not text.endswith(2 * newline) else ""
    return f"{text}{start}{blank}{header}{newline}{line}{newline}"


def _insert(text: str, spans: Mapping[Path, Span], table: Path, key: str, line: str) -> str:
    """A new line below the comment that shows the key, else below the table's last key."""
    lines = text.split("\n")
    headers = sorted(span.first for span in spans.values() if span.header)
    start = spans[table].first if table else 0
    stop = next((first for first in headers if first > start), len(lines) + 1) - 1
    own = [span.last for path, span in spans.items() if path[:-1] == table and start < span.first <= stop]
    after = max(own, default=start)
    if not after:  # the comment at the top of a file is about the file
        head = next((number for number, each in enumerate(lines) if not each.startswith("#")), 0)
        after = head if not lines[head].strip() else 0
    for number in range(start, stop):
        words = lines[number].lstrip("# ").partition("=")
        if lines[number].startswith("#") and words[1] and words[0].strip() == key:
            after = number + 1
            break
    ending = "\r" if "\r\n" in text else ""
    if after == len(lines):
        return text + _newline(text) + line + _newline(text)
    return "\n".join([*lines[:after], line + ending, *lines[after:]])


def _checked(text: str, wanted: Mapping[str, Any], file: str) -> str:
    try:
        found: object = tomli.loads(text)
    except tomli.TOMLDecodeError:
        found = None
    if found != wanted:
        raise ConfigError(
            f"{printable(file)} is written in a way that advisor cannot change safely; change it by hand."
        )
    return text


def _is_there(document: Any, path: Path) -> bool:
    try:
        for part in path:
            document = document[part]
    except (KeyError, IndexError):
        return False
    return True


def _inline(value: Any) -> str:
    return str(_item(value).as_string())


def _item(value: Any) -> Any:
    """The value for tomlkit, which on its own would make a [table] of a mapping."""
    import tomlkit

    if not isinstance(value, Mapping):
        return tomlkit.item(value)
    table = tomlkit.inline_table()
    table.update(value)
    return table


def _fill(table: Any, value: Mapping[str, Any]) -> None:
    """Make a [table] hold the value; what stays as it is keeps its place and comment."""
    for key in [key for key in table if key not in value]:
        del table[key]
    for key, item in value.items():
        if key not in table or table[key] != item:
            table[key] = item


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _names(table: Table) -> tuple[str, ...]:
    return tuple(key.name for key in table.keys)
