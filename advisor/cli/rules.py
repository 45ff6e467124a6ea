"""`advisor rules show` and `advisor rules check`: the rules in force, where each value comes from, what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from advisor.errors import AdvisorError, UsageError
from advisor.records import NamedTuple

if TYPE_CHECKING:
    from advisor.app import App
    from advisor.rule_folders import RuleFolders
    from advisor.rulebook import RuleDocument

_SUBFOLDERS = ("", "arch", "engines")
_MAX_FILES = 10_000  # of one rule folder; anything larger is no rule folder
_MAX_VALUE = 300  # characters of one value on the screen

_RULES = click.option(
    "--rules", "rules_folder", metavar="DIR", help="a folder of rules that wins over the shipped ones"
)
_JSON = click.option("--json", "as_json", is_flag=True, help="machine-readable output")


@click.group("rules", context_settings={"max_content_width": 100})
def command() -> None:
    """The rules in force: what they say, who says it, and whether they keep the rule law.

    Later folders win, key by key: the shipped rules, /etc/advisor/rules, $XDG_CONFIG_HOME/advisor/rules, --rules DIR.
    """


@command.command("show", short_help="all rule documents, or the values of one")
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--origin", is_flag=True, help="with NAME: also the file that set each value")
@_RULES
@_JSON
def show(name: str | None, origin: bool, rules_folder: str | None, as_json: bool) -> int:
    """List all rule documents with their folders, or the values of one, such as arch/gemma3.toml.

    Exit status: 0, 2 wrong usage, 1 any other error.
    """
    from advisor.rule_folders import RuleFolders

    folders = RuleFolders(rules_folder)
    document = None if name is None else _find(folders, name)
    if document is None:
        _show_all(folders, as_json)
    else:
        _show_one(document, origin, as_json)
    return 0


@command.command("check", short_help="whether they keep the rule law")
@_RULES
@_JSON
def check(rules_folder: str | None, as_json: bool) -> int:
    """Hold every document in force against its schema and the source law; name files that are never read.

    Of each document the first problem is told. Exit status: 0 all is well, 1 there are problems, 2 wrong usage.
    """
    from advisor.app import App

    report = check_rules(App(rules_folder))
    if as_json:
        import json

        print(
            json.dumps(
                {
                    "schema": "advisor.rules_check/1",
                    "checked": report.n_checked,
                    "problems": report.problems,
                    "ignored_files": report.notes,
                },
                indent=2,
            )
        )
    else:
        from advisor.cli.terminal import clean

        for line in (*report.problems, *report.notes):
            print(clean(line, 1000))
        total = f"{report.n_checked} rule files checked"
        print(f"{total}, {len(report.problems)} with problems." if report.problems else f"{total}, all are well.")
    return 1 if report.problems else 0


class RulesReport(NamedTuple):
    """What `check_rules` found: one sentence each. Notes are no problems."""

    n_checked: int
    problems: list[str]
    notes: list[str]


def check_rules(app: App) -> RulesReport:
    """Check every document of every folder in force. Raises nothing for a broken rule: that is a problem of the list.

    A document that a user's folder brings and advisor never reads is a problem too, other files there are notes.
    """
    from advisor.app import check

    problems: list[str] = []
    notes: list[str] = []
    shipped = app.rules.folders[0]
    known = _names_in(shipped)
    n_checked = 0
    for folder in _SUBFOLDERS:
        try:
            names = app.rules.names(folder)
        except AdvisorError as error:
            problems.append(str(error))
            continue
        for name in names:
            if not folder and name not in known:
                continue  # nobody reads it; told below
            n_checked += 1
            hint = "" if name in known else _nearest(name, known)
            try:
                document = app.rules.document(name)
                if document is not None:
                    check(document)
                    problems += _misnamed(document)
            except AdvisorError as error:
                problems.append(f"{error}{hint and ' ' + hint}")
            except ValueError as error:  # a schema that cannot be read: not the file's fault, and no reason to stop
                problems.append(f"{name}: cannot be checked, which is a bug in advisor ({error}).")
    for base in app.rules.folders[1:]:
        for path in _files_in(base):
            name = path.replace("\\", "/")
            if name in known or (name.startswith(("arch/", "engines/")) and name.count("/") == 1 and _is_rule(name)):
                continue
            text = f"{base}/{name}: advisor does not read this file"
            if _is_rule(name):
                problems.append(f"{text}; {_nearest(name, known) or 'rename or remove it.'}")
            else:
                notes.append(f"{text}, which is no .toml of a known name.")
    return RulesReport(n_checked, problems, notes)


def flatten(data: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """(dotted key, value) of all values, with the keys of `RuleDocument.origins`; named tables of an array as a[name].

    What is left whole (lists, arrays of tables without names) comes as one value.
    """
    for key, value in data.items():
        bare = bool(key) and key.isascii() and all(char.isalnum() or char in "-_" for char in key)
        part = key if bare else f'"{key}"'
        path = f"{prefix}.{part}" if prefix else part
        if isinstance(value, Mapping):
            yield from flatten(value, path)
        elif isinstance(value, list) and value and all(_is_named(item) for item in value):
            for item in value:
                yield from flatten(item, f"{path}[{item['name']}]")
        else:
            yield path, value


def _is_named(item: object) -> bool:
    return isinstance(item, Mapping) and isinstance(item.get("name"), str)


def _show_all(folders: RuleFolders, as_json: bool) -> None:
    import os

    names = [name for folder in _SUBFOLDERS for name in folders.names(folder)]
    found = [(name, [base for base in folders.folders if os.path.isfile(os.path.join(base, name))]) for name in names]
    if as_json:
        import json

        documents = [{"name": name, "folders": bases} for name, bases in found]
        print(
            json.dumps(
                {"schema": "advisor.rules/1", "folders": list(folders.folders), "documents": documents}, indent=2
            )
        )
        return
    from advisor.cli.terminal import clean, columns

    lines = []
    for index, base in enumerate(folders.folders):
        state = "" if os.path.isdir(base) else " (not there)"
        lines.append(f"{'shipped' if index == 0 else f'folder {index}'}: {clean(base, 400)}{state}")
    label = {base: "shipped" if index == 0 else f"folder {index}" for index, base in enumerate(folders.folders)}
    rows = [[clean(name), ", ".join(label[base] for base in bases)] for name, bases in found]
    print("\n".join([*lines, "", *columns(rows)]))


def _show_one(document: RuleDocument, origin: bool, as_json: bool) -> None:
    import json

    values = {key: _plain(value) for key, value in flatten(document.data)}
    origins = document.origins
    if as_json:
        shape: dict[str, Any] = {
            "schema": "advisor.rules/1",
            "name": document.name,
            "files": list(document.files),
            "values": values,
        }
        if origin:
            shape["origins"] = {key: origins.get(key) for key in values}
        print(json.dumps(shape, indent=2))
        return
    from advisor.cli.terminal import clean

    files = [f"from {clean(file, 400)}" for file in document.files]
    lines = []
    for key, value in values.items():
        where = f"  ({clean(origins.get(key, 'unknown'), 400)})" if origin else ""
        lines.append(f"{clean(key)} = {clean(json.dumps(value, ensure_ascii=False), _MAX_VALUE)}{where}")
    print("\n".join([*files, "", *lines]))


def _plain(value: object) -> object:
    """`value` as JSON can hold it: TOML also knows dates and numbers that are none."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float) and abs(value) < float("inf"):
        return value
    return str(value)


def _find(folders: RuleFolders, name: str) -> RuleDocument:
    """The document called `name`, with or without .toml. Raises UsageError with the nearest name."""
    wanted = name if name.endswith(".toml") else f"{name}.toml"
    names = [entry for folder in _SUBFOLDERS for entry in folders.names(folder)]
    document = folders.document(wanted) if wanted in names else None
    if document is None:
        hint = _nearest(wanted, names) or "'advisor rules show' lists them."
        raise UsageError(f"there is no rule document '{name}'; {hint}")
    return document


def _misnamed(document: RuleDocument) -> list[str]:
    """An architecture's file is found by its name, so name and content must agree."""
    stated = document.data.get("architecture")
    if not document.name.startswith("arch/") or document.name == f"arch/{stated}.toml":
        return []
    return [
        f"{document.files[-1]}: it says architecture = {stated!r} and is never read for that; name it {stated}.toml."
    ]


def _nearest(name: str, known: list[str]) -> str:
    """The document that may be meant: similar in its own name, since folder and ending make all look alike."""
    from difflib import get_close_matches

    stems: dict[str, str] = {}
    own = name.rpartition("/")[0]
    for entry in sorted(known, key=lambda entry: entry.rpartition("/")[0] == own):  # those of the same folder win
        stems[_stem(entry)] = entry
    close = get_close_matches(_stem(name), list(stems), 1, 0.6)
    return f"did you mean {stems[close[0]]}?" if close else ""


def _stem(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(".toml").lower()


def _names_in(base: str) -> list[str]:
    return [name for path in _files_in(base) if _is_rule(name := path.replace("\\", "/"))]


def _is_rule(name: str) -> bool:
    return name.endswith(".toml")


def _files_in(base: str) -> list[str]:
    """Files in `base` and below, relative to it, sorted; hidden ones (an editor's) are left out."""
    import os

    found: list[str] = []
    for folder, subfolders, files in os.walk(base):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        shown = [name for name in files if not name.startswith(".")]
        found += [os.path.relpath(os.path.join(folder, name), base) for name in shown]
        if len(found) > _MAX_FILES:
            break
    return sorted(found[:_MAX_FILES])
