"""`advisor config show|set|unset|check`: the configuration in force, and changing it without losing a comment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from advisor.errors import UsageError
from advisor.records import NamedTuple

if TYPE_CHECKING:
    from advisor.configuration.read import Loaded
    from advisor.managed.atomic import Standing

_MAX_VALUE = 300  # characters of one value on the screen
_JSON = click.option("--json", "as_json", is_flag=True, help="machine-readable output")


@click.group("config", context_settings={"max_content_width": 100})
def command() -> None:
    """The configuration: config.toml in $XDG_CONFIG_HOME/advisor, and the files in conf.d beside it.

    'advisor init' writes one in which every key is explained.
    """


@command.command("show", short_help="what is in force")
@click.option("--origin", is_flag=True, help="also the file and line that set each value")
@_JSON
def show(origin: bool, as_json: bool) -> int:
    """Every key that is set, and those that have a default.

    Exit status: 0, 2 wrong usage, 1 any other error, such as a mistake in the configuration.
    """
    loaded = _load()
    rows = _rows(loaded)
    if as_json:
        import json

        origins = {row.key: {"file": row.file, "line": row.line} for row in rows if row.file is not None}
        print(
            json.dumps(
                {
                    "schema": "advisor.config_show/1",
                    "files": list(loaded.files),
                    "values": {row.key: row.value for row in rows},
                    "origins": origins,
                },
                indent=2,
            )
        )
        return 0
    from advisor.cli.terminal import clean, columns

    files = ", ".join(clean(file) for file in loaded.files)
    print(f"from {files}" if files else "no configuration file; 'advisor init' writes one. All defaults:")
    table = [(clean(row.key), "=", _toml(row.value), _place(row) if origin else "") for row in rows]
    print("\n".join(columns(table, gap=1)))
    return 0


@command.command("check", short_help="whether every key and value is possible")
@_JSON
def check(as_json: bool) -> int:
    """Read everything and tell the first mistake, with its file and line.

    Exit status: 0 all is well, 1 there is a mistake, 2 wrong usage.
    """
    from advisor.errors import ConfigError

    files: tuple[str, ...] = ()
    problem = None
    try:
        files = _load().files
    except ConfigError as error:
        problem = str(error)
    if as_json:
        import json

        document = {"schema": "advisor.config_check/1", "files": list(files), "problems": [problem] if problem else []}
        print(json.dumps(document, indent=2))
        return 1 if problem else 0
    if problem is not None:
        raise ConfigError(problem)
    n_files = len(files)
    read = "1 file was read" if n_files == 1 else f"{n_files} files were read"
    print(f"{read}, all is well." if files else "there is no configuration file, and everything has its default.")
    return 0


# \b alone on a line: click keeps the lines of that paragraph
_SET_HELP = """Set keys in config.toml, which is made if it is not there; comments and everything else in it stay.

A value is written as in TOML; the quotes of a text may be left away. Keys that need each other, such as a target's
format and path, are given together.

\b
advisor config set daemon.quiet_hours 22:00-07:00
advisor config set target.router.format llama-server-preset target.router.path ~/models.ini
advisor config set 'model.qwen3*.intent' context 'model.qwen3*.pins' '{ cache-type-k = "q8_0" }'

Exit status: 0, 2 wrong usage, 1 any other error.
"""


@command.command("set", help=_SET_HELP, short_help="set keys")
@click.argument("pairs", metavar="KEY VALUE [KEY VALUE]...", nargs=-1, required=True)
def set_(pairs: tuple[str, ...]) -> int:
    """Set keys in config.toml."""
    if len(pairs) % 2:
        raise UsageError(f"{pairs[-1]} has no value after it; give KEY and VALUE in turn.")
    from advisor.configuration.edit import set_key

    def edit(text: str, file: str) -> str:
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            text = set_key(text, file, key, value)
        return text

    _change(edit)
    return 0


@command.command("unset", short_help="make keys comments")
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
def unset(keys: tuple[str, ...]) -> int:
    """Make keys in config.toml comments, so that their default is in force again.

    Exit status: 0, 2 wrong usage, 1 any other error.
    """
    from advisor.configuration.edit import unset_key

    def edit(text: str, file: str) -> str:
        for key in keys:
            changed = unset_key(text, file, key)
            if changed is None:
                raise UsageError(f"{key} is not set in {file}; 'advisor config show --origin' says where it is.")
            text = changed
        return text

    _change(edit)
    return 0


def write_config(standing: Standing, text: str) -> None:
    """Write the configuration file as it was looked at, with its folder. Raises OutputError."""
    import os

    from advisor.errors import OutputError
    from advisor.managed.atomic import remove_stale, replace_file

    folder = os.path.dirname(standing.path)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be made ({error.strerror}); make it a folder that you may write.") from None
    remove_stale(os.path.dirname(standing.target))
    replace_file(standing.path, text.encode(), standing)


def _change(edit: Any) -> None:
    import os

    from advisor.cli.terminal import clean
    from advisor.configuration.init_text import init_text
    from advisor.configuration.read import FILE, LISTS, config_folder, load_configuration, read_text
    from advisor.keeper import known_names
    from advisor.managed.atomic import look

    folder = config_folder(os.environ)
    path = os.path.join(folder, FILE)
    standing = look(path)
    mark = "\ufeff" if (standing.data or b"").startswith(b"\xef\xbb\xbf") else ""
    before = read_text(path) if standing.data is not None else init_text()
    after = edit(before, path)
    loaded = load_configuration(folder, known_names(), texts={path: after})
    if standing.data is None or after != before:
        write_config(standing, mark + after)
    import difflib

    for line in difflib.ndiff(before.splitlines(), after.splitlines()):
        if line.startswith(("+ ", "- ")):
            print(clean(line, _MAX_VALUE))
    print(f"wrote {clean(path)}" if after != before else f"{clean(path)} says so already.")
    winners = {origin.file for name, origin in loaded.origins.items() if origin.file != path and name[0] not in LISTS}
    for file in sorted(winners):
        click.echo(f"advisor: {clean(file)} is read afterwards; what it sets wins.", err=True)


def _load() -> Loaded:
    import os

    from advisor.configuration.read import config_folder, load_configuration
    from advisor.keeper import known_names

    return load_configuration(config_folder(os.environ), known_names())


class _Row(NamedTuple):
    key: str
    value: Any
    file: str | None
    line: int | None


def _rows(loaded: Loaded) -> list[_Row]:
    """What is set, in the order of the schema, and the defaults of tables that are always there."""
    from advisor.configuration.check import dotted
    from advisor.configuration.schema import TABLES, TOP

    configuration = loaded.configuration
    defaults: dict[Any, Any] = {
        **{("stores", name): True for name in configuration.stores},
        ("defaults", "intent"): configuration.defaults.intent,
        ("daemon", "rescan_s"): configuration.daemon.rescan_s,
        ("daemon", "debounce_s"): configuration.daemon.debounce_s,
    }
    values = {**defaults, **loaded.values}
    order = [*(key.name for key in TOP.keys), *(table.name for table in TABLES)]
    rows = []
    for path in sorted(values, key=lambda path: order.index(str(path[0]))):
        origin = loaded.origins.get(path)
        rows.append(_Row(dotted(path), values[path], *(origin or (None, None))))
    return rows


def _place(row: _Row) -> str:
    from advisor.cli.terminal import clean

    if row.file is None:
        return "# default"
    return f"# {clean(row.file)}" + (f", line {row.line}" if row.line is not None else "")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }" if value else "{}"
    return _text(value) if isinstance(value, str) else str(value)


def _text(value: str) -> str:
    """A text in quotes, with everything escaped that a terminal must not get."""
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in quoted) + '"'
