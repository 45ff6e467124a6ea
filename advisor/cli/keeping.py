"""What `diff`, `apply` and `undo` share: options, the keeper of the configuration, and how changes are shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from advisor.errors import UsageError
from advisor.excerpts import shortened

if TYPE_CHECKING:
    from advisor.keeper.changes import FileChange
    from advisor.keeper.keeper import Keeper, Look, Told
    from advisor.keeper.targets import Target
    from advisor.managed.change import Pinned

targets_argument = click.argument("targets", nargs=-1, metavar="[TARGET]...")
json_option = click.option("--json", "as_json", is_flag=True, help="machine-readable output")
adopt_option = click.option(
    "--adopt", is_flag=True, help="take over files that advisor did not write, and values that you changed"
)


def keeper_for(names: Sequence[str], *, every: bool) -> tuple[Keeper, list[Target]]:
    """The keeper, and the targets that are meant."""
    from advisor.keeper import read_settings
    from advisor.keeper.keeper import Keeper

    settings = read_settings(os.environ)
    by_name = {target.name: target for target in settings.targets}
    if not by_name:
        _say_first_target()
        raise click.exceptions.Exit(2)
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise UsageError(f"there is no target '{unknown[0]:.80}'; the configuration has {', '.join(by_name)}.")
    chosen = [by_name[name] for name in dict.fromkeys(names)] or [
        target for target in settings.targets if target.enabled or every
    ]
    if not chosen:
        raise UsageError(
            f"no target is enabled; name one of {', '.join(by_name)}, give --all, or set enabled = true for it."
        )
    return Keeper(settings, os.environ), chosen


def _say_first_target() -> None:
    """How to go on without targets; lines to copy, which no error's single sentence can hold."""
    from advisor.configuration.read import FILE, config_folder
    from advisor.configuration.schema import BY_NAME

    target = BY_NAME["target"]
    examples = {key.name: key.example for key in target.keys} | {"enabled": "true"}
    say(f"the configuration has no targets; add the first one to {os.path.join(config_folder(os.environ), FILE)}:")
    lines = (f"{name} = {examples[name]}" for name in ("format", "path", "enabled"))
    click.echo("\n".join(("", f"[target.{target.example}]", *lines, "")), err=True)
    say("without the last line nothing is written; 'advisor init --print' lists the formats and the paths they want.")


def look_with(keeper: Keeper, targets: Sequence[Target]) -> Look:
    """A look at everything, with a bar on the terminal."""
    from advisor.cli.progress import Progress

    with Progress() as progress:
        return keeper.look(targets, progress=lambda done, n: progress.show("reading models", done, n))


def print_changes(look: Look, changes: Mapping[str, Sequence[FileChange]], *, diffs: bool) -> None:
    """Diffs on stdout, and on stderr what stands against a change or stays the user's."""
    from advisor.cli.terminal import Screen
    from advisor.gguf_header.errors import printable
    from advisor.keeper.sentences import failures, left_out, notes

    screen = Screen()
    everything = [change for made in look.passes for change in changes.get(made.target.name, ())]
    changing = [change for change in everything if change.changes_file]
    for change in changing if diffs else ():
        for line in change.planned.diff.splitlines():
            color = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
            text = "\t".join(map(printable, line[:2000].split("\t")))
            print(screen.paint(text, color) if color and not line.startswith(("+++", "---")) else text)
    sys.stdout.flush()
    for text in (*failures(look, {made.target.name for made in look.passes}), *left_out(look)):
        say(text)
    for change in everything:
        if diffs and change.planned.refused is not None and not change.held:
            say(f"{change.target}: {change.planned.refused}")
        if change.planned.pinned:
            say(f"{printable(change.planned.path)}: {_yours(change.planned.pinned)}.")
    for text in notes(everything):
        say(text)
    for made in look.passes:
        covered = any(each.models for each in changes.get(made.target.name, ()))
        if not (made.failure or made.problems or covered):
            say(f"{made.target.name}: no model is there for it.")
    if diffs and changing:
        off = [made.target.name for made in look.passes if not made.target.enabled and changes.get(made.target.name)]
        hint = f"; not enabled: {', '.join(off)}" if off else ""
        say(f"{len(changing)} {'file' if len(changing) == 1 else 'files'} would change{hint}.")
    elif (
        diffs
        and any(each.models for each in everything)
        and not any(made.failure for made in look.passes)
        and not any(each.planned.refused for each in everything)
    ):
        print("Everything stands as advisor would write it.")


def print_told(told: Sequence[Told]) -> None:
    """What was written, and what the engines said."""
    from advisor.cli.terminal import clean
    from advisor.keeper.sentences import describe

    for one in told:
        right = []
        for each in one.applied:
            path = each.change.planned.path
            if each.error is not None:
                say(f"{one.target.name}: {each.error}")
            elif each.written and each.change.planned.after is None:
                print(clean(f"removed {path}", 1000))
            elif each.written:
                print(clean(f"wrote {path}: {describe(each.change.planned.changes)}", 4000))
            elif each.change.planned.after is not None:
                right.append(path)
        if len(right) == 1:
            print(clean(f"{right[0]} is up to date", 1000))
        elif right:
            print(clean(f"{len(right)} files in {one.target.path} are up to date", 1000))
        for text in (one.engine, one.error, *one.differs):
            if text:
                say(f"{one.target.name}: {text}")


def print_json(
    schema: str,
    look: Look,
    changes: Mapping[str, Sequence[FileChange]],
    told: Sequence[Told] | None,
    left_behind: Sequence[str],
) -> None:
    """Everything as one document; `told` is None where nothing was to be written."""
    import json

    from advisor.slots import GONE

    def plain(value: object) -> object:
        return None if value is GONE else value

    written = {
        (one.target.name, each.change.planned.path): each for one in told or () for each in one.applied
    }  # fmt: skip
    engines = {one.target.name: one for one in told or ()}
    targets = []
    for made in look.passes:
        name = made.target.name
        files = []
        for change in changes.get(name, ()):
            planned, result = change.planned, written.get((name, change.planned.path))
            files.append({
                "path": planned.path,
                "changes": [
                    {"slot": list(each.slot), "old": plain(each.old), "new": plain(each.new)}
                    for each in planned.changes
                ],
                "pinned": [
                    {"slot": list(pin.slot), "yours": plain(pin.theirs), "advisors": plain(pin.ours)}
                    for pin in planned.pinned
                ],
                "refused": planned.refused,
                "diff": planned.diff,
                **({} if told is None else {
                    "written": result.written if result else False, "error": result.error if result else None,
                }),
            })  # fmt: skip
        entry: dict[str, Any] = {
            "name": name, "format": made.target.format, "enabled": made.target.enabled, "files": files,
            "problems": [{"model": model, "text": text} for model, text in made.problems], "failure": made.failure,
            "notes": list(made.notes),
        }  # fmt: skip
        if told is not None:
            said = engines.get(name)
            entry["engine"] = {
                "text": said.engine if said else "", "differs": list(said.differs) if said else [],
                "error": said.error if said else None,
            }  # fmt: skip
        targets.append(entry)
    print(
        json.dumps(
            {
                "schema": schema,
                "targets": targets,
                "away": list(look.away),
                "unseen": list(look.unseen),
                "left_behind": list(left_behind),
            },
            indent=2,
        )
    )


def _yours(pinned: Sequence[Pinned]) -> str:
    """One sentence about the values that are the user's."""
    names = [".".join(pin.slot) for pin in pinned]
    if len(names) == 1:
        return f"{names[0]} is yours and stays; --adopt takes it over"
    more = f" and {len(names) - 3} more" if len(names) > 4 else ""
    return f"{', '.join(names[: 3 if more else 4])}{more} are yours and stay; --adopt takes them over"


def say(text: str) -> None:
    """A sentence on stderr."""
    from advisor.cli.terminal import clean

    click.echo(f"advisor: {clean(shortened(text), 1000)}", err=True)
