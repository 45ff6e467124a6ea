"""Finding and reading the configuration: config.toml, then conf.d/*.toml in the order of their names.

Later files win key by key; [[model]] and [[set]] tables are added to those before them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tomli

from advisor.configuration.check import Known, check_file, complain, nearest, required
from advisor.configuration.lines import Path, line_of, locate
from advisor.configuration.schema import BY_NAME, TOP, Table
from advisor.configuration.types import Budget, Configuration, Daemon, Defaults, Engine, ModelRule, ModelSet, Target
from advisor.configuration.values import is_loopback
from advisor.errors import ConfigError
from advisor.excerpts import line_of_long_number
from advisor.gguf_header.errors import excerpt, printable
from advisor.records import NamedTuple
from advisor.regular import NotRegularError, read_regular

LISTS = tuple(name for name, table in BY_NAME.items() if table.kind == "list")
FILE, DROP_INS = "config.toml", "conf.d"
MAX_FILE_BYTES = 256 << 10  # all files together
_TOO_LARGE = f"larger than {MAX_FILE_BYTES >> 10} KiB, which no configuration is; remove it."
_NO_CONFIGURATION = "no configuration looks like this (nested too deep or a number too long)."
MAX_TARGETS = 64
_NOTHING = Known()


class Origin(NamedTuple):
    """Who set a value."""

    file: str
    line: int | None


class Loaded(NamedTuple):
    """The configuration in force, the files that were read, and who set what; `values` are as they were written."""

    configuration: Configuration
    files: tuple[str, ...]
    values: dict[Path, Any]
    origins: dict[Path, Origin]


def config_folder(environ: Mapping[str, str]) -> str:
    """$XDG_CONFIG_HOME/advisor, and the platform's own place elsewhere than on Linux."""
    given = environ.get("XDG_CONFIG_HOME")
    if given and os.path.isabs(given):
        return os.path.join(given, "advisor")
    if sys.platform.startswith("linux"):
        return os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config", "advisor")
    from platformdirs import user_config_dir

    return user_config_dir("advisor", appauthor=False)


def config_files(folder: str) -> tuple[str, ...]:
    """The files of the configuration that are there, in the order in which they count. Raises ConfigError."""
    first = os.path.join(folder, FILE)
    drop_ins = os.path.join(folder, DROP_INS)
    try:
        names = sorted(name for name in os.listdir(drop_ins) if name.endswith(".toml") and not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        names = []
    except OSError as error:
        raise ConfigError(f"{printable(drop_ins)}: cannot be listed ({error.strerror}); make it readable.") from None
    found = [os.path.join(drop_ins, name) for name in names]
    return (*((first,) if os.path.lexists(first) else ()), *found)


def load_configuration(folder: str, known: Known = _NOTHING, *, texts: Mapping[str, str] | None = None) -> Loaded:
    """Read and check everything in `folder`; without any file, what holds by default.

    `known` are the formats and intents that exist; `texts` stand in for files, by path. Raises ConfigError with file,
    line, and what is allowed.
    """
    texts = texts or {}
    values: dict[Path, Any] = {}
    origins: dict[Path, Origin] = {}
    files = tuple(dict.fromkeys((*config_files(folder), *texts)))
    files = tuple(
        sorted(files, key=lambda file: os.path.dirname(file) != folder)
    )  # config.toml first; sorts are stable
    n_characters = 0
    n_before: dict[str, int] = {}  # entries of lists in earlier files
    for file in files:
        text = texts[file] if file in texts else read_text(file)
        n_characters += len(text)
        if n_characters > MAX_FILE_BYTES:
            complain(file, None, f"together with the files before it {_TOO_LARGE}")
        document = parse(text, file)
        check_file(document, text, file, known)
        spans = locate(text)
        for path, value in _leaves(document):
            target = (path[0], path[1] + n_before.get(path[0], 0), *path[2:]) if path[0] in LISTS else path
            values[target] = value
            origins[target] = Origin(file, line_of(spans, path))
        for name in LISTS:
            n_before[name] = n_before.get(name, 0) + len(document.get(name, ()))
    return Loaded(_build(values, origins), files, values, origins)


def read_text(file: str) -> str:
    """The text of a configuration file. Raises ConfigError."""
    try:
        content, _ = read_regular(file, MAX_FILE_BYTES)
    except NotRegularError:
        complain(file, None, "not a regular file; put a TOML file in its place.")
    except OSError as error:
        complain(file, None, f"cannot be read ({error.strerror}); make it readable or remove it.")
    if len(content) > MAX_FILE_BYTES:
        complain(file, None, _TOO_LARGE)
    try:
        return content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        complain(file, content.count(b"\n", 0, error.start) + 1, "not UTF-8 text; save the file as UTF-8.")


def parse(text: str, file: str) -> dict[str, Any]:
    """The document of a text. Raises ConfigError with the line."""
    line = line_of_long_number(text)
    if line is not None:
        complain(file, line, _NO_CONFIGURATION)
    try:
        return tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        reason, _, place = str(error).rpartition(" (at ")
        number = place.removeprefix("line ").partition(",")[0]
        line = int(number) if number.isdecimal() else text.count("\n") + (not text.endswith("\n"))
        complain(file, max(line, 1), f"not valid TOML ({printable(reason)}); correct that line.")
    except (RecursionError, ValueError):
        complain(file, None, _NO_CONFIGURATION)


def _leaves(document: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """(path, value) of every key of the schema that is written."""
    for name, value in document.items():
        table = BY_NAME.get(name)
        if table is None:
            yield (name,), value
        elif table.kind == "one":
            yield from (((name, key), item) for key, item in value.items())
        else:
            for place, items in value.items() if table.kind == "named" else enumerate(value):
                if not items:
                    yield (name, place), {}  # an empty table; that it is there can be a mistake
                yield from (((name, place, key), item) for key, item in items.items())


def _build(values: Mapping[Path, Any], origins: Mapping[Path, Origin]) -> Configuration:
    read: dict[Path, dict[str, Any]] = {}
    for path, value in values.items():
        table = BY_NAME.get(str(path[0]), TOP)
        spot = path[: {"one": 1, "named": 2, "list": 2}[table.kind]] if table is not TOP else ()
        fields = read.setdefault(spot, {})
        if path != spot:
            key = table.key(str(path[-1]))
            assert key is not None
            fields[key.name] = key.read(value)
    for n_targets, spot in enumerate((spot for spot in read if spot and spot[0] == "target"), 1):
        if n_targets > MAX_TARGETS:
            place = next(origin for path, origin in origins.items() if path[:2] == spot)
            complain(*place, f"these are more than {MAX_TARGETS} targets, the most that are kept; take some out.")
    for spot in read:
        _check_whole(spot, read[spot], origins)
    budget, daemon = read.get(("budget",), {}), read.get(("daemon",), {})
    models, sets = (sorted(spot for spot in read if spot and spot[0] == name) for name in ("model", "set"))
    _check_sets(sets, read, origins)
    return Configuration(
        folders=read.get((), {}).get("folders", ()),
        stores={**Configuration().stores, **read.get(("stores",), {})},
        engines=tuple(Engine(str(s[1]), **f) for s, f in read.items() if s and s[0] == "engine"),
        targets=tuple(Target(str(s[1]), **f) for s, f in read.items() if s and s[0] == "target"),
        defaults=Defaults(**read.get(("defaults",), {})),
        models=tuple(ModelRule(**read[spot]) for spot in models),
        sets=tuple(ModelSet(**read[spot]) for spot in sets),
        budget=Budget(**{f"{name}_bytes": n_bytes for name, n_bytes in budget.items()}),
        daemon=Daemon(**daemon),
    )


def _check_sets(sets: Sequence[Path], read: Mapping[Path, Mapping[str, Any]], origins: Mapping[Path, Origin]) -> None:
    """Sets have names of their own and targets that are there."""
    targets = [str(spot[1]) for spot in read if spot and spot[0] == "target"]
    names: set[str] = set()
    for spot in sets:
        fields = read[spot]
        named: Path = (*spot, "name")
        aimed: Path = (*spot, "targets")
        if fields["name"] in names:
            complain(*origins[named], f'two [[set]] are called "{excerpt(fields["name"])}"; rename one of them.')
        names.add(fields["name"])
        for target in fields.get("targets", ()):
            if target not in targets:
                cure = nearest(target, targets) if targets else "there is no target; add one or take targets out."
                complain(
                    *origins[aimed],
                    f'[[set]] "{excerpt(fields["name"])}" has the unknown target {excerpt(target)!r}; {cure}',
                )


def _check_whole(spot: Path, fields: Mapping[str, Any], origins: Mapping[Path, Origin]) -> None:
    """What only the sum of all files can have wrong."""
    table: Table = BY_NAME[str(spot[0])] if spot else TOP
    name = (
        f"[{spot[0]}.{excerpt(spot[1])}]"
        if len(spot) == 2 and table.kind == "named"
        else f"[[{spot[0]}]]"
        if spot
        else ""
    )
    for key in required(table):
        if key not in fields:
            spec = table.key(key)
            assert spec is not None
            place = next(origin for path, origin in origins.items() if path[: len(spot)] == spot)
            complain(*place, f"{printable(name)} lacks {key}; add {key} = {spec.example}.")
    if "url" in fields and not fields.get("allow_remote") and not is_loopback(fields["url"]):
        url: Path = (*spot, "url")
        complain(
            *origins[url],
            f"{printable(name)} has an url to another machine; if that is meant, add allow_remote = true.",
        )
    low, high = fields.get("min_ctx"), fields.get("max_ctx")
    if low and high and low > high:
        least: Path = (*spot, "min_ctx")
        complain(*origins[least], f"min_ctx {low} is above max_ctx {high}; make it smaller.")
